"""CreatePartitions: topics grow, and only grow.

Codes and messages are what Apache Kafka 4.4 answers; of a message only what tells the case apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from conformance.wire.conftest import NewTopic
from conformance.wire.connection import Connection
from conformance.wire.requests import TIMEOUT_MS, broker_id, metadata_of, repeated
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.topics import CreatePartitionsRequest

Wanted = CreatePartitionsRequest.CreatePartitionsTopic


def wanted(name: str, count: int, assignments: Sequence[Sequence[int]] | None = None) -> Wanted:
    listed = None
    if assignments is not None:
        listed = [Wanted.CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in assignments]
    return Wanted(name=name, count=count, assignments=listed)


def grow(
    connection: Connection, *topics: Wanted, version: int = 3, validate_only: bool = False
) -> list[tuple[Any, ...]]:
    """Return the answers, each as (code, name, message)."""
    request = CreatePartitionsRequest(topics=list(topics), timeout_ms=TIMEOUT_MS, validate_only=validate_only)
    answer = connection.ask(request, version)
    return [(ErrorCode(each.error_code), each.name, each.error_message) for each in answer.results]


def count_of(connection: Connection, name: str) -> int:
    return len(metadata_of(connection, name).partitions)


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_to_a_topic(connection: Connection, new_topic: NewTopic, version: int) -> None:
    name = new_topic(2)
    assert grow(connection, wanted(name, 4), version=version, validate_only=True) == [(ErrorCode.NONE, name, None)]
    assert count_of(connection, name) == 2
    assert grow(connection, wanted(name, 4), version=version) == [(ErrorCode.NONE, name, None)]
    assert repeated(lambda: count_of(connection, name), lambda count: count == 4) == 4


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (2, "Topic already has 2 partition(s)."),
        (1, "The topic {} currently has 2 partition(s); 1 would not be an increase."),
        (0, "The topic {} currently has 2 partition(s); 0 would not be an increase."),
        (-1, "The topic {} currently has 2 partition(s); -1 would not be an increase."),
    ],
)
def test_the_partition_count_cannot_be_decreased(
    connection: Connection, new_topic: NewTopic, count: int, message: str
) -> None:
    name = new_topic(2)
    refusal = (ErrorCode.INVALID_PARTITIONS, name, message.format(name))
    assert grow(connection, wanted(name, count)) == [refusal]
    assert grow(connection, wanted(name, count), validate_only=True) == [refusal]
    assert count_of(connection, name) == 2


def test_new_partitions_are_placed_as_assigned(connection: Connection, new_topic: NewTopic) -> None:
    name = new_topic(2)
    here = broker_id(connection)
    wrong: dict[str, tuple[int, list[list[int]]]] = {
        "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.": (4, [[here]]),
        "Attempted to add 1 additional partition(s), but only 2 assignment(s) were specified.": (3, [[here], [here]]),
        "Attempted to add 1 additional partition(s), but only 0 assignment(s) were specified.": (3, []),
        "The manual partition assignment includes broker 77, but no such broker is registered.": (3, [[77]]),
        f"The manual partition assignment includes the broker {here} more than once.": (3, [[here, here]]),
        "The manual partition assignment includes an empty replica list.": (3, [[]]),
    }
    for message, (count, assignments) in wrong.items():
        refusal = (ErrorCode.INVALID_REPLICA_ASSIGNMENT, name, message)
        assert grow(connection, wanted(name, count, assignments)) == [refusal]
    assert grow(connection, wanted(name, 3, [[here]])) == [(ErrorCode.NONE, name, None)]
    assert repeated(lambda: count_of(connection, name), lambda count: count == 3) == 3


def test_too_many_additional_partitions_are_rejected_before_their_assignment(
    connection: Connection, new_topic: NewTopic
) -> None:
    name = new_topic()
    message = "Excessively large number of additional partitions per request."
    for assignments in (None, [], [[broker_id(connection)]]):
        refusal = (ErrorCode.POLICY_VIOLATION, name, message)
        assert grow(connection, wanted(name, 10_002, assignments), validate_only=True) == [refusal]


def test_partitions_cannot_be_added_to_an_unknown_topic(connection: Connection) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for name in ("no-such-topic", "a b"):
        assert grow(connection, wanted(name, 3)) == [(unknown, name, None)]


def test_adding_partitions_twice_to_a_topic_in_a_request_is_rejected(
    connection: Connection, new_topic: NewTopic
) -> None:
    name = new_topic(2)
    refusal = (ErrorCode.INVALID_REQUEST, name, "Duplicate topic name.")
    assert grow(connection, wanted(name, 3), wanted(name, 4)) == [refusal]
    assert count_of(connection, name) == 2
    assert grow(connection) == []
