"""Cordoned log directories (KIP-1066), of a broker with one log directory: it takes no new replicas.

Codes and messages are what Apache Kafka 4.4 answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from conformance.wire.conftest import NewTopic
from conformance.wire.connection import Connection
from conformance.wire.requests import TIMEOUT_MS, broker_id, create_request, repeated, topic
from conformance.wire.test_configs import APPEND, BROKER, DELETE, DONE, SET, SUBTRACT, alter, describe, values
from conformance.wire.test_log_directories import alter as move
from conformance.wire.test_log_directories import described
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.replicas import AlterPartitionReassignmentsRequest
from minibroker.protocol.messages.topics import CreatePartitionsRequest

KEY = "cordoned.log.dirs"
NONE_LEFT = "All brokers are currently fenced, or have all their log directories cordoned."
NO_ROOM = "The manual partition assignment includes broker {}, but all its log directories are cordoned."


def set_cordoned(connection: Connection, value: str, *, cordoned: bool) -> None:
    """Set the list, and wait until the controller knows of it."""
    assert alter(connection, (BROKER, str(broker_id(connection)), [(KEY, SET, value)])) == DONE
    request = create_request(topic("cordoned-probe"), validate_only=True)
    code = ErrorCode.INVALID_REPLICATION_FACTOR if cordoned else ErrorCode.NONE
    answer = repeated(lambda: connection.ask(request, 7).topics[0].error_code, lambda answered: bool(answered == code))
    assert answer == code


@pytest.fixture(params=["*", "the path"])
def cordoned(request: pytest.FixtureRequest, connection: Connection) -> Iterator[str]:
    """The path of the directory, which is cordoned."""
    path: str = described(connection, 5, {}).log_dir
    set_cordoned(connection, path if request.param == "the path" else request.param, cordoned=True)
    yield path
    set_cordoned(connection, "", cordoned=False)
    assert alter(connection, (BROKER, str(broker_id(connection)), [(KEY, DELETE, None)])) == DONE


def new_partitions(connection: Connection, name: str, *brokers: int) -> tuple[int, str]:
    """Ask for a second partition, on these brokers, and return the code and the message."""
    shape = CreatePartitionsRequest.CreatePartitionsTopic
    assignments = [shape.CreatePartitionsAssignment(broker_ids=list(brokers))] if brokers else None
    request = CreatePartitionsRequest(
        topics=[shape(name=name, count=2, assignments=assignments)], timeout_ms=TIMEOUT_MS
    )
    (answer,) = connection.ask(request, 3).results
    return answer.error_code, answer.error_message


def refused(answer: Any) -> tuple[int, str]:
    return answer.error_code, answer.error_message


def test_a_topic_is_not_created_in_a_cordoned_directory(
    connection: Connection, new_topic: NewTopic, new_name: Callable[[], str]
) -> None:
    name, node, path = new_topic(), broker_id(connection), described(connection, 5, {}).log_dir
    set_cordoned(connection, path, cordoned=True)
    try:
        assert values(describe(connection, BROKER, str(node), [KEY])) == {KEY: (path, 2)}
        assert refused(connection.ask(create_request(topic(new_name())), 7).topics[0]) == (
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition 1 time(s): {NONE_LEFT}",
        )
    finally:
        set_cordoned(connection, "", cordoned=False)
    assert values(describe(connection, BROKER, str(node), [KEY])) == {KEY: ("", 2)}
    assert alter(connection, (BROKER, str(node), [(KEY, DELETE, None)])) == DONE
    assert new_partitions(connection, name)[0] == 0


def test_no_replica_is_assigned_to_a_cordoned_broker(
    connection: Connection, name: str, new_name: Callable[[], str], cordoned: str
) -> None:
    node = broker_id(connection)
    no_room = ErrorCode.INVALID_REPLICA_ASSIGNMENT, NO_ROOM.format(node)
    created = connection.ask(create_request(topic(new_name(), -1, -1, assignments=[(0, [node])])), 7).topics[0]
    assert refused(created) == no_room
    assert new_partitions(connection, name) == (ErrorCode.INVALID_REPLICATION_FACTOR, NONE_LEFT)
    assert new_partitions(connection, name, node) == no_room


def test_no_replica_moves_to_a_cordoned_broker(connection: Connection, name: str, cordoned: str) -> None:
    shape = AlterPartitionReassignmentsRequest.ReassignableTopic
    node = broker_id(connection)
    partition = shape.ReassignablePartition(partition_index=0, replicas=[node])
    request = AlterPartitionReassignmentsRequest(
        topics=[shape(name=name, partitions=[partition])], timeout_ms=TIMEOUT_MS
    )
    (answer,) = connection.ask(request, 1).responses[0].partitions
    assert refused(answer) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, NO_ROOM.format(node))


def test_no_log_moves_to_a_cordoned_directory(connection: Connection, name: str, cordoned: str) -> None:
    assert described(connection, 5, {}).is_cordoned
    for asked in (name, "nope", "no name"):
        assert move(connection, 2, cordoned, asked, 0, 9) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT] * 2
    assert move(connection, 2, cordoned, "x" * 240, 0) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert move(connection, 2, "/nowhere", name, 0) == [ErrorCode.LOG_DIR_NOT_FOUND]


MISSING = "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : {}"
NOT_ALONE = "When cordoned.log.dirs is set to *, it must not contain other values"
TWICE = "Configuration 'cordoned.log.dirs' values must not be duplicated."
INVALID = {
    "/nope": MISSING.format("/nope"),
    "/a,/b": MISSING.format("/a, /b"),
    "/nope,{}": MISSING.format("/nope"),
    "{}/": MISSING.format("{}/"),
    "*,{}": NOT_ALONE,
    "{0},{0}": TWICE,
    "*,*": TWICE,
}


@pytest.mark.parametrize(("value", "message"), INVALID.items(), ids=INVALID)
def test_only_log_directories_can_be_cordoned(connection: Connection, value: str, message: str) -> None:
    path = described(connection, 5, {}).log_dir
    change = (BROKER, str(broker_id(connection)), [(KEY, SET, value.format(path))])
    ((code, told),) = alter(connection, change)
    assert code == ErrorCode.INVALID_REQUEST and message.format(path) in told


def test_single_directories_can_be_cordoned_and_uncordoned(connection: Connection) -> None:
    path = described(connection, 5, {}).log_dir
    for how in (APPEND, SUBTRACT):
        change = (BROKER, str(broker_id(connection)), [(KEY, how, path)])
        assert alter(connection, change, validate_only=True) == DONE


def test_each_broker_has_its_own_cordoned_directories(connection: Connection) -> None:
    ((code, message),) = alter(connection, (BROKER, "", [(KEY, SET, "*")]))
    reason = "Cannot update these configs at default cluster level, broker id must be specified"
    assert (code, message) == (ErrorCode.INVALID_REQUEST, f"{reason}: [{KEY}]")
