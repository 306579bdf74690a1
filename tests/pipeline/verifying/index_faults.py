"""Faults in the offset indexes and the time indexes of a log that was clean, three of each kind.

How they are registered and where they are looked for is in `faults`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from struct import Struct

from minibroker.protocol.records.record import Record
from tests.pipeline.verifying.faults import (
    INDEX_ENTRY,
    TIME_ENTRY,
    Expected,
    fault,
    files,
)
from tests.pipeline.verifying.support import (
    Writer,
    places,
    put_bytes,
    written,
)


@fault("index-missing")
def missing_indexes(directory: Path) -> Expected:
    return removed(files(written(directory), ".index"))


@fault("timeindex-missing")
def missing_time_indexes(directory: Path) -> Expected:
    return removed(files(written(directory), ".timeindex"))


def removed(found: list[Path]) -> Expected:
    for file in found:
        file.unlink()
    return {(file.name, -1) for file in found}


def changed_entries(directory: Path, suffix: str, entry: Struct, change: Callable[..., tuple[int, ...]]) -> Expected:
    """One entry of three files each is what `change` makes of its fields; which one differs."""
    expected = set()
    for number, file in enumerate(files(written(directory), suffix, 4 * entry.size)):
        at = (number + 1) * entry.size
        fields = entry.unpack_from(file.read_bytes(), at)
        put_bytes(file, at, entry.pack(*change(*fields)))
        expected.add((file.name, at))
    return expected


OFFSET_ENTRY, TIMESTAMP_ENTRY = Struct(">ii"), Struct(">qi")


@fault("index-position")
def index_positions(directory: Path) -> Expected:
    return changed_entries(directory, ".index", OFFSET_ENTRY, lambda offset, position: (offset, position + 1))


@fault("index-offset")
def index_offsets(directory: Path) -> Expected:
    """The offset of the batch before."""
    return changed_entries(directory, ".index", OFFSET_ENTRY, lambda offset, position: (offset - 1, position))


@fault("index-beyond-log")
def beyond_logs(directory: Path) -> Expected:
    expected = set()
    for file in files(written(directory), ".index"):
        at = file.stat().st_size - INDEX_ENTRY
        offset, position = OFFSET_ENTRY.unpack_from(file.read_bytes(), at)
        put_bytes(file, at, OFFSET_ENTRY.pack(offset, position + 5000))
        expected.add((file.name, at))
    return expected


@fault("index-order")
def index_orders(directory: Path) -> Expected:
    return unordered(directory, ".index", INDEX_ENTRY)


@fault("timeindex-order")
def time_index_orders(directory: Path) -> Expected:
    return unordered(directory, ".timeindex", TIME_ENTRY)


def unordered(directory: Path, suffix: str, size: int) -> Expected:
    """Two entries changed about, one twice, and one that is not whole."""
    one, two, three = files(written(directory), suffix, 3 * size)
    data = one.read_bytes()
    one.write_bytes(data[size : 2 * size] + data[:size] + data[2 * size :])
    data = two.read_bytes()
    two.write_bytes(data[:size] + data)
    data = three.read_bytes()
    three.write_bytes(data + b"\x01\x02\x03")
    return {(one.name, size), (two.name, size), (three.name, len(data))}


@fault("timeindex-offset")
def time_index_offsets(directory: Path) -> Expected:
    expected = set()
    for number, file in enumerate(files(written(directory), ".timeindex")):
        at = file.stat().st_size - TIME_ENTRY
        timestamp, offset = TIMESTAMP_ENTRY.unpack_from(file.read_bytes(), at)
        put_bytes(file, at, TIMESTAMP_ENTRY.pack(timestamp, offset + 100 * (number + 1)))
        expected.add((file.name, at))
    return expected


@fault("timeindex-timestamp")
def time_index_timestamps(directory: Path) -> Expected:
    return changed_entries(directory, ".timeindex", TIMESTAMP_ENTRY, lambda time, offset: (time - 1, offset))


@fault("timeindex-late")
def time_index_late(directory: Path) -> Expected:
    """An entry of a batch that is not the one with the largest timestamp so far."""
    writer = Writer(directory)
    for number in range(120):
        later = 1000 if number % 8 == 5 else 0
        writer.put([Record(timestamp=writer.now_ms - number + later, key=b"k", value=b"x" * 20)])
    path = writer.close()
    expected = set()
    for file in files(path, ".timeindex"):
        log = [place for place in places(path) if place.file.stem == file.stem]
        largest = max(range(len(log)), key=lambda place: log[place].header.max_timestamp)
        header = log[largest + 1].header
        wrong = TIMESTAMP_ENTRY.pack(header.max_timestamp, header.last_offset - int(file.stem))
        put_bytes(file, 0, wrong)
        with file.open("r+b") as opened:
            opened.truncate(TIME_ENTRY)
        expected.add((file.name, 0))
    return expected


@fault("timeindex-incomplete")
def time_index_incomplete(directory: Path) -> Expected:
    expected = set()
    for file in files(written(directory), ".timeindex", 2 * TIME_ENTRY):
        left = file.stat().st_size - TIME_ENTRY
        with file.open("r+b") as opened:
            opened.truncate(left)
        expected.add((file.name, left - TIME_ENTRY))
    return expected
