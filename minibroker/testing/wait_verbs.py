"""The methods that wait for a state of the broker: of groups, committed offsets, high watermarks, requests.

`waiting` says how they wait without polling.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Unpack

from minibroker.broker.groups.classic.states import State as ClassicState
from minibroker.broker.groups.consumer.state import State as ConsumerState
from minibroker.quantities import Duration
from minibroker.testing.embedded_broker import EmbeddedBroker
from minibroker.testing.exchange import Exchange
from minibroker.testing.faults.engine import Faults
from minibroker.testing.journal import JOURNAL_IS_OFF, Journal, Which
from minibroker.testing.loops import awaited, blocking, renamed
from minibroker.testing.waiting import DEFAULT_TIMEOUT, Watch

if TYPE_CHECKING:
    from minibroker.broker.assembly import Broker
    from minibroker.broker.groups.group import Group

STATES: Final = tuple(dict.fromkeys((*ClassicState, *ConsumerState)))


class WaitVerbs(EmbeddedBroker):
    """The journal, the faults, and the waits of tests. Each wait raises Expired, an AssertionError."""

    @cached_property
    def journal(self) -> Journal:
        """Return the journal of requests: turn it `on`, query it with `requests`, `save` it."""
        return Journal(self)

    @cached_property
    def faults(self) -> Faults:
        """Return the faults: `add` one, `clear` them."""
        return Faults(self, self.watch, self.journal)

    @cached_property
    def watch(self) -> Watch:
        """Return the conditions that tests wait for."""
        return Watch(self)

    @blocking
    async def wait_for_group(
        self, group: str, members: int | None = None, state: str = "Stable", timeout: Duration = DEFAULT_TIMEOUT
    ) -> list[str]:
        """Wait until the group is in this state with this many members, by default any number; return their ids.

        Raises ValueError for a state that groups do not have.
        """
        if state not in STATES:
            raise ValueError(f"{state!r} is not a state of groups; they are {', '.join(STATES)}")

        def there() -> list[str] | None:
            found = _group(self.running.cluster, group)
            if found is None or found.state_name != state:
                return None
            ids = member_ids(found)
            return ids or [""] if members is None or len(ids) == members else None

        def expired() -> str:
            found = _group(self.running.cluster, group)
            wanted = state if members is None else f"{state} with {_members(members)}"
            now = (
                "does not exist" if found is None else f"is {found.state_name} with {_members(len(member_ids(found)))}"
            )
            return f"group {group!r} was expected to be {wanted}, and {now}"

        return [each for each in await self.watch.until(there, timeout, expired) if each]

    await_for_group = awaited(wait_for_group)
    await_group = renamed("await_group", await_for_group)

    @blocking
    async def wait_for_commit(
        self,
        group: str,
        topic: str,
        partition: int = 0,
        offset: int | None = None,
        timeout: Duration = DEFAULT_TIMEOUT,
    ) -> int:
        """Wait until the group has committed at least `offset`, or any offset; return the committed one."""

        def there() -> tuple[int] | None:
            committed = _committed(self.running.cluster, group, topic, partition)
            return (committed,) if committed is not None and committed >= (offset or 0) else None

        def expired() -> str:
            cluster = self.running.cluster
            committed = _committed(cluster, group, topic, partition)
            wanted = "an offset" if offset is None else f"offset {offset}"
            said = "nothing" if committed is None else f"offset {committed}"
            where = f"{topic}-{partition}" if topic in cluster.image.topics else f"{topic}, which does not exist"
            return f"group {group!r} was expected to commit {wanted}, and has committed {said} for {where}"

        return (await self.watch.until(there, timeout, expired))[0]

    await_for_commit = awaited(wait_for_commit)
    await_commit = renamed("await_commit", await_for_commit)

    @blocking
    async def wait_until_caught_up(self, group: str, topic: str, timeout: Duration = DEFAULT_TIMEOUT) -> None:
        """Wait until the group has committed the ends of all partitions of the topic that have records."""

        def expired() -> str:
            behind = _lags(self.running.cluster, group, topic)
            if behind is None:
                return f"group {group!r} was expected to catch up in {topic}, which does not exist"
            said = ", ".join(f"{topic}-{index} by {lag}" for index, lag in behind.items())
            return f"group {group!r} was expected to catch up, and is behind in {said}"

        await self.watch.until(lambda: _lags(self.running.cluster, group, topic) == {}, timeout, expired)

    await_until_caught_up = awaited(wait_until_caught_up)
    await_caught_up = renamed("await_caught_up", await_until_caught_up)

    @blocking
    async def wait_for_high_watermark(
        self, topic: str, offset: int, partition: int = 0, timeout: Duration = DEFAULT_TIMEOUT
    ) -> int:
        """Wait until the high watermark is at least `offset`; return it."""

        def now() -> int:
            found = self.running.cluster.image.topics.get(topic)
            there = None if found is None else found.partition(partition)
            return -1 if there is None or not there.is_here else there.log.high_watermark

        def there() -> tuple[int] | None:
            return (now(),) if now() >= offset else None

        def expired() -> str:
            reached = "does not exist" if now() < 0 else f"has reached {now()}"
            return f"{topic}-{partition} was expected to have the high watermark {offset}, and {reached}"

        return (await self.watch.until(there, timeout, expired))[0]

    await_for_high_watermark = awaited(wait_for_high_watermark)
    await_high_watermark = renamed("await_high_watermark", await_for_high_watermark)

    # --- requests ---------------------------------------------------------------------------------

    def requests(self, api: str | None = None, **which: Unpack[Which]) -> list[Exchange]:
        """Return the requests that the journal has; see `Journal.requests`."""
        return self.journal.requests(api, **which)

    @blocking
    async def wait_for_requests(
        self, api: str | None = None, count: int = 1, timeout: Duration = DEFAULT_TIMEOUT, **which: Unpack[Which]
    ) -> list[Exchange]:
        """Wait until the journal has `count` such requests; return all of them. Raises RuntimeError if it is off."""
        if not self.journal.is_on:
            raise RuntimeError(JOURNAL_IS_OFF)

        def there() -> list[Exchange] | None:
            found = self.journal.found(api, **which)
            return found if len(found) >= count else None

        def expired() -> str:
            found = self.journal.found(api, **which)
            said = "".join(f"\n  {each}" for each in found[-20:])
            return f"{count} requests ({_described(api, which)}) were expected, and there were {len(found)}{said}"

        return await self.watch.until(there, timeout, expired) if count else self.journal.found(api, **which)

    await_for_requests = awaited(wait_for_requests)
    await_requests = renamed("await_requests", await_for_requests)


def member_ids(group: Group) -> list[str]:
    """Return the ids of a group's members, of either protocol."""
    members: dict[str, Any] = group.members  # type: ignore[attr-defined]  # both kinds have them, of types of their own
    return list(members)


def _group(cluster: Broker, group: str) -> Group | None:
    return cluster.groups.groups.get(group)


def _committed(cluster: Broker, group: str, topic: str, partition: int) -> int | None:
    found, known = _group(cluster, group), cluster.image.topics.get(topic)
    if found is None or known is None:
        return None
    committed = found.offsets.find(topic, partition, known.topic_id)
    return None if committed is None else committed.offset


def _lags(cluster: Broker, group: str, topic: str) -> dict[int, int] | None:
    """Return the group's lag in each partition where it is behind, or None without the topic."""
    found = cluster.image.topics.get(topic)
    if found is None:
        return None
    behind: dict[int, int] = {}
    for partition in found.partitions:
        end = partition.log.high_watermark
        committed = _committed(cluster, group, topic, partition.index)
        if end > max(partition.log.log_start_offset, committed or 0):
            behind[partition.index] = end - (committed or 0)
    return behind


def _members(count: int) -> str:
    return "1 member" if count == 1 else f"{count} members"


def _described(api: str | None, which: Which) -> str:
    """Describe the conditions for requests."""
    condition = None if which.get("where") is None else "a condition"
    given: dict[str, object] = {"api": api, **which, "where": condition}
    return ", ".join(f"{name} {value}" for name, value in given.items() if value is not None) or "any"
