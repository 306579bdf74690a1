"""When a log begins another segment, by size, time and indexes, and what a roll leaves on the disk.

That what was rolled is synced is tested in `test_flushing.py`.
"""

from __future__ import annotations

from pathlib import Path

from minibroker.storage.log_settings import LogSettings
from tests.storage.support import (
    NOW_MS,
    Surroundings,
    append,
    batch,
    files_in,
    log_of,
    open_at,
    read_batches,
)


def test_a_segment_never_exceeds_segment_bytes(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    sizes = [segment.size_bytes for segment in log.segments]
    assert all(500 - len(batch(2)) < size <= 500 for size in sizes[:-1])


def test_a_batch_larger_than_a_segment_gets_its_own_segment(tmp_path: Path) -> None:
    log = open_at(tmp_path, LogSettings(segment_bytes=10))
    for _ in range(3):
        append(log, batch(2))
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]


def test_a_segment_is_rolled_after_segment_ms_by_the_batch_timestamps(tmp_path: Path) -> None:
    log = open_at(tmp_path, LogSettings(segment_ms=1000))
    for timestamp in (NOW_MS, NOW_MS - 5000, NOW_MS + 1000, NOW_MS + 1001, NOW_MS + 1500):
        append(log, batch(timestamp=timestamp))
    assert [segment.base_offset for segment in log.segments] == [0, 3]


def test_a_reopened_segment_keeps_its_roll_time(tmp_path: Path) -> None:
    settings = LogSettings(segment_ms=1000)
    log = open_at(tmp_path, settings)
    append(log, batch(timestamp=NOW_MS))
    log.close()
    log = open_at(tmp_path, settings)
    append(log, batch(timestamp=NOW_MS + 1001))
    assert [segment.base_offset for segment in log.segments] == [0, 1]


def test_a_segment_without_timestamps_is_rolled_by_the_clock(tmp_path: Path) -> None:
    surroundings = Surroundings()
    log = open_at(tmp_path, LogSettings(segment_ms=1000), surroundings=surroundings)
    for elapsed_ms in (0, 1000, 1):
        surroundings.now_ms += elapsed_ms
        append(log, batch(timestamp=-1))
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_a_full_index_rolls_the_segment(tmp_path: Path) -> None:
    log = log_of(tmp_path, 40, LogSettings(index_interval_bytes=1, segment_index_bytes=40))
    assert {segment.indexes.offsets.count for segment in log.segments[:-1]} == {2}  # 40 // 12 - 1
    assert all(segment.indexes.times.count <= 3 for segment in log.segments)
    assert len(read_batches(log)) == 40


def test_offsets_beyond_the_index_range_roll_the_segment(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    append(log, batch(1))
    log.log_end_offset = (1 << 31) - 2
    append(log, batch(2))
    append(log, batch(1))
    assert [segment.base_offset for segment in log.segments] == [0, 1 << 31]


def test_a_roll_completes_the_files_and_writes_a_producer_snapshot(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    append(log, batch(2, producer_id=7, producer_epoch=0, base_sequence=0))
    log.roll_segment_if_used()
    log.roll_segment_if_used()
    files = files_in(tmp_path)
    assert set(files) == {
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000002.log",
        "00000000000000000002.snapshot",
        "leader-epoch-checkpoint",
    }
    assert files["00000000000000000000.timeindex"] == NOW_MS.to_bytes(8, "big") + (1).to_bytes(4, "big")
    assert len(files["00000000000000000002.snapshot"]) == 56


def test_changed_segment_settings_apply_from_the_next_append(tmp_path: Path) -> None:
    log = log_of(tmp_path, 5, LogSettings())
    log.update_settings(LogSettings(segment_bytes=len(batch(2)) * 6, index_interval_bytes=1))
    for _ in range(3):
        append(log, batch(2))
    assert [segment.base_offset for segment in log.segments] == [0, 12]
    assert log.segments[0].indexes.offsets.count == 1
    log.update_settings(LogSettings(segment_index_bytes=8))
    append(log, batch(2))
    assert len(log.segments) == 3
