"""A member of a share group on a harness, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minibroker.protocol.messages.metadata_records import GROUP_RESOURCE
from minibroker.protocol.messages.share_groups import (
    DescribeShareGroupOffsetsRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)
from tests.broker.harness import Harness
from tests.clients.share_requests import Range, Said, acknowledge_request, acquired, fetch_request

GROUP, TOPIC = "s", "t"


class Sharer:
    """One member, on a connection of its own."""

    def __init__(self, harness: Harness, member_id: str = "m", group: str = GROUP) -> None:
        self.harness = harness
        self.group = group
        self.member_id = member_id
        self.client = harness.client()
        harness.coordinator(group)
        self.epoch = 0
        self.session_epoch = 0

    def ask(self, request: Any) -> Any:
        """The answer, None if there is none yet."""
        self.client.send(request)
        return next((answer for _, answer in self.client.responses()), None)

    def late(self) -> Any:
        """The answer to a request that waited, None if it still does."""
        self.harness.end_turn()
        self.client.outlet.run_soon()
        return next((answer for _, answer in self.client.responses()), None)

    def beat(self, *topics: str, **fields: Any) -> Any:
        said = {"group_id": self.group, "member_id": self.member_id, "member_epoch": self.epoch, **fields}
        if topics:
            said["subscribed_topic_names"] = list(topics)
        answer = self.ask(ShareGroupHeartbeatRequest(**said))
        if not answer.error_code:
            self.epoch = answer.member_epoch
        return answer

    def ask_fetch(self, *said: Said, topic: str = TOPIC, more: Sequence[int] = (), **fields: Any) -> Any:
        """The answer to a fetch of partition 0 and `more`; acknowledgements are of partition 0."""
        topic_id = self.harness.cluster.image.topics[topic].topic_id
        request = fetch_request(topic_id, said, more, **{**self._said(), **fields})
        self.session_epoch += 1
        return self.ask(request)

    def _said(self) -> dict[str, Any]:
        return {"group_id": self.group, "member_id": self.member_id, "share_session_epoch": self.session_epoch}

    def fetch(self, *said: Said, **fields: Any) -> list[Range]:
        """The ranges that a fetch acquires at once."""
        return acquired(self.ask_fetch(*said, **fields))

    def acknowledge(self, *said: Said, **fields: Any) -> int:
        """The code of the partition."""
        topic_id = self.harness.cluster.image.topics[TOPIC].topic_id
        request = acknowledge_request(topic_id, said, **{**self._said(), **fields})
        self.session_epoch += 1
        answer = self.ask(request)
        assert answer.error_code == 0, answer
        return int(answer.responses[0].partitions[0].error_code)


def reading(harness: Harness, *values: str, earliest: bool = True, partitions: int = 1) -> Sharer:
    """A member that has joined, of a topic with these records in one batch."""
    harness.create_topic(TOPIC, partitions)
    if earliest:
        configure(harness, auto_offset_reset="earliest")
    if values:
        harness.produce(TOPIC, *values)
    member = Sharer(harness)
    assert member.beat(TOPIC).error_code == 0
    return member


def configure(harness: Harness, **configs: str) -> None:
    """Set configs of the group, by Kafka's names with underscores for dots."""
    texts = {f"share.{name.replace('_', '.')}": value for name, value in configs.items()}
    harness.cluster.controller.change_config(GROUP_RESOURCE, GROUP, texts)


def describe(harness: Harness, group: str = GROUP) -> Any:
    (described,) = harness.request(ShareGroupDescribeRequest(group_ids=[group])).groups
    return described


def offset_of(harness: Harness, group: str = GROUP) -> tuple[int, int]:
    """Where the group reads partition 0, and how far it is behind."""
    asked = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    (answer,) = harness.request(DescribeShareGroupOffsetsRequest(groups=[asked])).groups
    partition = answer.topics[0].partitions[0]
    return partition.start_offset, partition.lag
