"""Group commit: one flush of a log at a time, who asks then shares the next one, and nobody is called too early."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.storage.environment import run_and_return_error
from minibroker.storage.files import Disk, File
from minibroker.storage.log import Environment, Log
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.recovery.recovery import Checkpoints, create_log, open_log
from tests.storage.support import NOW_MS, Aside, append, batch, open_at, read_values

INDEXED = LogSettings(index_interval_bytes=1)


class NotedFile(File):
    """A file that notes on its disk that it was synced."""

    __slots__ = ("disk",)

    disk: NotingDisk

    def sync(self) -> None:
        self.disk.ask(self.path)


class NotingDisk(Disk):
    """A disk that notes what was synced, by name, and fails to for the names in `failing`."""

    def __init__(self) -> None:
        self.synced: list[str] = []
        self.failing: set[str] = set()
        self.code = errno.EIO

    def ask(self, path: str) -> None:
        name = os.path.basename(path)
        if name in self.failing:
            raise OSError(self.code, os.strerror(self.code), path)
        self.synced.append(name)

    def make_file(self, path: str, fd: int) -> File:
        file = NotedFile(path, fd)
        file.disk = self
        return file

    def sync_directory(self, path: str) -> None:
        self.ask(path)


class Waiters:
    """The waiters, by name, with what each was called with, in that order."""

    def __init__(self) -> None:
        self.told: list[tuple[str, KafkaError | None]] = []

    def __getitem__(self, name: str) -> Callable[[KafkaError | None], None]:
        return lambda failure: self.told.append((name, failure))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.told]


@pytest.fixture
def aside() -> Aside:
    return Aside()


@pytest.fixture
def disk() -> NotingDisk:
    return NotingDisk()


@pytest.fixture
def waiters() -> Waiters:
    return Waiters()


def opened(directory: Path, disk: Disk, aside: Aside, settings: LogSettings = INDEXED) -> Log:
    directory.mkdir(exist_ok=True)
    environment = Environment(disk, lambda: 0, lambda delay_ms, callback: None, aside.take)
    return open_log(environment, str(directory), ("orders", 0), settings, Checkpoints(clean=True))


def append_several(log: Log, count: int = 3, **options: int) -> None:
    """Append batches of a record each, so that the indexes get entries."""
    for number in range(count):
        append(log, batch(1, timestamp=NOW_MS + log.log_end_offset, **options), number // count)


@pytest.fixture
def log(tmp_path: Path, disk: NotingDisk, aside: Aside) -> Log:
    return opened(tmp_path / "orders-0", disk, aside)


def test_a_waiter_is_called_once_all_earlier_appends_are_fsynced(
    log: Log, aside: Aside, waiters: Waiters, disk: NotingDisk
) -> None:
    append(log, batch(2))
    log.flush_soon(waiters["first"])
    append(log, batch(2))
    assert (waiters.told, disk.synced, log.recovery_point) == ([], [], 0)
    aside.do()
    assert waiters.told == [("first", None)]
    assert "00000000000000000000.log" in disk.synced
    assert log.recovery_point == 2


def test_flush_requests_during_a_flush_share_the_next_one(log: Log, aside: Aside, waiters: Waiters) -> None:
    for name in "abcd":
        append(log, batch(2))
        log.flush_soon(waiters[name])
    assert len(aside.jobs) == 1
    aside.do()
    assert waiters.names == ["a"]
    assert (log.recovery_point, len(aside.jobs)) == (2, 1)
    aside.do()
    assert waiters.names == ["a", "b", "c", "d"]
    assert (log.recovery_point, len(aside.jobs)) == (8, 0)


def test_a_failing_waiter_is_logged_and_the_others_are_called(
    log: Log, aside: Aside, waiters: Waiters, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(failure: KafkaError | None) -> None:
        raise ZeroDivisionError("a mistake of mine")

    append(log, batch(1))
    for waiter in (waiters["first"], fail, waiters["last"]):
        log.flush_soon(waiter)
    aside.do()
    assert waiters.told == [("first", None), ("last", None)]
    assert "ZeroDivisionError: a mistake of mine" in caplog.text


def test_the_next_flush_begins_before_the_waiters_of_the_last_one_are_called(
    log: Log, aside: Aside, waiters: Waiters
) -> None:
    begun: list[int] = []
    append(log, batch(1))
    log.flush_soon(lambda failure: begun.append(len(aside.jobs)))
    append(log, batch(1))
    log.flush_soon(waiters["next"])
    aside.do()
    assert begun == [1]


def test_a_flush_fsyncs_changed_directories_and_leader_epochs(
    log: Log, aside: Aside, disk: NotingDisk, tmp_path: Path
) -> None:
    append(log, batch(1), leader_epoch=0)
    log.flush_soon()
    aside.do()
    assert disk.synced == [
        "leader-epoch-checkpoint",
        "00000000000000000000.log",
        "orders-0",
        tmp_path.name,
    ]
    disk.synced.clear()
    append(log, batch(1), leader_epoch=0)
    log.flush_soon()
    aside.do()
    assert disk.synced == ["00000000000000000000.log"]
    disk.synced.clear()
    append(log, batch(1), leader_epoch=1)
    log.flush_soon()
    aside.do()
    assert disk.synced == ["leader-epoch-checkpoint", "00000000000000000000.log", "orders-0", tmp_path.name]


def test_a_roll_fsyncs_the_old_segment_with_its_indexes_and_producers(log: Log, aside: Aside, disk: NotingDisk) -> None:
    append_several(log)
    log.roll_segment_if_used()
    assert (len(aside.jobs), log.recovery_point) == (1, 0)
    append(log, batch(1))
    aside.do()
    assert set(disk.synced) > {
        "00000000000000000000.log",
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "00000000000000000003.snapshot",
        "00000000000000000003.log",
        "orders-0",
    }
    assert log.recovery_point == 3


def test_the_recovery_point_stays_in_a_rolled_segment_until_its_indexes_are_fsynced(
    log: Log, aside: Aside, disk: NotingDisk
) -> None:
    append(log, batch(2))
    log.flush_soon()
    aside.do()
    assert log.recovery_point == 2
    log.roll_segment_if_used()
    assert log.recovery_point == 1  # a crash now must have the old segment read again
    aside.do()
    assert log.recovery_point == 2
    append(log, batch(2))
    log.flush_soon()
    log.roll_segment_if_used()
    aside.do()
    assert log.recovery_point == 3  # this flush began when the segment was still being written to
    aside.do()
    assert log.recovery_point == 4


def test_a_flush_started_before_a_truncation_does_not_advance_the_recovery_point(
    log: Log, aside: Aside, waiters: Waiters
) -> None:
    for _ in range(3):
        append(log, batch(2))
    log.flush_soon(waiters["early"])
    log.truncate_to(2)
    append(log, batch(4))
    aside.do()
    assert (log.recovery_point, waiters.told) == (0, [("early", None)])


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_a_directory_that_cannot_be_opened_for_fsync_is_not_a_failed_fsync(
    log: Log, aside: Aside, disk: NotingDisk, waiters: Waiters, code: int
) -> None:
    log.update_settings(INDEXED._replace(flush_messages=2))
    append(log, batch(2))
    disk.failing, disk.code = {"orders-0"}, code
    log.flush_soon(waiters["first"])
    aside.do()
    ((_, failure),) = waiters.told
    assert failure is not None and failure.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.offline, log.recovery_point) == ("", 0)
    assert log.flusher.is_needed
    disk.failing, disk.synced = set(), []
    log.flush_soon(waiters["next"])
    aside.do()
    assert waiters.told[1:] == [("next", None)]
    assert "orders-0" in disk.synced
    assert log.recovery_point == 2


def test_a_failed_fsync_takes_the_log_offline_and_fails_all_waiters(
    log: Log, aside: Aside, disk: NotingDisk, waiters: Waiters
) -> None:
    append(log, batch(2))
    log.flush_soon(waiters["first"])
    append(log, batch(2))
    log.flush_soon(waiters["second"])
    disk.failing = {"00000000000000000000.log"}
    aside.do()
    disk.failing = set()
    assert sorted(waiters.names) == ["first", "second"]
    assert {failure.code for _, failure in waiters.told if failure} == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert (len(aside.jobs), log.recovery_point) == (0, 0)
    assert "offline until the next start" in log.offline
    log.flush_soon(waiters["third"])
    assert waiters.told[-1][1] is not None and not aside.jobs
    assert disk.synced == ["leader-epoch-checkpoint"]


def test_closing_a_log_during_a_flush_fails_no_waiter(
    log: Log, aside: Aside, disk: NotingDisk, waiters: Waiters
) -> None:
    append(log, batch(2))
    log.flush_soon(waiters["first"])
    log.close_without_flush()
    log.flush_soon(waiters["second"])
    disk.failing = {"orders-0"}
    aside.do()
    assert sorted(waiters.told) == [("first", None), ("second", None)]
    assert log.offline == ""


def test_files_deleted_during_a_flush_are_still_fsynced(log: Log, aside: Aside, waiters: Waiters) -> None:
    append(log, batch(2))
    log.flush_soon(waiters["first"])
    log.roll_segment_if_used()
    log.delete_records_before(2)
    aside.do()
    assert waiters.told == [("first", None)]


def test_a_flush_that_cannot_begin_keeps_the_log_online(tmp_path: Path, aside: Aside, waiters: Waiters) -> None:
    disk = NotingDisk()
    log = opened(tmp_path / "orders-0", disk, aside)
    append(log, batch(2))
    checkpoint = tmp_path / "orders-0" / "leader-epoch-checkpoint"
    content = checkpoint.read_bytes()
    checkpoint.unlink()
    log.flush_soon(waiters["first"])
    ((_, failure),) = waiters.told
    assert failure is not None and failure.code == ErrorCode.KAFKA_STORAGE_ERROR
    checkpoint.write_bytes(content)
    log.flush_soon(waiters["second"])
    aside.do()
    assert waiters.told[-1] == ("second", None)
    assert "leader-epoch-checkpoint" in disk.synced


@pytest.mark.parametrize("flush_messages", [1, 5])
def test_a_flush_is_due_after_flush_messages_records(
    tmp_path: Path, disk: NotingDisk, aside: Aside, flush_messages: int
) -> None:
    log = opened(tmp_path / "orders-0", disk, aside, LogSettings(flush_messages=flush_messages))
    due = []
    for _ in range(8):
        append(log, batch(2))
        due.append(log.log_end_offset >= log.flush_at)
        if due[-1]:
            log.flush_soon()
            aside.do()
    assert due == ([True] * 8 if flush_messages == 1 else [False, False, True, False, False, True, False, False])


def test_a_changed_flush_messages_counts_records_already_appended(log: Log) -> None:
    append(log, batch(4))
    assert log.log_end_offset < log.flush_at
    log.update_settings(LogSettings(flush_messages=3))
    assert log.log_end_offset >= log.flush_at
    log.update_settings(LogSettings())
    assert log.log_end_offset < log.flush_at


def test_a_stop_fsyncs_the_indexes_and_a_second_stop_nothing(
    tmp_path: Path, log: Log, aside: Aside, disk: NotingDisk
) -> None:
    append_several(log)
    log.flush_soon()
    aside.do()
    disk.synced.clear()
    log.close()
    assert {"00000000000000000000.index", "00000000000000000000.timeindex"} < set(disk.synced)
    disk.synced.clear()
    log = opened(tmp_path / "orders-0", disk, aside)
    assert read_values(log) == [(0, b"v0"), (1, b"v0"), (2, b"v0")]
    log.close()
    assert disk.synced == []


def test_a_second_flush_fsyncs_nothing(log: Log, disk: NotingDisk) -> None:
    append_several(log)
    log.flush()
    disk.synced.clear()
    log.flush()
    assert disk.synced == []


def test_a_stop_fsyncs_only_batches_and_names_of_a_small_new_log(
    tmp_path: Path, disk: NotingDisk, aside: Aside
) -> None:
    environment = Environment(disk, lambda: 0, lambda delay_ms, callback: None, aside.take)
    (tmp_path / "orders-0").mkdir()
    log = create_log(environment, str(tmp_path / "orders-0"), ("orders", 0), bytes(16), LogSettings())
    append(log, batch(2, producer_id=7, producer_epoch=0, base_sequence=0))
    log.close()
    assert disk.synced == ["00000000000000000000.log", "orders-0"]


def test_a_stop_fsyncs_the_changed_files(tmp_path: Path, log: Log, aside: Aside, disk: NotingDisk) -> None:
    append_several(log)
    log.close()
    log = opened(tmp_path / "orders-0", disk, aside)
    append(log, batch(1, timestamp=NOW_MS))  # no entry of the time index, as it is no later
    disk.synced.clear()
    log.close()
    assert disk.synced == ["00000000000000000000.log", "00000000000000000000.index", "orders-0"]


def test_files_left_by_a_crash_are_fsynced_by_the_next_stop(tmp_path: Path, disk: NotingDisk, aside: Aside) -> None:
    log = open_at(tmp_path / "orders-0")
    append_several(log)
    log.close_without_flush()
    environment = Environment(disk, lambda: 0, lambda delay_ms, callback: None, aside.take)
    known = Checkpoints(clean=False, recovery_point=3)
    log = open_log(environment, str(tmp_path / "orders-0"), ("orders", 0), INDEXED, known)
    assert log.recovery_point == log.log_end_offset == 3
    log.close()
    assert "00000000000000000000.index" in disk.synced


def test_the_error_of_a_failing_function_is_returned_instead_of_raised() -> None:
    assert run_and_return_error(lambda: None) is None
    error = run_and_return_error(lambda: os.stat("/nowhere/at/all"))  # type: ignore[arg-type, return-value]
    assert isinstance(error, FileNotFoundError)


def test_requests_to_a_replaced_flusher_are_forwarded_to_its_successor(
    tmp_path: Path, disk: NotingDisk, aside: Aside, waiters: Waiters
) -> None:
    old, new = opened(tmp_path / "old", disk, aside), opened(tmp_path / "new", disk, aside)
    for log in (old, new):
        append(log, batch())
    assert old.flusher.hold_back_flushes()
    old.flush_soon(waiters["while it was held"])
    old.flusher.transfer_requests_to_successor(new.flusher)
    old.close_without_flush()
    old.flush_soon(waiters["later"])
    assert waiters.names == []
    while aside.jobs:
        aside.do()
    assert waiters.told == [("while it was held", None), ("later", None)]
    assert new.recovery_point == new.log_end_offset == 1
