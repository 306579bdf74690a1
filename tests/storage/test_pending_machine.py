"""Random appends, turns, failures and restarts of a log, compared with plain lists of what is written and pending."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minibroker.operating_system import remove_tree
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.records.batch import check_batch
from minibroker.storage import log_end as log_module
from minibroker.storage.log import Log
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.pending import PendingBatches
from minibroker.storage.producers.transaction_markers import TransactionMarker, make_marker_batch
from tests.storage.support import (
    FailingDisk,
    Surroundings,
    append,
    batch,
    open_at,
    read_batches,
)
from tests.storage.test_pending import append_soon, producers_of


class PendingMachine(RuleBasedStateMachine):
    """`written` is what the log must hold; `pending` has batches that may get lost, with the object that tells so."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="pending-machine-"))
        self.disk = FailingDisk()
        self.surroundings = Surroundings(self.disk)
        self.written: list[bytes] = []
        self.pending: list[tuple[bytearray, PendingBatches]] = []
        self.ended: list[tuple[PendingBatches, bool]] = []
        self.leader_epoch = 0
        self.max_pending_bytes = log_module.MAX_PENDING_BYTES

    def teardown(self) -> None:
        log_module.MAX_PENDING_BYTES = self.max_pending_bytes  # type: ignore[misc]
        self.log.close_without_flush()
        remove_tree(str(self.directory))  # an abandoned log may have a file open

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
        known = dict(self.log.producers.iterate_entries()).get(producer)
        sequence = known.batches[-1][1] + 1 if known is not None and known.batches else 0
        options = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
        data = batch(count, timestamp=self.surroundings.now_ms, **options, transactional=producer == 9)
        assert self.log.producers.check_epoch_and_sequence(check_batch(data)) is None
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
        before = self.log.pending_batches
        offset = append_soon(self.log, bytearray(data), self.leader_epoch)
        if self.log.pending_batches is not before and before is not None:
            self._was_written()  # early
        if offset < 0:
            self.append_now(data)
            return
        assert offset == (check_batch(self.pending[-1][0]).next_offset if self.pending else self.end)
        unwritten = self.log.pending_batches
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
        self.append_now(make_marker_batch(9, 0, TransactionMarker(committed, 0), self.surroundings.now_ms))

    @rule()
    def write(self) -> None:
        assert self.log.write_pending_batches() is None
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
                failure = self.log.write_pending_batches()
                assert failure is not None and failure.code == ErrorCode.KAFKA_STORAGE_ERROR
            elif how == "append_soon":
                large = batch(value=bytes(log_module.MAX_PENDING_BYTES))
                with pytest.raises(KafkaError):
                    append_soon(self.log, large, self.leader_epoch)
            else:
                with pytest.raises(KafkaError):
                    self.log.roll_segment_if_used() if how == "roll" else append(self.log, batch(), self.leader_epoch)
        finally:
            self.disk.failing, self.disk.room_bytes, self.disk.suffix = set(), None, ""
        self._lost()
        self._compare_with_a_log_opened_anew()

    @rule()
    def roll(self) -> None:
        self.log.roll_segment_if_used()
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
            self.log.close_without_flush()
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
        again.close_without_flush()
        shutil.rmtree(copy)

    @invariant()
    def readers_see_what_is_written_and_nothing_else(self) -> None:
        assert self.log.log_end_offset == self.log.high_watermark == self.end
        assert self.log.last_stable_offset <= self.end
        for max_bytes in (1, 1 << 20):
            assert read_batches(self.log, max_bytes=max_bytes) == self.written

    @invariant()
    def what_is_pending_says_so_and_afterwards_whether_it_was_written(self) -> None:
        assert self.log.pending_batches is (self.pending[-1][1] if self.pending else None)
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
            producer: (entry.batches[-1][1], entry.batches[-1][2])
            for producer, entry in self.log.producers.iterate_entries()
        }
        assert last == known


TestPendingMachine = PendingMachine.TestCase
TestPendingMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
