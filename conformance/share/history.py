"""What the members of a share group saw of each record, and whether a broker may have treated them so.

Members note when they sent a request and when its answer came. What the broker did lies between the two. So every rule
here is exact, however slow the machine is: it accuses the broker only of what no timing can explain.

A broker that is killed forgets who held a record. Its delivery count then goes on from what was kept: as in Kafka,
releases are kept, and acquisitions are not. A delivery belongs to an incarnation of the broker: the time from one kill
to the next.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

Record = tuple[int, int]  # partition, offset


class End(Enum):
    """What a member said of a record last."""

    NONE = "nothing said"
    RELEASED = "released"
    ACCEPTED = "accepted"
    REJECTED = "rejected"


FINAL = (End.ACCEPTED, End.REJECTED)


class Written(NamedTuple):
    """The offsets of a partition: those that must come, and those of aborted transactions. Markers are in neither."""

    due: set[int]
    aborted: set[int]


class Letter(NamedTuple):
    """A dead letter: the record that it stands for, its delivery count and its value."""

    record: Record
    count: int
    value: bytes | None


class Life:
    """A member of the group in one incarnation of the broker. From `gone_at` on, its records are anybody's."""

    def __init__(self, incarnation: int) -> None:
        self.incarnation = incarnation
        self.gone_at: float | None = None


class Delivery:
    """A record in the hands of a member. `since` is the earliest time at which its lock may have begun.

    `is_sure` says that the broker has confirmed the end, at a time when the lock cannot have ended before.
    """

    __slots__ = ("count", "end", "end_at", "is_sure", "life", "received_at", "since")

    def __init__(self, life: Life, count: int, since: float, received_at: float) -> None:
        self.life = life
        self.count = count
        self.since = since
        self.received_at = received_at
        self.end = End.NONE
        self.end_at = received_at
        self.is_sure = False

    def __repr__(self) -> str:
        told = self.end.value + ("" if self.is_sure else "?")
        return f"<{self.life.incarnation}.{self.count} from {self.since:.3f}, {told} at {self.end_at:.3f}>"

    @property
    def order(self) -> tuple[int, int]:
        """Return its place among the deliveries of the record."""
        return self.life.incarnation, self.count

    def can_be_over(self, now: float, lock_s: float) -> bool:
        """Return whether the member may have lost the record by `now`."""
        gone_at = self.life.gone_at
        return (
            (self.end is End.RELEASED and self.end_at <= now)
            or (gone_at is not None and gone_at <= now)
            or now - self.since >= lock_s
        )


class History:
    """All deliveries to a group. `unseen` has by incarnation the times of fetches whose answers nobody read."""

    def __init__(self, lock_s: float, limit: int) -> None:
        self.lock_s = lock_s
        self.limit = limit
        self.deliveries: defaultdict[Record, list[Delivery]] = defaultdict(list)
        self.unseen: defaultdict[int, list[float]] = defaultdict(list)

    def faults(self, written: Sequence[Written]) -> Iterator[str]:
        """Yield what the broker has done wrong, once the group has come to the end of each partition."""
        due = {(partition, offset) for partition, each in enumerate(written) for offset in each.due}
        for record in sorted(due | set(self.deliveries)):
            told = sorted(self.deliveries.get(record, ()), key=lambda one: one.order)
            for fault in self._faults_of(told):
                yield f"record {record}: {fault}: {told}"
        for partition, each in enumerate(written):
            for offset in sorted(each.aborted):
                if (partition, offset) in self.deliveries:
                    yield f"record {(partition, offset)}: delivered although it was aborted"

    def faults_of_letters(self, letters: Iterable[Letter], values: Mapping[Record, bytes]) -> Iterator[str]:
        """Yield what is wrong with the dead letters: those missing, and those of records that were not given up.

        A crash may lead to a second dead letter of a record, as in Kafka.
        """
        found: dict[Record, Letter] = {}
        for letter in letters:
            if found.setdefault(letter.record, letter) != letter:
                yield f"{letter} differs from {found[letter.record]}"
        for record, told in self.deliveries.items():
            last, letter = max(told, key=lambda one: one.order), found.pop(record, None)
            if letter is None:
                if last.end is not End.ACCEPTED:
                    yield f"record {record} has no dead letter: {told}"
            elif last.end is End.ACCEPTED and last.is_sure:
                yield f"record {record} has a dead letter, although it was accepted: {told}"
            elif letter.value != values[record]:
                yield f"{letter} should have {values[record]!r}"
            elif letter.count not in (last.count, self.limit):
                yield f"{letter} should have been delivered {last.count} times: {told}"
        for letter in found.values():
            yield f"{letter} is of a record that was never delivered"

    def _faults_of(self, told: Sequence[Delivery]) -> Iterator[str]:
        unseen = sum(map(len, self.unseen.values()))
        if not told:
            if unseen < self.limit:
                yield "never delivered"
            return
        first, last = told[0], told[-1]
        if first.count > 1 + self._unseen_until(first):
            yield f"first delivered as number {first.count}"
        for before, after in pairwise(told):
            yield from self._faults_between(before, after)
        if max(one.count for one in told) > self.limit:
            yield "delivered more often than the limit allows"
        if last.end not in FINAL and last.count + unseen < self.limit:
            yield "lost: neither acknowledged nor delivered as often as the limit allows"

    def _faults_between(self, before: Delivery, after: Delivery) -> Iterator[str]:
        if before.end in FINAL and before.is_sure:
            yield f"delivered although it was {before.end.value}"
        unseen = self._unseen_until(after)
        if before.life.incarnation != after.life.incarnation:
            kept = before.count if before.end is End.RELEASED and before.is_sure else before.count - 1
            if not kept < after.count <= before.count + 1 + unseen:
                yield f"delivery {after.count} follows {before.count}, of which {kept} or more were kept"
            return
        if not before.count < after.count <= before.count + 1 + unseen:
            yield f"delivery {after.count} follows {before.count}"
        if not before.can_be_over(after.received_at, self.lock_s):
            yield "delivered while another member held it"

    def _unseen_until(self, one: Delivery) -> int:
        """Return how many deliveries nobody has seen before this one, at most."""
        return sum(
            at <= one.received_at
            for incarnation, times in self.unseen.items()
            for at in times
            if incarnation <= one.life.incarnation
        )
