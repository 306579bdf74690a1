"""Single operations of a log that a failing disk ends: what each leaves behind, and whether the next can succeed.

A disk on which more goes wrong is in `test_log_faults.py`.
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
    SMALL,
    FailingDisk,
    Surroundings,
    append,
    batch,
    code_of,
    offset_for_timestamp,
    offset_of_max_timestamp,
    open_at,
    read_values,
)


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
def test_an_append_interrupted_by_a_full_disk_leaves_the_log_unchanged(tmp_path: Path, room_bytes: int) -> None:
    log, disk = failing_log(tmp_path)
    disk.room_bytes = room_bytes
    assert_append_fails(log, producer_id=7, producer_epoch=0, base_sequence=0)
    assert len(log.producers) == 0
    disk.room_bytes = None
    assert append(log, batch(1, value=b"x")) == 10
    log.close()
    assert read_values(open_at(tmp_path))[-1] == (10, b"x0")


def test_a_failed_append_leaves_nothing_for_a_clean_stop_to_keep(tmp_path: Path) -> None:
    log, disk = failing_log(tmp_path)
    disk.room_bytes = 70
    assert_append_fails(log)
    disk.room_bytes = None
    log.close()
    log = open_at(tmp_path)
    assert log.log_end_offset == 10
    assert (tmp_path / "00000000000000000000.log").stat().st_size == log.size_bytes


def test_a_start_after_a_crash_finds_no_batch_of_an_interrupted_append(tmp_path: Path) -> None:
    log, disk = failing_log(tmp_path, LogSettings())
    parts = [batch(1, value=b"lost"), batch(1, value=b"lost")]
    disk.room_bytes = len(parts[0]) + 1
    with pytest.raises(KafkaError) as raised:
        log.append(bytearray().join(parts), [check_batch(part) for part in parts], 0)
    assert code_of(raised) == ErrorCode.KAFKA_STORAGE_ERROR
    assert (tmp_path / "00000000000000000000.log").stat().st_size == log.size_bytes
    assert open_at(tmp_path, clean=False).log_end_offset == log.log_end_offset == 10


def test_bytes_of_a_failed_append_are_truncated_before_the_next(tmp_path: Path) -> None:
    log, disk = failing_log(tmp_path)
    disk.room_bytes, disk.failing = 75, {"truncate"}
    assert_append_fails(log)
    disk.room_bytes = None
    assert_append_fails(log)
    disk.failing = set()
    append(log, batch(1))
    assert (tmp_path / "00000000000000000000.log").stat().st_size == log.size_bytes


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".snapshot", ".snapshot.tmp"])
def test_a_failed_roll_leaves_the_log_unchanged(tmp_path: Path, suffix: str) -> None:
    log, disk = failing_log(tmp_path, SMALL._replace(segment_bytes=5 * len(batch(2))))
    disk.failing, disk.suffix = {"create", "write", "rename"}, suffix
    for _ in range(2):
        assert_append_fails(log)
    with pytest.raises(KafkaError):
        log.roll_segment_if_used()
    disk.failing = set()
    assert append(log, batch(2)) == 10
    assert [segment.base_offset for segment in log.segments] == [0, 10]
    log.close()
    assert len(read_values(open_at(tmp_path))) == 12


def test_an_epoch_checkpoint_that_cannot_be_written_fails_no_append(tmp_path: Path) -> None:
    log, disk = failing_log(tmp_path)
    disk.failing, disk.suffix = {"create"}, "leader-epoch-checkpoint.tmp"
    append(log, batch(1), leader_epoch=9)
    disk.failing = set()
    log.close()
    assert open_at(tmp_path).leader_epoch == 9


def test_a_failed_read_is_a_storage_error_and_the_next_may_succeed(tmp_path: Path) -> None:
    log, disk = failing_log(tmp_path)
    disk.failing = {"read"}
    for attempt in (
        lambda: log.read(3, 10),
        lambda: offset_for_timestamp(log, NOW_MS),
        lambda: offset_of_max_timestamp(log),
        lambda: log.truncate_to(3),
    ):
        with pytest.raises(KafkaError) as raised:
            attempt()
        assert code_of(raised) == ErrorCode.KAFKA_STORAGE_ERROR
    disk.failing = set()
    assert len(read_values(log)) == 10


def test_a_failed_fsync_takes_the_log_offline_until_the_next_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, disk = failing_log(tmp_path)
    disk.failing = {"sync"}
    with pytest.raises(KafkaError) as raised:
        log.flush()
    assert code_of(raised) == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.recovery_point == 0
    disk.failing = set()
    for attempt in (log.flush, log.close, log.roll_segment_if_used, lambda: append(log, batch(2))):
        with pytest.raises(KafkaError, match="orders-0 is offline until the next start") as raised:
            attempt()
        assert code_of(raised) == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.offline in caplog.text
    log.close_without_flush()
    assert open_at(tmp_path, clean=False).log_end_offset == 10


def test_a_segment_file_that_cannot_be_removed_stays_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    surroundings = Surroundings(disk := FailingDisk())
    log = open_at(tmp_path, SMALL, surroundings=surroundings)
    for _ in range(30):
        append(log, batch(2))
    log.delete_records_before(60)
    monkeypatch.setattr(disk, "remove", lambda path: disk.ask("remove", path))
    disk.failing = {"remove"}
    surroundings.run_scheduled()
    assert "stays until the next start" in caplog.text
