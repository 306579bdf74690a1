"""Metadata in every version: topics by name and id, unknown ones, and creation on demand.

Every literal is what Apache Kafka 4.4 answers; where minibroker differs on purpose, `differing` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from conformance.conftest import Broker
from conformance.wire.conftest import Differing, NewTopic
from conformance.wire.connection import Connection
from conformance.wire.requests import metadata_of, repeated
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.metadata import MetadataRequest

ZERO = bytes(16)
UNASKED = -(1 << 31)  # authorized operations
Wanted = MetadataRequest.MetadataRequestTopic


def by_name(*names: str) -> list[Wanted]:
    return [Wanted(name=name) for name in names]


def metadata(
    connection: Connection, topics: Sequence[Wanted] | None, version: int = 12, *, auto: bool = False, **fields: bool
) -> Any:
    listed = None if topics is None else list(topics)
    request = MetadataRequest(topics=listed, allow_auto_topic_creation=auto or version < 4, **fields)
    return connection.ask(request, version)


def codes(answer: Any) -> dict[str, int]:
    return {topic.name: topic.error_code for topic in answer.topics}


@pytest.mark.parametrize("version", range(14))
def test_metadata_returns_the_brokers_and_the_partitions_of_topics(
    connection: Connection, new_topic: NewTopic, broker: Broker, version: int
) -> None:
    name = new_topic(2)
    answer = metadata(connection, by_name(name), version)
    (node,) = answer.brokers
    assert (f"{node.host}:{node.port}", node.rack) == (broker.bootstrap_servers, None)
    assert answer.controller_id == (node.node_id if version >= 1 else -1)
    assert (answer.cluster_id is not None) == (version >= 2)
    (topic,) = answer.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, name, False)
    assert (topic.topic_id != ZERO) == (version >= 10)
    assert (topic.topic_authorized_operations, answer.cluster_authorized_operations) == (UNASKED, UNASKED)
    for index, partition in enumerate(sorted(topic.partitions, key=lambda each: each.partition_index)):
        assert (partition.error_code, partition.partition_index, partition.leader_id) == (0, index, node.node_id)
        assert partition.leader_epoch == (0 if version >= 7 else -1)
        assert partition.replica_nodes == partition.isr_nodes == [node.node_id]
        assert partition.offline_replicas == []


def test_a_request_that_would_create_more_than_ten_thousand_partitions_creates_none(
    connection: Connection, new_name: Callable[[], str]
) -> None:
    names = [f"{new_name()}-{number}" for number in range(3_334)]  # the broker's topics have three partitions
    answer = metadata(connection, by_name(*names), auto=True)
    assert set(codes(answer).values()) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    known = codes(metadata(connection, None))
    assert not known.keys() & set(names)
    assert codes(metadata(connection, by_name(*names))) == codes(answer)


def test_metadata_of_null_topics_returns_all_topics_and_of_an_empty_list_none(
    connection: Connection, new_topic: NewTopic
) -> None:
    name = new_topic()
    for topics, version in (([], 0), (None, 1), (None, 9), (None, 12)):
        assert codes(metadata(connection, topics, version))[name] == 0
    for version in (1, 9, 12):
        assert codes(metadata(connection, [], version)) == {}


@pytest.mark.parametrize("version", [4, 9, 12, 13])
def test_unknown_topics_are_reported_beside_a_known_one(
    connection: Connection, new_topic: NewTopic, version: int
) -> None:
    name = new_topic()
    answer = metadata(connection, by_name(name, "no-such-topic", "a b", ""), version)
    assert codes(answer) == {
        name: 0,
        "no-such-topic": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert all(topic.partitions == [] and topic.topic_id == ZERO for topic in answer.topics if topic.error_code)


def test_a_topic_is_returned_by_its_id(connection: Connection, new_topic: NewTopic) -> None:
    name = new_topic()
    topic_id = metadata_of(connection, name).topic_id
    for wanted in (Wanted(topic_id=topic_id, name=None), Wanted(topic_id=topic_id, name="another name")):
        (topic,) = metadata(connection, [wanted]).topics
        assert (topic.error_code, topic.name, topic.topic_id) == (0, name, topic_id)


def test_an_unknown_topic_id_is_reported(connection: Connection) -> None:
    (topic,) = metadata(connection, [Wanted(topic_id=b"\1" * 16, name=None)]).topics
    expected = (ErrorCode.UNKNOWN_TOPIC_ID, None, b"\1" * 16)
    assert (topic.error_code, topic.name, topic.topic_id) == expected
    assert topic.partitions == []


@pytest.mark.parametrize("version", [10, 11])
def test_topic_ids_in_older_versions_are_rejected(connection: Connection, new_topic: NewTopic, version: int) -> None:
    name = new_topic()
    wanted = Wanted(topic_id=metadata_of(connection, name).topic_id, name=name)
    answer = metadata(connection, [wanted], version)
    (topic,) = answer.topics
    assert (topic.error_code, topic.partitions) == (ErrorCode.INVALID_REQUEST, [])
    assert (answer.brokers, answer.cluster_id, answer.controller_id) == ([], None, -1)


def test_a_topic_requested_twice_is_returned_once(connection: Connection, new_topic: NewTopic) -> None:
    name = new_topic()
    assert len(metadata(connection, by_name(name, name)).topics) == 1


@pytest.mark.parametrize("version", [0, 3, 4, 9, 12, 13])
def test_metadata_of_an_unknown_topic_creates_it_and_a_later_request_returns_it(
    connection: Connection, new_name: Callable[[], str], version: int
) -> None:
    name = new_name()
    (first,) = metadata(connection, by_name(name), version, auto=True).topics
    assert (first.error_code, first.name) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
    assert (first.topic_id, first.is_internal, first.partitions) == (ZERO, False, [])
    answer = repeated(
        lambda: metadata(connection, by_name(name), version, auto=True), lambda answer: codes(answer) == {name: 0}
    )
    assert len(answer.topics[0].partitions) == 3


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_a_requested_coordinator_topic_is_auto_created(connection: Connection, name: str) -> None:
    answer = repeated(lambda: metadata(connection, by_name(name), auto=True), lambda answer: codes(answer) == {name: 0})
    (topic,) = answer.topics
    assert topic.is_internal and topic.partitions


def test_a_client_can_disallow_auto_creation(connection: Connection, new_name: Callable[[], str]) -> None:
    name = new_name()
    for _ in range(2):
        assert codes(metadata(connection, by_name(name))) == {name: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize("name", ["a b", "", "x" * 250])
def test_a_topic_with_an_invalid_name_is_not_created(connection: Connection, name: str) -> None:
    for _ in range(2):
        assert codes(metadata(connection, by_name(name), auto=True)) == {name: ErrorCode.INVALID_TOPIC_EXCEPTION}


def test_the_metadata_topic_is_not_visible(connection: Connection) -> None:
    expected = {"__cluster_metadata": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert codes(metadata(connection, by_name("__cluster_metadata"), auto=True)) == expected


def test_allowed_topic_operations_are_returned(connection: Connection, new_topic: NewTopic) -> None:
    # Bits by AclOperation: all that a topic has, all that a cluster has.
    name = new_topic()
    answer = metadata(connection, by_name(name), include_topic_authorized_operations=True)
    assert answer.topics[0].topic_authorized_operations == 3576
    answer = metadata(connection, [], 8, include_cluster_authorized_operations=True)
    assert answer.cluster_authorized_operations == 8096


def test_a_topic_with_neither_name_nor_id_is_rejected(connection: Connection, differing: Differing) -> None:
    (topic,) = metadata(connection, [Wanted(name=None)]).topics
    assert topic.error_code == differing(
        kafka=ErrorCode.UNKNOWN_SERVER_ERROR,
        minibroker=ErrorCode.INVALID_TOPIC_EXCEPTION,
        because="Kafka fails over the missing name",
    )
