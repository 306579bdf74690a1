"""A cleaning that meets damage, a failing or full disk, or a limit: the log is left as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.records.batch import set_checksum
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record
from minibroker.storage.compaction.batch_reading import UncleanableLog
from minibroker.storage.compaction.cleaning import CleaningAborted, CleaningThrottle
from tests.storage.compaction.support import (
    SETTINGS,
    begin,
    clean,
    contents,
    fill,
    pairs,
)
from tests.storage.compaction.test_cleaning import AFTER_TWO_ROUNDS, two_rounds
from tests.storage.support import (
    NOW_MS,
    FailingDisk,
    Surroundings,
    append,
    files_in,
    open_at,
)


@pytest.mark.parametrize("segment", [0, 5])
def test_a_corrupt_log_is_not_changed_by_a_cleaning(tmp_path: Path, segment: int) -> None:
    log = two_rounds(tmp_path)
    path = tmp_path / f"{segment * 2:020d}.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    before = files_in(tmp_path)
    with pytest.raises(UncleanableLog, match=f"{path}: the batch at position 0, offset {2 * segment}, cannot be read"):
        clean(log)
    assert files_in(tmp_path) == before


def test_unreadable_records_are_reported(tmp_path: Path) -> None:
    log = open_at(tmp_path, SETTINGS)
    data = pairs(("a", "1"), ("b", "2"), compression=4)
    data[61] ^= 0xFF
    set_checksum(data, 0, len(data))
    fill(log, [pairs(("a", "0")), data])
    with pytest.raises(UncleanableLog, match="position 0, offset 1, cannot be read"):
        clean(log)


def test_a_log_with_a_record_above_max_decompressed_message_bytes_is_not_cleaned(tmp_path: Path) -> None:
    log = open_at(tmp_path, SETTINGS._replace(max_decompressed_message_bytes=1000))
    append(log, build_batch([Record(key=b"k", value=bytes(2000))], compression=1))
    append(log, build_batch([Record(key=b"k", value=b"v")], compression=1))
    log.roll_segment_if_used()
    with pytest.raises(UncleanableLog, match="max.decompressed.message.bytes is 1000"):
        clean(log)
    log.update_settings(SETTINGS)
    clean(log)
    assert contents(log) == [(1, "k", "v")]


def test_an_unreadable_transaction_index_is_reported(tmp_path: Path) -> None:
    log = two_rounds(tmp_path)
    (tmp_path / f"{2:020d}.txnindex").write_bytes(b"short")
    with pytest.raises(UncleanableLog, match=r"00000000000000000002\.txnindex cannot be read"):
        clean(log)


@pytest.mark.parametrize("operation", ["create", "write", "sync", "open"])
def test_a_disk_failure_during_a_cleaning_leaves_the_log_unchanged(tmp_path: Path, operation: str) -> None:
    disk = FailingDisk()
    log = two_rounds(tmp_path, Surroundings(disk))
    before = files_in(tmp_path)
    cleaning = begin(log)
    disk.failing = {operation}
    with pytest.raises(OSError, match="Input/output error"):
        cleaning.clean_next_segment()
    disk.failing = set()
    assert files_in(tmp_path) == before
    assert len(contents(log)) == 12
    clean(log)
    assert contents(log) == AFTER_TWO_ROUNDS


def test_a_full_disk_leaves_the_log_unchanged(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = two_rounds(tmp_path, Surroundings(disk))
    before = files_in(tmp_path)
    disk.room_bytes = 10
    with pytest.raises(OSError, match="No space left"):
        begin(log).clean_next_segment()
    assert files_in(tmp_path) == before


@pytest.mark.parametrize("suffix", [".log.swap", ".index.swap", ".timeindex.swap"])
def test_a_swap_that_cannot_begin_leaves_the_log_unchanged(tmp_path: Path, suffix: str) -> None:
    disk = FailingDisk()
    log = two_rounds(tmp_path, Surroundings(disk))
    before = files_in(tmp_path)
    cleaning = begin(log)
    assert cleaning.clean_next_segment()
    disk.failing, disk.suffix = {"rename"}, suffix
    with pytest.raises(KafkaError) as raised:
        cleaning.replace_cleaned_segments()
    assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.failing = set()
    assert files_in(tmp_path) == before
    clean(log)
    assert contents(log) == AFTER_TWO_ROUNDS


@pytest.mark.parametrize("suffix", [".log.deleted", ".log", ".index"])
def test_a_swap_that_cannot_complete_is_readable_and_completed_at_the_next_start(tmp_path: Path, suffix: str) -> None:
    disk = FailingDisk()
    log = two_rounds(tmp_path, Surroundings(disk))
    cleaning = begin(log)
    assert cleaning.clean_next_segment()
    disk.failing, disk.suffix = {"rename"}, suffix
    with pytest.raises(KafkaError) as raised:
        cleaning.replace_cleaned_segments()
    assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.failing = set()
    expected = [(7, "k0", "w3"), (9, "k1", "w4"), (10, "k2", "v5"), (11, "k2", "w5")]
    assert contents(log) == expected
    append(log, pairs(("k9", "later")))
    log.close_without_flush()
    assert contents(open_at(tmp_path, SETTINGS, clean=False)) == [*expected, (12, "k9", "later")]


def test_an_index_left_by_an_incomplete_swap_is_not_used_for_the_new_segment(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = open_at(tmp_path, SETTINGS, surroundings=Surroundings(disk))
    append(log, pairs(("a", "1")))
    fill(log, [pairs(("b", "1"), timestamp=NOW_MS + 5), pairs(("b", "2" * 300)), pairs(("c", "3" * 300))])
    cleaning = begin(log)
    assert cleaning.clean_next_segment()
    disk.failing, disk.suffix = {"rename"}, (".index.deleted", ".log")  # type: ignore[assignment]
    with pytest.raises(KafkaError):
        cleaning.replace_cleaned_segments()
    disk.failing = set()
    expected = [(0, "a", "1"), (2, "b", "2" * 300), (3, "c", "3" * 300)]
    assert contents(log) == expected
    log.close_without_flush()
    assert contents(open_at(tmp_path, SETTINGS, clean=False)) == expected


def test_new_segments_are_fsynced_before_the_old_ones_are_removed(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = two_rounds(tmp_path, Surroundings(disk))
    log.recovery_point = 10
    disk.failing, disk.suffix = {"sync"}, f"{10:020d}.log"
    with pytest.raises(OSError, match="Input/output error"):
        clean(log)
    log.recovery_point = 12
    clean(log)
    assert contents(log) == AFTER_TWO_ROUNDS


def test_a_cleaning_is_throttled_and_can_be_cancelled(tmp_path: Path) -> None:
    log = two_rounds(tmp_path)
    now_ms, waits = 0.0, 0

    def wait(seconds: float) -> None:
        nonlocal now_ms, waits
        now_ms += seconds * 1000
        waits += 1
        if waits == 40:
            cleaning.cancel()

    read_bytes = sum(segment.size_bytes for segment in log.segments)
    cleaning = begin(log, throttle=CleaningThrottle(read_bytes / 10, lambda: now_ms, wait))
    with pytest.raises(CleaningAborted):
        while cleaning.clean_next_segment():
            cleaning.replace_cleaned_segments()
    assert 10_000 < now_ms <= 20_000  # reading all of it once takes ten seconds at this rate


def test_a_log_without_closed_segments_is_not_cleaned(tmp_path: Path) -> None:
    log = open_at(tmp_path, SETTINGS)
    append(log, pairs(("a", "1")))
    cleaning = begin(log)
    assert not cleaning.clean_next_segment()
    cleaning.set_clean_offset()
    assert log.clean_offset == 0
