"""DescribeTopicPartitions: sorted topics in pages, the cursor between them, and what has no partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.requests.context import RequestContext
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.metadata import DescribeTopicPartitionsRequest
from minibroker.protocol.primitives import ZERO_UUID
from tests.broker.harness import Harness

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


def test_all_topics_are_described_in_sorted_order(filled: Harness) -> None:
    response = describe(filled)
    assert listed(response) == [("a", [0]), ("b", [0, 1, 2]), ("c", [0])]
    assert following(response) is None


def test_requested_topics_are_described_sorted_and_once(filled: Harness) -> None:
    assert listed(describe(filled, "c", "b", "c")) == [("b", [0, 1, 2]), ("c", [0])]


def test_a_topic_is_described_completely(filled: Harness) -> None:
    (topic,) = describe(filled, "a").topics
    assert (topic.error_code, topic.is_internal, topic.topic_authorized_operations) == (ErrorCode.NONE, False, 3576)
    assert topic.topic_id == filled.cluster.image.topics["a"].topic_id
    (partition,) = topic.partitions
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (ErrorCode.NONE, 1, 0)
    assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([1], [1], [])
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5])
def test_pages_follow_one_another_without_gaps_or_duplicates(filled: Harness, limit: int) -> None:
    seen: list[tuple[str, int]] = []
    cursor = None
    while not seen or cursor is not None:
        response = describe(filled, limit=limit, cursor=cursor)
        page = [(name, index) for name, indexes in listed(response) for index in indexes]
        assert 0 < len(page) <= limit
        seen += page
        cursor = following(response)
    assert seen == [("a", 0), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]


def test_a_full_page_points_to_the_next_partition_or_the_next_topic(filled: Harness) -> None:
    assert following(describe(filled, limit=2)) == ("b", 1)
    assert following(describe(filled, limit=4)) == ("c", 0)
    assert following(describe(filled, limit=5)) is None


@pytest.mark.parametrize("cursor", [None, ("b", 1)])
def test_topics_without_describe_permission_are_omitted_from_all_topics(
    filled: Harness, monkeypatch: pytest.MonkeyPatch, cursor: tuple[str, int] | None
) -> None:
    monkeypatch.setattr(RequestContext, "allows", lambda _, right, name, **__: name != "b")
    pages = [describe(filled, cursor=cursor), describe(filled, limit=1, cursor=cursor)]
    if cursor is None:
        assert [(listed(page), following(page)) for page in pages] == [
            ([("a", [0]), ("c", [0])], None),
            ([("a", [0])], ("c", 0)),
        ]
    else:
        assert [(listed(page), following(page)) for page in pages] == [([("c", [0])], None)] * 2


@pytest.mark.parametrize("limit", [0, -1])
def test_a_page_has_at_least_one_partition(filled: Harness, limit: int) -> None:
    assert listed(describe(filled, "b", limit=limit)) == [("b", [0])]


def test_the_broker_limits_the_partitions_of_a_page(tmp_path: Path) -> None:
    with Harness(tmp_path, settings={"max.request.partition.size.limit": "2"}) as harness:
        harness.create_topic("t", 3)
        response = describe(harness, limit=LARGEST)
        assert (listed(response), following(response)) == ([("t", [0, 1])], ("t", 2))


def test_a_cursor_beyond_the_last_partition_leaves_the_topic_empty(filled: Harness) -> None:
    response = describe(filled, "b", cursor=("b", 7))
    assert (listed(response), following(response)) == ([("b", [])], None)


def test_a_cursor_over_all_topics_may_name_a_deleted_topic(filled: Harness) -> None:
    assert listed(describe(filled, cursor=("aa", 5))) == [("b", [0, 1, 2]), ("c", [0])]


@pytest.mark.parametrize("cursor", [("b", -1), ("a", 0)])
def test_a_cursor_outside_the_requested_topics_is_rejected(filled: Harness, cursor: tuple[str, int]) -> None:
    response = describe(filled, "b", "c", cursor=cursor)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("b", ErrorCode.INVALID_REQUEST),
        ("c", ErrorCode.INVALID_REQUEST),
    ]
    assert listed(response) == [("b", []), ("c", [])]
    assert following(response) is None


@pytest.mark.parametrize(
    ("name", "code", "internal"),
    [
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
        ("__consumer_offsets", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION, False),
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION, False),
    ],
)
def test_an_unknown_topic_is_an_error_beside_the_others(
    filled: Harness, name: str, code: ErrorCode, internal: bool
) -> None:
    response = describe(filled, name, "a")
    missing = next(topic for topic in response.topics if topic.name == name)
    assert (missing.error_code, missing.is_internal, missing.partitions) == (code, internal, [])
    assert (missing.topic_id, missing.topic_authorized_operations) == (ZERO_UUID, 3576)
    assert ("a", [0]) in listed(response)


def test_a_partition_whose_nodes_are_offline_has_no_leader(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        harness.create_topic("t", 2)
        harness.restart(nodes=[1])
        (topic,) = describe(harness, "t").topics
        kept, lost = sorted(topic.partitions, key=lambda partition: partition.error_code)
        assert (lost.error_code, lost.leader_id, lost.offline_replicas) == (ErrorCode.LEADER_NOT_AVAILABLE, -1, [2])
        assert (kept.error_code, kept.leader_id, kept.offline_replicas) == (ErrorCode.NONE, 1, [])
