"""Offsets of share groups, as clients with some rights see and change them; conformance/wire asks Kafka the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.security.operations import DELETE_GROUP, DESCRIBE_GROUP, DESCRIBE_TOPIC, READ_GROUP
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.groups import FindCoordinatorRequest
from minibroker.protocol.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
    ShareGroupHeartbeatRequest,
)
from minibroker.protocol.primitives import ZERO_UUID
from tests.broker.harness import AUTHORIZED, Harness

AskedGroup = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
AlteredTopic = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
DeletedTopic = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    """A cluster on which alice may do everything with the group g, and see the topic "seen"."""
    with Harness(tmp_path, settings=AUTHORIZED) as made:
        for name in ("seen", "hidden"):
            made.create_topic(name, user="admin")
        for right in (READ_GROUP, DESCRIBE_GROUP, DELETE_GROUP):
            made.add_acl(right, "g")
        made.add_acl(DESCRIBE_TOPIC, "seen")
        made.request(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), user="admin")
        yield made


def offsets(harness: Harness, *names: str) -> dict[str, tuple[bool, int, str | None, int]]:
    """For each topic: whether it has an id, and the error, message and offset of its only partition."""
    topics = [AskedGroup.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=[0]) for name in names]
    request = DescribeShareGroupOffsetsRequest(groups=[AskedGroup(group_id="g", topics=topics)])
    (group,) = harness.request(request, user="alice").groups
    assert (group.error_code, group.error_message) == (0, None)
    told = {}
    for topic in group.topics:
        (part,) = topic.partitions
        has_id = topic.topic_id != ZERO_UUID
        told[topic.topic_name] = has_id, part.error_code, part.error_message, part.start_offset
    return told


def test_topics_without_describe_permission_have_no_share_offsets(harness: Harness) -> None:
    assert offsets(harness, "seen", "hidden", "absent") == {
        "seen": (True, 0, None, -1),
        "hidden": (False, *DENIED, -1),
        "absent": (False, *DENIED, -1),
    }
    harness.add_acl(DESCRIBE_TOPIC, "absent")
    assert offsets(harness, "absent") == {"absent": (False, 0, None, -1)}


def test_share_offsets_are_altered_and_deleted_only_with_read_permission(harness: Harness) -> None:
    partition = AlteredTopic.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
    wanted = [AlteredTopic(topic_name=name, partitions=[partition]) for name in ("seen", "absent")]
    answer: Any = harness.request(AlterShareGroupOffsetsRequest(group_id="g", topics=wanted), user="alice")
    assert [
        (topic.topic_id, part.error_code, part.error_message) for topic in answer.responses for part in topic.partitions
    ] == [(ZERO_UUID, *DENIED)] * 2
    gone = DeleteShareGroupOffsetsRequest(group_id="g", topics=[DeletedTopic(topic_name="seen")])
    answer = harness.request(gone, user="alice")
    assert (answer.error_code, answer.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found.")
    harness.request(
        ShareGroupHeartbeatRequest(group_id="g", member_id="m", subscribed_topic_names=["seen"]), user="admin"
    )
    answer = harness.request(gone, user="alice")
    assert (answer.error_code, answer.error_message) == (ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
