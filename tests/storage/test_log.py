"""One open log on a disk that works: appending, what it knows of epochs and producers, and cutting.

Reading is in `test_log_reading.py`, rolling in `test_log_rolling.py`; what happens between a stop and a start is tested
in `test_recovery.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.records.batch import check_batch
from minibroker.storage.log_settings import LogSettings
from tests.storage.support import (
    NOW_MS,
    SMALL,
    Surroundings,
    append,
    batch,
    code_of,
    files_in,
    log_of,
    offset_of_max_timestamp,
    open_at,
    read_batches,
    read_values,
)

# --- appending --------------------------------------------------------------------------------------------------------


def test_batches_get_consecutive_offsets_and_are_read_unchanged(tmp_path: Path) -> None:
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


def test_several_batches_are_appended_atomically(tmp_path: Path) -> None:
    log = open_at(tmp_path, LogSettings(index_interval_bytes=1))
    data = batch(3) + batch(2) + batch(1)
    headers = [check_batch(batch(count)) for count in (3, 2, 1)]
    assert log.append(data, headers, 0) == 0
    assert [check_batch(data).base_offset for data in read_batches(log)] == [0, 3, 5]
    assert log.segments[0].indexes.offsets.list_entries() == [(4, len(batch(3))), (5, len(batch(3)) + len(batch(2)))]


def test_each_of_several_batches_appended_together_is_recognized_as_a_duplicate(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    several = [batch(2, producer_id=producer_id, producer_epoch=0, base_sequence=0) for producer_id in (7, 8, 9)]
    headers = [check_batch(data) for data in several]
    log.append(bytearray().join(several), headers, 0)
    assert [original[0] for header in headers if (original := log.producers.check_epoch_and_sequence(header))] == [
        0,
        2,
        4,
    ]


def test_a_truncation_to_the_end_changes_nothing(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    append(log, batch(2))
    generation, files = log.truncation_generation, files_in(tmp_path)
    log.truncate_to(2)
    assert (log.truncation_generation, log.log_end_offset, files_in(tmp_path)) == (generation, 2, files)


def test_a_log_may_start_at_any_offset(tmp_path: Path) -> None:
    log = open_at(tmp_path, log_start_offset=1 << 40)
    assert append(log, batch(2)) == 1 << 40
    assert [offset for offset, _ in read_values(log)] == [1 << 40, (1 << 40) + 1]
    assert f"{1 << 40:020d}.log" in files_in(tmp_path)


# --- leader epochs and producers --------------------------------------------------------------------------------------


def test_a_new_leader_epoch_is_recorded_with_its_first_offset(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    assert log.leader_epoch == -1
    for leader_epoch in (0, 0, 3, 3, 4):
        append(log, batch(2), leader_epoch)
    assert log.leader_epoch == 4
    assert files_in(tmp_path)["leader-epoch-checkpoint"] == b"0\n3\n0 0\n3 4\n4 8\n"
    assert log.find_end_offset_of_epoch(3) == (3, 8)
    assert log.find_end_offset_of_epoch(4) == (4, 10)


def test_appends_update_the_producer_states(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    first, second = (batch(2, producer_id=7, producer_epoch=0, base_sequence=sequence) for sequence in (0, 2))
    append(log, batch(5))
    append(log, first)
    assert log.producers.check_epoch_and_sequence(check_batch(first)) == (5, NOW_MS)
    assert log.producers.check_epoch_and_sequence(check_batch(second)) is None


# --- cutting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 1, 2, 17, 20, 59, 60, 100])
def test_truncation_removes_the_batch_that_contains_the_offset_and_later_ones(tmp_path: Path, offset: int) -> None:
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
    latest = offset_of_max_timestamp(log)
    assert (latest.timestamp if latest else None) == (NOW_MS + end // 2 - 1 if end else None)
    again = batch(2, producer_id=7, producer_epoch=0, base_sequence=end)
    assert log.producers.check_epoch_and_sequence(check_batch(again)) is None
    assert append(log, again) == end
    assert len(read_values(log)) == end + 2


def test_deleting_records_raises_the_log_start_and_removes_whole_segments_later(tmp_path: Path) -> None:
    surroundings = Surroundings()
    log = open_at(tmp_path, SMALL._replace(file_delete_delay_ms=77), surroundings=surroundings)
    for number in range(30):
        append(log, batch(2), leader_epoch=number // 10)
    second = log.segments[1].base_offset
    third = log.segments[2].base_offset
    log.delete_records_before(second - 1)
    assert log.log_start_offset == second - 1
    assert log.segments[0].base_offset == 0
    log.delete_records_before(third + 1)
    assert log.log_start_offset == third + 1
    assert log.segments[0].base_offset == third
    assert log.epochs.list_entries()[0][1] == third + 1
    with pytest.raises(KafkaError) as raised:
        log.read(third, 100)
    assert code_of(raised) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert [value[0] for value in read_values(log)] == list(range(third, 60))
    assert "00000000000000000000.log.deleted" in files_in(tmp_path)
    assert {delay for delay, _ in surroundings.scheduled} == {77}
    surroundings.run_scheduled()
    assert not any(name.endswith(".deleted") for name in files_in(tmp_path))
    log.delete_records_before(3)
    assert log.log_start_offset == third + 1


def test_deleting_records_within_a_segment_writes_nothing_until_the_log_is_closed(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    append(log, batch(4), leader_epoch=0)
    append(log, batch(4), leader_epoch=3)
    before = files_in(tmp_path)
    log.delete_records_before(6)
    assert files_in(tmp_path) == before
    assert open_at(tmp_path, clean=False).epochs.list_entries() == [(0, 0), (3, 4)]  # nor is the new start known, then
    log.close()
    assert files_in(tmp_path)["leader-epoch-checkpoint"] == b"0\n1\n3 6\n"


def test_all_records_may_be_deleted_but_not_beyond_the_high_watermark(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    log.delete_records_before(60)
    assert log.read(60, 100) is None
    assert append(log, batch(1)) == 60
    with pytest.raises(KafkaError) as raised:
        log.delete_records_before(62)
    assert code_of(raised) == ErrorCode.OFFSET_OUT_OF_RANGE
