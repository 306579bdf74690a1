"""What requests are about, read from their fields: of every API that names a topic, a group or a transaction."""

from __future__ import annotations

import pytest

from minibroker.protocol.declare import Message
from minibroker.protocol.messages.configs import DescribeConfigsRequest
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
)
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.testing.seen.subjects import NamedSubjects, find_subjects

TOPIC_ID = b"\x07" * 16
Data = ProduceRequest.TopicProduceData
Topic = FetchRequest.FetchTopic

CASES: list[tuple[Message, NamedSubjects]] = [
    (
        ProduceRequest(
            transactional_id="x", topic_data=[Data(name="t", partition_data=[Data.PartitionProduceData(index=3)])]
        ),
        NamedSubjects({"t": {3}}, set(), {"x"}),
    ),
    (
        FetchRequest(topics=[Topic(topic_id=TOPIC_ID, partitions=[Topic.FetchPartition(partition=1)])]),
        NamedSubjects({"seven": {1}}, set(), set()),
    ),
    (FetchRequest(topics=[Topic(topic_id=b"\x01" * 16)]), NamedSubjects({}, set(), set())),
    (
        MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")]),
        NamedSubjects({"t": set()}, set(), set()),
    ),
    (MetadataRequest(topics=None), NamedSubjects({}, set(), set())),
    (HeartbeatRequest(group_id="g"), NamedSubjects({}, {"g"}, set())),
    (DescribeGroupsRequest(groups=["g", "h"]), NamedSubjects({}, {"g", "h"}, set())),
    (DeleteGroupsRequest(groups_names=["g"]), NamedSubjects({}, {"g"}, set())),
    (
        DescribeConfigsRequest(
            resources=[DescribeConfigsRequest.DescribeConfigsResource(resource_type=2, resource_name="t")]
        ),
        NamedSubjects({"t": set()}, set(), set()),
    ),
]


@pytest.mark.parametrize(("message", "about"), CASES)
def test_the_subjects_of_a_request_are_the_names_in_it(message: Message, about: NamedSubjects) -> None:
    assert find_subjects(message, {TOPIC_ID: "seven"}.get) == about


def test_the_subjects_of_offset_requests_are_group_and_partitions() -> None:
    Commit = OffsetCommitRequest.OffsetCommitRequestTopic
    commit = OffsetCommitRequest(
        group_id="g", topics=[Commit(name="t", partitions=[Commit.OffsetCommitRequestPartition(partition_index=2)])]
    )
    assert find_subjects(commit, {}.get) == NamedSubjects({"t": {2}}, {"g"}, set())
    Group = OffsetFetchRequest.OffsetFetchRequestGroup
    fetch = OffsetFetchRequest(
        groups=[Group(group_id="g", topics=[Group.OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])])]
    )
    assert find_subjects(fetch, {}.get) == NamedSubjects({"t": {0, 1}}, {"g"}, set())
