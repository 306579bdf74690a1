"""A member of a share group on a harness, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minibroker.broker.metadata.image import GROUP_RESOURCE
from minibroker.protocol.messages.share_fetch import ShareAcknowledgeRequest, ShareFetchRequest
from minibroker.protocol.messages.share_groups import (
    DescribeShareGroupOffsetsRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)
from tests.broker.harness import Harness

GROUP, TOPIC = "s", "t"
ACCEPT, RELEASE = 1, 2
Range = tuple[int, int, int]


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

    def ask_fetch(self, *said: tuple[int, int, Sequence[int]], topic: str = TOPIC, **fields: Any) -> Any:
        Topic = ShareFetchRequest.FetchTopic
        partition = Topic.FetchPartition(
            partition_index=0,
            acknowledgement_batches=[
                Topic.FetchPartition.AcknowledgementBatch(
                    first_offset=first, last_offset=last, acknowledge_types=[*kind]
                )
                for first, last, kind in said
            ],
        )
        topic_id = self.harness.cluster.image.topics[topic].topic_id
        default = {
            "group_id": self.group,
            "member_id": self.member_id,
            "share_session_epoch": self.session_epoch,
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "topics": [Topic(topic_id=topic_id, partitions=[partition])],
        }
        self.session_epoch += 1
        return self.ask(ShareFetchRequest(**{**default, **fields}))

    def fetch(self, *said: tuple[int, int, Sequence[int]], **fields: Any) -> list[Range]:
        """The ranges that a fetch acquires at once."""
        return acquired(self.ask_fetch(*said, **fields))

    def acknowledge(self, *said: tuple[int, int, Sequence[int]], **fields: Any) -> int:
        """The code of the partition."""
        Topic = ShareAcknowledgeRequest.AcknowledgeTopic
        partition = Topic.AcknowledgePartition(
            partition_index=0,
            acknowledgement_batches=[
                Topic.AcknowledgePartition.AcknowledgementBatch(
                    first_offset=first, last_offset=last, acknowledge_types=[*kind]
                )
                for first, last, kind in said
            ],
        )
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=fields.pop("share_session_epoch", self.session_epoch),
            topics=[Topic(topic_id=self.harness.cluster.image.topics[TOPIC].topic_id, partitions=[partition])],
            **fields,
        )
        self.session_epoch += 1
        answer = self.ask(request)
        assert answer.error_code == 0, answer
        return int(answer.responses[0].partitions[0].error_code)


def acquired(answer: Any) -> list[Range]:
    assert answer is not None and answer.error_code == 0, answer
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in answer.responses
        for partition in topic.partitions
        for each in partition.acquired_records
    ]


def reading(harness: Harness, *values: str, earliest: bool = True) -> Sharer:
    """A member that has joined, of a topic with these records in one batch."""
    harness.create_topic(TOPIC)
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
