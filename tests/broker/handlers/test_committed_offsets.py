"""OffsetFetch: nothing is committed, in every version's way of saying so, and only the coordinator says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.offsets import OffsetFetchRequest
from tests.broker.harness import Harness, served_versions

VERSIONS = served_versions(OffsetFetchRequest)
ONE_GROUP = [version for version in VERSIONS if version < 8]
SEVERAL_GROUPS = [version for version in VERSIONS if version >= 8]
WITH_ERROR, BY_ID = 2, 10
UNKNOWN_ID = bytes(range(16))

Topic = OffsetFetchRequest.OffsetFetchRequestTopic
Group = OffsetFetchRequest.OffsetFetchRequestGroup
GroupTopic = Group.OffsetFetchRequestTopics


def of_groups(*groups: str, topics: list[GroupTopic] | None) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=[Group(group_id=group, topics=topics) for group in groups])


@pytest.mark.parametrize("version", ONE_GROUP)
@pytest.mark.parametrize("topic", ["t", "nope"])
def test_a_group_has_committed_nothing(harness: Harness, version: int, topic: str) -> None:
    harness.create_topic("t")
    harness.coordinator("g")
    asked = [Topic(name=topic, partition_indexes=[0, 9])]
    answer = harness.request(OffsetFetchRequest(group_id="g", topics=asked), version)
    assert answer.error_code == ErrorCode.NONE
    ((name, partitions),) = ((topic.name, topic.partitions) for topic in answer.topics)
    assert name == topic
    assert [
        (one.partition_index, one.committed_offset, one.committed_leader_epoch, one.metadata, one.error_code)
        for one in partitions
    ] == [(0, -1, -1, "", 0), (9, -1, -1, "", 0)]


@pytest.mark.parametrize("version", SEVERAL_GROUPS)
def test_groups_have_committed_nothing(harness: Harness, version: int) -> None:
    harness.create_topic("t")
    harness.coordinator("g")
    topic_id = harness.cluster.image.topics["t"].topic_id
    topics = [GroupTopic(name="t", topic_id=topic_id, partition_indexes=[0])]
    answer = harness.request(of_groups("g", "h", topics=topics), version)
    assert [(group.group_id, group.error_code) for group in answer.groups] == [("g", 0), ("h", 0)]
    for group in answer.groups:
        (topic,) = group.topics
        assert topic_id == topic.topic_id if version >= BY_ID else topic.name == "t"
        (partition,) = topic.partitions
        assert (partition.committed_offset, partition.metadata, partition.error_code) == (-1, "", 0)


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= WITH_ERROR])
def test_of_all_topics_none_has_a_committed_offset(harness: Harness, version: int) -> None:
    harness.coordinator("g")
    if version in SEVERAL_GROUPS:
        (answer,) = harness.request(of_groups("g", topics=None), version).groups
    else:
        answer = harness.request(OffsetFetchRequest(group_id="g", topics=None), version)
    assert (answer.error_code, answer.topics) == (ErrorCode.NONE, [])


def test_an_unknown_topic_id_is_told_for_its_partitions(harness: Harness) -> None:
    harness.coordinator("g")
    topics = [GroupTopic(topic_id=UNKNOWN_ID, partition_indexes=[0, 1])]
    (group,) = harness.request(of_groups("g", topics=topics), BY_ID).groups
    (topic,) = group.topics
    assert [partition.error_code for partition in topic.partitions] == [ErrorCode.UNKNOWN_TOPIC_ID] * 2


@pytest.mark.parametrize("version", VERSIONS)
def test_only_the_coordinator_answers(tmp_path: Path, version: int) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        other = 3 - harness.coordinator("g")
        code = ErrorCode.NOT_COORDINATOR
        if version in SEVERAL_GROUPS:
            topics = [GroupTopic(name="t", partition_indexes=[0])]
            (group,) = harness.request(of_groups("g", topics=topics), version, node=other).groups
            assert (group.error_code, group.topics) == (code, [])
            return
        asked = OffsetFetchRequest(group_id="g", topics=[Topic(name="t", partition_indexes=[0])])
        answer = harness.request(asked, version, node=other)
        if version >= WITH_ERROR:
            assert (answer.error_code, answer.topics) == (code, [])
        else:
            assert [partition.error_code for topic in answer.topics for partition in topic.partitions] == [code]
