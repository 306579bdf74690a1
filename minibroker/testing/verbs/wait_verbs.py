"""The methods that wait for a state of the broker: of groups, committed offsets, high watermarks, requests.

`waiting` says how they wait without polling.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

from minibroker.quantities import Duration
from minibroker.testing.embedded.embedded_broker import EmbeddedBroker
from minibroker.testing.faults.engine import Faults
from minibroker.testing.loops import blocking, make_coroutine_of_blocking_verb, shorten_tracebacks
from minibroker.testing.seen.exchange import Exchange
from minibroker.testing.seen.explained_requests import Exchanges
from minibroker.testing.seen.journal import JOURNAL_IS_OFF, ExchangeConditions, Journal
from minibroker.testing.seen.waiting import (
    DEFAULT_TIMEOUT,
    ConditionWatch,
    describe_missing,
    format_count,
    format_count_with_were,
    format_there_are,
)

if TYPE_CHECKING:
    from minibroker.broker.assembly import Broker
    from minibroker.broker.groups.group import Group
    from minibroker.broker.metadata.partitions import Partition
    from minibroker.testing.verbs.share_deliveries import DeliveryHistory


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
    def watch(self) -> ConditionWatch:
        """Return the conditions that tests wait for."""
        return ConditionWatch(self)

    @cached_property
    def share_history(self) -> DeliveryHistory:
        """Return what was delivered to share groups, for `share_group`."""
        from minibroker.testing.verbs.share_deliveries import DeliveryHistory

        return DeliveryHistory(self)

    @blocking
    async def wait_for_group(
        self, group: str, members: int | None = None, state: str = "Stable", timeout: Duration = DEFAULT_TIMEOUT
    ) -> list[str]:
        """Wait until the group is in this state with this many members, by default any number; return their ids.

        Raises ValueError for a state that groups do not have.
        """
        from minibroker.broker.groups.classic.classic_states import ClassicState as ClassicState
        from minibroker.broker.groups.reconciling_group import GroupState as ReconcilingState

        states = tuple(dict.fromkeys((*ClassicState, *ReconcilingState)))
        if state not in states:
            raise ValueError(f"{state!r} is not a state of groups; they are {', '.join(states)}")

        def find_member_ids() -> list[str] | None:
            present = _find_group(self.running.cluster, group)
            if present is None or present.state_name != state:
                return None
            ids = list_member_ids(present)
            return ids or [""] if members is None or len(ids) == members else None

        def describe_timeout() -> str:
            present = _find_group(self.running.cluster, group)
            expected = state if members is None else f"{state} with {format_count(members, 'member')}"
            now = _describe_missing_group(self.running.cluster) if present is None else f"it {_describe_group(present)}"
            return f"group {group!r} was expected to be {expected}, and {now}"

        return [each for each in await self.watch.wait_until(find_member_ids, timeout, describe_timeout) if each]

    await_for_group = make_coroutine_of_blocking_verb(wait_for_group)

    @blocking
    async def wait_for_commit(
        self,
        group: str,
        topic: str,
        partition: int = 0,
        offset: int | None = None,
        timeout: Duration = DEFAULT_TIMEOUT,
    ) -> int:
        """Wait until the group has committed at least `offset`, or any offset; return the committed one.

        Raises ValueError for a share group, which commits no offsets.
        """

        def find_commit() -> tuple[int] | None:
            committed = get_committed_offset(self.running.cluster, group, topic, partition)
            return (committed,) if committed is not None and committed >= (offset or 0) else None

        def describe_timeout() -> str:
            cluster = self.running.cluster
            committed = get_committed_offset(cluster, group, topic, partition)
            expected = "an offset" if offset is None else f"offset {offset}"
            offset_text = "nothing" if committed is None else f"offset {committed}"
            now = f"it has committed {offset_text}"
            if topic not in cluster.image.topics:
                now = describe_missing("topic", list_topic_names(cluster))
            elif _find_group(cluster, group) is None:
                now = _describe_missing_group(cluster)
            return f"group {group!r} was expected to commit {expected} for {topic}-{partition}, and {now}"

        return (await self.watch.wait_until(find_commit, timeout, describe_timeout))[0]

    await_for_commit = make_coroutine_of_blocking_verb(wait_for_commit)

    @blocking
    async def wait_until_caught_up(self, group: str, topic: str, timeout: Duration = DEFAULT_TIMEOUT) -> None:
        """Wait until the group has committed the ends of all partitions of the topic that have records.

        A share group has acknowledged or archived all records then. Raises Expired.
        """

        def describe_timeout() -> str:
            behind = measure_lags(self.running.cluster, group, topic)
            cluster = self.running.cluster
            if behind is None:
                now = describe_missing("topic", list_topic_names(cluster))
            elif _find_group(cluster, group) is None:
                now = _describe_missing_group(cluster)
            else:
                now = "it is behind in " + ", ".join(f"{topic}-{index} by {lag}" for index, lag in behind.items())
            return f"group {group!r} was expected to catch up in {topic}, and {now}"

        await self.watch.wait_until(
            lambda: measure_lags(self.running.cluster, group, topic) == {}, timeout, describe_timeout
        )

    await_until_caught_up = make_coroutine_of_blocking_verb(wait_until_caught_up)

    @blocking
    async def wait_for_high_watermark(
        self, topic: str, offset: int, partition: int = 0, timeout: Duration = DEFAULT_TIMEOUT
    ) -> int:
        """Wait until the high watermark is at least `offset`; return it. Raises Expired."""

        def get_high_watermark() -> int:
            present = self.running.cluster.image.topics.get(topic)
            find_watermark_if_reached = None if present is None else present.find_partition(partition)
            return (
                -1
                if find_watermark_if_reached is None or not find_watermark_if_reached.has_local_log
                else find_watermark_if_reached.log.high_watermark
            )

        def find_watermark_if_reached() -> tuple[int] | None:
            return (get_high_watermark(),) if get_high_watermark() >= offset else None

        def describe_timeout() -> str:
            topics = self.running.cluster.image.topics.values()
            find_watermark_if_reached = (
                f"{each.name}-{one.index}" for each in topics for one in each.partitions if not each.internal
            )
            reached = (
                describe_missing("partition", find_watermark_if_reached)
                if get_high_watermark() < 0
                else f"it has reached {get_high_watermark()}"
            )
            return f"{topic}-{partition} was expected to have the high watermark {offset}, and {reached}"

        return (await self.watch.wait_until(find_watermark_if_reached, timeout, describe_timeout))[0]

    await_for_high_watermark = make_coroutine_of_blocking_verb(wait_for_high_watermark)

    # --- requests ---------------------------------------------------------------------------------

    @shorten_tracebacks
    def requests(self, api: str | None = None, **conditions: Unpack[ExchangeConditions]) -> Exchanges:
        """Return the requests that the journal has; as `Journal.requests` does. Raises ValueError, RuntimeError.

        Their `explain()` returns what each byte means.
        """
        return self.journal.requests(api, **conditions)

    @blocking
    async def wait_for_requests(
        self,
        api: str | None = None,
        count: int = 1,
        timeout: Duration = DEFAULT_TIMEOUT,
        **conditions: Unpack[ExchangeConditions],
    ) -> Exchanges:
        """Wait until the journal has `count` such requests; return all of them. Raises RuntimeError if it is off."""
        return Exchanges(await wait_for_requests(self.journal, self.watch, api, count, timeout, conditions))

    await_for_requests = make_coroutine_of_blocking_verb(wait_for_requests)


async def wait_for_requests(
    journal: Journal,
    watch: ConditionWatch,
    api: str | None,
    count: int,
    timeout: Duration,
    conditions: ExchangeConditions,
) -> list[Exchange]:
    """Wait until a journal has `count` such requests; return all of them. Raises RuntimeError if it is off."""
    if not journal.is_on:
        raise RuntimeError(JOURNAL_IS_OFF)

    def find_exchanges() -> list[Exchange] | None:
        requests = journal.list_exchanges(api, **conditions)
        return requests if len(requests) >= count else None

    def describe_timeout() -> str:
        requests = journal.list_exchanges(api, **conditions)
        listed = "".join(f"\n  {each}" for each in requests[-20:])
        expected = f"{format_count_with_were(count, 'request')} expected ({_describe_conditions(api, conditions)})"
        return f"{expected}, and {format_there_are(len(requests))}{listed}"

    return (
        await watch.wait_until(find_exchanges, timeout, describe_timeout)
        if count
        else journal.list_exchanges(api, **conditions)
    )


def list_member_ids(group: Group) -> list[str]:
    """Return the ids of a group's members, of either protocol."""
    members: dict[str, Any] = group.members  # type: ignore[attr-defined]  # both kinds have them, of types of their own
    return list(members)


def list_topic_names(cluster: Broker) -> list[str]:
    """Return the names of the topics, without internal ones."""
    return [topic.name for topic in cluster.image.topics.values() if not topic.internal]


def _describe_missing_group(cluster: Broker) -> str:
    """Say that there is no such group, and which groups there are."""
    groups = cluster.groups.groups.items()
    return describe_missing("group", (f"{name!r}, which {_describe_group(each)}" for name, each in groups))


def _describe_group(group: Group) -> str:
    return f"is {group.state_name} with {format_count(len(list_member_ids(group)), 'member')}"


def _find_group(cluster: Broker, group: str) -> Group | None:
    return cluster.groups.groups.get(group)


def _is_share_group(group: Group | None) -> bool:
    return group is not None and group.type == "share"


def get_committed_offset(cluster: Broker, group: str, topic: str, partition: int) -> int | None:
    """Return the offset that a group has committed, None if there is none. Raises ValueError for a share group."""
    found, known = _find_group(cluster, group), cluster.image.topics.get(topic)
    if _is_share_group(found):
        raise ValueError(f"share group {group!r} commits no offsets: use wait_until_caught_up or wait_until_settled")
    if found is None or known is None:
        return None
    committed = found.offsets.find_offset(topic, partition, known.topic_id)
    return None if committed is None else committed.offset


def _find_processed_offset(cluster: Broker, group: str, partition: Partition) -> int:
    """Return the offset before which the group has processed everything, 0 if that is not known."""
    topic = partition.topic
    if _is_share_group(_find_group(cluster, group)):
        from minibroker.broker.share.states import ShareKey
        from minibroker.testing.verbs.share_deliveries import find_start_offset

        return find_start_offset(cluster, ShareKey(group, topic.topic_id, partition.index)) or 0
    return get_committed_offset(cluster, group, topic.name, partition.index) or 0


def measure_lags(cluster: Broker, group: str, topic: str) -> dict[int, int] | None:
    """Return the group's lag in each partition where it is behind, or None without the topic."""
    present = cluster.image.topics.get(topic)
    if present is None:
        return None
    behind: dict[int, int] = {}
    for partition in present.partitions:
        end = partition.log.high_watermark
        position = max(_find_processed_offset(cluster, group, partition), partition.log.log_start_offset)
        if end > position:
            behind[partition.index] = end - position
    return behind


def _describe_conditions(api: str | None, conditions: ExchangeConditions) -> str:
    """Return the conditions for requests as text."""
    condition = None if conditions.get("where") is None else "a condition"
    given: dict[str, object] = {"api": api, **conditions, "where": condition}
    return ", ".join(f"{name} {value}" for name, value in given.items() if value is not None) or "any"
