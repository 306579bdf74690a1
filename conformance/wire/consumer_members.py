"""Members of groups of the next generation (KIP-848) that speak by hand, and what is looked at of their groups.

What must come back lives in the tests.
"""

from __future__ import annotations

from typing import Any

from conformance.wire.connection import Connection
from conformance.wire.requests import repeated
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest

HEARTBEAT, DESCRIBE = 1, 1  # the newest versions
REBALANCE_MS = 60_000

TopicPartitions = ConsumerGroupHeartbeatRequest.TopicPartitions
ErrorAnswer = tuple[int, str | None]


class Member:
    """One member, that works on nothing: its next heartbeat gives up what the answer before took from it."""

    def __init__(self, connection: Connection, group: str, member_id: str, *topics: str, **said: Any) -> None:
        self.connection = connection
        self.group = group
        self.member_id = member_id
        self.epoch = 0
        self.owned: dict[bytes, set[int]] = {}
        self.instance: str | None = said.pop("instance_id", None)
        self.said: dict[str, Any] = {"subscribed_topic_names": list(topics), **said}

    def ask(self, version: int = HEARTBEAT, **fields: Any) -> Any:
        """The answer to one heartbeat, with some fields changed."""
        default = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance,
        }
        return self.connection.ask(ConsumerGroupHeartbeatRequest(**{**default, **fields}), version)

    def join(self, version: int = HEARTBEAT, **fields: Any) -> Any:
        """The answer to the heartbeat with which it joins."""
        self.epoch, self.owned = 0, {}
        first = {"rebalance_timeout_ms": REBALANCE_MS, "topic_partitions": [], **self.said}
        return self.taken(self.ask(version, **{**first, **fields}))

    def beat(self, **fields: Any) -> Any:
        """The answer to a heartbeat that says what it has."""
        return self.taken(self.ask(topic_partitions=self.reported(), **fields))

    def reported(self) -> list[TopicPartitions]:
        return [TopicPartitions(topic_id=each, partitions=sorted(has)) for each, has in self.owned.items()]

    def taken(self, answer: Any) -> Any:
        """Do as an answer says."""
        if answer.error_code == ErrorCode.NONE:
            self.member_id, self.epoch = answer.member_id, answer.member_epoch
            if answer.assignment is not None:
                self.owned = {each.topic_id: set(each.partitions) for each in answer.assignment.topic_partitions}
        return answer

    @property
    def count(self) -> int:
        """How many partitions it has."""
        return sum(map(len, self.owned.values()))


def await_topic(connection: Connection, name: str) -> None:
    """Wait until the group coordinator knows of a topic: Kafka's learns of it after the broker, of its own accord."""
    member = Member(connection, f"awaits-{name}", "m-1", name)
    repeated(member.join, lambda _: member.count > 0)
    assert member.count > 0
    member.ask(member_epoch=-1)


def describe(connection: Connection, group: str, version: int = DESCRIBE) -> Any:
    (described,) = connection.ask(ConsumerGroupDescribeRequest(group_ids=[group]), version).groups
    return described


def told(answer: Any) -> ErrorAnswer:
    """The error code and message of an answer."""
    return answer.error_code, answer.error_message


def settle(*members: Member, total: int) -> None:
    """Send heartbeats of all until the group is stable, and `total` partitions are assigned."""

    def beat() -> Any:
        for member in members:
            answer = member.beat()
            assert answer.error_code == ErrorCode.NONE, answer
        return describe(members[0].connection, members[0].group)

    last = repeated(beat, lambda seen: seen.group_state == "Stable" and sum(each.count for each in members) == total)
    assert (last.group_state, sum(each.count for each in members)) == ("Stable", total)
