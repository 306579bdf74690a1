"""The delivery states of the records of one partition for one share group (KIP-932).

    start offset                                            end offset
         |  acknowledged  |  acquired by m1  |  available  |     never delivered
                                   |    ^          |
                  accept, reject, -+    +----------+ acquire: the delivery count grows
                  or the lock ends, or release: available again, or archived at the limit of deliveries

If the group has a dead letter queue (KIP-1191), rejected records and those at the limit are archiving until they are in
it.
The records between both offsets are kept as runs of the same state. Runs at the start whose records are acknowledged or
archived are dropped, which moves the start offset. There is no I/O and no clock here: `share_partition` has both.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from minibroker.broker.share.runs import (
    NEVER_MS,
    NOBODY,
    AcknowledgeType,
    AcquiredRange,
    AcquiredRecords,
    DeliveryRun,
    DeliveryState,
    GivenUpRecords,
    RangeAcknowledgement,
    ShareLimits,
    StateBatch,
)
from minibroker.protocol.errors import ErrorCode, KafkaError

FIRST_THROTTLED: Final = 2  # deliveries, at least, after which fewer records are delivered together
NOT_ACQUIRED: Final = "The offset cannot be acknowledged. The offset is not acquired."
BATCH_NOT_ACQUIRED: Final = "The batch cannot be acknowledged. The batch is not in the acquired state."
KINDS: Final = tuple(AcknowledgeType)  # by their numbers
NEXT: Final = {
    AcknowledgeType.GAP: DeliveryState.ARCHIVED,
    AcknowledgeType.ACCEPT: DeliveryState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: DeliveryState.AVAILABLE,
    AcknowledgeType.REJECT: DeliveryState.ARCHIVED,
}


class DeliveryPortions:
    """How many records are delivered together again: one that kills its consumer shall not take many with it.

    After half of the deliveries, at least 2, an origin comes alone, and only half of its records, then a quarter; a
    record before its last delivery comes alone.
    """

    __slots__ = ("_limit", "_threshold")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._threshold = max(FIRST_THROTTLED, (limit + 1) // 2)

    def must_deliver_in_portions(self, runs: Sequence[DeliveryRun], fetched_offsets: range) -> bool:
        """Return whether one of these runs was delivered so often that they must be delivered alone, in portions."""
        return any(run.count >= self._threshold for run in _iterate_available_runs(runs, fetched_offsets))

    def choose_ranges_to_acquire(
        self,
        acquired_range: AcquiredRange,
        runs: Sequence[DeliveryRun],
        fetched_offsets: range,
        max_records: int | None,
    ) -> list[tuple[int, int]]:
        """Return the (first, last) offsets of ranges to acquire of `acquired_range`, at most `max_records` offsets.

        As in Kafka, a portion does not end where more records were chosen before the first that asks for portions.
        """
        chosen: list[tuple[int, int]] = []
        count, portion = 0, None
        for run in _iterate_available_runs(runs, fetched_offsets):
            is_last = self._limit > FIRST_THROTTLED and run.count == self._limit - 1
            if is_last and count:
                break
            if run.count >= self._threshold and portion is None:
                portion = max(1, acquired_range.size >> (run.count - self._threshold + 1))
            first, last = max(run.first, fetched_offsets.start), min(run.last, fetched_offsets.stop - 1)
            ends = [last - first + 1, 1 if is_last else None, None if max_records is None else max_records - count]
            if portion is not None and portion > count:
                ends.append(portion - count)
            size = min(end for end in ends if end is not None)
            chosen.append((first, first + size - 1))
            count += size
            if is_last or count in (max_records, portion):
                break
        return chosen


def _iterate_available_runs(runs: Sequence[DeliveryRun], fetched_offsets: range) -> Iterator[DeliveryRun]:
    """Yield the runs of which records can be acquired in this range."""
    for run in runs:
        if (
            run.state == DeliveryState.AVAILABLE
            and run.first < fetched_offsets.stop
            and run.last >= fetched_offsets.start
        ):
            yield run


class Deliveries:
    """The delivery states of a partition. Every change returns what the share coordinator is to keep of it.

    `given_up` has the records that began to be archived, and which need a dead letter.
    """

    __slots__ = ("_runs", "end_offset", "given_up", "start_offset")

    def __init__(self, start_offset: int, batches: Sequence[StateBatch] = ()) -> None:
        """Begin at an offset, with the kept batches, in order. Offsets between these have not been delivered yet."""
        self.start_offset = self.end_offset = start_offset
        self.given_up: list[GivenUpRecords] = []
        self._runs: list[DeliveryRun] = []
        for batch in batches:
            if batch.first > self.end_offset:
                self._runs.append(DeliveryRun(self.end_offset, batch.first - 1, DeliveryState.AVAILABLE, 0))
            first = max(batch.first, self.end_offset)
            if batch.last >= first:
                self._runs.append(DeliveryRun(first, batch.last, DeliveryState(batch.state), batch.deliveries))
                self.end_offset = batch.last + 1
        self.drop_final_records()

    # --- what there is ----------------------------------------------------------------------------

    @property
    def in_flight_count(self) -> int:
        """Return the number of in-flight offsets: those from the start offset up to the end offset."""
        return self.end_offset - self.start_offset

    @property
    def final_count(self) -> int:
        """Return the number of in-flight records that are acknowledged or archived (KIP-1226)."""
        return sum(run.record_count for run in self._runs if run.state.is_final)

    def list_runs(self) -> Sequence[DeliveryRun]:
        """Return all runs, in the order of their offsets."""
        return tuple(self._runs)

    def find_next_offset(self) -> int:
        """Return the first offset that can be acquired."""
        return next((run.first for run in self._runs if run.state == DeliveryState.AVAILABLE), self.end_offset)

    def find_last_offset_to_acquire(self, count: int) -> int:
        """Return the last offset whose batch is needed to acquire about `count` records."""
        for run in self._runs:
            if run.state == DeliveryState.AVAILABLE:
                if run.record_count >= count:
                    return run.origin.last
                count -= run.record_count
        return self.end_offset + count - 1

    def has_room_for_deliveries(self, limits: ShareLimits) -> bool:
        """Return whether anything can be acquired: a released record, or a new one within the limit of record locks."""
        return self.find_next_offset() < self.end_offset or self.in_flight_count < limits.record_locks

    def find_next_lock_end_ms(self) -> int | None:
        """Return when the first lock ends; None without locks."""
        return min((run.lock_end_ms for run in self._runs if run.state == DeliveryState.ACQUIRED), default=None)

    # --- acquiring --------------------------------------------------------------------------------

    def acquire_records(
        self,
        member_id: str,
        batch_bounds: Sequence[tuple[int, int]],
        limits: ShareLimits,
        now_ms: int,
        max_records: int,
        batch_size: int,
        *,
        strict: bool = False,
    ) -> list[AcquiredRecords]:
        """Acquire records of batches with these (first, last) offsets; `strict` never acquires more than `max_records`.

        The batches were read from `find_next_offset` on; offsets before the first one do not exist any more. Records
        that were delivered before come by their origins, whole ones also beyond `max_records`, unless `strict`
        (KIP-1206). New records come in whole batches, and in ranges of about `batch_size`, cut between batches.
        """
        if not batch_bounds or max_records <= 0:
            return []
        self._archive_compacted_offsets(batch_bounds[0][0])
        fetched = range(batch_bounds[0][0], batch_bounds[-1][1] + 1)
        most = min(max_records, limits.record_locks - self.in_flight_count)
        if most <= 0:
            most = min(max_records, self.end_offset - self.find_next_offset())
            fetched = range(fetched.start, min(fetched.stop, self.end_offset))
        acquired: list[AcquiredRecords] = []
        left = most
        portions = DeliveryPortions(limits.deliveries)
        for origin, runs in self._group_runs_by_acquired_range(fetched):
            if left <= 0:
                return acquired
            is_throttled = portions.must_deliver_in_portions(runs, fetched)
            if is_throttled and acquired:
                return acquired
            is_whole = fetched.start <= origin.first and origin.last < fetched.stop
            if is_whole and not origin.by_record and not is_throttled and not (strict and origin.size > left):
                chosen = [(run.first, run.last) for run in runs if run.state == DeliveryState.AVAILABLE]
            elif not origin.by_record and runs[0].state != DeliveryState.AVAILABLE:
                continue
            else:
                origin.by_record = True
                chosen = portions.choose_ranges_to_acquire(origin, runs, fetched, left if strict else None)
            for first, last in chosen:
                acquired += self._acquire_available_runs(first, last, member_id, now_ms + limits.lock_ms)
                left -= last - first + 1
            if is_throttled and chosen:
                return acquired
        return acquired + self._acquire_records_not_in_flight(
            member_id, batch_bounds, fetched.stop - 1, left, batch_size, now_ms, limits, strict
        )

    def _group_runs_by_acquired_range(self, fetched_offsets: range) -> list[tuple[AcquiredRange, list[DeliveryRun]]]:
        """Return the ranges acquired together that overlap `fetched_offsets`, each with its runs."""
        found: list[tuple[AcquiredRange, list[DeliveryRun]]] = []
        for run in self._runs:
            if run.origin.first < fetched_offsets.stop and run.origin.last >= fetched_offsets.start:
                if not found or found[-1][0] is not run.origin:
                    found.append((run.origin, []))
                found[-1][1].append(run)
        return found

    def _archive_compacted_offsets(self, first_offset: int) -> None:
        """Archive available records before `first_offset`, which compaction has removed."""
        for run in list(
            self._split_runs_at_bounds_and_list_them(self.find_next_offset(), min(first_offset, self.end_offset) - 1)
        ):
            if run.state == DeliveryState.AVAILABLE:
                run.state = DeliveryState.ARCHIVED
        self.drop_final_records()

    def _acquire_available_runs(self, first: int, last: int, member_id: str, lock_end_ms: int) -> list[AcquiredRecords]:
        """Acquire these offsets, which are all available; return them with their delivery counts."""
        taken = []
        for run in self._split_runs_at_bounds_and_list_them(first, last):
            run.state, run.count = DeliveryState.ACQUIRED, run.count + 1
            run.member_id, run.lock_end_ms = member_id, lock_end_ms
            taken.append(AcquiredRecords(run.first, run.last, run.count))
        return taken

    def _acquire_records_not_in_flight(
        self,
        member_id: str,
        batch_bounds: Sequence[tuple[int, int]],
        last: int,
        records_left: int,
        batch_size: int,
        now_ms: int,
        limits: ShareLimits,
        strict: bool,
    ) -> list[AcquiredRecords]:
        """Acquire records behind the end offset, which were never delivered, up to the limit of record locks."""
        first = max(batch_bounds[0][0], self.end_offset)
        if first > last or records_left <= 0:
            return []
        if first > self.end_offset and not self._runs:
            self.start_offset = self.end_offset = first  # nothing is in flight: the offsets before do not exist
        end = min(_find_last_offset_of_batch(batch_bounds, first + records_left - 1), last)
        known = min(end, first + records_left - 1) if strict else end
        starts = [first]
        for base, _ in batch_bounds:
            if base - starts[-1] >= batch_size and base <= known and not strict:
                starts.append(base)
        if first > self.end_offset:
            self._runs.append(DeliveryRun(self.end_offset, first - 1, DeliveryState.ARCHIVED, 0))
        acquired = []
        for start, stop in zip(starts, [*(start - 1 for start in starts[1:]), known], strict=True):
            origin = AcquiredRange(start, end, by_record=known < end) if strict else None
            run = DeliveryRun(start, stop, DeliveryState.ACQUIRED, 1, origin)
            run.member_id, run.lock_end_ms = member_id, now_ms + limits.lock_ms
            self._runs.append(run)
            acquired.append(AcquiredRecords(start, stop, 1))
        if known < end:  # as in Kafka, the rest of the batch is in flight, too
            self._runs.append(DeliveryRun(known + 1, end, DeliveryState.AVAILABLE, 0, self._runs[-1].origin))
        self.end_offset = end + 1
        return acquired

    def undo_acquisition(self, member_id: str, acquired_records: Iterable[AcquiredRecords]) -> None:
        """Undo an acquisition and its count of deliveries; records that the member no longer holds stay as they are."""
        for first, last, _ in acquired_records:
            for run in self._split_runs_at_bounds_and_list_them(
                max(first, self.start_offset), min(last, self.end_offset - 1)
            ):
                if run.state == DeliveryState.ACQUIRED and run.member_id == member_id:
                    run.state, run.count = DeliveryState.AVAILABLE, run.count - 1
                    run.member_id, run.lock_end_ms = NOBODY, NEVER_MS
        self.drop_final_records()

    # --- acknowledging ------------------------------------------------------------------------------

    def acknowledge_records(
        self, member_id: str, acknowledgements: Sequence[RangeAcknowledgement], limits: ShareLimits, now_ms: int
    ) -> list[StateBatch]:
        """Apply acknowledgements of distinct offsets, in order, all or none; return the batches of changed states.

        Records before the start offset are passed over. Raises KafkaError: INVALID_RECORD_STATE if the member has not
        acquired all of them, INVALID_REQUEST if some have never been delivered.
        """
        current = [each for each in acknowledgements if each.last >= self.start_offset]
        for one in current:
            self._check_acquired_by_member(member_id, one)
            if AcknowledgeType.RENEW in one.types and not limits.may_renew:
                message = "Renewing acquisition locks is not enabled for the group."
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE, message)
        changed: list[StateBatch] = []
        for first, last, types in current:
            skipped = max(self.start_offset - first, 0)
            for start, stop, kind in _iterate_runs_of_equal_type(
                first + skipped, last, types[skipped:] if len(types) > 1 else types
            ):
                for run in self._split_runs_at_bounds_and_list_them(start, stop):
                    run.origin.by_record = run.origin.by_record or len(types) > 1
                    if kind == AcknowledgeType.RENEW:
                        run.lock_end_ms = now_ms + limits.lock_ms
                    else:
                        changed.append(self._end_acquisition_lock(run, kind, limits))
        return changed

    def _check_acquired_by_member(self, member_id: str, acknowledgement: RangeAcknowledgement) -> None:
        if not self._runs:
            message = "Batch record not found. The request batch offsets are not found in the cache."
            raise KafkaError(ErrorCode.INVALID_RECORD_STATE, message)
        if acknowledgement.last >= self.end_offset:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "The request contains offsets that have not been delivered yet."
            )
        offset = max(acknowledgement.first, self.start_offset)
        while offset <= acknowledgement.last:
            run = self._runs[self._find_run_index(offset)]
            has_state_of_each = run.origin.by_record
            if run.state != DeliveryState.ACQUIRED:
                message = NOT_ACQUIRED if has_state_of_each else BATCH_NOT_ACQUIRED
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE, message)
            if run.member_id != member_id:
                what = "offset" if has_state_of_each else "batch record"
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE, f"Member is not the owner of {what}")
            offset = run.last + 1

    def release_acquired_runs(
        self, limits: ShareLimits, must_release: Callable[[DeliveryRun], bool]
    ) -> list[StateBatch]:
        """Release acquired runs for which `must_release` returns true; return the batches of changed states."""
        changed = []
        for run in self._runs:
            if run.state == DeliveryState.ACQUIRED and must_release(run):
                changed.append(self._end_acquisition_lock(run, AcknowledgeType.RELEASE, limits))
        return changed

    def archive_offsets(self, first: int, last: int) -> list[StateBatch]:
        """Archive these offsets, of aborted records or ones with dead letters; return the batches of changed states."""
        changed = []
        for run in self._split_runs_at_bounds_and_list_them(
            max(first, self.start_offset), min(last, self.end_offset - 1)
        ):
            run.state, run.member_id, run.lock_end_ms = DeliveryState.ARCHIVED, NOBODY, NEVER_MS
            changed.append(run.make_state_batch())
        return changed

    def _end_acquisition_lock(
        self, run: DeliveryRun, acknowledge_type: AcknowledgeType, limits: ShareLimits
    ) -> StateBatch:
        """End the lock of an acquired run by an acknowledgement of this type; return the batch of its new state."""
        is_last = acknowledge_type == AcknowledgeType.RELEASE and run.count >= limits.deliveries
        run.state = DeliveryState.ARCHIVED if is_last else NEXT[acknowledge_type]
        if limits.has_dead_letters and (is_last or acknowledge_type == AcknowledgeType.REJECT):
            run.state = DeliveryState.ARCHIVING
            self.given_up.append(
                GivenUpRecords(run.first, run.last, run.count, acknowledge_type == AcknowledgeType.REJECT)
            )
        run.member_id, run.lock_end_ms = NOBODY, NEVER_MS
        return run.make_state_batch()

    # --- the start offset ---------------------------------------------------------------------------

    def advance_start_offset(self, offset: int) -> bool:
        """Drop the records before `offset`, where the log starts now; return whether the start offset moved."""
        if offset <= self.start_offset:
            return False
        if offset >= self.end_offset:
            self._runs.clear()
            self.start_offset = self.end_offset = offset
        else:
            self._split_run_at(offset)
            del self._runs[: self._find_run_index(offset)]
            self.start_offset = offset
            self.drop_final_records()
        return True

    def drop_final_records(self) -> None:
        """Drop acknowledged and archived records at the start, and merge runs with equal states."""
        kept: list[DeliveryRun] = []
        for run in self._runs:
            if not kept and run.state.is_final:
                continue
            if kept and kept[-1].can_merge_with(run):
                kept[-1].last = run.last
            else:
                kept.append(run)
        self._runs = kept
        self.start_offset = kept[0].first if kept else self.end_offset

    # --- runs by offset -----------------------------------------------------------------------------

    def _find_run_index(self, offset: int) -> int:
        """Return the index of the run that contains an in-flight offset."""
        return bisect_right(self._runs, offset, key=lambda run: run.first) - 1

    def _split_run_at(self, offset: int) -> None:
        """Make `offset` the first one of a run, if it is in flight."""
        if self.start_offset < offset < self.end_offset:
            index = self._find_run_index(offset)
            if self._runs[index].first < offset:
                self._runs.insert(index + 1, self._runs[index].split_at_offset(offset))

    def _split_runs_at_bounds_and_list_them(self, first: int, last: int) -> list[DeliveryRun]:
        """Split runs at the bounds of these in-flight offsets; return the runs between."""
        if last < first:
            return []
        runs, start = self._runs, self._find_run_index(first)
        if runs[start].first < first:
            runs.insert(start + 1, runs[start].split_at_offset(first))
            start += 1
        end = start
        while runs[end].last < last:
            end += 1
        if runs[end].last > last:
            runs.insert(end + 1, runs[end].split_at_offset(last + 1))
        return runs[start : end + 1]


def _find_last_offset_of_batch(batch_bounds: Sequence[tuple[int, int]], offset: int) -> int:
    """Return the last offset of the batch that contains `offset`, or `offset` itself behind the last batch."""
    index = bisect_left(batch_bounds, offset, key=lambda each: each[1])
    return batch_bounds[index][1] if index < len(batch_bounds) else offset


def _iterate_runs_of_equal_type(
    first: int, last: int, types: Sequence[int]
) -> Iterator[tuple[int, int, AcknowledgeType]]:
    """Yield (first, last, type) of neighbouring offsets of the same type; `types` has one for each, or one for all."""
    if len(types) == 1:
        yield first, last, KINDS[types[0]]
        return
    start = first
    for offset in range(first, last + 1):
        if offset == last or types[offset + 1 - first] != types[start - first]:
            yield start, offset, KINDS[types[start - first]]
            start = offset + 1
