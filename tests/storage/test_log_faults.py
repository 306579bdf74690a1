"""A log on a disk that fails: what is refused, that the log is whole afterwards, and that it goes on when it can.

Random histories of such a disk are in `simulation.py`; single operations that fail, in `test_log_failed_operations.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.records.batch import HEADER_BYTES, check_batch
from minibroker.storage.log import Log
from minibroker.storage.log_settings import LogSettings
from tests.storage.compaction.support import COMPACT, clean, pairs
from tests.storage.faulty_disk import FaultyDisk
from tests.storage.support import (
    NOW_MS,
    Losing,
    Surroundings,
    append,
    batch,
    offset_for_timestamp,
    offset_of_max_timestamp,
    open_at,
    read_values,
)

DIRECTORY = "/data/orders-0"
FIRST = f"{DIRECTORY}/00000000000000000000.log"
SETTINGS = LogSettings(index_interval_bytes=100)


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk(Random(1))


@pytest.fixture
def log(disk: FaultyDisk) -> Log:
    """Ten batches of two records each, all of the same size."""
    made = open_at(DIRECTORY, SETTINGS, surroundings=Surroundings(disk))
    for index in range(10):
        append(made, batch(2, timestamp=NOW_MS + index))
    return made


def reopened(disk: FaultyDisk, *, clean: bool = True) -> Log:
    return open_at(DIRECTORY, SETTINGS, clean=clean, surroundings=Surroundings(disk))


def refused(attempt: Callable[[], object]) -> KafkaError:
    with pytest.raises(KafkaError) as raised:
        attempt()
    return raised.value


def test_appends_continue_when_disk_space_is_available_again(log: Log, disk: FaultyDisk) -> None:
    disk.room_bytes = 100
    assert append(log, batch(1)) == 20
    for _ in range(3):
        assert refused(lambda: append(log, batch(2))).code == ErrorCode.KAFKA_STORAGE_ERROR
        assert len(read_values(log)) == 21
    disk.heal()
    assert append(log, batch(2)) == 21
    log.close()
    assert len(read_values(reopened(disk))) == 23


@pytest.mark.parametrize("operation", ["write", "truncate", "create", "rename"])
def test_a_disk_with_occasional_failures_leaves_the_log_intact(log: Log, disk: FaultyDisk, operation: str) -> None:
    log.update_settings(SETTINGS._replace(segment_bytes=300))
    disk.failing, disk.failure_rate = {operation}, 0.5
    failures = 0
    for index in range(100):
        try:
            append(log, batch(2), leader_epoch=index // 10)
        except KafkaError as error:
            assert error.code == ErrorCode.KAFKA_STORAGE_ERROR
            failures += 1
    disk.heal()
    assert failures > 5 or operation == "truncate"
    assert [offset for offset, _ in read_values(log)] == list(range(log.log_end_offset))
    assert log.log_end_offset == 20 + 2 * (100 - failures)
    log.close_without_flush()
    assert reopened(disk, clean=False).log_end_offset == 20 + 2 * (100 - failures)


def test_a_read_only_file_system_is_readable_and_later_writable_again(log: Log, disk: FaultyDisk) -> None:
    log.close()
    log = reopened(disk)
    disk.read_only = True
    assert len(read_values(log)) == 20
    assert offset_for_timestamp(log, NOW_MS + 3) == (6, NOW_MS + 3, 0)
    for _ in range(2):
        assert refused(lambda: append(log, batch(1))).code == ErrorCode.KAFKA_STORAGE_ERROR
    assert refused(log.roll_segment_if_used).code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.heal()
    assert append(log, batch(1)) == 20
    assert len(read_values(log)) == 21


def test_a_timestamp_search_in_a_corrupt_batch_is_an_error(
    log: Log, disk: FaultyDisk, caplog: pytest.LogCaptureFixture
) -> None:
    size = len(batch(2))
    disk.flip_bit(FIRST, 3 * size + HEADER_BYTES + 5)
    found = refused(lambda: offset_for_timestamp(log, NOW_MS + 3))
    assert found.code == ErrorCode.CORRUPT_MESSAGE
    expected = f"{FIRST}: the batch at {3 * size}, offset 6, is damaged"
    assert expected in str(found) and expected in caplog.text
    assert offset_for_timestamp(log, NOW_MS + 4) == (8, NOW_MS + 4, 0)


def test_a_corrupt_newest_batch_is_not_returned_for_the_largest_timestamp(log: Log, disk: FaultyDisk) -> None:
    disk.flip_bit(FIRST, 9 * len(batch(2)) + HEADER_BYTES + 5)
    assert refused(lambda: offset_of_max_timestamp(log)).code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("bit", range(8))
@pytest.mark.parametrize("at", [16, 21, 27, 35, HEADER_BYTES, HEADER_BYTES + 7])
def test_recovery_truncates_at_a_flipped_bit_and_logs_the_position(
    log: Log, disk: FaultyDisk, caplog: pytest.LogCaptureFixture, at: int, bit: int
) -> None:
    log.close_without_flush()
    size = len(batch(2))
    disk.flip_bit(FIRST, 4 * size + at, bit)
    log = reopened(disk, clean=False)
    assert [offset for offset, _ in read_values(log)] == list(range(8))
    assert f"is cut at position {4 * size}, offset 8" in caplog.text


def test_a_file_region_is_sent_unchanged(log: Log, disk: FaultyDisk) -> None:
    """Nobody looks at it on the way (bytes stay bytes): the client's own checksum finds what is wrong."""
    disk.flip_bit(FIRST, HEADER_BYTES + 5)
    region = log.read(0, len(batch(2)))
    assert region is not None
    with pytest.raises(KafkaError):
        check_batch(region.read())


@pytest.mark.parametrize("operation", ["truncate", "remove"])
def test_a_failed_roll_leaves_no_file_that_blocks_the_next_append(disk: FaultyDisk, operation: str) -> None:
    log = open_at(DIRECTORY, SETTINGS, surroundings=Surroundings(disk))
    append(log, batch(2))
    disk.failing, disk.suffix = {"truncate", operation}, "00000000000000000002.log"
    assert refused(log.roll_segment_if_used).code == ErrorCode.KAFKA_STORAGE_ERROR
    assert disk.holds(f"{DIRECTORY}/00000000000000000002.log")
    if operation == "remove":
        assert refused(lambda: append(log, batch(2))).code == ErrorCode.KAFKA_STORAGE_ERROR
        disk.heal()
    assert append(log, batch(2)) == 2
    assert not disk.holds(f"{DIRECTORY}/00000000000000000002.log")
    disk.heal()
    log.roll_segment_if_used()
    append(log, batch(2))
    log.close_without_flush()
    assert [offset for offset, _ in read_values(reopened(disk, clean=False))] == list(range(6))


def test_a_truncation_that_fails_halfway_takes_the_log_offline(disk: FaultyDisk) -> None:
    log = open_at(DIRECTORY, SETTINGS._replace(segment_bytes=200), surroundings=Surroundings(disk))
    for _ in range(10):
        append(log, batch(2))
    disk.failing, disk.suffix = {"rename"}, "00000008.log.deleted"
    assert refused(lambda: log.truncate_to(3)).code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.heal()
    assert not log.is_open_and_online
    assert "orders-0 is offline until the next start: it could not truncate" in str(
        refused(lambda: append(log, batch(1)))
    )
    log.close_without_flush()
    log = reopened(disk, clean=False)
    assert [offset for offset, _ in read_values(log)] == list(range(log.log_end_offset))


def test_a_swap_that_fails_halfway_leaves_no_old_index_in_use(disk: FaultyDisk) -> None:
    settings = LogSettings(index_interval_bytes=0, cleanup_policy=COMPACT)
    log = open_at(DIRECTORY, settings, surroundings=Surroundings(disk))
    for index in range(6):
        append(log, pairs((f"k{index % 2}", f"v{index}"), timestamp=NOW_MS + index))
    log.roll_segment_if_used()
    disk.failing, disk.suffix = {"rename"}, ".log.deleted"
    assert refused(lambda: clean(log)).code == ErrorCode.KAFKA_STORAGE_ERROR
    for _ in range(2):
        assert read_values(log, 3) == read_values(log) == [(4, b"v4"), (5, b"v5")]
        assert offset_for_timestamp(log, NOW_MS + 5) == (5, NOW_MS + 5, 0)
        disk.heal()
        log.close_without_flush()
        log = open_at(DIRECTORY, settings, clean=False, surroundings=Surroundings(disk))


def test_a_deletion_is_durable_after_a_clean_stop() -> None:
    disk = FaultyDisk(Losing())
    disk.make_directory(DIRECTORY)
    disk.sync_directory("/")
    log = open_at(DIRECTORY, SETTINGS, surroundings=Surroundings(disk))
    for _ in range(3):
        append(log, batch(2))
        log.roll_segment_if_used()
    log.close()
    log = reopened(disk)
    log.delete_records_before(4)
    log.close()
    disk.cut_power()
    assert reopened(disk).log_start_offset == 4
