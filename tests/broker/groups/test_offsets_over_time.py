"""Whatever is committed, also in transactions, deleted, waited for, restarted or killed: a fetch tells what a simple
account of it says.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from minibroker.broker.groups.offsets_of_group import CommittedOffsets
from minibroker.broker.upkeep.housekeeping import Housekeeping
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.offsets import OffsetDeleteRequest, OffsetFetchRequest
from minibroker.protocol.messages.topics import DeleteTopicsRequest
from tests.broker.handlers.offset_requests import commit
from tests.broker.harness import Harness
from tests.broker.transactions.producing import TransactionalProducer

GROUPS, TOPICS, PARTITIONS = ("g", "h", ""), ("t", "u"), 2
MINUTE_MS = 60_000
RETENTION_MINUTES = 10
CHECK_MS = 1000
SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "offsets.retention.minutes": str(RETENTION_MINUTES),
    "offsets.retention.check.interval.ms": str(CHECK_MS),
    "log.initial.task.delay.ms": "0",
    "transaction.max.timeout.ms": str((1 << 31) - 1),
}


TRANSACTION_TIMEOUT_MS = (1 << 31) - 1  # longer than any plan waits


class Kept(NamedTuple):
    """An offset in the account, and the time from which on it is gone."""

    offset: int
    until_ms: int


Place = tuple[str, str, int]  # group, topic, partition


class World:
    """A broker, and the account of what it must know."""

    def __init__(self, directory: Path) -> None:
        self.harness = Harness(directory, settings=SETTINGS)
        self.topics: set[str] = set()
        self.account: dict[Place, Kept] = {}
        self.pending: dict[Place, Kept] = {}
        self.producer: TransactionalProducer | None = None
        Housekeeping(self.harness.cluster).start_chores()

    def commit(self, place: Place, offset: int, keep_minutes: int | None) -> None:
        group, topic, partition = place
        more: dict[str, Any] = {} if keep_minutes is None else {"retention_time_ms": keep_minutes * MINUTE_MS}
        codes = commit(self.harness, group, (topic, partition, offset), version=4, **more)
        if topic not in self.topics:
            assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            return
        assert codes == [0]
        minutes = RETENTION_MINUTES if keep_minutes is None else keep_minutes
        self.account[place] = Kept(offset, self.harness.clock.wall_ms() + minutes * MINUTE_MS)
        if place in self.pending:  # what is committed later holds, whatever ends later
            self.pending[place] = self.account[place]

    def pend(self, place: Place, offset: int) -> None:
        """Commit inside a transaction, which is begun if none is open."""
        group, topic, partition = place
        if not group or topic not in self.topics:
            return
        if self.producer is None:
            self.producer = TransactionalProducer(self.harness)
            assert self.producer.init(TRANSACTION_TIMEOUT_MS) == 0
        assert self.producer.send_offset(group, offset, topic=topic, partition=partition) == 0
        self.pending[place] = Kept(offset, self.harness.clock.wall_ms() + RETENTION_MINUTES * MINUTE_MS)

    def end(self, commit: bool) -> None:
        if self.producer is not None:
            assert self.producer.finish(commit=commit) == 0
            self.producer = None
            if commit:
                self.account |= self.pending
            self.pending = {}

    def delete(self, place: Place) -> None:
        group, name, partition = place
        topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
        asked = topic(name=name, partitions=[topic.OffsetDeleteRequestPartition(partition_index=partition)])
        self.harness.coordinator(group)
        response = self.harness.request(OffsetDeleteRequest(group_id=group, topics=[asked]))
        has_offsets = any(each[0] == group for each in self.account)
        assert response.error_code == 0 or not (group and has_offsets)
        if response.error_code == 0 and name in self.topics:
            self.account.pop(place, None)
            self.pending.pop(place, None)

    def toggle(self, topic: str) -> None:
        """Make the topic, or delete it if it is there."""
        if topic not in self.topics:
            self.harness.create_topic(topic, PARTITIONS)
            self.topics.add(topic)
            return
        deletion = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=topic)])
        assert self.harness.request(deletion).responses[0].error_code == 0
        self.topics.remove(topic)
        self.account = {place: kept for place, kept in self.account.items() if place[1] != topic}
        self.pending = {place: kept for place, kept in self.pending.items() if place[1] != topic}

    def wait(self, minutes: int) -> None:
        """Wait long enough for the broker to have looked once after what has expired."""
        self.harness.clock.advance(minutes * MINUTE_MS + CHECK_MS)
        now_ms = self.harness.clock.wall_ms()
        self.account = {
            place: kept
            for place, kept in self.account.items()
            if kept.until_ms > now_ms - CHECK_MS or place in self.pending
        }

    def restart(self, crash: bool) -> None:
        self.harness.restart(crash=crash)
        Housekeeping(self.harness.cluster).start_chores()

    def check(self) -> None:
        """Nobody hears of what is pending, and who asks for what is stable hears that it is."""
        for group in GROUPS:
            self.harness.coordinator(group)
            asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
            (answer,) = self.harness.request(OffsetFetchRequest(groups=[asked]), 8).groups
            found = {
                (group, topic.name, each.partition_index): each.committed_offset
                for topic in answer.topics
                for each in topic.partitions
            }
            assert found == {place: kept.offset for place, kept in self.account.items() if place[0] == group}
            known = self.harness.cluster.groups.groups.get(group)
            offsets = CommittedOffsets() if known is None else known.offsets
            unstable = [place for place in places_of(group) if offsets.is_offset_unstable(*place[1:])]
            assert unstable == sorted(place for place in self.pending if place[0] == group)


def places_of(group: str) -> list[Place]:
    return [(group, topic, partition) for topic in TOPICS for partition in range(PARTITIONS)]


places = st.tuples(st.sampled_from(GROUPS), st.sampled_from(TOPICS), st.integers(0, PARTITIONS - 1))
Step = Callable[[World], None]


def _commit(place: Place, offset: int, keep_minutes: int | None) -> Step:
    return lambda world: world.commit(place, offset, keep_minutes)


steps: st.SearchStrategy[Step] = st.one_of(
    st.builds(_commit, places, st.integers(0, 100), st.none() | st.integers(1, 30)),
    st.builds(_commit, places, st.integers(0, 100), st.none()),
    st.builds(lambda place, offset: lambda world: world.pend(place, offset), places, st.integers(0, 100)),
    st.builds(lambda commit: lambda world: world.end(commit), st.booleans()),
    st.builds(lambda place: lambda world: world.delete(place), places),
    st.builds(lambda topic: lambda world: world.toggle(topic), st.sampled_from(TOPICS)),
    st.builds(lambda minutes: lambda world: world.wait(minutes), st.integers(1, 12)),
    st.builds(lambda crash: lambda world: world.restart(crash), st.booleans()),
)


@given(st.lists(steps, max_size=25))
def test_offset_fetch_returns_committed_offsets_that_have_not_expired(plan: list[Step]) -> None:
    with TemporaryDirectory() as directory:
        world = World(Path(directory))
        with world.harness:
            for topic in TOPICS:
                world.toggle(topic)
            for step in plan:
                step(world)
                world.check()
