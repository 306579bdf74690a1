"""The delivery states of the records of one partition for one share group (KIP-932).

    start offset                                            end offset
         |  acknowledged  |  acquired by m1  |  available  |     never delivered
                                   |    ^          |
                  accept, reject, -+    +----------+ acquire: the delivery count grows
                  or the lock ends, or release: available again, or archived at the limit of deliveries

The records between both offsets are kept as runs of the same state. Runs at the start whose records are acknowledged or
archived are dropped, which moves the start offset. There is no I/O and no clock here: `share_partition` has both.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from minibroker.protocol.errors import ErrorCode, KafkaError

NOBODY: Final = ""
NEVER_MS: Final = -1
FIRST_THROTTLED: Final = 2  # deliveries, at least, after which fewer records are delivered together


class DeliveryState(IntEnum):
    """The state of a record, by its number in `__share_group_state`."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def is_final(self) -> bool:
        """Return whether the record is never delivered again."""
        return self in (DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED)


class AcknowledgeType(IntEnum):
    """What a member says of a record: GAP that there is none, RENEW that it needs more time (KIP-1222)."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


NEXT: Final = {
    AcknowledgeType.GAP: DeliveryState.ARCHIVED,
    AcknowledgeType.ACCEPT: DeliveryState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: DeliveryState.AVAILABLE,
    AcknowledgeType.REJECT: DeliveryState.ARCHIVED,
}


class StateBatch(NamedTuple):
    """Records with the same state and delivery count, as the share coordinator keeps them. `last` is inclusive."""

    first: int
    last: int
    state: int
    deliveries: int


class Acquired(NamedTuple):
    """Records that a member has acquired, and how often they have been delivered. `last` is inclusive."""

    first: int
    last: int
    deliveries: int


class Limits(NamedTuple):
    """The limits of a share group: its configs, or the broker's."""

    deliveries: int
    record_locks: int
    lock_ms: int


class Run:
    """Records `first` to `last` (inclusive) with the same state; `member_id` and `lock_end_ms` of acquired ones."""

    __slots__ = ("count", "first", "last", "lock_end_ms", "member_id", "state")

    def __init__(self, first: int, last: int, state: DeliveryState, count: int) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.count = count
        self.member_id = NOBODY
        self.lock_end_ms = NEVER_MS

    def __repr__(self) -> str:
        return f"<{self.first}-{self.last} {self.state.name} {self.count} {self.member_id}>"

    @property
    def size(self) -> int:
        """Return the number of offsets."""
        return self.last - self.first + 1

    def copy(self) -> Run:
        """Return an equal run."""
        other = Run(self.first, self.last, self.state, self.count)
        other.member_id, other.lock_end_ms = self.member_id, self.lock_end_ms
        return other

    def split(self, offset: int) -> Run:
        """Cut the run before `offset`; return the second part."""
        rest = self.copy()
        rest.first, self.last = offset, offset - 1
        return rest

    def is_like(self, other: Run) -> bool:
        """Return whether the two can be one run. Acquired ones stay apart, as their members acknowledge them so."""
        return self.state == other.state != DeliveryState.ACQUIRED and self.count == other.count

    def batch(self) -> StateBatch:
        """Return the run as the share coordinator keeps it."""
        return StateBatch(self.first, self.last, self.state, self.count)


class Deliveries:
    """The delivery states of a partition. Every change returns what the share coordinator is to keep of it."""

    __slots__ = ("_firsts", "_runs", "end_offset", "start_offset")

    def __init__(self, start_offset: int, batches: Sequence[StateBatch] = ()) -> None:
        """Begin at an offset, with the kept batches, in order. Offsets between these have not been delivered yet."""
        self.start_offset = self.end_offset = start_offset
        self._runs: list[Run] = []
        for batch in batches:
            if batch.first > self.end_offset:
                self._runs.append(Run(self.end_offset, batch.first - 1, DeliveryState.AVAILABLE, 0))
            first = max(batch.first, self.end_offset)
            if batch.last >= first:
                self._runs.append(Run(first, batch.last, DeliveryState(batch.state), batch.deliveries))
                self.end_offset = batch.last + 1
        self._settle()

    def copy(self) -> Deliveries:
        """Return the same states as an object of its own."""
        other = Deliveries(self.start_offset)
        other.end_offset = self.end_offset
        other._runs = [run.copy() for run in self._runs]
        return other

    # --- what there is ----------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Return the number of offsets between start and end."""
        return self.end_offset - self.start_offset

    @property
    def final_count(self) -> int:
        """Return the number of in-flight records that are acknowledged or archived (KIP-1226)."""
        return sum(run.size for run in self._runs if run.state.is_final)

    def runs(self) -> Sequence[Run]:
        """Return the runs, for the eye."""
        return tuple(self._runs)

    def next_offset(self) -> int:
        """Return the first offset that can be acquired."""
        return next((run.first for run in self._runs if run.state == DeliveryState.AVAILABLE), self.end_offset)

    def has_room(self, limits: Limits) -> bool:
        """Return whether anything can be acquired: a released record, or a new one below the limit of locks."""
        return self.next_offset() < self.end_offset or self.in_flight < limits.record_locks

    def next_lock_end_ms(self) -> int | None:
        """Return when the first lock ends; None without locks."""
        return min((run.lock_end_ms for run in self._runs if run.state == DeliveryState.ACQUIRED), default=None)

    def is_held_by(self, member_id: str) -> bool:
        """Return whether the member has acquired records."""
        return any(run.member_id == member_id for run in self._runs if run.state == DeliveryState.ACQUIRED)

    # --- acquiring --------------------------------------------------------------------------------

    def acquire(
        self,
        member_id: str,
        bounds: Sequence[tuple[int, int]],
        limits: Limits,
        now_ms: int,
        max_records: int,
        batch_size: int,
        *,
        strict: bool = False,
    ) -> list[Acquired]:
        """Acquire records of batches that were read from `next_offset`: their `bounds`, each first and last offset.

        Whole batches are acquired, also beyond `max_records`, unless `strict` (KIP-1206). New records come in ranges of
        about `batch_size`, cut between batches. Offsets before the first batch do not exist any more.
        """
        if not bounds or max_records <= 0:
            return []
        self._archive_missing(bounds[0][0])
        last = bounds[-1][1]
        room = limits.record_locks - self.in_flight
        left = min(max_records, room) if room > 0 else max_records
        if room <= 0:
            last = min(last, self.end_offset - 1)
        acquired: list[Acquired] = []
        found = 0
        for run in self._available(max(bounds[0][0], self.start_offset), last):
            portion = _together(run, limits.deliveries)
            is_throttled = portion < run.size
            if is_throttled and acquired:
                return acquired
            stop = run.first + left - found - 1
            if not strict:
                stop = next((bound for _, bound in bounds if bound >= stop), stop)
            stop = min(stop, last, run.first + portion - 1)
            acquired += self._take(run.first, stop, member_id, now_ms + limits.lock_ms)
            found = sum(each.last - each.first + 1 for each in acquired)
            if is_throttled or found >= left:
                return acquired
        return acquired + self._acquire_new(member_id, bounds, last, left - found, batch_size, now_ms, limits, strict)

    def _archive_missing(self, first: int) -> None:
        """Archive what can be acquired before `first`: compaction has removed it."""
        for run in list(self._within(self.next_offset(), min(first, self.end_offset) - 1)):
            if run.state == DeliveryState.AVAILABLE:
                run.state = DeliveryState.ARCHIVED
        self._settle()

    def _available(self, first: int, last: int) -> Iterator[Run]:
        """Yield the runs that can be acquired, within these offsets; they may change meanwhile."""
        offset = first
        while offset <= min(last, self.end_offset - 1):
            run = self._runs[self._index(offset)]
            if run.state == DeliveryState.AVAILABLE:
                if run.first < offset:
                    self._cut(offset)
                    continue
                yield run
                run = self._runs[self._index(offset)]
            offset = run.last + 1

    def _take(self, first: int, last: int, member_id: str, lock_end_ms: int) -> list[Acquired]:
        taken = []
        for run in self._within(first, last):
            run.state, run.count = DeliveryState.ACQUIRED, run.count + 1
            run.member_id, run.lock_end_ms = member_id, lock_end_ms
            taken.append(Acquired(run.first, run.last, run.count))
        return taken

    def _acquire_new(
        self,
        member_id: str,
        bounds: Sequence[tuple[int, int]],
        last: int,
        left: int,
        batch_size: int,
        now_ms: int,
        limits: Limits,
        strict: bool,
    ) -> list[Acquired]:
        """Acquire records that were never delivered, behind the end offset."""
        first = max(bounds[0][0], self.end_offset)
        if first > last or left <= 0:
            return []
        if first > self.end_offset and not self._runs:
            self.start_offset = self.end_offset = first  # nothing is in flight: the offsets before do not exist
        end = next((bound for base, bound in bounds if bound >= first + left - 1), last)
        end = min(end, last)
        known = min(end, first + left - 1) if strict else end
        starts = [first]
        for base, _ in bounds:
            if base - starts[-1] >= batch_size and base <= known and not strict:
                starts.append(base)
        if first > self.end_offset:
            self._runs.append(Run(self.end_offset, first - 1, DeliveryState.ARCHIVED, 0))
        acquired = []
        for start, stop in zip(starts, [*(start - 1 for start in starts[1:]), known], strict=True):
            run = Run(start, stop, DeliveryState.ACQUIRED, 1)
            run.member_id, run.lock_end_ms = member_id, now_ms + limits.lock_ms
            self._runs.append(run)
            acquired.append(Acquired(start, stop, 1))
        self.end_offset = known + 1
        return acquired

    # --- acknowledging ------------------------------------------------------------------------------

    def acknowledge(
        self, member_id: str, first: int, last: int, types: Sequence[int], limits: Limits, now_ms: int
    ) -> list[StateBatch]:
        """Acknowledge records that the member has acquired; one type stands for all of them.

        Records before the start offset are passed over. Raises KafkaError: INVALID_RECORD_STATE if it has not acquired
        all of them, INVALID_REQUEST if some have never been delivered; then nothing has changed.
        """
        changed: list[StateBatch] = []
        if last < self.start_offset:
            return changed
        if last >= self.end_offset:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "The request contains offsets that have not been delivered yet."
            )
        skipped = max(self.start_offset - first, 0)
        self._check_acquired(member_id, first + skipped, last)
        for start, stop, kind in _typed(first + skipped, last, types[skipped:] if len(types) > 1 else types):
            for run in self._within(start, stop):
                if kind == AcknowledgeType.RENEW:
                    run.lock_end_ms = now_ms + limits.lock_ms
                else:
                    self._end_lock(run, NEXT[kind], limits.deliveries)
                    changed.append(run.batch())
        return changed

    def _check_acquired(self, member_id: str, first: int, last: int) -> None:
        offset = first
        while offset <= last:
            run = self._runs[self._index(offset)]
            if run.state != DeliveryState.ACQUIRED:
                message = "The batch cannot be acknowledged. The offset is not acquired."
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE, message)
            if run.member_id != member_id:
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "Member is not the owner of offset")
            offset = run.last + 1

    def release(self, limits: Limits, which: Callable[[Run], bool]) -> list[StateBatch]:
        """Release the acquired records of these runs: those of a member that is gone, or whose locks have ended."""
        changed = []
        for run in self._runs:
            if run.state == DeliveryState.ACQUIRED and which(run):
                self._end_lock(run, DeliveryState.AVAILABLE, limits.deliveries)
                changed.append(run.batch())
        return changed

    def archive(self, first: int, last: int) -> list[StateBatch]:
        """Archive records that no member may see, such as those of aborted transactions."""
        changed = []
        for run in self._within(max(first, self.start_offset), min(last, self.end_offset - 1)):
            run.state, run.member_id, run.lock_end_ms = DeliveryState.ARCHIVED, NOBODY, NEVER_MS
            changed.append(run.batch())
        return changed

    def _end_lock(self, run: Run, state: DeliveryState, limit: int) -> None:
        is_last = state == DeliveryState.AVAILABLE and run.count >= limit
        run.state = DeliveryState.ARCHIVED if is_last else state
        run.member_id, run.lock_end_ms = NOBODY, NEVER_MS

    # --- the start offset ---------------------------------------------------------------------------

    def settle(self) -> bool:
        """Drop final records at the start, and join runs; return whether the start offset moved."""
        before = self.start_offset
        self._settle()
        return self.start_offset != before

    def begin_at(self, offset: int) -> bool:
        """Pass over the records before `offset`, as the log begins there; return whether the start offset moved."""
        if offset <= self.start_offset:
            return False
        if offset >= self.end_offset:
            self._runs.clear()
            self.start_offset = self.end_offset = offset
        else:
            self._cut(offset)
            del self._runs[: self._index(offset)]
            self.start_offset = offset
            self._settle()
        return True

    def _settle(self) -> None:
        kept: list[Run] = []
        for run in self._runs:
            if not kept and run.state.is_final:
                continue
            if kept and kept[-1].is_like(run):
                kept[-1].last = run.last
            else:
                kept.append(run)
        self._runs = kept
        self.start_offset = kept[0].first if kept else self.end_offset

    # --- runs by offset -----------------------------------------------------------------------------

    def _index(self, offset: int) -> int:
        """Return the index of the run that contains an in-flight offset."""
        return bisect_right(self._runs, offset, key=lambda run: run.first) - 1

    def _cut(self, offset: int) -> None:
        """Make `offset` the first one of a run, if it is in flight."""
        if self.start_offset < offset < self.end_offset:
            index = self._index(offset)
            if self._runs[index].first < offset:
                self._runs.insert(index + 1, self._runs[index].split(offset))

    def _within(self, first: int, last: int) -> list[Run]:
        """Return the runs of these offsets, cut so that they have no others."""
        if last < first:
            return []
        self._cut(first)
        self._cut(last + 1)
        return self._runs[self._index(first) : self._index(last) + 1]


def _together(run: Run, limit: int) -> int:
    """Return how many records of a run are delivered together.

    After half of the deliveries it is half of them, then a quarter, and before the last one each record comes alone:
    one that kills its consumer shall not take others with it (KIP-1191).
    """
    threshold = max(FIRST_THROTTLED, (limit + 1) // 2)
    if limit > FIRST_THROTTLED and run.count == limit - 1:
        return 1
    if run.count < threshold:
        return run.size
    return max(1, run.size >> (run.count - threshold + 1))


def _typed(first: int, last: int, types: Sequence[int]) -> Iterator[tuple[int, int, AcknowledgeType]]:
    """Yield ranges of offsets with their type: one for all, or neighbours of the same type."""
    if len(types) == 1:
        yield first, last, AcknowledgeType(types[0])
        return
    start = first
    for offset in range(first, last + 1):
        if offset == last or types[offset + 1 - first] != types[start - first]:
            yield start, offset, AcknowledgeType(types[start - first])
            start = offset + 1
