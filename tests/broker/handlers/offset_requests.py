"""The OffsetCommit that several tests send, and what it has left in the group."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from minibroker.broker.groups.offsets_of_group import CommittedOffsets
from minibroker.protocol.messages.offsets import OffsetCommitRequest
from tests.broker.harness import Harness

Topic = OffsetCommitRequest.OffsetCommitRequestTopic
Partition = Topic.OffsetCommitRequestPartition

BY_ID = 10
Offset = tuple[str | bytes, int, int]  # topic (or its id), partition, offset


def commit_request(
    group: str,
    *offsets: Offset,
    leader_epoch: int = -1,
    metadata: str | None = "",
    timestamp_ms: int = -1,
    **fields: Any,
) -> OffsetCommitRequest:
    """Of whoever is no member, unless `fields` of the request say otherwise."""
    topics = []
    for topic, partitions in groupby(offsets, lambda offset: offset[0]):
        listed = [
            Partition(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=leader_epoch,
                committed_metadata=metadata,
                commit_timestamp=timestamp_ms,
            )
            for _, partition, offset in partitions
        ]
        named = {"name": topic} if isinstance(topic, str) else {"topic_id": topic}
        topics.append(Topic(**named, partitions=listed))
    request: OffsetCommitRequest = OffsetCommitRequest(group_id=group, topics=topics, **fields)
    return request


def codes_of(response: Any) -> list[int]:
    """The error of each partition, in the order of the answer."""
    return [partition.error_code for topic in response.topics for partition in topic.partitions]


def commit(harness: Harness, group: str, *offsets: Offset, version: int = 9, **more: Any) -> list[int]:
    """The errors of an OffsetCommit to the group's coordinator, partition by partition."""
    request = commit_request(group, *offsets, **more)
    return codes_of(harness.request(request, version, node=harness.coordinator(group)))


def committed_in(harness: Harness, group: str) -> CommittedOffsets:
    """Return what the coordinator knows of a group that exists."""
    return harness.cluster.groups.groups[group].offsets
