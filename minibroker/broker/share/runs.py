"""Runs: neighbouring records of a share partition with the same delivery state, and what is said of them (KIP-932)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

NOBODY: Final = ""
NEVER_MS: Final = -1


class DeliveryState(IntEnum):
    """The state of a record, by its number in `__share_group_state`."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
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


class StateBatch(NamedTuple):
    """Records with the same state and delivery count, as the share coordinator keeps them. `last` is inclusive."""

    first: int
    last: int
    state: int
    deliveries: int


class RangeAcknowledgement(NamedTuple):
    """What a member says of the records `first` to `last`: one type for all, or one for each offset."""

    first: int
    last: int
    types: Sequence[int]


class AcquiredRecords(NamedTuple):
    """Records that a member has acquired, and how often they have been delivered. `last` is inclusive."""

    first: int
    last: int
    deliveries: int


class GivenUpRecords(NamedTuple):
    """Records that are delivered no more, as a member has rejected them, or else after the last delivery."""

    first: int
    last: int
    deliveries: int
    is_rejected: bool


class ShareLimits(NamedTuple):
    """The limits of a share group: its configs, or the broker's."""

    deliveries: int
    record_locks: int
    lock_ms: int
    may_renew: bool = True
    has_dead_letters: bool = False


class AcquiredRange:
    """The offsets `first` to `last` (inclusive) that were acquired together at first, or those of a kept batch.

    `by_record` says that the states of its records have ever been changed one by one, or of some without the others:
    then Kafka has a state of each. Else its records have always been one run.
    """

    __slots__ = ("by_record", "first", "last")

    def __init__(self, first: int, last: int, *, by_record: bool = False) -> None:
        self.first = first
        self.last = last
        self.by_record = by_record

    @property
    def size(self) -> int:
        """Return the number of offsets."""
        return self.last - self.first + 1


class DeliveryRun:
    """Records `first` to `last` (inclusive) with the same state; `member_id` and `lock_end_ms` of acquired ones."""

    __slots__ = ("count", "first", "last", "lock_end_ms", "member_id", "origin", "state")

    def __init__(
        self, first: int, last: int, state: DeliveryState, count: int, origin: AcquiredRange | None = None
    ) -> None:
        self.first = first
        self.last = last
        self.origin = AcquiredRange(first, last) if origin is None else origin
        self.state = state
        self.count = count
        self.member_id = NOBODY
        self.lock_end_ms = NEVER_MS

    def __repr__(self) -> str:
        return f"<{self.first}-{self.last} {self.state.name} {self.count} {self.member_id}>"

    @property
    def record_count(self) -> int:
        """Return the number of offsets."""
        return self.last - self.first + 1

    def split_at_offset(self, offset: int) -> DeliveryRun:
        """Cut the run before `offset`; return the second part."""
        rest = DeliveryRun(offset, self.last, self.state, self.count, self.origin)
        rest.member_id, rest.lock_end_ms = self.member_id, self.lock_end_ms
        self.last = offset - 1
        self.origin.by_record = True
        return rest

    def can_merge_with(self, other: DeliveryRun) -> bool:
        """Return whether both runs have the same state, delivery count and origin, and are not acquired."""
        if self.state == DeliveryState.ACQUIRED or self.origin is not other.origin:
            return False
        return self.state == other.state and self.count == other.count

    def make_state_batch(self) -> StateBatch:
        """Return the run as a batch of the share coordinator's state."""
        return StateBatch(self.first, self.last, self.state, self.count)
