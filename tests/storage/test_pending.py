"""What is appended soon: offsets at once, bytes and readers later; and what is lost if the write fails."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.records.batch import check_batch
from minibroker.storage import log_end as log_module
from minibroker.storage.log import Log
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.pending import PendingBatches
from minibroker.storage.producers.transaction_markers import TransactionMarker, make_marker_batch
from tests.storage.support import (
    NOW_MS,
    Aside,
    FailingDisk,
    Surroundings,
    append,
    batch,
    code_of,
    open_at,
    read_batches,
    read_values,
)

SEVEN = {"producer_id": 7, "producer_epoch": 0}


def append_soon(log: Log, data: bytearray, leader_epoch: int = 0) -> int:
    """Append one batch that needs no validation, to be written later; its offset, or -1."""
    return log.append_to_pending_batches(data, check_batch(data), leader_epoch)


def begun(directory: Path, **options: Any) -> Log:
    """A log with one batch: the first of a segment, and of an epoch, is never pending."""
    log = open_at(directory / "log", **options)
    append(log, batch(value=b"first"))
    return log


def producers_of(log: Log) -> dict[int, Any]:
    """What a log knows of its producers: epoch, time, newest batch and open transaction of each.

    A snapshot has one time for producer and batch, as Kafka's: after a marker it is that of the marker.
    """
    return {
        producer_id: (
            entry.epoch,
            entry.last_timestamp,
            [batch[:-1] for batch in entry.batches[-1:]],
            entry.transaction_first_offset,
        )
        for producer_id, entry in log.producers.iterate_entries()
    }


def values(log: Log) -> list[bytes | None]:
    return [value for _, value in read_values(log)]


@pytest.fixture
def disk() -> FailingDisk:
    return FailingDisk()


@pytest.fixture
def log(tmp_path: Path, disk: FailingDisk) -> Log:
    return begun(tmp_path, surroundings=Surroundings(disk))


# --- before and after the write ---------------------------------------------------------------------------------------


def test_pending_batches_get_offsets_immediately_and_are_readable_once_written(log: Log) -> None:
    assert [append_soon(log, batch(count)) for count in (2, 1, 3)] == [1, 3, 4]
    assert (log.next_offset, log.log_end_offset, log.high_watermark, log.last_stable_offset) == (7, 1, 1, 1)
    assert len(read_batches(log)) == 1 and log.read(1, 1000) is None
    with pytest.raises(KafkaError) as raised:
        log.read(2, 1000)
    assert code_of(raised) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.write_pending_batches() is None
    assert (log.next_offset, log.log_end_offset, log.high_watermark, log.last_stable_offset) == (7, 7, 7, 7)
    assert [offset for offset, _ in read_values(log)] == list(range(7))


def test_pending_batches_are_written_in_one_write(log: Log, disk: FailingDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    monkeypatch.setattr(disk, "ask", lambda operation, path: written.append(operation))
    for _ in range(5):
        append_soon(log, batch())
    assert written == []
    log.write_pending_batches()
    log.write_pending_batches()
    assert written == ["write"]


def test_the_callers_buffer_may_change_once_its_batch_is_pending(log: Log) -> None:
    data = batch(value=b"kept")
    append_soon(log, data)
    data[:] = bytes(len(data))
    log.write_pending_batches()
    assert values(log) == [b"first0", b"kept0"]


def test_a_pending_batch_object_tells_whether_it_was_written_or_lost(log: Log, disk: FailingDisk) -> None:
    assert log.pending_batches is None
    append_soon(log, batch())
    written = log.pending_batches
    log.write_pending_batches()
    append_soon(log, batch())
    lost = log.pending_batches
    disk.failing = {"write"}
    log.write_pending_batches()
    disk.failing = set()
    append(log, batch(3))  # the log's end is behind the lost batch's offset now
    assert written is not None and lost is not None and log.pending_batches is None
    assert (written.failure, written.headers, lost.headers) == (None, [], [])
    assert lost.failure is not None and lost.failure.code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_duplicate_of_a_pending_batch_gets_its_offset(log: Log) -> None:
    data = batch(2, **SEVEN, base_sequence=0)
    assert append_soon(log, data) == 1
    assert log.producers.check_epoch_and_sequence(check_batch(data)) == (1, NOW_MS)


@pytest.mark.parametrize(
    ("settings", "data", "epoch"),
    [
        ({}, batch(), 1),
        ({}, make_marker_batch(7, 0, TransactionMarker(True, 0), NOW_MS), 0),
        ({"segment_bytes": 100}, batch(), 0),
        ({"segment_ms": 1000}, batch(timestamp=NOW_MS + 2000), 0),
        ({"segment_index_bytes": 100, "index_interval_bytes": 0}, batch(), 0),
    ],
    ids=["an epoch begins", "a marker", "segment.bytes", "segment.ms", "segment.index.bytes"],
)
def test_appends_that_roll_fsync_or_are_large_are_written_immediately(
    tmp_path: Path, settings: dict[str, int], data: bytearray, epoch: int
) -> None:
    log = begun(tmp_path, settings=LogSettings(**settings))
    assert append_soon(log, data, epoch) == -1
    assert (log.next_offset, log.pending_batches) == (1, None)


def test_the_first_batch_of_a_segment_is_not_pending(tmp_path: Path) -> None:
    assert append_soon(open_at(tmp_path), batch()) == -1


def test_pending_batches_count_towards_the_segment_size(tmp_path: Path) -> None:
    log = begun(tmp_path, settings=LogSettings(segment_bytes=3 * len(batch()) + 10))
    assert [append_soon(log, batch()) for _ in range(3)] == [1, 2, -1]
    assert append(log, batch()) == 3
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    assert [offset for offset, _ in read_values(log)] == [0, 1, 2, 3]


# --- a transaction ----------------------------------------------------------------------------------------------------


def test_a_pending_transaction_limits_the_last_stable_offset_once_written(log: Log) -> None:
    append_soon(log, batch())
    append_soon(log, batch(**SEVEN, base_sequence=0, transactional=True))
    append_soon(log, batch())
    log.write_pending_batches()
    assert (log.last_stable_offset, log.high_watermark) == (2, 4)
    append_soon(log, batch(**SEVEN, base_sequence=1, transactional=True))
    assert append(log, make_marker_batch(7, 0, TransactionMarker(False, 0), NOW_MS)) == 5
    assert log.last_stable_offset == log.high_watermark == 6
    (aborted,) = log.list_aborted_transactions(0, 6)
    assert (aborted.first_offset, aborted.last_offset) == (2, 5)


def test_a_transaction_whose_pending_batch_is_lost_is_not_open(log: Log, disk: FailingDisk) -> None:
    append(log, batch(producer_id=8, producer_epoch=0, base_sequence=0, transactional=True))
    append(log, make_marker_batch(8, 0, TransactionMarker(True, 0), NOW_MS))
    before = producers_of(log)
    append_soon(log, batch(**SEVEN, base_sequence=0, transactional=True))
    disk.failing = {"write"}
    assert log.write_pending_batches() is not None
    assert (log.last_stable_offset, log.producers.open_transactions) == (3, {})
    assert (producers_of(log), log.producers.end_offset) == (before, 3)


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("room_bytes", [None, 0, 1, 100, 200])
def test_a_failed_write_discards_all_pending_batches_and_leaves_no_trace(
    log: Log, disk: FailingDisk, room_bytes: int | None
) -> None:
    data = batch(**SEVEN, base_sequence=0)
    append_soon(log, data)
    append_soon(log, batch())
    append_soon(log, batch())
    disk.failing, disk.room_bytes = ({"write"}, None) if room_bytes is None else (set(), room_bytes)
    failure = log.write_pending_batches()
    assert failure is not None and failure.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.next_offset, log.log_end_offset, log.producers.check_epoch_and_sequence(check_batch(data))) == (
        1,
        1,
        None,
    )
    assert values(log) == [b"first0"]
    assert Path(log.segments[0].path + ".log").stat().st_size == log.size_bytes, "a start would find whole batches"
    disk.failing, disk.room_bytes = set(), None
    assert append_soon(log, data) == 1
    log.write_pending_batches()
    assert [offset for offset, _ in read_values(log)] == [0, 1]


def test_bytes_of_a_failed_write_are_removed_by_the_next_append(log: Log, disk: FailingDisk) -> None:
    append_soon(log, batch())
    append_soon(log, batch())
    disk.failing, disk.room_bytes = {"truncate"}, len(batch()) + 1
    assert log.write_pending_batches() is not None
    disk.failing, disk.room_bytes = set(), None
    assert Path(log.segments[0].path + ".log").stat().st_size > log.size_bytes
    assert append_soon(log, batch()) == -1
    assert append(log, batch()) == append_soon(log, batch()) - 1 == 1
    log.write_pending_batches()
    assert [offset for offset, _ in read_values(log)] == [0, 1, 2]
    assert Path(log.segments[0].path + ".log").stat().st_size == log.size_bytes


def test_a_log_whose_producers_cannot_be_reloaded_goes_offline(log: Log, disk: FailingDisk) -> None:
    append_soon(log, batch(**SEVEN, base_sequence=0))
    disk.failing = {"write", "read"}
    assert log.write_pending_batches() is not None
    assert "read its producers again" in log.offline


def test_a_large_append_writes_pending_batches_first(log: Log) -> None:
    append_soon(log, batch(value=b"small"))
    assert append(log, batch(value=b"large")) == 2
    assert values(log) == [b"first0", b"small0", b"large0"]


def test_an_append_that_follows_a_lost_batch_is_rejected(log: Log, disk: FailingDisk) -> None:
    append_soon(log, batch(**SEVEN, base_sequence=0))
    following = batch(**SEVEN, base_sequence=1)
    assert log.producers.check_epoch_and_sequence(check_batch(following)) is None
    disk.room_bytes = len(following) - 1
    with pytest.raises(KafkaError) as raised:
        append(log, following)
    assert code_of(raised) == ErrorCode.KAFKA_STORAGE_ERROR
    disk.room_bytes = None
    assert (log.log_end_offset, producers_of(log)) == (1, {})
    assert append(log, batch()) == 1, "what was lost is of no concern to those who come later"


def test_too_many_pending_bytes_are_written_early(log: Log, disk: FailingDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "MAX_PENDING_BYTES", 2 * len(batch()))
    first: list[PendingBatches | None] = []
    for offset in (1, 2, 3):
        assert append_soon(log, batch()) == offset
        first.append(log.pending_batches)
    assert log.log_end_offset == 3 and first[0] is first[1] is not first[2]
    disk.failing = {"write"}
    assert append_soon(log, batch()) == 4
    with pytest.raises(KafkaError):
        append_soon(log, batch())
    disk.failing = set()
    assert (log.next_offset, log.pending_batches) == (3, None)
    assert [each.failure is None for each in first if each is not None] == [True, True, False]
    assert append(log, batch()) == 3


def test_an_early_write_of_pending_batches_does_not_overfill_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(batch())
    monkeypatch.setattr(log_module, "MAX_PENDING_BYTES", 3 * size)
    log = begun(tmp_path, settings=LogSettings(index_interval_bytes=0, segment_index_bytes=12 * (3 * size + 5)))
    taken = [append_soon(log, batch()) for _ in range(20)]
    log.write_pending_batches()
    assert -1 in taken
    assert not log.segments[0].indexes.is_full


def test_pending_batches_are_not_written_to_a_log_whose_fsync_failed(tmp_path: Path) -> None:
    disk, aside = FailingDisk(), Aside()
    surroundings = Surroundings(disk)
    surroundings.environment = surroundings.environment._replace(run_in_thread=aside.take)
    log = begun(tmp_path, surroundings=surroundings)
    log.flush_soon()
    append_soon(log, batch())
    disk.failing = {"sync"}
    aside.do()
    assert log.offline
    failure = log.write_pending_batches()
    assert failure is not None and failure.message == log.offline
    assert (log.log_end_offset, len(read_batches(log))) == (1, 1)
    with pytest.raises(KafkaError):
        append(log, batch())


# --- what else may happen to a log ------------------------------------------------------------------------------------


def test_a_flush_covers_pending_batches(log: Log) -> None:
    append_soon(log, batch())
    log.flush()
    assert log.recovery_point == log.log_end_offset == 2


def test_a_flush_covers_written_batches_although_pending_ones_are_lost(log: Log, disk: FailingDisk) -> None:
    append_soon(log, batch())
    log.write_pending_batches()
    append_soon(log, batch())
    lost = log.pending_batches
    disk.failing = {"write"}
    told: list[KafkaError | None] = []
    log.flush_soon(told.append)
    assert told == [None] and lost is not None and lost.failure is not None
    assert log.recovery_point == log.log_end_offset == 2


@pytest.mark.parametrize(
    "name", ["roll_segment_if_used", "truncate_to", "delete_records_before", "delete_old_segments"]
)
def test_operations_that_change_the_log_write_pending_batches_first(log: Log, disk: FailingDisk, name: str) -> None:
    append_soon(log, batch(value=b"second"))
    arguments = (1,) if name in ("truncate_to", "delete_records_before") else ()
    disk.failing = {"write"}
    with pytest.raises(KafkaError) as raised:
        getattr(log, name)(*arguments)
    assert code_of(raised) == ErrorCode.KAFKA_STORAGE_ERROR
    disk.failing = set()
    assert append(log, batch(value=b"third")) == 1
    append_soon(log, batch(value=b"fourth"))
    getattr(log, name)(*arguments)
    assert log.pending_batches is None
    assert values(log) == {
        "truncate_to": [b"first0"],
        "delete_records_before": [b"third0", b"fourth0"],
    }.get(name, [b"first0", b"third0", b"fourth0"])


@pytest.mark.parametrize("flushed", [True, False])
def test_closing_a_log_writes_pending_batches(log: Log, tmp_path: Path, flushed: bool) -> None:
    if flushed:
        log.flush()
    append_soon(log, batch(value=b"second", **SEVEN, base_sequence=0))
    log.close()
    again = open_at(tmp_path / "log")
    assert values(again) == [b"first0", b"second0"]
    assert producers_of(again).keys() == {7}


def test_abandoning_a_log_discards_pending_batches(log: Log) -> None:
    append_soon(log, batch())
    lost = log.pending_batches
    log.close_without_flush()
    assert lost is not None and lost.failure is not None and "is closed" in str(lost.failure.message)
    assert log.write_pending_batches() is None


def test_a_failed_write_reports_the_disks_error(log: Log, disk: FailingDisk) -> None:
    append_soon(log, batch())
    disk.room_bytes = 3
    failure = log.write_pending_batches()
    assert failure is not None
    assert failure.message == f"orders-0: cannot append: [Errno {errno.ENOSPC}] No space left on device: " + repr(
        log.segments[0].path + ".log"
    )
