"""OffsetDelete: what stays deleted, and what becomes of a deletion that fails or takes long."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.broker.handlers.offset_deletion import offset_delete
from minibroker.broker.metadata.partitions import GROUPS_TOPIC
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.offsets import OffsetDeleteRequest
from tests.broker.delaying import steps_of
from tests.broker.handlers.offset_requests import commit, committed_in
from tests.broker.harness import Harness

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
Topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
Answer = tuple[int, dict[tuple[str, int], int]]


@pytest.fixture(autouse=True)
def committed(harness: Harness) -> None:
    """A group "g" that has committed for two topics."""
    harness.create_topic("t", 3)
    harness.create_topic("u")
    commit(harness, "g", ("t", 0, 5), ("t", 1, 6), ("u", 0, 7))


def delete(harness: Harness, group: str, *partitions: tuple[str, int]) -> Answer:
    """The error of the whole, and that of each partition."""
    topics = [
        Topic(name=name, partitions=[Topic.OffsetDeleteRequestPartition(partition_index=index)])
        for name, index in partitions
    ]
    response = harness.request(OffsetDeleteRequest(group_id=group, topics=topics), node=harness.coordinator(group))
    return response.error_code, {
        (topic.name, each.partition_index): each.error_code for topic in response.topics for each in topic.partitions
    }


def left(harness: Harness) -> list[tuple[str, int]]:
    return sorted(committed_in(harness, "g").by_partition)


@pytest.mark.parametrize("crash", [True, False])
def test_deleted_offsets_stay_deleted_after_a_restart(harness: Harness, crash: bool) -> None:
    assert delete(harness, "g", ("t", 0), ("u", 0)) == (0, {("t", 0): 0, ("u", 0): 0})
    assert left(harness) == [("t", 1)]
    harness.restart(crash=crash)
    assert left(harness) == [("t", 1)]


def test_deleting_an_absent_offset_succeeds_and_one_of_an_unknown_partition_fails(harness: Harness) -> None:
    before = harness.partition(GROUPS_TOPIC, harness.cluster.groups.log.get_partition_index("g")).log.log_end_offset
    answer = delete(harness, "g", ("t", 2), ("t", 3), ("nope", 0))
    assert answer == (0, {("t", 2): 0, ("t", 3): UNKNOWN, ("nope", 0): UNKNOWN})
    after = harness.partition(GROUPS_TOPIC, harness.cluster.groups.log.get_partition_index("g")).log.log_end_offset
    assert (left(harness), after) == ([("t", 0), ("t", 1), ("u", 0)], before)


def test_only_the_coordinator_deletes_offsets(tmp_path: Path) -> None:
    with Harness(tmp_path / "two", nodes=2) as harness:
        other = 3 - harness.coordinator("g")
        response = harness.request(OffsetDeleteRequest(group_id="g"), node=other)
        assert (response.error_code, response.topics) == (ErrorCode.NOT_COORDINATOR, [])


def test_a_deletion_that_cannot_be_recorded_changes_nothing(harness: Harness) -> None:
    topic = harness.cluster.groups.log
    request = OffsetDeleteRequest(
        group_id="g", topics=[Topic(name="t", partitions=[Topic.OffsetDeleteRequestPartition(partition_index=0)])]
    )
    topic.get_partition(topic.get_partition_index("g")).log.offline = "the disk is away"
    assert harness.request(request).error_code == ErrorCode.NOT_COORDINATOR
    assert left(harness) == [("t", 0), ("t", 1), ("u", 0)]


def test_a_long_deletion_applies_to_a_group_recreated_meanwhile(
    harness: Harness,
) -> None:
    asked = [Topic.OffsetDeleteRequestPartition(partition_index=index) for index in range(900)]
    request = OffsetDeleteRequest(group_id="g", topics=[Topic(name="t", partitions=asked)])
    context = harness.make_context(ApiKey.OFFSET_DELETE, 0)
    steps = steps_of(offset_delete(context, request))
    next(steps)
    harness.cluster.groups.delete_group(harness.cluster.groups.groups["g"])
    commit(harness, "g", ("t", 0, 5), ("u", 0, 7))
    assert sum(1 for _ in steps) >= 900
    assert left(harness) == [("u", 0)]
    harness.restart()
    assert left(harness) == [("u", 0)]
