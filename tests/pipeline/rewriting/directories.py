"""Log directories with everything in them that a log can hold, written by the storage engine, and what readers see.

Nothing here tests anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from minibroker.protocol.records.batch import DELETE_HORIZON_BIT, LOG_APPEND_TIME, BatchHeader, check_batch, read_header
from minibroker.protocol.records.building import assemble_batch, build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.elision import elide_attributes
from minibroker.protocol.records.formats import (
    check_batch_or_message,
    iterate_batches_in_any_format,
    iterate_records_in_any_format,
)
from minibroker.protocol.records.message_set import build_message_set
from minibroker.protocol.records.record import Record
from minibroker.storage.files import Disk
from minibroker.storage.inspection.inspected_files import InspectionOptions, identify_file, iterate_file_contents
from minibroker.storage.inspection.log_inspection import DamagedBytes
from minibroker.storage.log import Log
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.producers.transaction_markers import TransactionMarker, make_marker_batch
from tests.storage.support import NOW_MS, open_at

SMALL = LogSettings(segment_bytes=2500, index_interval_bytes=200)


class Seen(NamedTuple):
    """A record as its readers know it."""

    record: Record
    timestamp_type: int


class Produced(NamedTuple):
    """The origin of a record, as format 2 remembers it."""

    offset: int
    producer_id: int
    epoch: int
    sequence: int
    is_transactional: bool
    leader_epoch: int


def plain(count: int, number: int = 0, size: int = 40, headers: bool = False) -> list[Record]:
    """Records that can be told from each other, some without key or value."""
    return [
        Record(
            index,
            NOW_MS + number * 100 + index,
            None if index % 4 == 3 else b"key-%d" % (index % 5),
            None if index % 7 == 6 else b"%d-%d-" % (number, index) + b"v" * size,
            (("h", b"%d" % index), ("null", None)) if headers and index % 3 == 0 else (),
        )
        for index in range(count)
    ]


def add(log: Log, data: bytes | bytearray, leader_epoch: int = 0) -> None:
    """Append a batch of format 2, unchanged but for its offset and epoch."""
    log.append(bytearray(data), [read_header(data)], leader_epoch)


def add_old(log: Log, records: list[Record], magic: int, codec: int = 0, timestamp_type: int = 0) -> None:
    """Append messages of an old format."""
    start = log.log_end_offset
    moved = [record._replace(offset=start + index, headers=()) for index, record in enumerate(records)]
    data = build_message_set(moved, magic, compression=codec, timestamp_type=timestamp_type)
    headers = [header for _, header in iterate_batches_in_any_format(data)]
    log.append(data, [each._replace(last_offset_delta=len(records) - 1) for each in headers] if codec else headers, -1)


def reaching(batch: bytearray, further: int, attributes: int = 0) -> bytearray:
    """A batch as compaction leaves it: it once reached further than its last record."""
    header = check_batch(batch)
    changed = header._replace(
        last_offset_delta=header.last_offset_delta + further, attributes=header.attributes | attributes
    )
    return assemble_batch(changed, bytes(batch[61:]))


def emptied(producer_id: int, sequence: int, count: int) -> bytearray:
    """Return what compaction keeps of an emptied batch, so that its producer's sequence is not lost."""
    header = check_batch(build_batch(plain(count), producer_id=producer_id, producer_epoch=0, base_sequence=sequence))
    return assemble_batch(header._replace(record_count=0), b"")


def idempotent(log: Log, headers: bool = False) -> None:
    """Two producers that take turns, and one alone, in two leader epochs."""
    for number in range(6):
        for producer in (5, 6):
            records = plain(3, number, headers=headers)
            add(log, build_batch(records, producer_id=producer, producer_epoch=1, base_sequence=3 * number), 0)
    for number in range(10):
        records = plain(4, number, headers=headers)
        add(log, build_batch(records, producer_id=7, producer_epoch=0, base_sequence=4 * number), number // 4)


def transactions(log: Log) -> None:
    """One that is committed, one aborted, one after the other of one producer, and one that stays open."""
    for number, (producer, committed) in enumerate([(8, True), (9, False), (8, False), (9, True)]):
        for half in range(2):
            batch = build_batch(
                plain(3, number),
                producer_id=producer,
                producer_epoch=0,
                base_sequence=6 * (number // 2) + 3 * half,
                transactional=True,
            )
            add(log, batch, 3)
            add(log, build_batch(plain(2, number)), 3)
        add(log, make_marker_batch(producer, 0, TransactionMarker(committed, 4), NOW_MS), 3)
    add(log, build_batch(plain(2), producer_id=10, producer_epoch=0, base_sequence=0, transactional=True), 3)
    add(log, build_batch(plain(2, 5)), 3)


def compacted(log: Log) -> None:
    """Batches with gaps in them, behind them and between them, without records, and one with a delete horizon."""
    for number in range(6):
        some = [record for record in plain(10, number) if (record.offset + number) % 3]
        batch = build_batch(
            some, base_offset=0, keep_offsets=True, producer_id=12, base_sequence=10 * number, producer_epoch=0
        )
        add(log, reaching(batch, 9 - some[-1].offset), 4)
    add(log, emptied(12, 60, 5), 4)
    add(
        log,
        reaching(build_batch(plain(4), producer_id=12, producer_epoch=0, base_sequence=65), 0, DELETE_HORIZON_BIT),
        4,
    )
    add(log, emptied(12, 69, 1), 4)


def every_codec(log: Log, headers: bool = False) -> None:
    """Batches of each codec, elided and not, of both kinds of timestamps."""
    for codec in Compression:
        for number in range(3):
            batch = build_batch(
                plain(6, number, 60, headers), compression=codec, timestamp_type=number % 2 * LOG_APPEND_TIME
            )
            add(log, batch, 5)
            shorter = elide_attributes(batch, check_batch(batch))
            assert shorter is not None
            add(log, shorter, 5)


def old_formats(log: Log) -> None:
    """Messages of formats 0 and 1, and wrappers of each codec that they have."""
    for magic in (0, 1):
        add_old(log, plain(8, 1), magic)
        for codec in (Compression.GZIP, Compression.SNAPPY, Compression.LZ4):
            add_old(log, plain(5, 2), magic, codec)
    add_old(log, [record._replace(timestamp=NOW_MS) for record in plain(4)], 1, Compression.GZIP, LOG_APPEND_TIME)


def make_log(directory: Path, *parts: object, settings: LogSettings = SMALL) -> Log:
    """A log of these parts, closed as a broker closes it."""
    log = open_at(directory, settings)
    for part in parts:
        part(log)  # type: ignore[operator]
    log.close()
    (directory.parent / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":3}')
    return log


def all_files(root: Path) -> dict[str, bytes]:
    """The content of each file in a directory and below it, by its path."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def batches_of(directory: Path) -> Iterator[tuple[BatchHeader, bytes]]:
    """The batches of a log, from all its segments; each is sound."""
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        for position, header in iterate_batches_in_any_format(data):
            check_batch_or_message(data, position)
            yield header, data[position : position + header.size_bytes]


def seen(directory: Path) -> list[Seen]:
    """All records but control records."""
    return [
        Seen(record, header.timestamp_type if header.magic else 0)
        for header, data in batches_of(directory)
        if not header.is_control
        for record in iterate_records_in_any_format(data)
    ]


def produced(directory: Path) -> list[Produced]:
    """The origin of all records of format 2 but control records."""
    return [
        Produced(
            record.offset,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence
            if header.base_sequence < 0
            else header.base_sequence + record.offset - header.base_offset,
            header.is_transactional,
            header.partition_leader_epoch,
        )
        for header, data in batches_of(directory)
        if not header.is_control and header.magic == 2
        for record in iterate_records_in_any_format(data)
    ]


def damages(directory: Path) -> list[str]:
    """Return what `minibroker dump --verify` finds wrong in a log's files."""
    found = []
    for path in sorted(directory.iterdir()):
        inspected = identify_file(str(path))
        if inspected is not None:
            items = iterate_file_contents(
                Disk(), inspected, InspectionOptions(records=True, verify=True, shown=frozenset())
            )
            found += [f"{path.name}: {item}" for item in items if isinstance(item, DamagedBytes)]
    return found
