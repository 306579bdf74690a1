"""Offsets by time: the first record that is not older, whatever the time indexes say.

The truth is the list of all records.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from minibroker.pipeline.log_source import OffsetRange
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record
from minibroker.storage.checkpoints.checkpoint_texts import (
    LOG_START_OFFSET_CHECKPOINT,
    format_offset_checkpoint,
)
from minibroker.storage.log import Log
from minibroker.storage.log_settings import LogSettings
from tests.pipeline.directory.support import (
    ORDERS,
    Row,
    Writer,
    append,
    batch_of,
    fill,
    filled,
    finish,
    log_in,
    source_of,
    written,
)
from tests.storage.support import NOW_MS


def first_of(rows: list[Row], timestamp_ms: int, start: int = 0) -> int | None:
    found = (row.offset for row in rows if row.offset >= start and (row.timestamp_ms or -1) >= timestamp_ms)
    return next(found, None)


def fill_by_chance(log: Log) -> None:
    """Timestamps that wander: they rise on the whole, and fall now and then."""
    chance = random.Random(7)
    now = NOW_MS
    for _ in range(80):
        stamps = [now + chance.randrange(-3000, 3000) for _ in range(chance.randrange(1, 6))]
        codec = chance.randrange(5)
        append(log, build_batch([Record(timestamp=each, value=b"v" * 20) for each in stamps], compression=codec))
        now += 500


CHANGES: list[tuple[str, Callable[[Path], object]]] = [
    ("sound", lambda directory: None),
    ("no time index", lambda directory: [path.unlink() for path in directory.glob("*.timeindex")]),
    ("no index", lambda directory: [path.unlink() for path in directory.glob("*.*index")]),
    ("torn", lambda directory: [path.write_bytes(path.read_bytes()[:-5]) for path in directory.glob("*.timeindex")]),
    (
        "zeros",
        lambda directory: [path.write_bytes(path.read_bytes() + bytes(500)) for path in directory.glob("*.*index")],
    ),
    (
        "another's",
        lambda directory: [
            path.write_bytes(b"\0\0\1\x8b\xcf\xe5\x68\0\0\0\0\1") for path in directory.glob("*.timeindex")
        ],
    ),
]


@pytest.mark.parametrize(("name", "change"), CHANGES)
def test_the_first_record_at_or_after_a_timestamp_is_found(
    tmp_path: Path, name: str, change: Callable[[Path], object]
) -> None:
    log = log_in(tmp_path, settings=LogSettings(segment_bytes=1500, index_interval_bytes=150))
    fill_by_chance(log)
    directory = finish(log)
    expected = written(directory)
    change(directory)
    source = source_of(tmp_path)
    for timestamp_ms in (0, *range(NOW_MS - 4000, NOW_MS + 45000, 333)):
        assert source.find_offsets_at({ORDERS: timestamp_ms}) == {ORDERS: first_of(expected, timestamp_ms)}, (
            timestamp_ms
        )


@pytest.mark.parametrize(("magic", "codec"), [(1, 0), (1, 3), (2, 4)])
def test_a_record_within_a_compressed_batch_is_found(tmp_path: Path, magic: int, codec: int) -> None:
    log = log_in(tmp_path)
    for _ in range(10):
        append(log, batch_of(log.log_end_offset, 7, magic=magic, codec=codec))
    finish(log)
    source = source_of(tmp_path)
    for offset in range(70):
        assert source.find_offsets_at({ORDERS: NOW_MS + offset}) == {ORDERS: offset}
    assert source.find_offsets_at({ORDERS: NOW_MS + 70}) == {ORDERS: None}


def test_records_without_a_timestamp_are_never_found(tmp_path: Path) -> None:
    filled(tmp_path, 5, magic=0)
    assert source_of(tmp_path).find_offsets_at({ORDERS: 0}) == {ORDERS: None}


def test_records_before_the_log_start_are_not_found(tmp_path: Path) -> None:
    filled(tmp_path, 40)
    (tmp_path / LOG_START_OFFSET_CHECKPOINT).write_bytes(format_offset_checkpoint({ORDERS: 50}))
    assert source_of(tmp_path).find_offsets_at({ORDERS: NOW_MS}) == {ORDERS: 50}


def test_records_beyond_the_last_stable_offset_are_not_found(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    fill(log, 2)
    Writer(log, 5).write(3)
    finish(log)
    source = source_of(tmp_path, isolation_level="read_committed")
    assert source.find_offsets_at({ORDERS: NOW_MS + 5}) == {ORDERS: 5}
    assert source.find_offsets_at({ORDERS: NOW_MS + 6}) == {ORDERS: None}
    assert source_of(tmp_path).find_offsets_at({ORDERS: NOW_MS + 6}) == {ORDERS: 6}


def test_an_offset_by_timestamp_can_start_a_range(tmp_path: Path) -> None:
    filled(tmp_path, 40)
    source = source_of(tmp_path)
    start = source.find_offsets_at({ORDERS: NOW_MS + 33})[ORDERS]
    assert start == 33
    assert source.make_splits([OffsetRange(ORDERS, start, 120)])[0].offsets.start == 33


def test_a_timestamp_search_returns_the_offset_of_a_corrupt_batch_for_the_reader_to_report(tmp_path: Path) -> None:
    path = filled(tmp_path, 3, settings=LogSettings()) / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 3 + 70] ^= 0xFF
    path.write_bytes(data)
    assert source_of(tmp_path).find_offsets_at({ORDERS: NOW_MS + 4}) == {ORDERS: 3}


def test_a_record_too_large_for_memory_is_skipped(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    large = [Record(timestamp=NOW_MS, value=bytes(101 << 20)), Record(timestamp=NOW_MS + 1, value=b"v")]
    append(log, build_batch(large, compression=4))
    finish(log)
    assert source_of(tmp_path).find_offsets_at({ORDERS: NOW_MS + 1}) == {ORDERS: 1}
