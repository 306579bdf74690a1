"""The states of a broker that a test waits for: of groups, committed offsets, high watermarks, requests.

How it is waited, without polling, is in `waiting`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from minibroker.broker.groups.classic.states import State as ClassicState
from minibroker.broker.groups.consumer.group import State as ConsumerState
from minibroker.quantities import Duration
from minibroker.testing.exchange import Exchange
from minibroker.testing.journal import JOURNAL_IS_OFF, Journal, Which

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster
    from minibroker.broker.groups.group import Group
    from minibroker.testing.embedded import Embedded
    from minibroker.testing.waiting import Watch


STATES: Final = tuple(dict.fromkeys((*ClassicState, *ConsumerState)))


class Waits:
    """The events that can be waited for, on the broker's loop. Each raises Expired."""

    def __init__(self, broker: Embedded, watch: Watch, journal: Journal) -> None:
        self._broker = broker
        self._watch = watch
        self._journal = journal

    async def group(self, group: str, members: int | None, state: str, timeout: Duration) -> list[str]:
        """The ids of the members, once the group is in the state with so many of them.

        Raises ValueError for a state that no group is ever in.
        """
        if state not in STATES:
            raise ValueError(f"{state!r} is no state of a group; they are {', '.join(STATES)}")

        def there() -> list[str] | None:
            found = self._group(group)
            if found is None or found.state_name != state:
                return None
            ids = member_ids(found)
            return ids or [""] if members is None or len(ids) == members else None

        def expired() -> str:
            found = self._group(group)
            wanted = state if members is None else f"{state} with {_members(members)}"
            is_so = (
                "does not exist" if found is None else f"is {found.state_name} with {_members(len(member_ids(found)))}"
            )
            return f"group {group!r} was expected to be {wanted}, and {is_so}"

        found = await self._watch.until(there, timeout, expired)
        return [each for each in found if each]

    async def commit(self, group: str, topic: str, partition: int, offset: int | None, timeout: Duration) -> int:
        """The offset that the group has committed, once it is at least `offset`, or any."""

        def there() -> tuple[int] | None:
            committed = self._committed(group, topic, partition)
            return (committed,) if committed is not None and committed >= (offset or 0) else None

        def expired() -> str:
            committed = self._committed(group, topic, partition)
            wanted = "an offset" if offset is None else f"offset {offset}"
            said = "nothing" if committed is None else f"offset {committed}"
            where = f"{topic}-{partition}" if topic in self._cluster.image.topics else f"{topic}, which does not exist"
            return f"group {group!r} was expected to commit {wanted}, and has committed {said} for {where}"

        return (await self._watch.until(there, timeout, expired))[0]

    async def caught_up(self, group: str, topic: str, timeout: Duration) -> None:
        """The group has committed the ends of all partitions of the topic that have records."""

        def lags() -> dict[int, int] | None:
            found = self._cluster.image.topics.get(topic)
            if found is None:
                return None
            behind: dict[int, int] = {}
            for partition in found.partitions:
                end = partition.log.high_watermark
                committed = self._committed(group, topic, partition.index)
                if end > max(partition.log.log_start_offset, committed or 0):
                    behind[partition.index] = end - (committed or 0)
            return behind

        def expired() -> str:
            behind = lags()
            if behind is None:
                return f"group {group!r} was expected to catch up in {topic}, which does not exist"
            said = ", ".join(f"{topic}-{index} by {lag}" for index, lag in behind.items())
            return f"group {group!r} was expected to catch up, and is behind in {said}"

        await self._watch.until(lambda: lags() == {}, timeout, expired)

    async def high_watermark(self, topic: str, partition: int, offset: int, timeout: Duration) -> int:
        """The high watermark, once it is at least `offset`."""

        def now() -> int:
            found = self._cluster.image.topics.get(topic)
            there = None if found is None else found.partition(partition)
            return -1 if there is None or not there.is_here else there.log.high_watermark

        def there() -> tuple[int] | None:
            return (now(),) if now() >= offset else None

        def expired() -> str:
            is_so = "does not exist" if now() < 0 else f"has reached {now()}"
            return f"{topic}-{partition} was expected to have the high watermark {offset}, and {is_so}"

        return (await self._watch.until(there, timeout, expired))[0]

    async def requests(self, api: str | None, count: int, timeout: Duration, which: Which) -> list[Exchange]:
        """The requests that the journal has, once they are so many."""
        if not self._journal.is_on:
            raise RuntimeError(JOURNAL_IS_OFF)

        def there() -> list[Exchange] | None:
            found = self._journal.found(api, **which)
            return found if len(found) >= count else None

        def expired() -> str:
            found = self._journal.found(api, **which)
            said = "".join(f"\n  {each}" for each in found[-20:])
            return f"{count} requests ({_described(api, which)}) were expected, and there were {len(found)}{said}"

        return await self._watch.until(there, timeout, expired) if count else self._journal.found(api, **which)

    @property
    def _cluster(self) -> Cluster:
        return self._broker.running.cluster

    def _group(self, group: str) -> Group | None:
        return self._cluster.groups.groups.get(group)

    def _committed(self, group: str, topic: str, partition: int) -> int | None:
        found, known = self._group(group), self._cluster.image.topics.get(topic)
        if found is None or known is None:
            return None
        committed = found.offsets.find(topic, partition, known.topic_id)
        return None if committed is None else committed.offset


def member_ids(group: Group) -> list[str]:
    """Of either kind of group."""
    members: dict[str, Any] = group.members  # type: ignore[attr-defined]  # both have them, of their own kinds
    return list(members)


def _members(count: int) -> str:
    return "1 member" if count == 1 else f"{count} members"


def _described(api: str | None, which: Which) -> str:
    """Which requests are meant, for people."""
    condition = None if which.get("where") is None else "a condition"
    given: dict[str, object] = {"api": api, **which, "where": condition}
    return ", ".join(f"{name} {value}" for name, value in given.items() if value is not None) or "any"
