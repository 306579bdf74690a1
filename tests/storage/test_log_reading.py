"""Reading one open log: by offset, in regions of whole batches, and by time.

What one segment finds of it is tested in `test_segment.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.operating_system import HAS_POSITIONED_IO
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.records.batch import check_batch
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.segment import Segment
from tests.storage.support import (
    NOW_MS,
    SMALL,
    Surroundings,
    append,
    batch,
    code_of,
    log_of,
    offset_for_timestamp,
    offset_of_max_timestamp,
    open_at,
    read_batches,
    read_values,
)

# --- by offset --------------------------------------------------------------------------------------------------------


def test_a_read_at_any_offset_finds_the_batch_that_contains_it(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    assert len(log.segments) > 3
    for offset in [*range(60), *reversed(range(60))]:
        region = log.read(offset, 1)
        assert region is not None
        header = check_batch(region.read())
        assert header.base_offset == offset - offset % 2
        assert region.next_offset == header.next_offset
        assert region.size_bytes == header.size_bytes


def test_a_read_after_a_part_of_a_region_searches_no_position(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(tmp_path)
    first = log.segments[-1].base_offset
    region = log.read(first, 1 << 20)
    assert region is not None
    size_bytes = check_batch(region.read()).size_bytes
    log.expect_read_after(region._replace(size_bytes=size_bytes, next_offset=first + 2))
    monkeypatch.setattr(Segment, "find_position_of_offset", None)
    following = log.read(first + 2, 1 << 20)
    assert following == region._replace(position=size_bytes, size_bytes=region.size_bytes - size_bytes)


@pytest.mark.parametrize("max_bytes", [0, 1, 90, 200, 500, 990, 5000])
def test_regions_contain_whole_batches_within_the_byte_limit(tmp_path: Path, max_bytes: int) -> None:
    log = log_of(tmp_path)
    assert len(read_batches(log, max_bytes=max_bytes)) == 30
    for offset in range(0, 60, 2):
        region = log.read(offset, max_bytes)
        assert region is not None
        assert region.size_bytes <= max(max_bytes, check_batch(region.read()).size_bytes)


def test_a_region_ends_at_its_segment_boundary(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    region = log.read(0, 1 << 20)
    assert region is not None
    assert region.next_offset == log.segments[1].base_offset
    assert region.size_bytes == log.segments[0].size_bytes


def test_a_first_batch_beyond_the_byte_limit_is_returned_only_on_request(tmp_path: Path) -> None:
    log = log_of(tmp_path, 5)
    size = len(batch(2))
    assert log.read(3, size - 1, minimum_one=False) is None
    assert log.read(3, 0, minimum_one=False) is None
    region = log.read(3, size, minimum_one=False)
    assert region is not None and region.size_bytes == size
    region = log.read(3, 1, minimum_one=True)
    assert region is not None and region.size_bytes == size


def test_a_read_at_the_log_end_finds_nothing_until_the_next_append(tmp_path: Path) -> None:
    log = log_of(tmp_path, 5)
    assert log.read(10, 1 << 20) is None
    late = batch(1, value=b"late")
    append(log, late)
    append(log, batch(1))
    region = log.read(10, 1)
    assert region is not None and region.read() == late


@pytest.mark.parametrize("offset", [-1, 11, 1 << 62])
def test_an_offset_outside_the_log_is_out_of_range(tmp_path: Path, offset: int) -> None:
    log = log_of(tmp_path, 5)
    with pytest.raises(KafkaError) as raised:
        log.read(offset, 100)
    assert code_of(raised) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_no_batch_is_read_at_or_after_the_limit_offset(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    for limit in range(0, 62, 2):
        offset = 0
        while region := log.read(offset, 300, limit_offset=limit):
            assert check_batch(region.read()).base_offset == offset
            offset = region.next_offset
        assert offset == min(limit, 60)
        assert log.read(min(limit, 60), 300, limit_offset=limit) is None


@pytest.mark.skipif(not HAS_POSITIONED_IO, reason="a file that was removed cannot be read there")
def test_a_region_can_be_read_after_its_segment_was_deleted(tmp_path: Path) -> None:
    surroundings = Surroundings()
    log = open_at(tmp_path, SMALL, surroundings=surroundings)
    for _ in range(30):
        append(log, batch(2))
    region = log.read(0, 1 << 20)
    assert region is not None
    before = region.read()
    log.delete_records_before(60)
    surroundings.run_scheduled()
    assert region.read() == before


def test_offsets_removed_by_compaction_are_skipped(tmp_path: Path) -> None:
    log = open_at(tmp_path, LogSettings(index_interval_bytes=1))
    for offset in (0, 10, 20):
        log.log_end_offset = offset
        append(log, batch(2))
    log.roll_segment_if_used()
    log.log_end_offset = 40
    append(log, batch(1))
    assert [offset for offset, _ in read_values(log, 1)] == [0, 1, 10, 11, 20, 21, 40]
    assert [offset for offset, _ in read_values(log, 5)] == [10, 11, 20, 21, 40]
    assert [offset for offset, _ in read_values(log, 25)] == [40]
    assert log.read(25, 100, limit_offset=40) is None
    assert log.read(25, 1, minimum_one=False) is None


def test_a_corrupt_stored_batch_is_not_served(tmp_path: Path) -> None:
    log = log_of(tmp_path, 5, LogSettings())
    size = len(batch(2))
    with open(tmp_path / "00000000000000000000.log", "r+b") as file:
        file.seek(2 * size + 8)
        file.write(b"\x7f")
    with pytest.raises(KafkaError, match=f"no batch at {2 * size}") as raised:
        log.read(7, 100)
    assert code_of(raised) == ErrorCode.CORRUPT_MESSAGE


# --- by time ----------------------------------------------------------------------------------------------------------


def test_the_first_record_at_or_after_a_timestamp_is_found(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    for number in range(30):
        for timestamp in (NOW_MS + 10 * number - 9, NOW_MS + 10 * number):
            assert offset_for_timestamp(log, timestamp) == (2 * number, NOW_MS + 10 * number, 0)
    assert offset_for_timestamp(log, 0) == (0, NOW_MS, 0)
    assert offset_for_timestamp(log, NOW_MS + 291) is None


def test_decreasing_timestamps_are_found_where_they_are_first_reached(tmp_path: Path) -> None:
    log = open_at(tmp_path, SMALL)
    for number in range(30):
        append(log, batch(2, timestamp=NOW_MS + (100 if number == 3 else number)), leader_epoch=number // 10)
    assert offset_for_timestamp(log, NOW_MS + 2) == (4, NOW_MS + 2, 0)
    assert offset_for_timestamp(log, NOW_MS + 5) == (6, NOW_MS + 100, 0)
    assert offset_of_max_timestamp(log) == (6, NOW_MS + 100, 0)


def test_timestamps_are_searched_within_compressed_batches(tmp_path: Path) -> None:
    from minibroker.protocol.records.building import build_batch
    from minibroker.protocol.records.record import Record

    log = open_at(tmp_path)
    for compression in range(5):
        stamps = [Record(timestamp=NOW_MS + 10 * compression + delta, value=b"v") for delta in (0, 3, 2, 3)]
        append(log, build_batch(stamps, compression=compression))
    assert offset_for_timestamp(log, NOW_MS + 41) == (17, NOW_MS + 43, 0)
    assert offset_of_max_timestamp(log) == (17, NOW_MS + 43, 0)


def test_records_before_the_log_start_are_not_found(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    log.delete_records_before(25)
    assert offset_for_timestamp(log, NOW_MS) == (25, NOW_MS + 120, 0)


def test_a_log_without_timestamps_has_no_largest_one(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    assert offset_of_max_timestamp(log) is None
    append(log, batch(3, timestamp=-1))
    assert offset_of_max_timestamp(log) is None
    assert offset_for_timestamp(log, 0) is None


def test_the_largest_timestamp_may_lie_in_an_older_segment(tmp_path: Path) -> None:
    log = open_at(tmp_path, SMALL)
    for number in range(30):
        append(log, batch(2, timestamp=NOW_MS - number))
    assert offset_of_max_timestamp(log) == (0, NOW_MS, 0)
    log.close()
    assert offset_of_max_timestamp(open_at(tmp_path, SMALL)) == (0, NOW_MS, 0)


@pytest.mark.parametrize("compression", range(5))
def test_the_largest_timestamp_is_that_of_a_record_after_the_log_start(tmp_path: Path, compression: int) -> None:
    log = open_at(tmp_path)
    append(log, stamped(5, 80, 6, compression=compression))
    log.delete_records_before(2)
    assert offset_of_max_timestamp(log) == (2, NOW_MS + 6, 0)
    append(log, stamped(7, 80, 8, compression=compression))
    assert offset_of_max_timestamp(log) == (4, NOW_MS + 80, 0)
    log.delete_records_before(5)
    assert offset_of_max_timestamp(log) == (5, NOW_MS + 8, 0)
    append(log, stamped(3))
    assert offset_of_max_timestamp(log) == (5, NOW_MS + 8, 0)
    log.delete_records_before(7)
    assert offset_of_max_timestamp(log) is None


def test_the_largest_timestamp_after_the_log_start_may_lie_in_a_later_segment(tmp_path: Path) -> None:
    log = open_at(tmp_path, SMALL)
    append(log, stamped(80, 5, 6))
    log.roll_segment_if_used()
    append(log, stamped(7))
    append(log, stamped(80, 8))
    log.delete_records_before(1)
    assert offset_of_max_timestamp(log) == (4, NOW_MS + 80, 0)


def stamped(*times: int, compression: int = 0) -> bytearray:
    from minibroker.protocol.records.building import build_batch
    from minibroker.protocol.records.record import Record

    return build_batch([Record(timestamp=NOW_MS + each, value=b"v") for each in times], compression=compression)
