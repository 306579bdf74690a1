"""One open log: appending, reading, rolling, finding and cutting, on a disk that works and on one that fails.

What happens between a stop and a start is tested in `test_recovery.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.records.batch import check_batch
from minibroker.storage.log import Log
from minibroker.storage.log_settings import LogSettings
from tests.storage.support import (
    NOW_MS,
    FailingDisk,
    Surroundings,
    append,
    batch,
    files_in,
    open_at,
    read_batches,
    read_values,
)

SMALL = LogSettings(segment_bytes=500, index_interval_bytes=100)


def log_of(directory: Path, batches: int = 30, settings: LogSettings = SMALL, **options: int) -> Log:
    """A log of `batches` batches of two records, ten ms apart."""
    log = open_at(directory, settings)
    for number in range(batches):
        append(log, batch(2, timestamp=NOW_MS + 10 * number, **options))
    return log


def code_of(raised: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return raised.value.code


def test_batches_get_the_offsets_that_follow_and_are_read_as_they_were_written(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    first, second = batch(3, value=b"a"), batch(2, value=b"b")
    assert append(log, first, leader_epoch=5) == 0
    assert append(log, second, leader_epoch=5) == 3
    assert read_batches(log) == [first, second]
    assert check_batch(second).base_offset == 3
    assert check_batch(second).partition_leader_epoch == 5
    assert read_values(log) == [(0, b"a0"), (1, b"a1"), (2, b"a2"), (3, b"b0"), (4, b"b1")]
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark, log.last_stable_offset) == (0, 5, 5, 5)
    assert log.size_bytes == len(first) + len(second)


def test_several_batches_are_appended_at_once(tmp_path: Path) -> None:
    log = open_at(tmp_path, LogSettings(index_interval_bytes=1))
    data = batch(3) + batch(2) + batch(1)
    headers = [check_batch(batch(count)) for count in (3, 2, 1)]
    assert log.append(data, headers, 0) == 0
    assert [check_batch(data).base_offset for data in read_batches(log)] == [0, 3, 5]
    assert log.segments[0].indexes.offsets.entries() == [(4, len(batch(3))), (5, len(batch(3)) + len(batch(2)))]


def test_a_log_may_begin_at_any_offset(tmp_path: Path) -> None:
    log = open_at(tmp_path, log_start_offset=1 << 40)
    assert append(log, batch(2)) == 1 << 40
    assert [offset for offset, _ in read_values(log)] == [1 << 40, (1 << 40) + 1]
    assert f"{1 << 40:020d}.log" in files_in(tmp_path)


# --- reading ----------------------------------------------------------------------------------------------------------


def test_every_offset_finds_the_batch_that_contains_it(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    assert len(log.segments) > 3
    for offset in [*range(60), *reversed(range(60))]:
        region = log.read(offset, 1)
        assert region is not None
        header = check_batch(region.read())
        assert header.base_offset == offset - offset % 2
        assert region.next_offset == header.next_offset
        assert region.size_bytes == header.size_bytes


@pytest.mark.parametrize("max_bytes", [0, 1, 90, 200, 500, 990, 5000])
def test_regions_hold_whole_batches_within_the_limit_and_lose_none(tmp_path: Path, max_bytes: int) -> None:
    log = log_of(tmp_path)
    assert len(read_batches(log, max_bytes=max_bytes)) == 30
    for offset in range(0, 60, 2):
        region = log.read(offset, max_bytes)
        assert region is not None
        assert region.size_bytes <= max(max_bytes, check_batch(region.read()).size_bytes)


def test_a_region_ends_with_its_segment(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    region = log.read(0, 1 << 20)
    assert region is not None
    assert region.next_offset == log.segments[1].base_offset
    assert region.size_bytes == log.segments[0].size_bytes


def test_a_first_batch_beyond_the_limit_is_given_only_on_request(tmp_path: Path) -> None:
    log = log_of(tmp_path, 5)
    size = len(batch(2))
    assert log.read(3, size - 1, minimum_one=False) is None
    assert log.read(3, 0, minimum_one=False) is None
    region = log.read(3, size, minimum_one=False)
    assert region is not None and region.size_bytes == size
    region = log.read(3, 1, minimum_one=True)
    assert region is not None and region.size_bytes == size


def test_nothing_is_read_at_the_end_and_what_comes_later_is(tmp_path: Path) -> None:
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


def test_nothing_is_read_at_or_after_the_limit_offset(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    for limit in range(0, 62, 2):
        offset = 0
        while region := log.read(offset, 300, limit_offset=limit):
            assert check_batch(region.read()).base_offset == offset
            offset = region.next_offset
        assert offset == min(limit, 60)
        assert log.read(min(limit, 60), 300, limit_offset=limit) is None


def test_a_region_can_be_read_after_its_segment_was_deleted(tmp_path: Path) -> None:
    surroundings = Surroundings()
    log = open_at(tmp_path, SMALL, surroundings=surroundings)
    for _ in range(30):
        append(log, batch(2))
    region = log.read(0, 1 << 20)
    assert region is not None
    before = region.read()
    log.delete_before(60)
    surroundings.run_scheduled()
    assert region.read() == before


def test_offsets_that_compaction_took_out_are_passed_over(tmp_path: Path) -> None:
    log = open_at(tmp_path, LogSettings(index_interval_bytes=1))
    for offset in (0, 10, 20):
        log.log_end_offset = offset
        append(log, batch(2))
    log.roll()
    log.log_end_offset = 40
    append(log, batch(1))
    assert [offset for offset, _ in read_values(log, 1)] == [0, 1, 10, 11, 20, 21, 40]
    assert [offset for offset, _ in read_values(log, 5)] == [10, 11, 20, 21, 40]
    assert [offset for offset, _ in read_values(log, 25)] == [40]
    assert log.read(25, 100, limit_offset=40) is None
    assert log.read(25, 1, minimum_one=False) is None


# --- rolling ----------------------------------------------------------------------------------------------------------


def test_a_segment_never_grows_beyond_its_size(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    sizes = [segment.size_bytes for segment in log.segments]
    assert all(500 - len(batch(2)) < size <= 500 for size in sizes[:-1])


def test_a_batch_larger_than_a_segment_gets_one_of_its_own(tmp_path: Path) -> None:
    log = open_at(tmp_path, LogSettings(segment_bytes=10))
    for _ in range(3):
        append(log, batch(2))
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]


def test_a_segment_lasts_segment_ms_by_the_time_in_its_batches(tmp_path: Path) -> None:
    log = open_at(tmp_path, LogSettings(segment_ms=1000))
    for timestamp in (NOW_MS, NOW_MS - 5000, NOW_MS + 1000, NOW_MS + 1001, NOW_MS + 1500):
        append(log, batch(timestamp=timestamp))
    assert [segment.base_offset for segment in log.segments] == [0, 3]


def test_a_reopened_segment_lasts_no_longer(tmp_path: Path) -> None:
    settings = LogSettings(segment_ms=1000)
    log = open_at(tmp_path, settings)
    append(log, batch(timestamp=NOW_MS))
    log.close()
    log = open_at(tmp_path, settings)
    append(log, batch(timestamp=NOW_MS + 1001))
    assert [segment.base_offset for segment in log.segments] == [0, 1]


def test_without_times_in_its_batches_a_segment_lasts_by_the_clock(tmp_path: Path) -> None:
    surroundings = Surroundings()
    log = open_at(tmp_path, LogSettings(segment_ms=1000), surroundings=surroundings)
    for elapsed_ms in (0, 1000, 1):
        surroundings.now_ms += elapsed_ms
        append(log, batch(timestamp=-1))
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_a_full_index_begins_another_segment(tmp_path: Path) -> None:
    log = log_of(tmp_path, 40, LogSettings(index_interval_bytes=1, segment_index_bytes=40))
    assert {segment.indexes.offsets.count for segment in log.segments[:-1]} == {2}  # 40 // 12 - 1
    assert all(segment.indexes.times.count <= 3 for segment in log.segments)
    assert len(read_batches(log)) == 40


def test_offsets_that_an_index_cannot_name_begin_another_segment(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    append(log, batch(1))
    log.log_end_offset = (1 << 31) - 2
    append(log, batch(2))
    append(log, batch(1))
    assert [segment.base_offset for segment in log.segments] == [0, 1 << 31]


def test_a_roll_completes_the_files_and_writes_a_snapshot(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    append(log, batch(2, producer_id=7, producer_epoch=0, base_sequence=0))
    log.roll()
    log.roll()
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


# --- timestamps -------------------------------------------------------------------------------------------------------


def test_the_first_record_at_or_after_a_time_is_found(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    for number in range(30):
        for timestamp in (NOW_MS + 10 * number - 9, NOW_MS + 10 * number):
            assert log.offset_for_timestamp(timestamp) == (2 * number, NOW_MS + 10 * number, 0)
    assert log.offset_for_timestamp(0) == (0, NOW_MS, 0)
    assert log.offset_for_timestamp(NOW_MS + 291) is None


def test_times_that_go_back_are_found_where_they_first_are_reached(tmp_path: Path) -> None:
    log = open_at(tmp_path, SMALL)
    for number in range(30):
        append(log, batch(2, timestamp=NOW_MS + (100 if number == 3 else number)), leader_epoch=number // 10)
    assert log.offset_for_timestamp(NOW_MS + 2) == (4, NOW_MS + 2, 0)
    assert log.offset_for_timestamp(NOW_MS + 5) == (6, NOW_MS + 100, 0)
    assert log.offset_of_max_timestamp() == (6, NOW_MS + 100, 0)


def test_times_are_looked_for_in_records_and_in_compressed_ones(tmp_path: Path) -> None:
    from minibroker.protocol.records.building import build_batch
    from minibroker.protocol.records.record import Record

    log = open_at(tmp_path)
    for compression in range(5):
        stamps = [Record(timestamp=NOW_MS + 10 * compression + delta, value=b"v") for delta in (0, 3, 2, 3)]
        append(log, build_batch(stamps, compression=compression))
    assert log.offset_for_timestamp(NOW_MS + 41) == (17, NOW_MS + 43, 0)
    assert log.offset_of_max_timestamp() == (17, NOW_MS + 43, 0)


def test_records_before_the_log_start_are_not_found(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    log.delete_before(25)
    assert log.offset_for_timestamp(NOW_MS) == (25, NOW_MS + 120, 0)


def test_a_log_without_times_has_no_largest_one(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    assert log.offset_of_max_timestamp() is None
    append(log, batch(3, timestamp=-1))
    assert log.offset_of_max_timestamp() is None
    assert log.offset_for_timestamp(0) is None


def test_the_largest_timestamp_may_lie_in_an_older_segment(tmp_path: Path) -> None:
    log = open_at(tmp_path, SMALL)
    for number in range(30):
        append(log, batch(2, timestamp=NOW_MS - number))
    assert log.offset_of_max_timestamp() == (0, NOW_MS, 0)
    log.close()
    assert open_at(tmp_path, SMALL).offset_of_max_timestamp() == (0, NOW_MS, 0)


# --- leader epochs and producers --------------------------------------------------------------------------------------


def test_a_new_leader_epoch_is_written_down_with_its_first_offset(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    assert log.leader_epoch == -1
    for leader_epoch in (0, 0, 3, 3, 4):
        append(log, batch(2), leader_epoch)
    assert log.leader_epoch == 4
    assert files_in(tmp_path)["leader-epoch-checkpoint"] == b"0\n3\n0 0\n3 4\n4 8\n"
    assert log.end_offset_for_epoch(3) == (3, 8)
    assert log.end_offset_for_epoch(4) == (4, 10)


def test_producers_are_known_by_what_they_appended(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    first, second = (batch(2, producer_id=7, producer_epoch=0, base_sequence=sequence) for sequence in (0, 2))
    append(log, batch(5))
    append(log, first)
    assert log.producers.check(check_batch(first)) == (5, NOW_MS)
    assert log.producers.check(check_batch(second)) is None


# --- cutting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 1, 2, 17, 20, 59, 60, 100])
def test_truncation_removes_the_batch_of_an_offset_and_all_after_it(tmp_path: Path, offset: int) -> None:
    log = open_at(tmp_path, SMALL)
    for number in range(30):
        append(
            log,
            batch(2, timestamp=NOW_MS + number, producer_id=7, producer_epoch=0, base_sequence=2 * number),
            leader_epoch=number // 10,
        )
    end = min(offset - offset % 2, 60)
    log.truncate_to(offset)
    assert log.log_end_offset == log.high_watermark == end
    assert [value[0] for value in read_values(log)] == list(range(end))
    assert log.leader_epoch == (end - 1) // 20
    latest = log.offset_of_max_timestamp()
    assert (latest.timestamp if latest else None) == (NOW_MS + end // 2 - 1 if end else None)
    again = batch(2, producer_id=7, producer_epoch=0, base_sequence=end)
    assert log.producers.check(check_batch(again)) is None
    assert append(log, again) == end
    assert len(read_values(log)) == end + 2


def test_deleting_records_moves_the_start_and_removes_whole_segments_later(tmp_path: Path) -> None:
    surroundings = Surroundings()
    log = open_at(tmp_path, SMALL._replace(file_delete_delay_ms=77), surroundings=surroundings)
    for number in range(30):
        append(log, batch(2), leader_epoch=number // 10)
    second = log.segments[1].base_offset
    third = log.segments[2].base_offset
    log.delete_before(second - 1)
    assert log.log_start_offset == second - 1
    assert log.segments[0].base_offset == 0
    log.delete_before(third + 1)
    assert log.log_start_offset == third + 1
    assert log.segments[0].base_offset == third
    assert log.epochs.entries()[0][1] == third + 1
    with pytest.raises(KafkaError) as raised:
        log.read(third, 100)
    assert code_of(raised) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert [value[0] for value in read_values(log)] == list(range(third, 60))
    assert "00000000000000000000.log.deleted" in files_in(tmp_path)
    assert {delay for delay, _ in surroundings.scheduled} == {77}
    surroundings.run_scheduled()
    assert not any(name.endswith(".deleted") for name in files_in(tmp_path))
    log.delete_before(3)
    assert log.log_start_offset == third + 1


def test_all_records_may_be_deleted_but_not_those_to_come(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    log.delete_before(60)
    assert log.read(60, 100) is None
    assert append(log, batch(1)) == 60
    with pytest.raises(KafkaError) as raised:
        log.delete_before(62)
    assert code_of(raised) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_segment_file_that_cannot_be_removed_stays_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    surroundings = Surroundings(disk := FailingDisk())
    log = open_at(tmp_path, SMALL, surroundings=surroundings)
    for _ in range(30):
        append(log, batch(2))
    log.delete_before(60)
    monkeypatch.setattr(disk, "remove", lambda path: disk.ask("remove", path))
    disk.failing = {"remove"}
    surroundings.run_scheduled()
    assert "stays until the next start" in caplog.text


# --- a disk that fails ------------------------------------------------------------------------------------------------


def failing_log(directory: Path, settings: LogSettings = SMALL) -> tuple[Log, FailingDisk]:
    disk = FailingDisk()
    log = open_at(directory, settings, surroundings=Surroundings(disk))
    for _ in range(5):
        append(log, batch(2))
    return log, disk


def assert_append_fails(log: Log, **options: int) -> None:
    end, values = log.log_end_offset, read_values(log)
    with pytest.raises(KafkaError) as raised:
        append(log, batch(2, value=b"lost", **options))
    assert code_of(raised) == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.log_end_offset == end
    assert read_values(log) == values


@pytest.mark.parametrize("room_bytes", [0, 1, 60, 61, 75])
def test_an_append_cut_short_by_a_full_disk_leaves_the_log_as_it_was(tmp_path: Path, room_bytes: int) -> None:
    log, disk = failing_log(tmp_path)
    disk.room_bytes = room_bytes
    assert_append_fails(log, producer_id=7, producer_epoch=0, base_sequence=0)
    assert len(log.producers) == 0
    disk.room_bytes = None
    assert append(log, batch(1, value=b"x")) == 10
    log.close()
    assert read_values(open_at(tmp_path))[-1] == (10, b"x0")


def test_a_failed_append_leaves_nothing_that_a_clean_stop_would_keep(tmp_path: Path) -> None:
    log, disk = failing_log(tmp_path)
    disk.room_bytes = 70
    assert_append_fails(log)
    disk.room_bytes = None
    log.close()
    log = open_at(tmp_path)
    assert log.log_end_offset == 10
    assert (tmp_path / "00000000000000000000.log").stat().st_size == log.size_bytes


def test_what_a_failed_append_left_is_cut_off_before_the_log_goes_on(tmp_path: Path) -> None:
    log, disk = failing_log(tmp_path)
    disk.room_bytes = 75
    assert_append_fails(log)
    disk.room_bytes = None
    disk.failing = {"truncate"}
    assert_append_fails(log)
    disk.failing = set()
    append(log, batch(1))
    assert (tmp_path / "00000000000000000000.log").stat().st_size == log.size_bytes


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".snapshot", ".snapshot.tmp"])
def test_a_roll_that_fails_leaves_the_log_as_it_was(tmp_path: Path, suffix: str) -> None:
    log, disk = failing_log(tmp_path, SMALL._replace(segment_bytes=5 * len(batch(2))))
    disk.failing, disk.suffix = {"create", "write", "rename"}, suffix
    for _ in range(2):
        assert_append_fails(log)
    with pytest.raises(KafkaError):
        log.roll()
    disk.failing = set()
    assert append(log, batch(2)) == 10
    assert [segment.base_offset for segment in log.segments] == [0, 10]
    log.close()
    assert len(read_values(open_at(tmp_path))) == 12


def test_an_epoch_that_cannot_be_written_down_costs_no_append(tmp_path: Path) -> None:
    log, disk = failing_log(tmp_path)
    disk.failing, disk.suffix = {"create"}, "leader-epoch-checkpoint.tmp"
    append(log, batch(1), leader_epoch=9)
    disk.failing = set()
    log.close()
    assert open_at(tmp_path).leader_epoch == 9


def test_a_read_that_fails_is_a_storage_error_and_the_next_may_succeed(tmp_path: Path) -> None:
    log, disk = failing_log(tmp_path)
    disk.failing = {"read"}
    for attempt in (
        lambda: log.read(3, 10),
        lambda: log.offset_for_timestamp(NOW_MS),
        lambda: log.offset_of_max_timestamp(),
        lambda: log.truncate_to(3),
    ):
        with pytest.raises(KafkaError) as raised:
            attempt()
        assert code_of(raised) == ErrorCode.KAFKA_STORAGE_ERROR
    disk.failing = set()
    assert len(read_values(log)) == 10


def test_a_sync_that_fails_takes_the_log_offline_until_the_next_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, disk = failing_log(tmp_path)
    disk.failing = {"sync"}
    with pytest.raises(KafkaError) as raised:
        log.flush()
    assert code_of(raised) == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.recovery_point == 0
    disk.failing = set()
    for attempt in (log.flush, log.close, log.roll, lambda: append(log, batch(2))):
        with pytest.raises(KafkaError, match="orders-0 is offline until the next start") as raised:
            attempt()
        assert code_of(raised) == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.offline in caplog.text
    log.abandon()
    assert open_at(tmp_path, clean=False).log_end_offset == 10


def test_a_stored_batch_that_has_become_nonsense_is_not_served(tmp_path: Path) -> None:
    log = log_of(tmp_path, 5, LogSettings())
    size = len(batch(2))
    with open(tmp_path / "00000000000000000000.log", "r+b") as file:
        file.seek(2 * size + 8)
        file.write(b"\x7f")
    with pytest.raises(KafkaError, match=f"no batch at {2 * size}") as raised:
        log.read(7, 100)
    assert code_of(raised) == ErrorCode.CORRUPT_MESSAGE


# --- settings ---------------------------------------------------------------------------------------------------------


def test_other_settings_act_from_the_next_append_on(tmp_path: Path) -> None:
    log = log_of(tmp_path, 5, LogSettings())
    log.update_settings(LogSettings(segment_bytes=len(batch(2)) * 6, index_interval_bytes=1))
    for _ in range(3):
        append(log, batch(2))
    assert [segment.base_offset for segment in log.segments] == [0, 12]
    assert log.segments[0].indexes.offsets.count == 1
    log.update_settings(LogSettings(segment_index_bytes=8))
    append(log, batch(2))
    assert len(log.segments) == 3
