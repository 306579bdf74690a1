"""CreateTopics: what is created, every refusal, and that a refusal creates nothing.

Codes and messages are what Apache Kafka 4.4 answers; of a message only what tells the case apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from conformance.wire.batches import batch
from conformance.wire.conftest import NewTopic
from conformance.wire.connection import Connection
from conformance.wire.requests import (
    Topic,
    broker_id,
    create_request,
    end_offset,
    exists,
    metadata_of,
    produce,
    repeated,
    topic,
)
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.topics import DeleteTopicsRequest

ZERO = bytes(16)


def create(connection: Connection, *topics: Topic, version: int = 7, **fields: Any) -> dict[str, Any]:
    """The answers by name."""
    return {each.name: each for each in connection.ask(create_request(*topics, **fields), version).topics}


def on_broker(connection: Connection, assignments: Sequence[tuple[int, Sequence[int]]]) -> list[tuple[int, list[int]]]:
    """The assignments with the number of the one broker there is for 0."""
    here = broker_id(connection)
    return [(index, [here if each == 0 else each for each in brokers]) for index, brokers in assignments]


def assert_refused(answer: Any, code: ErrorCode, message: str) -> None:
    assert ErrorCode(answer.error_code) == code
    assert message in (answer.error_message or "")
    assert (answer.topic_id, answer.num_partitions, answer.replication_factor) == (ZERO, -1, -1)
    assert not answer.configs


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_created(connection: Connection, new_name: Callable[[], str], version: int) -> None:
    name = new_name()
    answer = create(connection, topic(name, 3, 1, configs={"retention.ms": "77"}), version=version)[name]
    assert (answer.error_code, answer.error_message) == (0, None)
    seen = repeated(lambda: metadata_of(connection, name), lambda seen: seen.error_code == 0)
    assert len(seen.partitions) == 3
    if version >= 5:
        assert (answer.num_partitions, answer.replication_factor) == (3, 1)
        configs = {each.name: (each.value, each.config_source) for each in answer.configs}
        assert configs["retention.ms"] == ("77", 1)
        assert configs["segment.ms"] == ("604800000", 5)
    if version >= 7:
        assert answer.topic_id == seen.topic_id != ZERO


@pytest.mark.parametrize("version", [2, 4, 7])
def test_default_partition_and_replica_counts_are_used(
    connection: Connection, new_name: Callable[[], str], version: int
) -> None:
    name = new_name()
    assert create(connection, topic(name, -1, -1), version=version)[name].error_code == 0
    seen = repeated(lambda: metadata_of(connection, name), lambda seen: seen.error_code == 0)
    assert [len(each.replica_nodes) for each in seen.partitions] == [1, 1, 1]


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize("version", [2, 5, 7])
def test_creating_an_existing_topic_is_rejected(
    connection: Connection, new_topic: NewTopic, version: int, validate_only: bool
) -> None:
    name = new_topic()
    answer = create(connection, topic(name, 5), version=version, validate_only=validate_only)[name]
    assert_refused(answer, ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    assert len(metadata_of(connection, name).partitions) == 1


NAMES = {
    "a b": "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
    "ü": "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
    "": "the empty string is not allowed",
    ".": "'.' is not allowed",
    "..": "'..' is not allowed",
    "x" * 250: "is longer than the max allowed length 249",
}


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(("name", "message"), NAMES.items(), ids=[name[:5] for name in NAMES])
def test_a_topic_with_an_invalid_name_cannot_be_created(
    connection: Connection, name: str, message: str, validate_only: bool
) -> None:
    answer = create(connection, topic(name), validate_only=validate_only)[name]
    assert_refused(answer, ErrorCode.INVALID_TOPIC_EXCEPTION, message)


def test_colliding_topic_names_are_rejected(connection: Connection, new_name: Callable[[], str]) -> None:
    name = new_name()
    assert create(connection, topic(f"{name}.x_y"))[f"{name}.x_y"].error_code == 0
    answer = create(connection, topic(f"{name}_x.y"))[f"{name}_x.y"]
    assert_refused(answer, ErrorCode.INVALID_TOPIC_EXCEPTION, f"collides with existing topic: {name}.x_y")


COUNTS = {
    "no partitions": ((0, 1), ErrorCode.INVALID_PARTITIONS, "invalid non-positive value"),
    "negative partitions": ((-2, 1), ErrorCode.INVALID_PARTITIONS, "invalid non-positive value"),
    "no replicas": ((1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "must be larger than 0"),
    "negative replicas": ((1, -2), ErrorCode.INVALID_REPLICATION_FACTOR, "must be larger than 0"),
    "more replicas than brokers": (
        (1, 2),
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be reached because "
        "only 1 broker(s) are registered or some brokers have all their log directories cordoned.",
    ),
    "partitions before replicas": ((0, 9), ErrorCode.INVALID_PARTITIONS, "invalid non-positive value"),
    "too many partitions": ((10_001, 1), ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions"),
}


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(("counts", "code", "message"), COUNTS.values(), ids=COUNTS)
def test_invalid_partition_and_replica_counts_are_rejected(
    connection: Connection,
    new_name: Callable[[], str],
    counts: tuple[int, int],
    code: ErrorCode,
    message: str,
    validate_only: bool,
) -> None:
    name = new_name()
    assert_refused(create(connection, topic(name, *counts), validate_only=validate_only)[name], code, message)
    assert not exists(connection, name)


CONFIGS: dict[str, tuple[dict[str, str | None], str]] = {
    "unknown": ({"no.such": "1"}, "Unknown topic config name: no.such"),
    "a broker's name": ({"log.retention.ms": "1"}, "Unknown topic config name: log.retention.ms"),
    "gone with 4.0": (
        {"message.downconversion.enable": "true"},
        "Unknown topic config name: message.downconversion.enable",
    ),
    "no number": (
        {"retention.ms": "abc"},
        "Invalid value abc for configuration retention.ms: Not a number of type LONG",
    ),
    "no whole number": ({"retention.ms": "1.5"}, "Not a number of type LONG"),
    "an empty number": ({"retention.ms": ""}, "Not a number of type LONG"),
    "beyond int32": ({"segment.bytes": "3000000000"}, "Not a number of type INT"),
    "too small": ({"retention.ms": "-5"}, "Invalid value -5 for configuration retention.ms: Value must be at least -1"),
    "a segment too small": ({"segment.bytes": "1048575"}, "Value must be at least 1048576"),
    "too large": ({"min.cleanable.dirty.ratio": "2"}, "Value must be no more than 1"),
    "no truth": ({"preallocate": "yes"}, "Expected value to be either true or false"),
    "no policy": (
        {"cleanup.policy": "eat"},
        "Invalid value eat for configuration cleanup.policy: String must be",
    ),
    "no codec": ({"compression.type": "zip"}, "Invalid value zip for configuration compression.type"),
    "no level": ({"compression.gzip.level": "10"}, "Value must be between 1 and 9 or equal to -1"),
    "null": ({"retention.ms": None}, "Null value not supported for topic configs: retention.ms"),
    "a lag above the lag": (
        {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
        "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
    ),
}


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(("configs", "message"), CONFIGS.values(), ids=CONFIGS)
def test_invalid_topic_configs_are_rejected(
    connection: Connection,
    new_name: Callable[[], str],
    configs: dict[str, str | None],
    message: str,
    validate_only: bool,
) -> None:
    name = new_name()
    answer = create(connection, topic(name, configs=configs), validate_only=validate_only)[name]
    assert_refused(answer, ErrorCode.INVALID_CONFIG, message)
    assert not exists(connection, name)


def test_spaces_and_upper_case_in_topic_configs_are_accepted(
    connection: Connection, new_name: Callable[[], str]
) -> None:
    name = new_name()
    written = {"retention.ms": " 5000 ", "cleanup.policy": "compact, delete", "preallocate": "TRUE"}
    assert create(connection, topic(name, configs=written))[name].error_code == 0


def test_configs_are_validated_after_the_name_and_before_the_counts(
    connection: Connection, new_name: Callable[[], str]
) -> None:
    name, wrong = new_name(), {"retention.ms": "abc"}
    assert create(connection, topic("a b", configs=wrong))["a b"].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    for counts in ((0, 1), (1, 9)):
        assert create(connection, topic(name, *counts, configs=wrong))[name].error_code == ErrorCode.INVALID_CONFIG


ASSIGNMENTS: dict[str, tuple[Sequence[tuple[int, Sequence[int]]], str]] = {
    "a gap": ([(0, [0]), (2, [0])], "partitions should be a consecutive 0-based integer sequence"),
    "not from 0": ([(1, [0])], "partitions should be a consecutive 0-based integer sequence"),
    "a negative partition": ([(-1, [0])], "partitions should be a consecutive 0-based integer sequence"),
    "a partition twice": ([(0, [0]), (0, [0])], "Found multiple manual partition assignments for partition 0"),
    "an unknown broker": ([(0, [77])], "includes broker 77, but no such broker is registered"),
    "a negative broker": ([(0, [-3])], "includes broker -3, but no such broker is registered"),
    "a broker twice": ([(0, [0, 0])], "more than once"),
    "no broker": ([(0, [])], "includes an empty replica list"),
}


@pytest.mark.parametrize(("assignments", "message"), ASSIGNMENTS.values(), ids=ASSIGNMENTS)
def test_invalid_replica_assignments_are_rejected(
    connection: Connection,
    new_name: Callable[[], str],
    assignments: Sequence[tuple[int, Sequence[int]]],
    message: str,
) -> None:
    name = new_name()
    answer = create(connection, topic(name, -1, -1, assignments=on_broker(connection, assignments)))[name]
    assert_refused(answer, ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    assert not exists(connection, name)


@pytest.mark.parametrize(
    ("counts", "message"), [((1, -1), "numPartitions was not"), ((-1, 1), "replication factor was")]
)
def test_replica_assignments_cannot_be_combined_with_counts(
    connection: Connection, new_name: Callable[[], str], counts: tuple[int, int], message: str
) -> None:
    name = new_name()
    answer = create(connection, topic(name, *counts, assignments=on_broker(connection, [(0, [0])])))[name]
    assert_refused(answer, ErrorCode.INVALID_REQUEST, message)


def test_replica_assignments_may_be_in_any_order(connection: Connection, new_name: Callable[[], str]) -> None:
    name = new_name()
    wanted = topic(name, -1, -1, assignments=on_broker(connection, [(1, [0]), (0, [0])]))
    answer = create(connection, wanted)[name]
    assert (answer.error_code, answer.num_partitions, answer.replication_factor) == (0, 2, 1)


def test_validate_only_responds_like_a_creation_and_creates_nothing(
    connection: Connection, new_name: Callable[[], str]
) -> None:
    name = new_name()
    for _ in range(2):
        answer = create(connection, topic(name, 3, configs={"retention.ms": "77"}), validate_only=True)[name]
        assert (answer.error_code, answer.num_partitions, answer.replication_factor) == (0, 3, 1)
        assert {each.name: each.value for each in answer.configs}["retention.ms"] == "77"
    assert not exists(connection, name)


def test_a_duplicate_topic_name_in_a_request_is_rejected(connection: Connection, new_name: Callable[[], str]) -> None:
    twice, once = new_name(), new_name()
    response = connection.ask(create_request(topic(twice), topic(once), topic(twice)), 7)
    assert len(response.topics) == 2
    answers = {each.name: each for each in response.topics}
    assert_refused(answers[twice], ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    assert answers[once].error_code == 0
    assert not exists(connection, twice)


def test_each_topic_of_a_request_is_created_separately(connection: Connection, new_name: Callable[[], str]) -> None:
    good, bad = new_name(), new_name()
    answers = create(connection, topic(bad, 0), topic(good), topic("a b"))
    assert {name: answer.error_code for name, answer in answers.items()} == {
        bad: ErrorCode.INVALID_PARTITIONS,
        good: 0,
        "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }


def test_the_metadata_topic_cannot_be_created(connection: Connection) -> None:
    answer = create(connection, topic("__cluster_metadata"))["__cluster_metadata"]
    assert_refused(answer, ErrorCode.INVALID_REQUEST, "Creation of internal topic __cluster_metadata is prohibited.")


def test_a_request_without_topics_has_an_empty_response(connection: Connection) -> None:
    assert create(connection) == {}


@pytest.mark.minibroker_only
def test_a_created_topic_is_usable_when_the_request_is_answered(
    connection: Connection, new_name: Callable[[], str]
) -> None:
    name = new_name()
    for _ in range(3):
        assert create(connection, topic(name, 2))[name].error_code == 0
        topic_id = metadata_of(connection, name).topic_id
        for partition in (0, 1):
            records = batch([b"a"], timestamp=int(time.time() * 1000))
            assert produce(connection, topic_id, records, partition=partition, version=13).error_code == 0
            assert end_offset(connection, name, partition) == 1
        deletion = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=name)], timeout_ms=10_000)
        assert connection.ask(deletion, 6).responses[0].error_code == 0
        assert metadata_of(connection, name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
