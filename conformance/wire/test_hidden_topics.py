"""What is answered of groups with topics that the client may not see, by Apache Kafka 4.4.

Rights that come and go are in `test_rights`, those of every API in `test_denials`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conformance.wire.conftest import Differing
from conformance.wire.connection import Connection
from conformance.wire.requests import create_request, repeated, topic
from conformance.wire.test_denials import TOPIC_MESSAGE
from conformance.wire.test_rights import NO_TOPIC, administrator, client, grant, guarded, name
from minibroker.broker.security.operations import DELETE_GROUP, DESCRIBE_GROUP, DESCRIBE_TOPIC, READ_GROUP
from minibroker.protocol.declare import Message
from minibroker.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from minibroker.protocol.messages.groups import FindCoordinatorRequest
from minibroker.protocol.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)
from minibroker.protocol.messages.streams_groups import StreamsGroupDescribeRequest, StreamsGroupHeartbeatRequest
from minibroker.protocol.primitives import ZERO_UUID
from tests.broker.security.test_operations import error_codes

__all__ = ["administrator", "client", "guarded", "name"]  # the broker, and clients with and without rights


def test_share_group_offsets_of_hidden_topics_are_rejected(
    administrator: Connection, client: Connection, differing: Differing, new_name: Callable[[], str], name: str
) -> None:
    group, absent, seen = new_name(), new_name(), new_name()
    assert administrator.ask(create_request(topic(seen, 1)), 7).topics[0].error_code == 0
    found = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    repeated(lambda: administrator.ask(found, 4).coordinators[0], lambda one: one.error_code == 0)
    for right in (DESCRIBE_GROUP, READ_GROUP, DELETE_GROUP):
        grant(administrator, right, group)
    grant(administrator, DESCRIBE_TOPIC, seen)
    asked = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    topics = [asked.DescribeShareGroupOffsetsRequestTopic(topic_name=one, partitions=[0]) for one in (name, seen)]

    def described_offsets() -> Any:
        request = DescribeShareGroupOffsetsRequest(groups=[asked(group_id=group, topics=topics)])
        return client.ask(request, 1).groups[0]

    told = repeated(described_offsets, lambda answer: {0, NO_TOPIC} == set(error_codes(answer.topics)))
    states = {
        one.topic_name: (one.topic_id == ZERO_UUID, part.error_code, part.error_message, part.start_offset)
        for one in told.topics
        for part in one.partitions
    }
    assert states == {name: (True, NO_TOPIC, TOPIC_MESSAGE, -1), seen: (False, 0, None, -1)}
    altered = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
    partition = altered.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
    wanted = [altered(topic_name=one, partitions=[partition]) for one in (name, absent)]
    answer = client.ask(AlterShareGroupOffsetsRequest(group_id=group, topics=wanted), 0)
    refused = {(one.error_code, one.error_message) for told in answer.responses for one in told.partitions}
    assert refused == {(NO_TOPIC, TOPIC_MESSAGE)}
    ids = {told.topic_name: told.topic_id == ZERO_UUID for told in answer.responses}
    tells_nothing = differing(kafka=False, minibroker=True, because="its id would tell that the topic exists")
    assert ids == {name: tells_nothing, absent: True}


def joining(kind: str, group: str, name: str) -> Message:
    """A heartbeat with which a member of a new group asks for the partitions of a topic."""
    if kind == "streams":
        subtopology = StreamsGroupHeartbeatRequest.Topology.Subtopology(subtopology_id="0", source_topics=[name])
        return StreamsGroupHeartbeatRequest(
            group_id=group,
            member_id="m",
            rebalance_timeout_ms=10_000,
            topology=StreamsGroupHeartbeatRequest.Topology(subtopologies=[subtopology]),
            process_id="p",
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
        )
    if kind == "share":
        return ShareGroupHeartbeatRequest(group_id=group, member_id="m", subscribed_topic_names=[name])
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=[name],
        topic_partitions=[],
    )


def has_partitions(answer: Any) -> bool:
    """Whether the answer to a heartbeat assigns some."""
    given = getattr(answer, "assignment", None)
    return bool(given.topic_partitions if given else getattr(answer, "active_tasks", None))


HAS_TOPICS = "The group has described topic(s) that the client is not authorized to describe."
USES_TOPICS = "The described group uses topics that the client is not authorized to describe."


@pytest.mark.parametrize(
    ("kind", "describe", "message"),
    [
        ("consumer", ConsumerGroupDescribeRequest, HAS_TOPICS),
        ("share", ShareGroupDescribeRequest, HAS_TOPICS),
        ("streams", StreamsGroupDescribeRequest, USES_TOPICS),
    ],
)
def test_a_group_with_hidden_assigned_topics_is_not_described(
    administrator: Connection, client: Connection, name: str, kind: str, describe: Any, message: str
) -> None:
    group = f"{name}-{kind}"
    found = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    repeated(lambda: administrator.ask(found, 4).coordinators[0], lambda seen: seen.error_code == 0)
    version = 1 if kind == "share" else 0
    heartbeat = joining(kind, group, name)
    repeated(lambda: administrator.ask(heartbeat, version), has_partitions)
    grant(administrator, DESCRIBE_GROUP, group)

    def described_group() -> Any:
        return client.ask(describe(group_ids=[group]), version).groups[0]

    told = repeated(described_group, lambda seen: seen.error_code)
    assert (told.error_code, told.error_message, told.members) == (NO_TOPIC, message, [])
    grant(administrator, DESCRIBE_TOPIC, name)
    assert len(repeated(described_group, lambda seen: not seen.error_code).members) == 1


@pytest.mark.parametrize(
    ("kind", "describe"), [("consumer", ConsumerGroupDescribeRequest), ("share", ShareGroupDescribeRequest)]
)
def test_a_group_with_hidden_subscribed_topics_is_described(
    administrator: Connection, client: Connection, new_name: Callable[[], str], kind: str, describe: Any
) -> None:
    group, absent = new_name(), new_name()
    found = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    repeated(lambda: administrator.ask(found, 4).coordinators[0], lambda seen: seen.error_code == 0)
    version = 1 if kind == "share" else 0
    heartbeat = joining(kind, group, absent)
    repeated(lambda: administrator.ask(heartbeat, version), lambda seen: not seen.error_code)
    grant(administrator, DESCRIBE_GROUP, group)

    def described_group() -> Any:
        return client.ask(describe(group_ids=[group]), version).groups[0]

    told = repeated(described_group, lambda seen: not seen.error_code)
    assert [member.subscribed_topic_names for member in told.members] == [[absent]]
