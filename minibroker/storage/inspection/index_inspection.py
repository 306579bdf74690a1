"""Reads index and snapshot files to show people each entry, and every invalid one.

`index_verification.py` compares the entries with the log. The formats are described in `segment_indexes.py`,
`producer_state.py` and `aborted_transactions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from struct import Struct
from typing import Any, NamedTuple, TypeVar

from minibroker.protocol.records.crc import crc32c
from minibroker.protocol.records.walking import BLOCK_BYTES
from minibroker.storage.files import File
from minibroker.storage.inspection.file_walking import BlockReader
from minibroker.storage.inspection.log_inspection import DamagedBytes, InspectionNote
from minibroker.storage.producers.aborted_transactions import TRANSACTION_ENTRY, TRANSACTION_INDEX_VERSION
from minibroker.storage.producers.producer_state import SNAPSHOT_ENTRY, SNAPSHOT_VERSION
from minibroker.storage.segment_indexes import OffsetIndex, TimeIndex

SNAPSHOT_HEAD = Struct(">hIi")  # version, checksum, number of entries
SNAPSHOT_CRC_POSITION = 2
SNAPSHOT_CRC_START = 6


class OffsetEntry(NamedTuple):
    """An entry of a `.index` file: the batch that ends with `offset` is at byte `log_position`."""

    position: int
    offset: int
    log_position: int


class TimeEntry(NamedTuple):
    """An entry of a `.timeindex` file: `timestamp` (ms) is the largest up to the batch that ends with `offset`."""

    position: int
    timestamp: int
    offset: int


class TransactionEntry(NamedTuple):
    """An entry of a `.txnindex` file."""

    position: int
    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class ProducerStateEntry(NamedTuple):
    """An entry of a `.snapshot` file. The batch is the producer's last one; -1 and 0 stand for none."""

    position: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int


Entry = OffsetEntry | TimeEntry | TransactionEntry | ProducerStateEntry
AnyEntry = TypeVar("AnyEntry", OffsetEntry, TimeEntry, TransactionEntry)


def iterate_offset_entries(file: File, base_offset: int) -> Iterator[OffsetEntry | InspectionNote | DamagedBytes]:
    """Yield all entries of a `.index` file. Offsets and positions must increase. Raises `OSError`."""
    used = _measure_bytes_without_padding(file, OffsetIndex.ENTRY)
    entries = (
        OffsetEntry(at, base_offset + offset, where)
        for at, (offset, where) in _iterate_entries(file, OffsetIndex.ENTRY, used)
    )
    before = OffsetEntry(0, base_offset - 1, -1)
    for entry, last in _find_disordered_entries(
        entries, before, lambda a, b: b.offset > a.offset and b.log_position > a.log_position
    ):
        yield entry
        if last is not None:
            expected = f"an offset above {last.offset} and a position above {last.log_position}"
            what = f"offset {entry.offset} at position {entry.log_position}"
            yield DamagedBytes(file.path, entry.position, 0, entry.offset, expected, what)
    yield from _report_trailing_bytes(file, used, OffsetIndex.ENTRY)


def iterate_time_entries(file: File, base_offset: int) -> Iterator[TimeEntry | InspectionNote | DamagedBytes]:
    """Yield all entries of a `.timeindex` file. Timestamps must increase and offsets not decrease. Raises `OSError`."""
    used = _measure_bytes_without_padding(file, TimeIndex.ENTRY)
    entries = (
        TimeEntry(at, timestamp, base_offset + offset)
        for at, (timestamp, offset) in _iterate_entries(file, TimeIndex.ENTRY, used)
    )
    before = TimeEntry(0, -1, base_offset)
    for entry, last in _find_disordered_entries(
        entries, before, lambda a, b: b.timestamp > a.timestamp and b.offset >= a.offset
    ):
        yield entry
        if last is not None:
            expected = f"a timestamp above {last.timestamp} and an offset of at least {last.offset}"
            what = f"timestamp {entry.timestamp} with offset {entry.offset}"
            yield DamagedBytes(file.path, entry.position, 0, entry.offset, expected, what)
    yield from _report_trailing_bytes(file, used, TimeIndex.ENTRY)


def iterate_transaction_entries(file: File) -> Iterator[TransactionEntry | InspectionNote | DamagedBytes]:
    """Yield all entries of a `.txnindex` file. Last offsets must increase. Raises `OSError`."""
    used = _measure_bytes_without_padding(file, TRANSACTION_ENTRY)
    found = (TransactionEntry(at, *fields) for at, fields in _iterate_entries(file, TRANSACTION_ENTRY, used))
    before = TransactionEntry(0, TRANSACTION_INDEX_VERSION, -1, -1, -1, -1)
    for entry, last in _find_disordered_entries(found, before, lambda a, b: b.last_offset > a.last_offset):
        yield entry
        problem = _find_transaction_problem(entry, last)
        if problem:
            yield DamagedBytes(file.path, entry.position, 0, entry.first_offset, *problem)
    yield from _report_trailing_bytes(file, used, TRANSACTION_ENTRY)


def _find_transaction_problem(entry: TransactionEntry, last: TransactionEntry | None) -> tuple[str, str] | None:
    """Return (expected, found) if an entry is wrong, None if it is right."""
    if entry.version != TRANSACTION_INDEX_VERSION:
        return f"version {TRANSACTION_INDEX_VERSION}", f"{entry.version}"
    if entry.producer_id < 0:
        return "a producer id", f"{entry.producer_id}"
    if not 0 <= entry.first_offset < entry.last_offset:
        return "a first offset below the last", f"offsets {entry.first_offset} to {entry.last_offset}"
    return None if last is None else (f"a last offset above {last.last_offset}", f"{entry.last_offset}")


def iterate_snapshot_entries(file: File) -> Iterator[ProducerStateEntry | InspectionNote | DamagedBytes]:
    """Yield all entries of a `.snapshot` file, even if its checksum is wrong. Raises `OSError`."""
    size = file.size_bytes()
    head = file.read(0, SNAPSHOT_HEAD.size)
    if len(head) < SNAPSHOT_HEAD.size:
        yield DamagedBytes(
            file.path, 0, size, None, f"a head of {SNAPSHOT_HEAD.size} bytes", f"the end after {len(head)}"
        )
        return
    version, crc, count = SNAPSHOT_HEAD.unpack(head)
    if version != SNAPSHOT_VERSION:
        yield DamagedBytes(file.path, 0, 0, None, f"version {SNAPSHOT_VERSION}", f"{version}")
    computed = _compute_crc_from(file, SNAPSHOT_CRC_START, size)
    if crc != computed:
        expected, found = f"checksum {computed:#010x}, as computed", f"{crc:#010x}, as stored"
        yield DamagedBytes(file.path, SNAPSHOT_CRC_POSITION, 0, None, expected, found)
    there = (size - SNAPSHOT_HEAD.size) / SNAPSHOT_ENTRY.size
    if count != there:
        yield DamagedBytes(
            file.path, SNAPSHOT_CRC_START, 0, None, f"{count} entries, as announced", f"room for {there:g}"
        )
    for position, fields in _iterate_entries(file, SNAPSHOT_ENTRY, size, SNAPSHOT_HEAD.size):
        yield ProducerStateEntry(position, *fields)


def iterate_undamaged_entries(entries: Iterable[object], entry_class: type[AnyEntry]) -> Iterator[AnyEntry]:
    """Yield the entries of `entry_class` from one of the functions above, without the damaged ones."""
    held: AnyEntry | None = None
    for entry in entries:
        if isinstance(entry, DamagedBytes) and held is not None and entry.position == held.position:
            held = None
        elif isinstance(entry, entry_class):
            if held is not None:
                yield held
            held = entry
    if held is not None:
        yield held


def _find_disordered_entries(
    entries: Iterator[AnyEntry], first_entry: AnyEntry, may_follow: Callable[[AnyEntry, AnyEntry], bool]
) -> Iterator[tuple[AnyEntry, AnyEntry | None]]:
    """Yield each entry, with the last good entry before it if it is out of order, else with None.

    An entry that is larger than both successors is too large; otherwise the successors would be reported as too small.
    """
    last = first_entry
    window = list(islice(entries, 3))
    while window:
        entry, successors = window[0], window[1:]
        is_outlier = len(successors) == 2 and not any(may_follow(entry, each) for each in successors)
        if not may_follow(last, entry) or (is_outlier and may_follow(last, successors[0])):
            yield entry, last
        else:
            yield entry, None
            last = entry
        window = successors + list(islice(entries, 1))


def _compute_crc_from(file: File, position: int, end: int) -> int:
    """Return the CRC-32C of a file's bytes from `position` to `end`."""
    crc, reader = 0, BlockReader(file, end)
    while piece := reader.read_at(position, BLOCK_BYTES):
        crc = crc32c(piece, crc)
        position += len(piece)
    return crc


def _iterate_entries(file: File, entry: Struct, end: int, position: int = 0) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield (position, fields) of each whole entry up to `end`."""
    reader = BlockReader(file, end)
    while len(data := reader.read_at(position, entry.size)) == entry.size:
        yield position, entry.unpack(data)
        position += entry.size


def _measure_bytes_without_padding(file: File, entry: Struct) -> int:
    """Return the size of all entries, without the zeros that a broker keeps behind them while it appends."""
    size = end = file.size_bytes()
    while end:
        start = max(0, end - BLOCK_BYTES)
        data = file.read(start, end - start).rstrip(b"\0")
        end = start + len(data)
        if data:
            break
    return min(-(-end // entry.size), size // entry.size) * entry.size


def _report_trailing_bytes(file: File, position: int, entry: Struct) -> Iterator[InspectionNote | DamagedBytes]:
    """Report the bytes behind the last entry."""
    left = file.size_bytes() - position
    if left >= entry.size:
        text = f"{left} bytes of zeros, which a broker leaves while it runs and after an unclean stop"
        yield InspectionNote(file.path, position, None, text)
    if left % entry.size:
        expected, found = f"a multiple of {entry.size} bytes", f"{position + left}"
        yield DamagedBytes(file.path, position + left - left % entry.size, left % entry.size, None, expected, found)
