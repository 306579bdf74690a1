"""Opening logs after power cuts, which take any part of what was not synced, and after failures of the disk.

Damage made by hand is in `test_recovery.py`, random histories are in `simulation.py`.
"""

from __future__ import annotations

import pytest

from minibroker.storage.log import Log
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.producers.transaction_markers import TransactionMarker, make_marker_batch
from tests.storage.faulty_disk import FaultyDisk
from tests.storage.support import NOW_MS, Losing, Surroundings, append, batch, open_at, read_values

DIRECTORY = "/data/orders-0"
SETTINGS = LogSettings(segment_bytes=200, index_interval_bytes=50)
COMPACTED = SETTINGS._replace(cleanup_policy=frozenset({"compact"}))


@pytest.fixture
def disk() -> FaultyDisk:
    """A power cut takes all from it that was not synced."""
    made = FaultyDisk(Losing())
    made.make_directory("/data")
    made.sync_directory("/")
    return made


def opened(
    disk: FaultyDisk, settings: LogSettings = SETTINGS, *, clean: bool = False, start: int = 0, point: int = 0
) -> Log:
    surroundings = Surroundings(disk)
    return open_at(
        DIRECTORY, settings, clean=clean, log_start_offset=start, recovery_point=point, surroundings=surroundings
    )


def write_log(disk: FaultyDisk, batches: int = 9) -> Log:
    """A log of batches of two records, two in a segment, with a new leader epoch each third."""
    log = opened(disk)
    for number in range(batches):
        append(log, batch(2), leader_epoch=number // 3)
    return log


def offsets(log: Log) -> list[int]:
    return [offset for offset, _ in read_values(log)]


def path(offset: int, suffix: str = ".log") -> str:
    return f"{DIRECTORY}/{offset:020}{suffix}"


def test_the_log_ends_before_a_missing_segment(disk: FaultyDisk, caplog: pytest.LogCaptureFixture) -> None:
    write_log(disk).close_without_flush()
    disk.remove(path(8))
    log = opened(disk)
    assert offsets(log) == list(range(8))
    assert "it ends at offset 8, and the next segment begins at 12" in caplog.text
    assert append(log, batch(2), leader_epoch=5) == 8
    assert [name for name in disk.list_names(DIRECTORY) if name.endswith(".log")] == [
        f"{offset:020}.log" for offset in (0, 4, 8)
    ]


def test_an_offset_gap_possibly_left_by_compaction_is_not_damage(disk: FaultyDisk) -> None:
    write_log(disk).close_without_flush()
    disk.remove(path(8))
    assert offsets(opened(disk, COMPACTED)) == [*range(8), *range(12, 18)]


def test_truncated_batches_stay_truncated_after_a_power_loss(disk: FaultyDisk) -> None:
    log = write_log(disk)
    log.flush()
    log.truncate_to(6)
    append(log, batch(2), leader_epoch=9)
    disk.cut_power()
    log = opened(disk)
    assert offsets(log) == list(range(6))
    assert log.epochs.latest == 0


def test_an_empty_segment_among_others_is_removed(disk: FaultyDisk) -> None:
    write_log(disk, 2).close_without_flush()
    disk.open(path(2), create=True)
    log = opened(disk)
    assert offsets(log) == [0, 1, 2, 3]
    assert not disk.holds(path(2))


def test_batches_truncated_by_a_recovery_stay_truncated(disk: FaultyDisk) -> None:
    log = opened(disk, LogSettings())
    for _ in range(5):
        append(log, batch(2))
    log.flush()
    log.close_without_flush()
    size = len(batch(2))
    disk.flip_bit(path(0), 3 * size + 30)
    log = opened(disk, LogSettings())
    append(log, batch(2, value=b"w"))
    disk.cut_power()
    assert disk.size_bytes(path(0)) == 3 * size
    assert offsets(opened(disk, LogSettings())) == list(range(6))


def test_trailing_bytes_between_two_segments_lose_no_records(
    disk: FaultyDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """It is there if a size was extended and cut again, and a power cut has kept only the extension."""
    write_log(disk).close_without_flush()
    size = disk.size_bytes(path(4))
    disk.open(path(4)).write(size, b"rest")
    log = opened(disk)
    assert offsets(log) == list(range(18))
    assert "lost are 4 bytes of it and 0 later segments" in caplog.text
    assert disk.size_bytes(path(4)) == size


def test_a_log_restarted_at_a_later_offset_has_a_segment_even_after_a_power_loss(disk: FaultyDisk) -> None:
    """Or the next start would give out the offsets from 0 on once more."""
    log = write_log(disk, 1)
    log.flush()
    log.close_without_flush()
    log = opened(disk, start=5)
    assert (log.log_start_offset, log.log_end_offset) == (5, 5)
    disk.cut_power()
    assert opened(disk).log_end_offset == 5


def test_the_leader_epochs_of_recovered_records_are_restored(disk: FaultyDisk) -> None:
    """A power cut may leave the epochs as they were after a deletion that it undoes."""
    log = write_log(disk)
    epochs = log.epochs.list_entries()
    log.delete_records_before(14)
    assert log.epochs.list_entries() == [(2, 14)]
    log.close_without_flush()
    for name in [name for name in disk.list_names(DIRECTORY) if name.endswith(".deleted")]:
        disk.rename(f"{DIRECTORY}/{name}", f"{DIRECTORY}/{name.removesuffix('.deleted')}")
    assert opened(disk).epochs.list_entries() == epochs
    assert opened(disk, start=7).epochs.list_entries() == [(1, 7), (2, 12)]


def test_a_log_restarted_at_a_later_offset_has_no_old_aborted_transactions(disk: FaultyDisk) -> None:
    log = opened(disk)
    append(log, batch(2, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
    log.flush()
    log.roll_segment_if_used()
    append(log, make_marker_batch(7, 0, TransactionMarker(False, 0), NOW_MS))
    log.close_without_flush()
    assert disk.holds(path(2, ".txnindex"))
    disk.open(path(0)).truncate(10)
    log = opened(disk, start=2)
    assert (log.log_start_offset, log.log_end_offset) == (2, 2)
    assert not log.list_aborted_transactions(0, 100)
    assert not disk.holds(path(2, ".txnindex"))
