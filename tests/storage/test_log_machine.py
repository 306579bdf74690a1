"""A log under random appends, rolls, reads, cuts and restarts, compared after each step with a plain list of batches.

Each single operation is tested by name in `test_log.py`, the files beside it and `test_recovery.py`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minibroker.operating_system import remove_tree
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.records.batch import BatchHeader, check_batch
from minibroker.protocol.records.payload import iterate_records_of_batch
from minibroker.protocol.records.record import Record
from minibroker.storage.log import Log
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.segment import Segment
from tests.storage.support import (
    NOW_MS,
    FailingDisk,
    Surroundings,
    append,
    batch,
    offset_for_timestamp,
    open_at,
    read_batches,
)

PRODUCERS = (7, 8)


class LogMachine(RuleBasedStateMachine):
    """`batches` is what the log must hold, `start` where it begins, `flushed` what no crash may take."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="log-machine-"))
        self.disk = FailingDisk()
        self.surroundings = Surroundings(self.disk)
        self.batches: list[bytes] = []
        self.start = self.end = 0
        self.recovery_point = 0
        self.next_sequence = dict.fromkeys(PRODUCERS, 0)
        self.leader_epoch = 0

    def teardown(self) -> None:
        self.log.close_without_flush()
        remove_tree(str(self.directory))  # an abandoned log may have a file open

    @initialize(
        segment_bytes=st.integers(100, 1500),
        index_interval_bytes=st.integers(0, 500),
        segment_index_bytes=st.integers(36, 200),
        segment_ms=st.integers(10, 1000),
    )
    def begin(self, **settings: int) -> None:
        self.settings = LogSettings(**settings)
        self.log: Log = open_at(self.directory, self.settings, surroundings=self.surroundings)

    @property
    def headers(self) -> list[BatchHeader]:
        return [check_batch(data) for data in self.batches]

    # --- steps --------------------------------------------------------------------------------------------------------

    @rule(
        count=st.integers(1, 4),
        size_bytes=st.sampled_from([1, 1, 200, 1000]),
        elapsed_ms=st.integers(-20, 50),
        compression=st.integers(0, 4),
    )
    def append(self, count: int, size_bytes: int, elapsed_ms: int, compression: int) -> None:
        self.surroundings.now_ms += elapsed_ms
        data = batch(count, value=b"v" * size_bytes, timestamp=self.surroundings.now_ms, compression=compression)
        assert append(self.log, data, self.leader_epoch) == self.end
        self._appended(data)

    @rule(count=st.integers(1, 4), producer=st.sampled_from(PRODUCERS))
    def append_in_sequence(self, count: int, producer: int) -> None:
        sequence = self.next_sequence[producer]
        data = batch(count, producer_id=producer, producer_epoch=0, base_sequence=sequence)
        if sequence or self.log.producers.check_epoch_and_sequence(check_batch(data)) is None:
            assert self.log.producers.check_epoch_and_sequence(check_batch(data)) is None
            offset = self.end
            assert append(self.log, data, self.leader_epoch) == offset
            self._appended(data)
            self.next_sequence[producer] += count
            assert self.log.producers.check_epoch_and_sequence(check_batch(data)) == (offset, NOW_MS)

    @rule(room_bytes=st.integers(0, 60))
    def append_to_a_full_disk(self, room_bytes: int) -> None:
        self.disk.room_bytes = room_bytes
        with pytest.raises(KafkaError) as raised:
            append(self.log, batch(2), self.leader_epoch)
        assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        self.disk.room_bytes = None

    @rule()
    def roll(self) -> None:
        self.log.roll_segment_if_used()

    @rule()
    def change_the_leader(self) -> None:
        self.leader_epoch += 1

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.recovery_point = self.end

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        self.log.truncate_to(offset)
        self._lose_after(offset)
        self.start = min(self.start, self.end)
        self._count_sequences()

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.log.delete_records_before(data.draw(st.integers(0, self.end)))
        self.surroundings.run_scheduled()
        self.start = self.log.log_start_offset
        base = self.log.segments[0].base_offset
        self.batches = [each for each in self.batches if check_batch(each).base_offset >= base]

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.recovery_point = self.end
        self._reopen(clean=True)

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """The file of the last segment ends anywhere, or has nonsense at its end; its indexes are of any age."""
        last = self.log.segments[-1]
        first_unsafe = max((p for p, h in self._positions(last) if h.base_offset <= self.recovery_point), default=0)
        self.log.close_without_flush()
        path = Path(last.path + ".log")
        size = last.size_bytes
        cut = data.draw(st.integers(first_unsafe if self.recovery_point >= last.base_offset else 0, size))
        if self.recovery_point >= self.end:
            cut = size
        content = path.read_bytes()[:cut] + data.draw(st.binary(max_size=70))
        path.write_bytes(content)
        whole = [header for position, header in self._positions(last) if position + header.size_bytes <= cut]
        end = whole[-1].next_offset if whole else last.base_offset
        self._lose_after(end)
        if self.end < self.start:  # what is left was deleted before
            self.batches = []
            self.end = self.start
        self._reopen(clean=False)
        self._count_sequences()

    def _appended(self, data: bytearray) -> None:
        self.batches.append(bytes(data))
        self.end = check_batch(data).next_offset

    def _lose_after(self, end: int) -> None:
        lost = [header.base_offset for header in self.headers if header.next_offset > end]
        if lost:
            del self.batches[-len(lost) :]
            self.end = lost[0]
            self.recovery_point = min(self.recovery_point, self.end)

    def _positions(self, segment: Segment) -> list[tuple[int, BatchHeader]]:
        position, found = 0, []
        for header in self.headers:
            if header.base_offset >= segment.base_offset:
                found.append((position, header))
                position += header.size_bytes
        return found

    def _reopen(self, *, clean: bool) -> None:
        self.log = open_at(
            self.directory,
            self.settings,
            clean=clean,
            surroundings=self.surroundings,
            recovery_point=self.recovery_point,
            log_start_offset=self.start,
        )

    def _count_sequences(self) -> None:
        """After batches are lost, producers go on after what the log still knows of them."""
        for producer in PRODUCERS:
            entry = dict(self.log.producers.iterate_entries()).get(producer)
            self.next_sequence[producer] = entry.batches[-1][1] + 1 if entry else 0

    # --- what always holds --------------------------------------------------------------------------------------------

    @invariant()
    def the_offsets_are_right(self) -> None:
        assert self.log.log_start_offset == self.start
        assert self.log.log_end_offset == self.log.high_watermark == self.end
        assert self.log.size_bytes == sum(map(len, self.batches))

    @invariant()
    def all_batches_are_read(self) -> None:
        expected = [each for each in self.batches if check_batch(each).next_offset > self.start]
        for max_bytes in (1, 300, 900, 1 << 20):
            assert read_batches(self.log, max_bytes=max_bytes) == expected

    @invariant()
    def every_time_is_found(self) -> None:
        records: list[Record] = [
            record for each in self.batches for record in iterate_records_of_batch(each) if record.offset >= self.start
        ]
        for target in {record.timestamp for record in records}:
            first = next(record for record in records if record.timestamp >= target)
            found = offset_for_timestamp(self.log, target)
            assert found is not None
            assert (found.offset, found.timestamp) == (first.offset, first.timestamp)

    @invariant()
    def the_indexes_point_to_batches(self) -> None:
        for segment in self.log.segments:
            segment.load_last_entries()
            segment.indexes.load_entries()
            ends = {position: header.last_offset for position, header in self._positions(segment)}
            assert all(ends[position] == offset for offset, position in segment.indexes.offsets.list_entries())
            for timestamp, offset in segment.indexes.times.list_entries():
                before = [header for header in self.headers if segment.base_offset <= header.base_offset <= offset]
                assert max(header.max_timestamp for header in before) == timestamp

    @invariant()
    def the_producers_are_those_of_the_log(self) -> None:
        last = {header.producer_id: header.last_sequence for header in self.headers if header.producer_id >= 0}
        known = {producer: entry.batches[-1][1] for producer, entry in self.log.producers.iterate_entries()}
        assert last.items() <= known.items()

    @invariant()
    def the_leader_epochs_are_those_of_the_batches(self) -> None:
        for header in self.headers:
            if header.base_offset >= self.start:
                assert self.log.epochs.find_epoch_at(header.base_offset) == header.partition_leader_epoch


TestLogMachine = LogMachine.TestCase
