"""What the tests of groups send: who coordinates, a member that joins, a commit, and what is committed.

What has to come back stands in the tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

from conformance.wire.connection import Connection
from conformance.wire.requests import repeated
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from minibroker.protocol.messages.groups import (
    FindCoordinatorRequest,
    JoinGroupRequest,
    SyncGroupRequest,
)
from minibroker.protocol.messages.offsets import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest

JOIN_VERSION, SYNC_VERSION = 5, 3  # the first with static members
SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS = 30_000, 60_000
FIRST_COMMIT_BY_ID = 10
FIRST_FETCH_OF_SEVERAL = 8

Offset = tuple[str | bytes, int, int]  # topic (or its id), partition, offset


class Fetched(NamedTuple):
    """The answer of OffsetFetch for a partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""
    error_code: int = 0


NOTHING = Fetched(-1)


def find_coordinator(connection: Connection, group: str) -> None:
    """Ask for the group's coordinator until there is one: the first who asks has the topic of the groups created."""
    request = FindCoordinatorRequest(coordinator_keys=[group])

    def code() -> int:
        number: int = connection.ask(request, 4).coordinators[0].error_code
        return number

    assert repeated(code, lambda seen: seen == ErrorCode.NONE) == ErrorCode.NONE
    # Kafka's coordinator still has to load the group's partition when FindCoordinator names it already.
    loading = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    fetch = partial(fetch_group, connection, group)
    assert repeated(lambda: fetch()[0], lambda seen: seen not in loading) == ErrorCode.NONE


class Member(NamedTuple):
    """A member of a classic group, as the coordinator knows it."""

    member_id: str
    generation: int
    instance_id: str | None = None

    def fields(self, **changed: Any) -> dict[str, Any]:
        """Return the member's fields of an OffsetCommit."""
        return {
            "member_id": self.member_id,
            "generation_id_or_member_epoch": self.generation,
            "group_instance_id": self.instance_id,
            **changed,
        }


def subscription(*topics: str) -> bytes:
    """Return the subscription that a consumer sends when it joins."""
    return b"\0\0" + ConsumerProtocolSubscription(topics=list(topics)).encode(0)


def join(
    connection: Connection,
    group: str,
    *topics: str,
    instance_id: str | None = None,
    protocol_type: str = "consumer",
) -> Member:
    """The only member of a group, whose rebalance waits for its SyncGroup."""
    find_coordinator(connection, group)
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=subscription(*topics))
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=[protocol],
    )
    answer = connection.ask(request, JOIN_VERSION)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        request.member_id = answer.member_id
        answer = connection.ask(request, JOIN_VERSION)
    assert answer.error_code == ErrorCode.NONE, answer
    return Member(answer.member_id, answer.generation_id, instance_id)


def sync(connection: Connection, group: str, member: Member) -> None:
    """End the rebalance: the group is stable then."""
    assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"")
    request = SyncGroupRequest(
        group_id=group,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        assignments=[assignment],
    )
    assert connection.ask(request, SYNC_VERSION).error_code == ErrorCode.NONE


def commit_request(group: str, *offsets: Offset, **fields: Any) -> OffsetCommitRequest:
    """Of whoever is no member, unless `fields` say otherwise; `metadata` and the like are those of each partition."""
    request_topic = OffsetCommitRequest.OffsetCommitRequestTopic
    of_partition = {
        name: fields.pop(name)
        for name in ("committed_metadata", "committed_leader_epoch", "commit_timestamp")
        if name in fields
    }
    topics = []
    for topic, partitions in groupby(offsets, lambda offset: offset[0]):
        listed = [
            request_topic.OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, **{"committed_metadata": "", **of_partition}
            )
            for _, partition, offset in partitions
        ]
        named = {"name": topic} if isinstance(topic, str) else {"topic_id": topic}
        topics.append(request_topic(**named, partitions=listed))
    request: OffsetCommitRequest = OffsetCommitRequest(group_id=group, topics=topics, **fields)
    return request


def commit(
    connection: Connection, group: str, *offsets: Offset, version: int = 9, **fields: Any
) -> dict[tuple[str | bytes, int], int]:
    """The error of each (topic, partition) of an OffsetCommit."""
    response = connection.ask(commit_request(group, *offsets, **fields), version)
    return {
        (topic.topic_id if version >= FIRST_COMMIT_BY_ID else topic.name, each.partition_index): each.error_code
        for topic in response.topics
        for each in topic.partitions
    }


def fetch_group(
    connection: Connection,
    group: str,
    *asked: tuple[str | bytes, Sequence[int]],
    version: int = 9,
    everything: bool = False,
    **fields: Any,
) -> tuple[int, dict[tuple[str | bytes, int], Fetched]]:
    """The error of the whole, and what is said of each (topic, partition), topics by id from version 10 on."""
    if version < FIRST_FETCH_OF_SEVERAL:
        old = OffsetFetchRequest.OffsetFetchRequestTopic
        topics = None if everything else [old(name=name, partition_indexes=list(indexes)) for name, indexes in asked]
        answer = connection.ask(OffsetFetchRequest(group_id=group, topics=topics, **fields), version)
    else:
        of_group = OffsetFetchRequest.OffsetFetchRequestGroup
        new = of_group.OffsetFetchRequestTopics
        listed = [
            new(**({"name": name} if isinstance(name, str) else {"topic_id": name}), partition_indexes=list(indexes))
            for name, indexes in asked
        ]
        group_fields = {name: fields.pop(name) for name in ("member_id", "member_epoch") if name in fields}
        only = of_group(group_id=group, topics=None if everything else listed, **group_fields)
        (answer,) = connection.ask(OffsetFetchRequest(groups=[only], **fields), version).groups
    return answer.error_code, {
        (topic.topic_id if version >= FIRST_COMMIT_BY_ID else topic.name, each.partition_index): Fetched(
            each.committed_offset, each.committed_leader_epoch, each.metadata, each.error_code
        )
        for topic in answer.topics
        for each in topic.partitions
    }


def committed(connection: Connection, group: str) -> dict[tuple[str, int], int]:
    """All that a group has committed."""
    error_code, found = fetch_group(connection, group, everything=True, version=8)
    assert error_code == ErrorCode.NONE
    return {(str(topic), partition): each.offset for (topic, partition), each in found.items()}


def delete(connection: Connection, group: str, *partitions: tuple[str, int]) -> tuple[int, dict[tuple[str, int], int]]:
    """The error of the whole of an OffsetDelete, and that of each partition."""
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
    by_topic: dict[str, list[int]] = {}
    for name, index in partitions:
        by_topic.setdefault(name, []).append(index)
    topics = [
        topic(name=name, partitions=[topic.OffsetDeleteRequestPartition(partition_index=each) for each in indexes])
        for name, indexes in by_topic.items()
    ]
    response = connection.ask(OffsetDeleteRequest(group_id=group, topics=topics), 0)
    return response.error_code, {
        (topic.name, each.partition_index): each.error_code for topic in response.topics for each in topic.partitions
    }
