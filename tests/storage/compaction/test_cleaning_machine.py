"""A compacted log under random appends, rolls, cuts, restarts and cleanings, compared with a plain list of records.

The model knows the rules of compaction, and nothing of bytes, files or hashes. What a crash in the middle of a cleaning
leaves is tested in `test_cleaning_crashes.py`, transactions in `test_transactions.py`.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minibroker.protocol.records.batch import check_batch
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.payload import iterate_records_of_batch
from minibroker.protocol.records.record import Record
from minibroker.storage.batch_scanning import iterate_headers
from minibroker.storage.compaction.dirtiness import measure_dirtiness
from minibroker.storage.compaction.rewriting import CleaningLimits
from minibroker.storage.log import Log
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.producers.producer_snapshots import replay_batches
from minibroker.storage.producers.producer_state import ProducerStates
from tests.storage.compaction.support import COMPACT, clean, log_headers, log_records
from tests.storage.support import Surroundings, append, offset_for_timestamp, open_at, read_batches

KEYS = [None, *(b"key%d" % number for number in range(6))]
PRODUCERS = (-1, -1, 7, 8)
RECORDS = st.lists(
    st.tuples(st.sampled_from(KEYS), st.none() | st.binary(max_size=12), st.integers(-30, 30)), min_size=1, max_size=4
)


class ModelBatch:
    """A batch that may be in the log: `records` are those that must be there, `horizon_ms` when tombstones may go."""

    def __init__(self, data: bytearray, base_offset: int) -> None:
        self.base_offset = base_offset
        self.records = [
            record._replace(offset=base_offset + record.offset) for record in iterate_records_of_batch(data)
        ]
        self.header = check_batch(data)
        self.horizon_ms: int | None = None

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.header.last_offset_delta


class CleaningMachine(RuleBasedStateMachine):
    """`batches` is what the log must hold, `end` where it ends, `clean_offset` up to where it is compacted."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="cleaning-machine-"))
        self.surroundings = Surroundings()
        self.batches: list[ModelBatch] = []
        self.end = self.clean_offset = 0
        self.truncated = False
        self.next_sequence = dict.fromkeys(PRODUCERS, 0)

    def teardown(self) -> None:
        self.log.close_without_flush()
        shutil.rmtree(self.directory)

    @initialize(
        segment_bytes=st.integers(150, 1500),
        index_interval_bytes=st.integers(0, 300),
        segment_index_bytes=st.integers(36, 200),
        delete_retention_ms=st.integers(0, 200),
        min_compaction_lag_ms=st.sampled_from([0, 0, 40]),
    )
    def begin(self, **settings: int) -> None:
        self.settings = LogSettings(**settings, cleanup_policy=COMPACT, file_delete_delay_ms=0)  # type: ignore[arg-type]
        self.log: Log = open_at(self.directory, self.settings, surroundings=self.surroundings)

    # --- steps --------------------------------------------------------------------------------------------------------

    @rule(
        made=RECORDS,
        elapsed_ms=st.integers(0, 50),
        producer=st.sampled_from(PRODUCERS),
        compression=st.integers(0, 4),
        timestamp_type=st.sampled_from([0, 0, 0, 1]),
    )
    def append(
        self,
        made: list[tuple[bytes | None, bytes | None, int]],
        elapsed_ms: int,
        producer: int,
        compression: int,
        timestamp_type: int,
    ) -> None:
        self.surroundings.now_ms += elapsed_ms
        records = [
            Record(0, self.surroundings.now_ms + early, key, value, (("h", b"x"),)) for key, value, early in made
        ]
        data = build_batch(
            records,
            compression=compression,
            timestamp_type=timestamp_type,
            producer_id=producer,
            producer_epoch=-1 if producer < 0 else 0,
            base_sequence=-1 if producer < 0 else self.next_sequence[producer],
        )
        self.next_sequence[producer] += len(records)
        batch = ModelBatch(data, self.end)
        assert append(self.log, data) == self.end
        self.batches.append(batch)
        self.end = batch.last_offset + 1

    @rule()
    def roll(self) -> None:
        self.log.roll_segment_if_used()

    @rule(keys_bytes=st.sampled_from([72, 120, 1 << 20]), buffer_bytes=st.sampled_from([1, 1 << 16]))
    def clean(self, keys_bytes: int, buffer_bytes: int) -> None:
        now_ms = self.surroundings.now_ms
        dirt = measure_dirtiness(self.log, now_ms)
        assert dirt.first_dirty_offset == max(self.clean_offset, self.log.log_start_offset)
        self._check_end(dirt.end_offset)
        bases = [segment.base_offset for segment in self.log.segments]
        cleaning = clean(self.log, now_ms, CleaningLimits(keys_bytes, 0.7, buffer_bytes))
        assert cleaning.rewriter is not None
        keys, latest = self._keys(dirt.first_dirty_offset, dirt.end_offset, cleaning.rewriter.keys.capacity)
        cleaned_to = max((end for base, end in zip(bases, bases[1:], strict=False) if base <= latest), default=0)
        self._compact(keys, latest, min(cleaned_to, dirt.end_offset), dirt.end_offset)
        self.clean_offset = max(latest + 1, dirt.first_dirty_offset)
        assert self.log.clean_offset == self.clean_offset
        self.surroundings.run_scheduled()

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.log.log_start_offset, self.end))
        self.log.truncate_to(offset)
        self.truncated = True
        self.end = self.log.log_end_offset
        self.batches = [batch for batch in self.batches if batch.base_offset < self.end]
        self.clean_offset = min(self.clean_offset, self.end)
        for producer in PRODUCERS:
            entry = dict(self.log.producers.iterate_entries()).get(producer)
            self.next_sequence[producer] = entry.batches[-1][1] + 1 if entry else 0

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.log.delete_records_before(data.draw(st.integers(0, self.end)))
        self.surroundings.run_scheduled()
        base_offset = self.log.segments[0].base_offset
        self.batches = [batch for batch in self.batches if batch.base_offset >= base_offset]

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        start_offset = self.log.log_start_offset
        self.log.close()
        self.log = open_at(
            self.directory, self.settings, clean=clean, surroundings=self.surroundings, log_start_offset=start_offset
        )
        if self.log.log_end_offset != self.end:  # as in Kafka, an end without a batch before it is not found again
            assert self.truncated and self.log.log_end_offset == self.log.segments[-1].base_offset
            self.end = self.log.log_end_offset
            self.batches = [batch for batch in self.batches if batch.base_offset < self.end]
            self.clean_offset = min(self.clean_offset, self.end)
        self.log.clean_offset = self.clean_offset

    # --- the rules of compaction --------------------------------------------------------------------------------------

    def _check_end(self, end_offset: int) -> None:
        """Every closed segment before is old enough, and the next one is not, or still written to."""
        lag_ms = self.settings.min_compaction_lag_ms
        now_ms = self.surroundings.now_ms
        *closed, active = self.log.segments
        assert end_offset <= active.base_offset
        for segment in closed:
            young = lag_ms > 0 and segment.get_largest_timestamp() > now_ms - lag_ms
            if segment.base_offset == end_offset:
                assert young

    def _keys(self, start: int, end: int, capacity: int) -> tuple[dict[bytes, int], int]:
        """The last offset of each key, and up to where the log is known: all of it, unless there are too many keys."""
        keys: dict[bytes, int] = {}
        latest = -1
        for batch in self.batches:
            if batch.last_offset < start or batch.base_offset >= end:
                continue
            for record in batch.records:
                if record.key is None or record.offset < start:
                    continue
                if record.key not in keys and len(keys) == capacity:
                    return keys, latest
                keys[record.key] = latest = record.offset
            latest = batch.last_offset
        return keys, max(end, start) - 1 if end > start else latest

    def _compact(self, keys: dict[bytes, int], latest: int, cleaned_to: int, end_offset: int) -> None:
        now_ms = self.surroundings.now_ms
        last = {producer: entry.batches[-1][2] for producer, entry in self.log.producers.iterate_entries()}
        kept = []
        for batch in self.batches:
            if batch.base_offset < cleaned_to:
                due = batch.horizon_ms is not None and batch.horizon_ms <= now_ms
                batch.records = [
                    record
                    for record in batch.records
                    if record.offset > latest
                    or (record.key is not None and keys.get(record.key, -1) <= record.offset)
                    and (record.value is not None or not due)
                ]
                if any(record.value is None for record in batch.records) and batch.last_offset <= latest:
                    batch.horizon_ms = batch.horizon_ms or now_ms + self.settings.delete_retention_ms
            is_last = last.get(batch.header.producer_id) == batch.last_offset
            if batch.records or batch.base_offset >= cleaned_to or is_last or batch.last_offset + 1 == end_offset:
                kept.append(batch)
        self.batches = kept

    # --- what always holds --------------------------------------------------------------------------------------------

    @invariant()
    def every_batch_has_its_offsets_and_sequences_and_no_more_records_than_it_must(self) -> None:
        start = self.log.log_start_offset
        expected = [batch for batch in self.batches if batch.last_offset >= start]
        assert [
            (header.base_offset, header.last_offset, header.producer_id, header.base_sequence, header.record_count)
            for header in log_headers(self.log)
        ] == [
            (
                batch.base_offset,
                batch.last_offset,
                batch.header.producer_id,
                batch.header.base_sequence,
                len(batch.records),
            )
            for batch in expected
        ]
        assert log_records(self.log) == [record for batch in expected for record in batch.records]

    @invariant()
    def tombstones_wait_as_long_as_they_must(self) -> None:
        horizons = {batch.base_offset: batch.horizon_ms for batch in self.batches if batch.records}
        for header in log_headers(self.log):
            if header.record_count:
                assert header.delete_horizon_ms == horizons[header.base_offset]

    @invariant()
    def whatever_is_asked_for_is_found_in_pieces_of_any_size(self) -> None:
        whole = read_batches(self.log)
        for max_bytes in (1, 200):
            assert read_batches(self.log, max_bytes=max_bytes) == whole
        for offset in range(self.log.log_start_offset, self.end):
            region = self.log.read(offset, 1)
            following = [batch for batch in self.batches if batch.last_offset >= offset]
            assert (region is None) == (not following)
            if region is not None:
                assert check_batch(region.read()).base_offset == following[0].base_offset

    @invariant()
    def every_time_is_found(self) -> None:
        start = self.log.log_start_offset
        records = [record for batch in self.batches for record in batch.records if record.offset >= start]
        for target in {record.timestamp for record in records}:
            first = next(record for record in records if record.timestamp >= target)
            found = offset_for_timestamp(self.log, target)
            assert found is not None
            assert (found.offset, found.timestamp) == (first.offset, first.timestamp)

    @invariant()
    def the_indexes_point_to_batches_and_no_file_has_grown_too_large(self) -> None:
        for segment in self.log.segments:
            segment.load_last_entries()
            segment.indexes.load_entries()
            found = list(iterate_headers(segment.file, 0, segment.size_bytes))
            ends = {position: header.last_offset for position, header in found}
            assert all(ends[position] == offset for offset, position in segment.indexes.offsets.list_entries())
            for timestamp, offset in segment.indexes.times.list_entries():
                assert max(header.max_timestamp for _, header in found if header.base_offset <= offset) == timestamp
            if len(found) > 1:
                assert segment.indexes.offsets.count * 8 <= self.settings.segment_index_bytes
                assert segment.indexes.times.count * 12 <= self.settings.segment_index_bytes

    @invariant()
    def the_producers_are_those_that_reading_the_log_anew_finds(self) -> None:
        states = ProducerStates()
        states.clear_all_producers(self.log.segments[0].base_offset)
        replay_batches(states, self.log.segments, self.end)
        found = {producer: (entry.epoch, entry.batches[-1][:4]) for producer, entry in states.iterate_entries()}
        known = {
            producer: (entry.epoch, entry.batches[-1][:4]) for producer, entry in self.log.producers.iterate_entries()
        }
        base_offset = self.log.segments[0].base_offset
        assert found.items() <= known.items()
        if not self.truncated:  # after that, a snapshot may know a batch that was compacted away for a later one's sake
            assert found == {producer: state for producer, state in known.items() if state[1][2] >= base_offset}


TestCleaningMachine = CleaningMachine.TestCase
