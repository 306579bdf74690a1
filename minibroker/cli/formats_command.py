"""`minibroker formats`: the space that each message format takes, measured on encoded batches.

`protocol/records/sizes.py` computes the figures.
"""

from __future__ import annotations

import json

import click

from minibroker.cli.shared import make_json_option, print_table

HEAD = ("records", "format 0", "format 1", "format 2", "without attributes", "expected before", "expected after")
MAX_RECORDS = 100_000
MAX_BYTES = 100 << 20

WHY = """
Bytes that are neither key nor value. "Expected" are the figures with which the design of format 2 (KIP-98) compared its
first draft to format 1: 34 bytes a message before; 45 bytes a batch and 17 a message after.

The final format has a longer header, 61 bytes: the draft had no largest timestamp (8), no record count (4) and no
leader epoch (4, KIP-101). Its records are shorter: they have no checksum (4), as the batch has one, and timestamps
and offsets near those of the batch take a byte or two. It added a count of headers (1, KIP-82), and its varints are
signed, so that lengths from 64 on, not 128, take two bytes. "Without attributes" is format 2 under a topic's
record.attributes.elide (KIP-931, which was discarded): it saves the one unused byte of each record.
"""


def parse_record_counts(text: str) -> tuple[int, ...]:
    """Parse comma-separated numbers from 1 on. Raises click.BadParameter."""
    texts = text.split(",")
    if not all(each.isascii() and each.isdecimal() and len(each) < 10 for each in texts):
        raise click.BadParameter(f"{text!r}  is not a comma-separated list of numbers")
    counts = tuple(int(each) for each in texts)
    if not all(1 <= count <= MAX_RECORDS for count in counts):
        raise click.BadParameter(f"a batch has 1 to {MAX_RECORDS} records")
    return counts


@click.command()
@click.option(
    "--records",
    metavar="N,N,...",
    default="1,3,10,50,100",
    type=parse_record_counts,
    show_default=True,
    help="Records in a batch.",
)
@click.option(
    "--value-size", default=1024, type=click.IntRange(0), show_default=True, help="The size of each value in bytes."
)
@click.option(
    "--key-size", default=100, type=click.IntRange(0), show_default=True, help="The size of each key in bytes."
)
@make_json_option("Print a JSON array of the figures.")
def formats(records: tuple[int, ...], value_size: int, key_size: int, as_json: bool) -> None:
    """Show how many bytes each message format adds to the keys and values of a batch, and why.

    \b
    Example:
        minibroker formats --records 1,100 --value-size 20 --key-size 8
    """
    from minibroker.protocol.records.sizes import measure_format_overhead

    if max(records) * (value_size + key_size) > MAX_BYTES:
        raise click.UsageError(f"keys and values of a batch are {MAX_BYTES} bytes at most")
    figures = [measure_format_overhead(count, key_size, value_size) for count in records]
    if as_json:
        click.echo(json.dumps([each._asdict() for each in figures]))
        return
    print_table(HEAD, figures)
    click.echo(WHY, nl=False)
