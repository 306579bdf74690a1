"""What is appended soon: offsets at once, bytes and readers later; and what is lost if the write fails."""

from __future__ import annotations

import errno
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.records.batch import check_batch
from minibroker.storage import log as log_module
from minibroker.storage.log import Log
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.pending import Pending
from minibroker.storage.producers.transaction_markers import Marker, marker_batch
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
    """Append one batch that needs no admission, to be written later; its offset, or -1."""
    return log.append_soon(data, check_batch(data), leader_epoch)


def begun(directory: Path, **options: Any) -> Log:
    """A log with one batch: the first of a segment, and of an epoch, is never pending."""
    log = open_at(directory / "log", **options)
    append(log, batch(value=b"first"))
    return log


def producers_of(log: Log) -> dict[int, Any]:
    """What a log knows of its producers: epoch, newest batch and open transaction of each."""
    return {
        producer_id: (entry.epoch, entry.batches[-1:], entry.transaction_first_offset)
        for producer_id, entry in log.producers.entries()
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


def test_batches_get_their_offsets_at_once_and_are_read_once_they_are_written(log: Log) -> None:
    assert [append_soon(log, batch(count)) for count in (2, 1, 3)] == [1, 3, 4]
    assert (log.next_offset, log.log_end_offset, log.high_watermark, log.last_stable_offset) == (7, 1, 1, 1)
    assert len(read_batches(log)) == 1 and log.read(1, 1000) is None
    with pytest.raises(KafkaError) as raised:
        log.read(2, 1000)
    assert code_of(raised) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.write_pending() is None
    assert (log.next_offset, log.log_end_offset, log.high_watermark, log.last_stable_offset) == (7, 7, 7, 7)
    assert [offset for offset, _ in read_values(log)] == list(range(7))


def test_pending_batches_are_one_write(log: Log, disk: FailingDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    monkeypatch.setattr(disk, "ask", lambda operation, path: written.append(operation))
    for _ in range(5):
        append_soon(log, batch())
    assert written == []
    log.write_pending()
    log.write_pending()
    assert written == ["write"]


def test_the_batch_that_was_given_may_change_once_it_is_pending(log: Log) -> None:
    data = batch(value=b"kept")
    append_soon(log, data)
    data[:] = bytes(len(data))
    log.write_pending()
    assert values(log) == [b"first0", b"kept0"]


def test_whoever_waits_for_a_batch_is_told_by_its_own_pending_object(log: Log, disk: FailingDisk) -> None:
    assert log.unwritten is None
    append_soon(log, batch())
    written = log.unwritten
    log.write_pending()
    append_soon(log, batch())
    lost = log.unwritten
    disk.failing = {"write"}
    log.write_pending()
    disk.failing = set()
    append(log, batch(3))  # the log's end is behind the lost batch's offset now
    assert written is not None and lost is not None and log.unwritten is None
    assert (written.failure, written.headers, lost.headers) == (None, [], [])
    assert lost.failure is not None and lost.failure.code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_repetition_of_a_pending_batch_gets_the_offset_of_that(log: Log) -> None:
    data = batch(2, **SEVEN, base_sequence=0)
    assert append_soon(log, data) == 1
    assert log.producers.check(check_batch(data)) == (1, NOW_MS)


@pytest.mark.parametrize(
    ("settings", "data", "epoch"),
    [
        ({}, batch(), 1),
        ({}, marker_batch(7, 0, Marker(True, 0), NOW_MS), 0),
        ({"segment_bytes": 100}, batch(), 0),
        ({"segment_ms": 1000}, batch(timestamp=NOW_MS + 2000), 0),
        ({"segment_index_bytes": 100, "index_interval_bytes": 0}, batch(), 0),
    ],
    ids=["an epoch begins", "a marker", "segment.bytes", "segment.ms", "segment.index.bytes"],
)
def test_what_is_more_than_a_write_is_not_pending(
    tmp_path: Path, settings: dict[str, int], data: bytearray, epoch: int
) -> None:
    log = begun(tmp_path, settings=LogSettings(**settings))
    assert append_soon(log, data, epoch) == -1
    assert (log.next_offset, log.unwritten) == (1, None)


def test_the_first_batch_of_a_segment_is_not_pending(tmp_path: Path) -> None:
    assert append_soon(open_at(tmp_path), batch()) == -1


def test_pending_batches_count_for_the_size_of_the_segment(tmp_path: Path) -> None:
    log = begun(tmp_path, settings=LogSettings(segment_bytes=3 * len(batch()) + 10))
    assert [append_soon(log, batch()) for _ in range(3)] == [1, 2, -1]
    assert append(log, batch()) == 3
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    assert [offset for offset, _ in read_values(log)] == [0, 1, 2, 3]


# --- a transaction ----------------------------------------------------------------------------------------------------


def test_a_pending_transaction_holds_the_stable_offset_once_it_is_written(log: Log) -> None:
    append_soon(log, batch())
    append_soon(log, batch(**SEVEN, base_sequence=0, transactional=True))
    append_soon(log, batch())
    log.write_pending()
    assert (log.last_stable_offset, log.high_watermark) == (2, 4)
    append_soon(log, batch(**SEVEN, base_sequence=1, transactional=True))
    assert append(log, marker_batch(7, 0, Marker(False, 0), NOW_MS)) == 5
    assert log.last_stable_offset == log.high_watermark == 6
    (aborted,) = log.aborted_transactions(0, 6)
    assert (aborted.first_offset, aborted.last_offset) == (2, 5)


def test_a_lost_transaction_was_never_open(log: Log, disk: FailingDisk) -> None:
    append(log, batch(producer_id=8, producer_epoch=0, base_sequence=0, transactional=True))
    append(log, marker_batch(8, 0, Marker(True, 0), NOW_MS))
    before = producers_of(log)
    append_soon(log, batch(**SEVEN, base_sequence=0, transactional=True))
    disk.failing = {"write"}
    assert log.write_pending() is not None
    assert (log.last_stable_offset, log.producers.open_transactions) == (3, {})
    assert (producers_of(log), log.producers.end_offset) == (before, 3)


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("room_bytes", [None, 0, 1, 100, 200])
def test_a_failed_write_loses_all_that_was_pending_and_leaves_nothing(
    log: Log, disk: FailingDisk, room_bytes: int | None
) -> None:
    data = batch(**SEVEN, base_sequence=0)
    append_soon(log, data)
    append_soon(log, batch())
    append_soon(log, batch())
    disk.failing, disk.room_bytes = ({"write"}, None) if room_bytes is None else (set(), room_bytes)
    failure = log.write_pending()
    assert failure is not None and failure.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.next_offset, log.log_end_offset, log.producers.check(check_batch(data))) == (1, 1, None)
    assert values(log) == [b"first0"]
    assert Path(log.segments[0].path + ".log").stat().st_size == log.size_bytes, "a start would find whole batches"
    disk.failing, disk.room_bytes = set(), None
    assert append_soon(log, data) == 1
    log.write_pending()
    assert [offset for offset, _ in read_values(log)] == [0, 1]


def test_what_a_failed_write_has_left_is_removed_by_the_next_append_if_not_at_once(log: Log, disk: FailingDisk) -> None:
    append_soon(log, batch())
    append_soon(log, batch())
    disk.failing, disk.room_bytes = {"truncate"}, len(batch()) + 1
    assert log.write_pending() is not None
    disk.failing, disk.room_bytes = set(), None
    assert Path(log.segments[0].path + ".log").stat().st_size > log.size_bytes
    assert append_soon(log, batch()) == -1
    assert append(log, batch()) == append_soon(log, batch()) - 1 == 1
    log.write_pending()
    assert [offset for offset, _ in read_values(log)] == [0, 1, 2]
    assert Path(log.segments[0].path + ".log").stat().st_size == log.size_bytes


def test_a_log_whose_producers_cannot_be_read_again_goes_offline(log: Log, disk: FailingDisk) -> None:
    append_soon(log, batch(**SEVEN, base_sequence=0))
    disk.failing = {"write", "read"}
    assert log.write_pending() is not None
    assert "read its producers again" in log.offline


def test_a_large_append_writes_what_is_pending_first(log: Log) -> None:
    append_soon(log, batch(value=b"small"))
    assert append(log, batch(value=b"large")) == 2
    assert values(log) == [b"first0", b"small0", b"large0"]


def test_an_append_behind_what_was_lost_is_refused_as_its_sequence_may_follow(log: Log, disk: FailingDisk) -> None:
    append_soon(log, batch(**SEVEN, base_sequence=0))
    following = batch(**SEVEN, base_sequence=1)
    assert log.producers.check(check_batch(following)) is None
    disk.room_bytes = len(following) - 1
    with pytest.raises(KafkaError) as raised:
        append(log, following)
    assert code_of(raised) == ErrorCode.KAFKA_STORAGE_ERROR
    disk.room_bytes = None
    assert (log.log_end_offset, producers_of(log)) == (1, {})
    assert append(log, batch()) == 1, "what was lost is of no concern to those who come later"


def test_too_much_is_written_early(log: Log, disk: FailingDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "MAX_PENDING_BYTES", 2 * len(batch()))
    first: list[Pending | None] = []
    for offset in (1, 2, 3):
        assert append_soon(log, batch()) == offset
        first.append(log.unwritten)
    assert log.log_end_offset == 3 and first[0] is first[1] is not first[2]
    disk.failing = {"write"}
    assert append_soon(log, batch()) == 4
    with pytest.raises(KafkaError):
        append_soon(log, batch())
    disk.failing = set()
    assert (log.next_offset, log.unwritten) == (3, None)
    assert [each.failure is None for each in first if each is not None] == [True, True, False]
    assert append(log, batch()) == 3


def test_an_early_write_leaves_the_index_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(batch())
    monkeypatch.setattr(log_module, "MAX_PENDING_BYTES", 3 * size)
    log = begun(tmp_path, settings=LogSettings(index_interval_bytes=0, segment_index_bytes=12 * (3 * size + 5)))
    taken = [append_soon(log, batch()) for _ in range(20)]
    log.write_pending()
    assert -1 in taken
    assert not log.segments[0].indexes.is_full


def test_what_is_pending_when_a_sync_fails_is_not_written_to_the_offline_log(tmp_path: Path) -> None:
    disk, aside = FailingDisk(), Aside()
    surroundings = Surroundings(disk)
    surroundings.environment = surroundings.environment._replace(run_aside=aside.take)
    log = begun(tmp_path, surroundings=surroundings)
    log.flush_soon()
    append_soon(log, batch())
    disk.failing = {"sync"}
    aside.do()
    assert log.offline
    failure = log.write_pending()
    assert failure is not None and failure.message == log.offline
    assert (log.log_end_offset, len(read_batches(log))) == (1, 1)
    with pytest.raises(KafkaError):
        append(log, batch())


# --- what else may happen to a log ------------------------------------------------------------------------------------


def test_a_flush_covers_what_is_pending(log: Log) -> None:
    append_soon(log, batch())
    log.flush()
    assert log.recovery_point == log.log_end_offset == 2


def test_a_flush_is_done_for_what_was_written_although_what_is_pending_is_lost(log: Log, disk: FailingDisk) -> None:
    append_soon(log, batch())
    log.write_pending()
    append_soon(log, batch())
    lost = log.unwritten
    disk.failing = {"write"}
    told: list[KafkaError | None] = []
    log.flush_soon(told.append)
    assert told == [None] and lost is not None and lost.failure is not None
    assert log.recovery_point == log.log_end_offset == 2


@pytest.mark.parametrize("name", ["roll", "truncate_to", "delete_before", "delete_old_segments"])
def test_what_changes_the_log_writes_what_is_pending_first(log: Log, disk: FailingDisk, name: str) -> None:
    append_soon(log, batch(value=b"second"))
    arguments = (1,) if name in ("truncate_to", "delete_before") else ()
    disk.failing = {"write"}
    with pytest.raises(KafkaError) as raised:
        getattr(log, name)(*arguments)
    assert code_of(raised) == ErrorCode.KAFKA_STORAGE_ERROR
    disk.failing = set()
    assert append(log, batch(value=b"third")) == 1
    append_soon(log, batch(value=b"fourth"))
    getattr(log, name)(*arguments)
    assert log.unwritten is None
    assert values(log) == {
        "truncate_to": [b"first0"],
        "delete_before": [b"third0", b"fourth0"],
    }.get(name, [b"first0", b"third0", b"fourth0"])


def test_a_closed_log_has_written_what_was_pending(log: Log, tmp_path: Path) -> None:
    append_soon(log, batch(value=b"second", **SEVEN, base_sequence=0))
    log.close()
    again = open_at(tmp_path / "log")
    assert values(again) == [b"first0", b"second0"]
    assert producers_of(again).keys() == {7}


def test_what_is_pending_when_the_log_is_let_go_is_lost(log: Log) -> None:
    append_soon(log, batch())
    lost = log.unwritten
    log.abandon()
    assert lost is not None and lost.failure is not None and "is closed" in str(lost.failure.message)
    assert log.write_pending() is None


# --- all of it, at random ---------------------------------------------------------------------------------------------


class PendingMachine(RuleBasedStateMachine):
    """`written` is what the log must hold; `pending` has batches that may get lost, with the object that tells so."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="pending-machine-"))
        self.disk = FailingDisk()
        self.surroundings = Surroundings(self.disk)
        self.written: list[bytes] = []
        self.pending: list[tuple[bytearray, Pending]] = []
        self.ended: list[tuple[Pending, bool]] = []
        self.leader_epoch = 0
        self.max_pending_bytes = log_module.MAX_PENDING_BYTES

    def teardown(self) -> None:
        log_module.MAX_PENDING_BYTES = self.max_pending_bytes  # type: ignore[misc]
        self.log.abandon()
        shutil.rmtree(self.directory)

    @initialize(segment_bytes=st.integers(300, 3000), max_pending_bytes=st.integers(100, 1000), ms=st.integers(5, 500))
    def begin(self, segment_bytes: int, max_pending_bytes: int, ms: int) -> None:
        log_module.MAX_PENDING_BYTES = max_pending_bytes  # type: ignore[misc]
        self.settings = LogSettings(segment_bytes=segment_bytes, index_interval_bytes=150, segment_ms=ms)
        self.log: Log = open_at(self.directory / "log", self.settings, surroundings=self.surroundings)

    # --- the model ----------------------------------------------------------------------------------------------------

    def _lost(self) -> None:
        self.ended += [(pending, False) for _, pending in self.pending]
        self.pending = []

    def _was_written(self) -> None:
        for data, pending in self.pending:
            self.written.append(bytes(data))
            self.ended.append((pending, True))
        self.pending = []

    def _batch(self, count: int, producer: int | None, elapsed_ms: int) -> bytearray:
        self.surroundings.now_ms += elapsed_ms
        if producer is None:
            return batch(count, timestamp=self.surroundings.now_ms)
        known = dict(self.log.producers.entries()).get(producer)
        sequence = known.batches[-1][1] + 1 if known is not None and known.batches else 0
        options = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
        data = batch(count, timestamp=self.surroundings.now_ms, **options, transactional=producer == 9)
        assert self.log.producers.check(check_batch(data)) is None
        return data

    def _placed(self, data: bytearray, offset: int) -> bytearray:
        data[:8] = offset.to_bytes(8, "big")
        data[12:16] = self.leader_epoch.to_bytes(4, "big")
        return data

    @property
    def end(self) -> int:
        return check_batch(self.written[-1]).next_offset if self.written else 0

    # --- steps --------------------------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 4), producer=st.sampled_from([None, 7, 8, 9]), elapsed_ms=st.integers(0, 20))
    def append_soon(self, count: int, producer: int | None, elapsed_ms: int) -> None:
        data = self._batch(count, producer, elapsed_ms)
        before = self.log.unwritten
        offset = append_soon(self.log, bytearray(data), self.leader_epoch)
        if self.log.unwritten is not before and before is not None:
            self._was_written()  # early
        if offset < 0:
            self.append_now(data)
            return
        assert offset == (check_batch(self.pending[-1][0]).next_offset if self.pending else self.end)
        unwritten = self.log.unwritten
        assert unwritten is not None
        self.pending.append((self._placed(data, offset), unwritten))

    def append_now(self, data: bytearray) -> None:
        self._was_written()
        offset = self.end
        assert append(self.log, data, self.leader_epoch) == offset
        self.written.append(bytes(self._placed(data, offset)))

    @rule(count=st.integers(1, 4), producer=st.sampled_from([None, 7, 9]))
    def append_at_once(self, count: int, producer: int | None) -> None:
        self.append_now(self._batch(count, producer, 1))

    @precondition(lambda self: 9 in self.log.producers.open_transactions)
    @rule(committed=st.booleans())
    def end_transaction(self, committed: bool) -> None:
        self.append_now(marker_batch(9, 0, Marker(committed, 0), self.surroundings.now_ms))

    @rule()
    def write(self) -> None:
        assert self.log.write_pending() is None
        self._was_written()

    @precondition(lambda self: self.pending)
    @rule(
        room_bytes=st.integers(-1, 400),
        how=st.sampled_from(["write_pending", "append", "append_soon", "roll"]),
        data=st.data(),
    )
    def fail_to_write(self, room_bytes: int, how: str, data: st.DataObject) -> None:
        """The write fails, at any byte, whoever asks for it; with producers as a log has them that is opened anew."""
        size = sum(len(each) for each, _ in self.pending)
        if room_bytes < 0:
            self.disk.failing = {"write"}
            self.disk.suffix = ".log"
        else:
            self.disk.room_bytes = min(room_bytes, size - 1)
        try:
            if how == "write_pending":
                failure = self.log.write_pending()
                assert failure is not None and failure.code == ErrorCode.KAFKA_STORAGE_ERROR
            elif how == "append_soon":
                large = batch(value=bytes(log_module.MAX_PENDING_BYTES))
                with pytest.raises(KafkaError):
                    append_soon(self.log, large, self.leader_epoch)
            else:
                with pytest.raises(KafkaError):
                    self.log.roll() if how == "roll" else append(self.log, batch(), self.leader_epoch)
        finally:
            self.disk.failing, self.disk.room_bytes, self.disk.suffix = set(), None, ""
        self._lost()
        self._compare_with_a_log_opened_anew()

    @rule()
    def roll(self) -> None:
        self.log.roll()
        self._was_written()

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self._was_written()
        assert self.log.recovery_point == self.end

    @rule()
    def change_the_leader(self) -> None:
        self.leader_epoch += 1

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        if clean:
            self.log.close()
            self._was_written()
        else:
            self.log.abandon()
            self._lost()
        self.log = open_at(self.directory / "log", self.settings, clean=clean, surroundings=self.surroundings)

    # --- what always holds --------------------------------------------------------------------------------------------

    def _compare_with_a_log_opened_anew(self) -> None:
        copy = self.directory / "copy"
        shutil.copytree(self.directory / "log", copy)
        again = open_at(copy, self.settings, clean=False)
        assert again.log_end_offset == self.log.log_end_offset == self.log.producers.end_offset
        assert producers_of(again) == producers_of(self.log)
        assert again.producers.open_transactions == self.log.producers.open_transactions
        assert again.last_stable_offset == self.log.last_stable_offset
        again.abandon()
        shutil.rmtree(copy)

    @invariant()
    def readers_see_what_is_written_and_nothing_else(self) -> None:
        assert self.log.log_end_offset == self.log.high_watermark == self.end
        assert self.log.last_stable_offset <= self.end
        for max_bytes in (1, 1 << 20):
            assert read_batches(self.log, max_bytes=max_bytes) == self.written

    @invariant()
    def what_is_pending_says_so_and_afterwards_whether_it_was_written(self) -> None:
        assert self.log.unwritten is (self.pending[-1][1] if self.pending else None)
        assert all(pending.headers and pending.failure is None for _, pending in self.pending)
        for pending, was_written in self.ended:
            assert not pending.headers
            assert (pending.failure is None) == was_written

    @invariant()
    def the_producers_are_those_of_the_written_and_the_pending_batches(self) -> None:
        last: dict[int, tuple[int, int]] = {}
        for data in (*self.written, *(data for data, _ in self.pending)):
            header = check_batch(data)
            if header.producer_id >= 0 and not header.is_control:
                last[header.producer_id] = header.last_sequence, header.last_offset
        known = {
            producer: (entry.batches[-1][1], entry.batches[-1][2]) for producer, entry in self.log.producers.entries()
        }
        assert last == known


TestPendingMachine = PendingMachine.TestCase
TestPendingMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_the_disk_says_why(log: Log, disk: FailingDisk) -> None:
    append_soon(log, batch())
    disk.room_bytes = 3
    failure = log.write_pending()
    assert failure is not None
    assert failure.message == f"orders-0: cannot append: [Errno {errno.ENOSPC}] No space left on device: " + repr(
        log.segments[0].path + ".log"
    )
