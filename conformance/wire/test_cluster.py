"""DescribeCluster, FindCoordinator and DescribeTopicPartitions.

Every literal is what Apache Kafka 4.4 answers.
"""

from __future__ import annotations

from typing import Any

import pytest

from conformance.conftest import Broker
from conformance.wire.conftest import NewTopic
from conformance.wire.connection import Connection
from conformance.wire.requests import broker_id, metadata_of, repeated
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.cluster import DescribeClusterRequest
from minibroker.protocol.messages.groups import FindCoordinatorRequest
from minibroker.protocol.messages.metadata import DescribeTopicPartitionsRequest

GROUP, TRANSACTION, SHARE = 0, 1, 2
BROKERS, CONTROLLERS = 1, 2
UNASKED = -(1 << 31)
NOWHERE = (-1, "", -1)


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster_returns_the_broker_and_cluster_id(
    connection: Connection, broker: Broker, version: int
) -> None:
    answer = connection.ask(DescribeClusterRequest(), version)
    assert (answer.error_code, answer.error_message, answer.endpoint_type) == (0, None, BROKERS)
    (node,) = answer.brokers
    assert (f"{node.host}:{node.port}", node.rack, node.is_fenced) == (broker.bootstrap_servers, None, False)
    assert answer.controller_id == node.broker_id
    assert answer.cluster_id
    assert answer.cluster_authorized_operations == UNASKED


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(CONTROLLERS, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_describe_cluster_rejects_other_endpoint_types(
    connection: Connection, endpoint_type: int, code: ErrorCode
) -> None:
    answer = connection.ask(DescribeClusterRequest(endpoint_type=endpoint_type), 1)
    assert (ErrorCode(answer.error_code), answer.brokers, answer.controller_id) == (code, [], -1)


def test_allowed_cluster_operations_are_returned(connection: Connection) -> None:
    answer = connection.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), 1)
    assert answer.cluster_authorized_operations == 8096


def find_coordinators(connection: Connection, version: int, key_type: int, *keys: str) -> dict[str, Any]:
    """The answers by key; in versions that answer one key, the answer."""
    if version >= 4:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))
        return {each.key: each for each in connection.ask(request, version).coordinators}
    return {keys[0]: connection.ask(FindCoordinatorRequest(key_type=key_type, key=keys[0]), version)}


def found(connection: Connection, version: int, key_type: int, *keys: str) -> dict[str, tuple[int, int, str, int]]:
    """(error code, node, host, port) by key, once a coordinator is there."""
    answers = repeated(
        lambda: find_coordinators(connection, version, key_type, *keys),
        lambda seen: all(each.error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE for each in seen.values()),
    )
    return {key: (each.error_code, each.node_id, each.host, each.port) for key, each in answers.items()}


@pytest.mark.parametrize("version", range(7))
def test_the_only_broker_is_the_coordinator(connection: Connection, broker: Broker, version: int) -> None:
    host, port = broker.bootstrap_servers.split(":")
    here = (0, broker_id(connection), host, int(port))
    keys = ["a", "b", ""] if version >= 4 else ["a"]
    for key_type in (GROUP, TRANSACTION) if version >= 1 else (GROUP,):
        assert found(connection, version, key_type, *keys) == dict.fromkeys(keys, here)


@pytest.mark.parametrize("version", [1, 3, 4, 6])
def test_an_unknown_coordinator_type_is_rejected(connection: Connection, version: int) -> None:
    assert found(connection, version, 9, "a") == {"a": (ErrorCode.INVALID_REQUEST, *NOWHERE)}


@pytest.mark.parametrize("version", [5, 6])
def test_an_invalid_share_coordinator_key_is_rejected(connection: Connection, version: int) -> None:
    assert found(connection, version, SHARE, "a") == {"a": (ErrorCode.INVALID_REQUEST, *NOWHERE)}


def test_find_coordinator_without_keys_returns_no_coordinator(connection: Connection) -> None:
    assert found(connection, 4, GROUP) == {}


Request = DescribeTopicPartitionsRequest


def describe(connection: Connection, *names: str, cursor: tuple[str, int] | None = None, limit: int = 2000) -> Any:
    start = None if cursor is None else Request.Cursor(topic_name=cursor[0], partition_index=cursor[1])
    topics = [Request.TopicRequest(name=name) for name in names]
    return connection.ask(Request(topics=topics, response_partition_limit=limit, cursor=start), 0)


def listed(answer: Any) -> list[tuple[str, int, list[int]]]:
    """(name, error code, partitions) of each topic."""
    return [
        (topic.name, topic.error_code, [each.partition_index for each in topic.partitions]) for topic in answer.topics
    ]


def test_described_topics_are_sorted_by_name(connection: Connection, new_topic: NewTopic) -> None:
    first, second = sorted((new_topic(2), new_topic(1)))
    counts = {name: list(range(len(metadata_of(connection, name).partitions))) for name in (first, second)}
    answer = describe(connection, second, "no-such-topic", first)
    assert listed(answer) == [
        ("no-such-topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
        (first, 0, counts[first]),
        (second, 0, counts[second]),
    ]
    assert answer.next_cursor is None
    topic, here = answer.topics[1], broker_id(connection)
    assert topic.topic_id == metadata_of(connection, first).topic_id
    assert topic.topic_authorized_operations == 3576
    partition = topic.partitions[0]
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, here, 0)
    assert partition.replica_nodes == partition.isr_nodes == [here]
    assert partition.offline_replicas == []


def test_describe_topic_partitions_returns_all_topics(connection: Connection, new_topic: NewTopic) -> None:
    name = new_topic(2)
    assert (name, 0, [0, 1]) in listed(describe(connection))


def test_topic_partitions_are_described_page_by_page(connection: Connection, new_topic: NewTopic) -> None:
    first, second = sorted((new_topic(2), new_topic(2)))
    expected = [(first, 0, [0]), (first, 0, [1]), (second, 0, [0]), (second, 0, [1])]
    cursor = None
    for place, page in enumerate(expected):
        answer = describe(connection, first, second, cursor=cursor, limit=1)
        assert listed(answer) == [page]
        following = answer.next_cursor
        cursor = None if following is None else (following.topic_name, following.partition_index)
        assert cursor == (None if place == 3 else (expected[place + 1][0], expected[place + 1][2][0]))


@pytest.mark.parametrize("limit", [0, -1])
def test_a_page_of_described_partitions_contains_at_least_one(
    connection: Connection, new_topic: NewTopic, limit: int
) -> None:
    name = new_topic(2)
    assert listed(describe(connection, name, limit=limit)) == [(name, 0, [0])]


def test_a_cursor_beyond_the_last_partition_is_accepted(connection: Connection, new_topic: NewTopic) -> None:
    name = new_topic(2)
    answer = describe(connection, name, cursor=(name, 5))
    assert (listed(answer), answer.next_cursor) == ([(name, 0, [])], None)


@pytest.mark.parametrize("cursor", [("self", -1), ("a", 0)])
def test_describe_topic_partitions_rejects_an_invalid_cursor(
    connection: Connection, new_topic: NewTopic, cursor: tuple[str, int]
) -> None:
    name = new_topic()
    topic, partition = cursor
    answer = describe(connection, name, cursor=(name if topic == "self" else topic, partition))
    assert listed(answer) == [(name, ErrorCode.INVALID_REQUEST, [])]


def test_describe_topic_partitions_rejects_an_invalid_topic_name(connection: Connection) -> None:
    assert listed(describe(connection, "a b")) == [("a b", ErrorCode.INVALID_TOPIC_EXCEPTION, [])]


def test_a_topic_requested_twice_is_returned_once(connection: Connection, new_topic: NewTopic) -> None:
    name = new_topic(2)
    assert listed(describe(connection, name, name)) == [(name, 0, [0, 1])]
