"""A sync that failed, and what the next start does about it: on a disk that forgets what it was asked to sync.

That the log goes offline is tested in `test_flushing.py`.
"""

from __future__ import annotations

import pytest

from minibroker.storage.log import Log
from minibroker.storage.recovery.failed_sync import FAILED_SYNC
from minibroker.storage.recovery.recovery import LogDirectoryError
from tests.storage.faulty_disk import FaultyDisk
from tests.storage.support import Losing, Surroundings, append, batch, open_at, read_values

DIRECTORY = "/data/orders-0"
FIRST = f"{DIRECTORY}/00000000000000000000.log"
NOTE = f"{DIRECTORY}/{FAILED_SYNC}"


@pytest.fixture
def disk() -> FaultyDisk:
    """A power cut takes all from it that was not synced."""
    made = FaultyDisk(Losing())
    made.make_directory(DIRECTORY)
    made.sync_directory("/")
    made.sync_directory("/data")
    return made


def crashed(disk: FaultyDisk) -> Log:
    return open_at(DIRECTORY, clean=False, surroundings=Surroundings(disk))


def fail_to_flush(disk: FaultyDisk, *operations: str, suffix: str = "") -> None:
    """A log of ten records, whose sync fails, is given up."""
    log = open_at(DIRECTORY, surroundings=Surroundings(disk))
    append(log, batch(10))
    disk.failing, disk.suffix = {"sync", *operations}, suffix
    log.flush_soon()
    disk.heal()
    assert log.offline
    log.close_without_flush()


def test_a_start_after_a_failed_fsync_rewrites_the_data(disk: FaultyDisk, caplog: pytest.LogCaptureFixture) -> None:
    fail_to_flush(disk, suffix=".log")
    assert disk.holds(NOTE)
    crashed(disk)
    assert f"{DIRECTORY}: a sync has failed, the data is written again" in caplog.text
    assert not disk.holds(NOTE)
    disk.cut_power()
    assert len(read_values(crashed(disk))) == 10


def test_a_start_without_the_marker_of_the_failed_fsync_loses_the_data(disk: FaultyDisk) -> None:
    """Otherwise the test above would pass on any disk."""
    fail_to_flush(disk, suffix=".log")
    disk.remove(NOTE)
    log = crashed(disk)
    assert len(read_values(log)) == 10
    log.flush()
    disk.cut_power()
    assert len(read_values(crashed(disk))) == 0


def test_only_data_from_the_recovery_point_on_is_rewritten(disk: FaultyDisk) -> None:
    log = open_at(DIRECTORY, surroundings=Surroundings(disk))
    for _ in range(4):
        append(log, batch(10, value=b"v" * 50_000))
        log.roll_segment_if_used()
    log.close_without_flush()
    disk.open(NOTE, create=True)
    disk.failing, disk.suffix = {"write"}, "00000000000000000010.log.tmp"
    log = open_at(DIRECTORY, clean=False, recovery_point=25, surroundings=Surroundings(disk))
    assert len(read_values(log)) == 40
    log.close_without_flush()
    disk.open(NOTE, create=True)
    with pytest.raises(LogDirectoryError, match="Input/output error"):
        open_at(DIRECTORY, clean=False, recovery_point=15, surroundings=Surroundings(disk))


def test_a_machine_restart_is_requested_if_the_marker_of_a_failed_fsync_cannot_be_created(
    disk: FaultyDisk, caplog: pytest.LogCaptureFixture
) -> None:
    fail_to_flush(disk, "create")
    assert not disk.holds(NOTE)
    assert f"{NOTE} cannot be created" in caplog.text
    assert "restart the machine before the log is used again" in caplog.text


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename"])
def test_data_that_one_start_cannot_rewrite_after_a_failed_fsync_is_rewritten_by_the_next(
    disk: FaultyDisk, operation: str
) -> None:
    fail_to_flush(disk, suffix=".log")
    disk.failing, disk.suffix = {operation}, ".log" if operation == "rename" else ".log.tmp"
    with pytest.raises(LogDirectoryError):
        crashed(disk)
    disk.heal()
    assert disk.holds(NOTE)
    crashed(disk)
    disk.cut_power()
    assert len(read_values(crashed(disk))) == 10


def test_rewriting_keeps_the_modification_time_of_a_segment(disk: FaultyDisk) -> None:
    fail_to_flush(disk)
    disk.set_modified_ms(FIRST, 12_345)
    log = crashed(disk)
    assert disk.get_modified_ms(FIRST) == 12_345
    append(log, batch(1))
    assert len(read_values(log)) == 11


def test_a_truncation_whose_fsync_fails_leaves_a_marker_for_the_next_start(disk: FaultyDisk) -> None:
    log = open_at(DIRECTORY, surroundings=Surroundings(disk))
    append(log, batch(10))
    log.close_without_flush()
    disk.flip_bit(FIRST, 100)
    disk.failing = {"sync"}
    with pytest.raises(LogDirectoryError):
        crashed(disk)
    assert disk.holds(NOTE)
    disk.heal()
    log = crashed(disk)
    append(log, batch(1))
    log.flush()
    size = disk.size_bytes(FIRST)
    disk.cut_power()
    assert disk.size_bytes(FIRST) == size
