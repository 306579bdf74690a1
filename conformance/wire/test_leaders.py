"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments, of a cluster of one broker.

Every literal is what Apache Kafka 4.4 answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from conformance.wire.conftest import NewTopic
from conformance.wire.connection import Connection
from conformance.wire.requests import broker_id, metadata_of
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)

PREFERRED, UNCLEAN = 0, 1
NOT_NEEDED = (ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NOWHERE = 99


def elect(
    connection: Connection, version: int, topics: dict[str, Sequence[int]] | None, kind: int = PREFERRED
) -> tuple[int, dict[tuple[str, int], tuple[int, str | None]]]:
    """Return the error code of the whole, and (error code, message) of each partition in the answer."""
    shape = ElectLeadersRequest.TopicPartitions
    asked = None
    if topics is not None:
        asked = [shape(topic=name, partitions=list(partitions)) for name, partitions in topics.items()]
    answer = connection.ask(ElectLeadersRequest(election_type=kind, topic_partitions=asked), version)
    return answer.error_code, {
        (topic.topic, result.partition_id): (result.error_code, result.error_message)
        for topic in answer.replica_election_results
        for result in topic.partition_result
    }


@pytest.mark.parametrize("version", range(3))
def test_an_election_of_the_current_preferred_leader_is_not_needed(
    connection: Connection, new_topic: NewTopic, version: int
) -> None:
    name = new_topic(2)
    assert elect(connection, version, {name: [0, 1]}) == (0, {(name, 0): NOT_NEEDED, (name, 1): NOT_NEEDED})
    if version >= 1:
        assert elect(connection, version, {name: [0]}, UNCLEAN) == (0, {(name, 0): NOT_NEEDED})


@pytest.mark.parametrize("version", range(3))
def test_unneeded_elections_are_omitted_if_all_partitions_are_requested(
    connection: Connection, new_topic: NewTopic, version: int
) -> None:
    new_topic()
    assert elect(connection, version, None) == (0, {})
    assert elect(connection, version, {}) == (0, {})


@pytest.mark.parametrize("version", range(3))
def test_elections_of_unknown_partitions_are_rejected(
    connection: Connection, new_topic: NewTopic, version: int
) -> None:
    name = new_topic()
    assert elect(connection, version, {name: [5], "nope": [0]}) == (
        0,
        {
            (name, 5): (UNKNOWN, f"No such partition as {name}-5"),
            ("nope", 0): (UNKNOWN, "No such topic as nope"),
        },
    )


@pytest.mark.parametrize("version", [1, 2])
def test_an_unknown_election_type_is_rejected(connection: Connection, new_topic: NewTopic, version: int) -> None:
    name = new_topic()
    refused = ErrorCode.INVALID_REQUEST, "Unknown election type 7"
    assert elect(connection, version, {name: [0]}, 7) == (ErrorCode.INVALID_REQUEST, {(name, 0): refused})
    assert elect(connection, version, None, 7) == (ErrorCode.INVALID_REQUEST, {})
    assert elect(connection, version, {}, 7) == (0, {})


def move(
    connection: Connection, version: int, name: str, *moves: tuple[int, list[int] | None], **fields: Any
) -> list[tuple[int, str | None]]:
    """(error code, message) of each partition."""
    shape = AlterPartitionReassignmentsRequest.ReassignableTopic
    partitions = [shape.ReassignablePartition(partition_index=index, replicas=replicas) for index, replicas in moves]
    request = AlterPartitionReassignmentsRequest(topics=[shape(name=name, partitions=partitions)], **fields)
    answer = connection.ask(request, version)
    assert (answer.error_code, answer.error_message) == (0, None)
    assert answer.allow_replication_factor_change == fields.get("allow_replication_factor_change", True)
    (topic,) = answer.responses
    assert (topic.name, [one.partition_index for one in topic.partitions]) == (name, [index for index, _ in moves])
    return [(one.error_code, one.error_message) for one in topic.partitions]


@pytest.mark.parametrize("version", range(2))
def test_a_reassignment_to_the_current_replicas_succeeds(
    connection: Connection, new_topic: NewTopic, version: int
) -> None:
    name, here = new_topic(), broker_id(connection)
    assert move(connection, version, name, (0, [here])) == [(0, None)]
    partition = metadata_of(connection, name).partitions[0]
    assert (partition.replica_nodes, partition.leader_id, partition.leader_epoch) == ([here], here, 0)


@pytest.mark.parametrize("version", range(2))
def test_a_reassignment_to_invalid_replicas_is_rejected(
    connection: Connection, new_topic: NewTopic, version: int
) -> None:
    name, here = new_topic(), broker_id(connection)
    invalid, begin = ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment includes"
    assert move(connection, version, name, (0, [NOWHERE]), (0, []), (0, [here, here])) == [
        (invalid, f"{begin} broker {NOWHERE}, but no such broker is registered."),
        (invalid, f"{begin} an empty replica list."),
        (invalid, f"{begin} the broker {here} more than once."),
    ]


@pytest.mark.parametrize("version", range(2))
def test_a_reassignment_that_is_not_in_progress_cannot_be_cancelled(
    connection: Connection, new_topic: NewTopic, version: int
) -> None:
    name = new_topic()
    assert move(connection, version, name, (0, None)) == [(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)]


@pytest.mark.parametrize("version", range(2))
def test_reassignments_of_unknown_partitions_are_rejected(
    connection: Connection, new_topic: NewTopic, version: int
) -> None:
    name, here = new_topic(), broker_id(connection)
    assert move(connection, version, name, (5, [here])) == [(UNKNOWN, f"Unable to find partition {name}:5.")]
    assert move(connection, version, "nope", (0, [here])) == [(UNKNOWN, "Unable to find a topic named nope.")]


def test_replicas_are_validated_before_the_replication_factor(connection: Connection, new_topic: NewTopic) -> None:
    name, here = new_topic(), broker_id(connection)
    ((code, _),) = move(connection, 1, name, (0, [here, NOWHERE]), allow_replication_factor_change=False)
    assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert move(connection, 1, name, (0, [here]), allow_replication_factor_change=False) == [(0, None)]


@pytest.mark.parametrize("version", range(2))
def test_a_request_without_reassignments_has_an_empty_response(connection: Connection, version: int) -> None:
    answer = connection.ask(AlterPartitionReassignmentsRequest(topics=[]), version)
    assert (answer.error_code, answer.responses) == (0, [])


def test_a_cluster_without_reassignments_lists_none(connection: Connection, new_topic: NewTopic) -> None:
    name = new_topic()
    shape = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    asked = [shape(name=name, partition_indexes=[0, 9]), shape(name="nope", partition_indexes=[0])]
    for topics in (None, asked, []):
        answer = connection.ask(ListPartitionReassignmentsRequest(topics=topics), 0)
        assert (answer.error_code, answer.error_message, answer.topics) == (0, None, [])
