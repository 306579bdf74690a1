"""`minibroker dump`: prints everything in the files of a log directory, and where they are damaged.

`storage.inspection.inspected_files` reads the files; `dump_text` and `dump_json` format the output.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from minibroker.cli.dump.dump_records import (
    TOPICS,
    DecodedKeyAndValue,
    DecodeRecord,
    UndecodableRecord,
    decode_control_record,
    find_decoder,
)
from minibroker.cli.shared import make_json_option

if TYPE_CHECKING:
    from minibroker.storage.inspection.inspected_files import InspectedFile, InspectedItem

DAMAGED = 1
BIG_BYTES = 16 << 20  # larger files get a progress bar
PROGRESS_BYTES = 1 << 20


@click.command()
@click.argument("paths", metavar="FILE...", nargs=-1, required=True, type=click.Path(exists=True, readable=True))
@click.option("--records/--no-records", default=True, show_default=True, help="Show the records of each batch.")
@click.option("--verify", is_flag=True, help="Compare indexes and leader epochs with the log.")
@click.option(
    "--topic", type=click.Choice(TOPICS), help="Decode the records as this topic's.  [default: by the directory's name]"
)
@make_json_option("Print a JSON object per line.")
def dump(paths: tuple[str, ...], records: bool, verify: bool, topic: str | None, as_json: bool) -> None:
    """Show the contents of a log's files, batch by batch, and where they are damaged.

    FILE is one of Kafka's .log, .index, .timeindex, .txnindex, .snapshot or checkpoint files, or a directory of them.
    After damage, it continues with the next batch whose checksum is right, and exits with status 1 at the end. Of
    several files, it ends with their totals, and which of them are damaged.

    \b
    Example:
        minibroker dump --verify minibroker-data/orders-0
        minibroker dump --json minibroker-data/orders-0 | minibroker produce copies --input json
    """
    from minibroker.storage.files import Disk
    from minibroker.storage.inspection.inspected_files import InspectionOptions, iterate_file_contents

    files = list(_iterate_files(paths))
    options = InspectionOptions(records, verify, shown=frozenset(each.path for each in files))
    total: Counter[str] = Counter()
    damaged: dict[str, int] = {}
    for file in files:
        counts = _dump_file(
            file, iterate_file_contents(Disk(), file, options), find_decoder(topic or file.topic), as_json
        )
        total += counts
        if counts["damage"]:
            damaged[file.path] = counts["damage"]
    if len(files) > 1:
        _print_totals(len(files), total, damaged, as_json)
    if damaged:
        sys.exit(DAMAGED)


def _print_totals(files: int, item_counts: Counter[str], damaged: dict[str, int], as_json: bool) -> None:
    """Print the totals of several files, and which of them are damaged."""
    from minibroker.cli.dump import dump_json, dump_text

    if as_json:
        print(json.dumps(dump_json.make_totals_object(files, item_counts, damaged)))
        return
    print(f"{files} files: {dump_text.make_summary_line(item_counts)}")
    for path, count in damaged.items():
        print(f"  {path}: {count} damage{'s' if count > 1 else ''}")


def _iterate_files(paths: Iterable[str]) -> Iterator[InspectedFile]:
    """Yield the files to show; in a directory those with Kafka's names. Raises click.UsageError for others."""
    from minibroker.storage.inspection.inspected_files import identify_file

    for path in paths:
        if os.path.isdir(path):
            yield from _iterate_files_below(path)
            continue
        found = identify_file(path)
        if found is None:
            raise click.UsageError(f"{path} has no name of a file of a log")
        yield found


def _iterate_files_below(directory: str) -> Iterator[InspectedFile]:
    from minibroker.storage.inspection.inspected_files import identify_file

    for parent, directories, names in os.walk(directory):
        directories.sort()
        for name in sorted(names):
            found = identify_file(os.path.join(parent, name))
            if found is not None and found.has_name_used_by_kafka:
                yield found


def _dump_file(
    inspected: InspectedFile, items: Iterable[InspectedItem], decode: DecodeRecord | None, as_json: bool
) -> Counter[str]:
    """Print the contents of a file; return how many items of each kind there are."""
    from minibroker.cli.dump import dump_json, dump_text

    size_bytes = os.path.getsize(inspected.path)
    counts: Counter[str] = Counter()
    if as_json:
        print(json.dumps(dump_json.make_head_object(inspected, size_bytes)))
    else:
        print(dump_text.make_head_line(inspected, size_bytes))
    with _show_progress(os.path.basename(inspected.path), size_bytes) as advance:
        for item, said in _iterate_with_decoded_records(inspected.path, items, decode):
            print(
                json.dumps(dump_json.make_item_object(item, said)) if as_json else dump_text.make_item_line(item, said)
            )
            counts[dump_text.get_kind_name(item)] += 1
            advance(item.position)
    if not as_json:
        print(dump_text.make_summary_line(counts))
    return counts


def _iterate_with_decoded_records(
    path: str, items: Iterable[InspectedItem], decode: DecodeRecord | None
) -> Iterator[tuple[InspectedItem, DecodedKeyAndValue | None]]:
    """Yield each item, with its meaning if it is a control record or a record of Kafka's own topics."""
    from minibroker.protocol.records.walking import FoundBatch
    from minibroker.storage.inspection.inspected_records import FoundRecord
    from minibroker.storage.inspection.log_inspection import InspectionNote

    decode_this = decode
    for item in items:
        if isinstance(item, FoundBatch):
            decode_this = decode_control_record if item.header.is_control else decode
        if not isinstance(item, FoundRecord) or decode_this is None:
            yield item, None
            continue
        try:
            yield item, decode_this(item.record)
        except UndecodableRecord as error:
            yield item, None
            yield InspectionNote(path, item.position, item.record.offset, f"its meaning is unknown: {error}"), None


@contextmanager
def _show_progress(name: str, size_bytes: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar for a big file, if stderr is a terminal and stdout is not."""
    if size_bytes < BIG_BYTES or not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda position: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task, shown = progress.add_task(name, total=size_bytes), 0

        def show_position(position: int) -> None:
            nonlocal shown
            if position - shown >= PROGRESS_BYTES:
                shown = position
                progress.update(task, completed=position)

        yield show_position
