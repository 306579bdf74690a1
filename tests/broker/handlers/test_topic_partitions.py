"""DescribeTopicPartitions: pages with topics that are hidden or gone, and nodes that are offline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.metadata import DescribeTopicPartitionsRequest
from tests.broker.harness import Harness, Verdicts

Cursor = DescribeTopicPartitionsRequest.Cursor
LARGEST = 2_147_483_647


def describe(harness: Harness, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    return harness.request(request)


def listed(response: Any) -> list[tuple[str, list[int]]]:
    return [(topic.name, [partition.partition_index for partition in topic.partitions]) for topic in response.topics]


def following(response: Any) -> tuple[str, int] | None:
    cursor = response.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


@pytest.fixture
def filled(harness: Harness) -> Harness:
    """Topics "b" with three partitions, "a" and "c" with one."""
    harness.create_topic("b", 3)
    harness.create_topic("a")
    harness.create_topic("c")
    return harness


@pytest.mark.parametrize("cursor", [None, ("b", 1)])
def test_topics_without_describe_permission_are_omitted_from_all_topics(
    filled: Harness, monkeypatch: pytest.MonkeyPatch, cursor: tuple[str, int] | None
) -> None:
    monkeypatch.setattr(filled.cluster, "authorizer", Verdicts(lambda right, name: name != "b"))
    pages = [describe(filled, cursor=cursor), describe(filled, limit=1, cursor=cursor)]
    if cursor is None:
        assert [(listed(page), following(page)) for page in pages] == [
            ([("a", [0]), ("c", [0])], None),
            ([("a", [0])], ("c", 0)),
        ]
    else:
        assert [(listed(page), following(page)) for page in pages] == [([("c", [0])], None)] * 2


def test_the_broker_limits_the_partitions_of_a_page(tmp_path: Path) -> None:
    with Harness(tmp_path, settings={"max.request.partition.size.limit": "2"}) as harness:
        harness.create_topic("t", 3)
        response = describe(harness, limit=LARGEST)
        assert (listed(response), following(response)) == ([("t", [0, 1])], ("t", 2))


def test_a_cursor_over_all_topics_may_name_a_deleted_topic(filled: Harness) -> None:
    assert listed(describe(filled, cursor=("aa", 5))) == [("b", [0, 1, 2]), ("c", [0])]


def test_a_partition_whose_nodes_are_offline_has_no_leader(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        harness.create_topic("t", 2)
        harness.restart(nodes=[1])
        (topic,) = describe(harness, "t").topics
        kept, lost = sorted(topic.partitions, key=lambda partition: partition.error_code)
        assert (lost.error_code, lost.leader_id, lost.offline_replicas) == (ErrorCode.LEADER_NOT_AVAILABLE, -1, [2])
        assert (kept.error_code, kept.leader_id, kept.offline_replicas) == (ErrorCode.NONE, 1, [])
