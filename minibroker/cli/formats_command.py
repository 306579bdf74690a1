"""`minibroker formats`: what the message formats cost in space, from batches that are encoded for it.

The figures come from `protocol/records/sizes.py`; this prints them.
"""

from __future__ import annotations

import json

import click

from minibroker.cli.shared import json_option, print_table

HEAD = ("records", "format 0", "format 1", "format 2", "without attributes", "expected before", "expected after")
MAX_RECORDS = 100_000
MAX_BYTES = 100 << 20

WHY = """
Bytes that are neither key nor value. "Expected" are the figures with which the design of format 2 (KIP-98) compared its
first draft to format 1: 34 bytes a message before; 45 bytes a batch and 17 a message after.

The final format has a longer head, 61 bytes: the draft had no largest timestamp (8), no count of records (4) and no
leader epoch (4, KIP-101). Its records are shorter: the checksum of each (4) gave way to the one of the batch, and times
and offsets near those of the batch take a byte or two. It added a count of headers (1, KIP-82), and its varints are
signed, so that lengths from 64 on, not 128, take two bytes. "Without attributes" is format 2 under a topic's
record.attributes.elide (KIP-931, which was discarded): it saves the one byte of a record that says nothing.
"""


def counts_of(text: str) -> tuple[int, ...]:
    """Return numbers from 1 on that have commas between them. Raises click.BadParameter."""
    texts = text.split(",")
    if not all(each.isascii() and each.isdecimal() and len(each) < 10 for each in texts):
        raise click.BadParameter(f"{text!r} is not numbers with commas between them")
    counts = tuple(int(each) for each in texts)
    if not all(1 <= count <= MAX_RECORDS for count in counts):
        raise click.BadParameter(f"a batch has 1 to {MAX_RECORDS} records")
    return counts


@click.command()
@click.option(
    "--records",
    metavar="N,N,...",
    default="1,3,10,50,100",
    type=counts_of,
    show_default=True,
    help="Records in a batch.",
)
@click.option("--value-size", default=1024, type=click.IntRange(0), show_default=True, help="Bytes of each value.")
@click.option("--key-size", default=100, type=click.IntRange(0), show_default=True, help="Bytes of each key.")
@json_option("Print a JSON array of the figures.")
def formats(records: tuple[int, ...], value_size: int, key_size: int, as_json: bool) -> None:
    """Show how many bytes each message format adds to the keys and values of a batch, and why.

    \b
    Example:
        minibroker formats --records 1,100 --value-size 20 --key-size 8
    """
    from minibroker.protocol.records.sizes import overhead

    if max(records) * (value_size + key_size) > MAX_BYTES:
        raise click.UsageError(f"keys and values of a batch are {MAX_BYTES} bytes at most")
    figures = [overhead(count, key_size, value_size) for count in records]
    if as_json:
        click.echo(json.dumps([each._asdict() for each in figures]))
        return
    print_table(HEAD, figures)
    click.echo(WHY, nl=False)
