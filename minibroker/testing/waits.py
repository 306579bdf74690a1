"""The states of a broker that a test waits for: of groups, committed offsets, high watermarks, requests.

How it is waited, without polling, is in `waiting`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minibroker.testing.durations import Duration
from minibroker.testing.exchange import Exchange
from minibroker.testing.journal import Journal, Which

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster
    from minibroker.broker.groups.group import Group
    from minibroker.testing.embedded import Embedded
    from minibroker.testing.waiting import Watch


class Waits:
    """What can be waited for, on the broker's loop. Each raises Expired."""

    def __init__(self, broker: Embedded, watch: Watch, journal: Journal) -> None:
        self._broker = broker
        self._watch = watch
        self._journal = journal

    async def group(self, group: str, members: int | None, state: str, timeout: Duration) -> list[str]:
        """The ids of the members, once the group is in the state with so many of them."""

        def there() -> list[str] | None:
            found = self._group(group)
            if found is None or found.state_name != state:
                return None
            ids = member_ids(found)
            return ids or [""] if members is None or len(ids) == members else None

        def expired() -> str:
            found = self._group(group)
            is_so = (
                "does not exist" if found is None else f"is {found.state_name} with {len(member_ids(found))} members"
            )
            return f"group {group!r} {is_so}, not {state} with {'any' if members is None else members}"

        found = await self._watch.until(there, timeout, expired)
        return [each for each in found if each]

    async def commit(self, group: str, topic: str, partition: int, offset: int | None, timeout: Duration) -> int:
        """The offset that the group has committed, once it is at least `offset`, or any."""

        def there() -> tuple[int] | None:
            committed = self._committed(group, topic, partition)
            return (committed,) if committed is not None and committed >= (offset or 0) else None

        def expired() -> str:
            committed = self._committed(group, topic, partition)
            said = "nothing" if committed is None else str(committed)
            return f"group {group!r} has committed {said} for {topic}-{partition}, not {offset if offset else 'any'}"

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
            return f"{topic} does not exist" if behind is None else f"group {group!r} is behind in {topic}: {behind}"

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
            return f"the high watermark of {topic}-{partition} is {now()}, not {offset}"

        return (await self._watch.until(there, timeout, expired))[0]

    async def requests(self, api: str | None, count: int, timeout: Duration, which: Which) -> list[Exchange]:
        """The requests that the journal has, once they are so many."""
        if not self._journal.is_on:
            raise RuntimeError("the journal is off, and sees no request: call journal.on() before")

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


def _described(api: str | None, which: Which) -> str:
    """Which requests are meant, for people."""
    condition = None if which.get("where") is None else "a condition"
    given: dict[str, object] = {"api": api, **which, "where": condition}
    return ", ".join(f"{name} {value}" for name, value in given.items() if value is not None) or "any"
