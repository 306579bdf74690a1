"""Members of consumer groups as a client plays them: they beat, give up what they must, and remember the rest.

What must come of it is each test's business.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from minibroker.broker.groups.consumer.consumer_group import ConsumerGroup
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.broker.harness import Harness, Waiting

GROUP = "g"
REBALANCE_MS = 60_000
SESSION_MS = 45_000
BEAT_MS = 5000

Owned = dict[tuple[str, int], int]  # the epoch in which each partition was given, by (topic, partition)
TopicPartitions = ConsumerGroupHeartbeatRequest.TopicPartitions


def describe(harness: Harness, group: str = GROUP, version: int = 1) -> ConsumerGroupDescribeResponse.DescribedGroup:
    """Return ConsumerGroupDescribe's answer for one group."""
    (described,) = harness.request(ConsumerGroupDescribeRequest(group_ids=[group]), version).groups
    return described


def group_of(harness: Harness, group: str = GROUP) -> ConsumerGroup:
    """The group itself, for a look inside."""
    return harness.cluster.groups.get_consumer_group(group)


class Player:
    """One member. `owned` are the partitions it works on, as (topic, partition); `epoch` 0 before it has joined."""

    def __init__(
        self,
        harness: Harness,
        member_id: str,
        *topics: str,
        group: str = GROUP,
        instance: str | None = None,
        **said: Any,
    ) -> None:
        self.harness = harness
        self.member_id = member_id
        self.group = group
        self.instance = instance
        self.epoch = 0
        self.owned: set[tuple[str, int]] = set()
        self.assigned: set[tuple[str, int]] = set()
        self.said: dict[str, Any] = {"subscribed_topic_names": list(topics) or None, **said}
        harness.coordinator(group)

    # --- one request ----------------------------------------------------------------------------

    def ask(self, version: int = 1, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """The answer to one heartbeat with these fields, and those that every heartbeat of this member has."""
        defaults = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance,
        }
        answer = self.harness.request(ConsumerGroupHeartbeatRequest(**{**defaults, **fields}), version)
        self.harness.clock.advance(0)  # patterns are resolved behind it
        return answer.response() if isinstance(answer, Waiting) else answer

    def join(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Join, or join again, with nothing."""
        self.epoch, self.owned, self.assigned = 0, set(), set()
        first = {"rebalance_timeout_ms": REBALANCE_MS, "topic_partitions": []}
        answer = self.ask(**{**first, **self.said, **fields})
        if answer.error_code == ErrorCode.NONE:
            self._take(answer)
        return answer

    def beat(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat with what the member has, and follow the answer; join again if fenced."""
        answer = self.ask(topic_partitions=self.reported(), **fields)
        if answer.error_code == ErrorCode.NONE:
            self._take(answer)
        elif answer.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.join()
        return answer

    def subscribe(self, *topics: str, regex: str | None = None) -> ConsumerGroupHeartbeatResponse:
        """Subscribe to other topics."""
        self.said = {"subscribed_topic_names": list(topics), "subscribed_topic_regex": regex}
        return self.beat(**self.said)

    def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        """Leave for good, or (-2) for a while."""
        answer = self.ask(member_epoch=epoch)
        if answer.error_code == ErrorCode.NONE:
            self.epoch, self.owned, self.assigned = 0, set(), set()
        return answer

    def reported(self) -> list[TopicPartitions]:
        """Return what the member says that it has."""
        topics = self.harness.cluster.image.topics
        by_id: dict[bytes, list[int]] = {}
        for topic, partition in sorted(self.owned):
            if topic in topics:
                by_id.setdefault(topics[topic].topic_id, []).append(partition)
        return [TopicPartitions(topic_id=topic_id, partitions=partitions) for topic_id, partitions in by_id.items()]

    # --- as a client ------------------------------------------------------------------------------

    def _take(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        """Give up at once what is not given any more; the next heartbeat says so. Then take what is new."""
        self.epoch = answer.member_epoch
        self.member_id = answer.member_id or self.member_id
        if answer.assignment is not None:
            self.assigned = self.owned = {
                (self.harness.cluster.image.topics_by_id[each.topic_id].name, partition)
                for each in answer.assignment.topic_partitions
                if each.topic_id in self.harness.cluster.image.topics_by_id
                for partition in each.partitions
            }


def settle(*players: Player, rounds: int = 10) -> None:
    """Send heartbeats of all in turn until the group is stable."""
    for _ in range(rounds):
        for player in players:
            player.beat()
        if describe(players[0].harness, players[0].group).group_state == "Stable":
            return
    raise AssertionError(f"the group does not settle: {describe(players[0].harness, players[0].group)}")


def owners(players: Iterable[Player]) -> dict[tuple[str, int], str]:
    """Return the member that works on each partition; check that nobody else does."""
    owners: dict[tuple[str, int], str] = {}
    for player in players:
        for partition in player.owned:
            assert partition not in owners, (partition, owners[partition], player.member_id)
            owners[partition] = player.member_id
    return owners


def all_of(topic: str, count: int) -> set[tuple[str, int]]:
    """The first `count` partitions of a topic, as `Player.owned` has them."""
    return {(topic, partition) for partition in range(count)}
