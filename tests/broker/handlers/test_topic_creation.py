"""CreateTopics: what it does at once, and every error, in Kafka's words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.topics import CreateTopicsRequest
from minibroker.protocol.primitives import ZERO_UUID
from tests.broker.handlers.config_requests import DEFAULT, STATIC, TOPIC, value
from tests.broker.harness import Harness, served_versions

VERSIONS = served_versions(CreateTopicsRequest)
WITH_MESSAGE, WITH_SETTINGS, WITH_ID = 1, 5, 7

Creatable = CreateTopicsRequest.CreatableTopic
Assignment = dict[int, list[int]] | list[tuple[int, list[int]]]


def topic(
    name: str, partitions: int = 1, replicas: int = 1, assignment: Assignment | None = None, **configs: str | None
) -> Creatable:
    """A topic to ask for; with an `assignment` counts are left to it. `configs` have underscores for dots."""
    pairs = list(assignment.items()) if isinstance(assignment, dict) else assignment or []
    return Creatable(
        name=name,
        num_partitions=-1 if pairs and partitions == 1 else partitions,
        replication_factor=-1 if pairs and replicas == 1 else replicas,
        assignments=[Creatable.CreatableReplicaAssignment(partition_index=i, broker_ids=ids) for i, ids in pairs],
        configs=[
            Creatable.CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ],
    )


def create(harness: Harness, *topics: Creatable, version: int = VERSIONS[-1], **more: Any) -> dict[str, Any]:
    """The results by name."""
    answer = harness.request(CreateTopicsRequest(topics=list(topics), **more), version)
    assert len(answer.topics) == len({result.name for result in answer.topics})
    return {result.name: result for result in answer.topics}


def refusal(harness: Harness, asked: Creatable, **more: Any) -> tuple[int, str | None]:
    """(error, message) for a topic, of which then nothing may be there."""
    result = create(harness, asked, **more)[asked.name]
    assert (result.topic_id, result.num_partitions, result.replication_factor) == (ZERO_UUID, -1, -1)
    return result.error_code, result.error_message


def names(harness: Harness) -> list[str]:
    return sorted(harness.cluster.image.topics)


def full_disk(*_: object) -> None:
    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left on device")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_created_topic_is_usable_when_the_request_is_answered(harness: Harness, version: int) -> None:
    result = create(harness, topic("t", 3, segment_ms="5000"), version=version)["t"]
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, None if version >= WITH_MESSAGE else "")
    assert [harness.produce("t", "v", partition=index) for index in range(3)] == [0, 0, 0]
    found = harness.cluster.image.topics["t"]
    assert result.topic_id == (found.topic_id if version >= WITH_ID else ZERO_UUID)
    if version >= WITH_SETTINGS:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        (own,) = [config for config in result.configs if config.config_source == 1]
        assert (own.name, own.value, own.read_only, own.is_sensitive) == ("segment.ms", "5000", False, False)
        assert len(result.configs) > 20


def test_a_setting_in_hours_is_the_source_of_the_one_in_milliseconds(tmp_path: Path) -> None:
    with Harness(tmp_path, settings={"log.roll.hours": "2"}) as harness:
        configs = {config.name: config for config in create(harness, topic("t"))["t"].configs}
        assert (configs["segment.ms"].value, configs["segment.ms"].config_source) == ("7200000", STATIC)
        assert configs["segment.jitter.ms"].config_source == DEFAULT
        assert value(harness, TOPIC, "t", "segment.ms") == ("7200000", DEFAULT), "there Kafka says otherwise"


@pytest.mark.parametrize("version", VERSIONS)
def test_default_counts_of_partitions_and_replicas_come_from_the_settings(tmp_path: Path, version: int) -> None:
    settings = {"num.partitions": "4", "default.replication.factor": "2"}
    with Harness(tmp_path, nodes=2, settings=settings) as harness:
        create(harness, topic("t", -1, -1), version=version)
        partitions = harness.cluster.image.topics["t"].partitions
        assert [len(partition.replicas) for partition in partitions] == [2, 2, 2, 2]


def test_leaders_are_spread_over_the_nodes(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        create(harness, topic("t", 6, 2))
        partitions = harness.cluster.image.topics["t"].partitions
        assert sorted(partition.leader_id for partition in partitions) == [1, 1, 2, 2, 3, 3]
        assert all(len(set(partition.replicas)) == 2 for partition in partitions)


def test_replicas_are_placed_where_the_client_assigns_them(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        result = create(harness, topic("t", assignment={1: [3, 1], 0: [2, 3]}))["t"]
        assert (result.error_code, result.num_partitions, result.replication_factor) == (ErrorCode.NONE, 2, 2)
        assert [partition.replicas for partition in harness.cluster.image.topics["t"].partitions] == [[2, 3], [3, 1]]
        assert harness.partition("t", 1).leader_id == 3


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= WITH_MESSAGE])
def test_validate_only_creates_no_topic(harness: Harness, version: int) -> None:
    end_offset = harness.cluster.metadata_log.storage.log_end_offset
    result = create(harness, topic("t", 3, segment_ms="5"), version=version, validate_only=True)["t"]
    assert result.error_code == ErrorCode.NONE
    if version >= WITH_SETTINGS:
        assert result.num_partitions == 3
        assert ("segment.ms", "5") in [(config.name, config.value) for config in result.configs]
    assert (names(harness), harness.cluster.metadata_log.storage.log_end_offset) == ([], end_offset)
    assert refusal(harness, topic("t", segment_ms="x"), validate_only=True)[0] == ErrorCode.INVALID_CONFIG


def test_each_topic_of_a_request_is_created_separately(harness: Harness) -> None:
    results = create(harness, topic("good"), topic("a b"), topic("good2"), topic("bad", 0))
    codes = {name: result.error_code for name, result in results.items()}
    assert codes == {
        "good": ErrorCode.NONE,
        "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "good2": ErrorCode.NONE,
        "bad": ErrorCode.INVALID_PARTITIONS,
    }
    assert names(harness) == ["good", "good2"]


def test_a_duplicate_name_is_rejected_once_and_the_others_are_created(harness: Harness) -> None:
    results = create(harness, topic("d"), topic("e"), topic("d", 2))
    refused = results["d"]
    assert (refused.error_code, refused.error_message) == (ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    assert names(harness) == ["e"]


def test_a_request_without_topics_has_an_empty_response(harness: Harness) -> None:
    assert create(harness) == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_rejection_has_a_message_where_the_version_has_one(harness: Harness, version: int) -> None:
    harness.create_topic("t")
    result = create(harness, topic("t"), version=version)["t"]
    assert result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert result.error_message == ("Topic 't' already exists." if version >= WITH_MESSAGE else "")


@pytest.mark.parametrize(
    ("asked", "code", "message"),
    [
        (topic("t"), ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 't' already exists."),
        (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: the empty string is not allowed"),
        (topic("."), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: '.' is not allowed"),
        (topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: '..' is not allowed"),
        (
            topic("a b"),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' "
            "and '-'",
        ),
        (
            topic("x" * 250),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic name is invalid: the length of '{'x' * 250}' is longer than the max allowed length 249",
        ),
        (
            topic("c_d.e"),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic 'c_d.e' collides with existing topic: c.d_e",
        ),
        (
            topic("__cluster_metadata"),
            ErrorCode.INVALID_REQUEST,
            "Creation of internal topic __cluster_metadata is prohibited.",
        ),
        (
            topic("u", 0),
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            topic("u", -2, 5),
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            topic("u", 1, 0),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            topic("u", 1, -2),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            topic("u", 1, 3),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because "
            "only 2 broker(s) are registered or some brokers have all their log directories cordoned.",
        ),
        (
            topic("u", 10_001),
            ErrorCode.POLICY_VIOLATION,
            "Excessively large number of partitions per request.",
        ),
        (topic("u", no_such="1"), ErrorCode.INVALID_CONFIG, "Unknown topic config name: no.such"),
        (
            topic("u", retention_ms="abc"),
            ErrorCode.INVALID_CONFIG,
            "Invalid value abc for configuration retention.ms: Not a number of type LONG",
        ),
        (
            topic("u", retention_ms=None),
            ErrorCode.INVALID_CONFIG,
            "Null value not supported for topic configs: retention.ms",
        ),
        (
            topic("u", min_compaction_lag_ms="10", max_compaction_lag_ms="5"),
            ErrorCode.INVALID_CONFIG,
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
        (
            topic("u", 2, assignment={0: [1], 1: [1]}),
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            topic("u", 1, 2, assignment={0: [1]}),
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            topic("u", assignment={0: [1], 2: [1]}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            topic("u", assignment={-1: [1]}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            topic("u", assignment=[(0, [1]), (0, [2])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            topic("u", assignment={0: [1, 7]}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 7, but no such broker is registered.",
        ),
        (
            topic("u", assignment={0: [2, 1, 2]}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 2 more than once.",
        ),
        (
            topic("u", assignment={0: []}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            topic("u", assignment={0: [1], 1: [1, 2]}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes a partition with 2 replica(s), but this is not consistent with "
            "previous partitions, which have 1 replica(s).",
        ),
        # Which of two errors is told: the name's before the config's, the config's before the counts'.
        (topic("t", retention_ms="abc"), ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 't' already exists."),
        (
            topic("u", 0, 9, retention_ms="abc"),
            ErrorCode.INVALID_CONFIG,
            "Invalid value abc for configuration retention.ms: Not a number of type LONG",
        ),
    ],
)
def test_an_invalid_topic_is_rejected(tmp_path: Path, asked: Creatable, code: ErrorCode, message: str) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        harness.create_topic("t")
        harness.create_topic("c.d_e")
        assert refusal(harness, asked) == (code, message)
        assert names(harness) == ["c.d_e", "t"]


def test_the_partitions_of_all_topics_in_a_request_are_limited_together(harness: Harness) -> None:
    results = create(harness, topic("a", 6000), topic("b", 4001))
    assert {result.error_code for result in results.values()} == {ErrorCode.POLICY_VIOLATION}
    assert names(harness) == []


def test_a_full_disk_prevents_the_whole_topic_creation(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    real = harness.logs.create_log

    def create_log(name: str, partition: int, *more: Any, **placed: Any) -> Any:
        return full_disk() if partition == 2 else real(name, partition, *more, **placed)

    with monkeypatch.context() as patched:
        patched.setattr(harness.logs, "create_log", create_log)
        assert refusal(harness, topic("t", 3)) == (ErrorCode.KAFKA_STORAGE_ERROR, "no space left on device")
    assert (names(harness), [name for name, _ in harness.logs.found()]) == ([], ["__cluster_metadata"])
    create(harness, topic("t", 3))
    assert harness.produce("t", "v", partition=2) == 0


def test_a_topic_that_cannot_be_recorded_is_not_created(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(harness.cluster.metadata_log, "append_batch", full_disk)
        assert refusal(harness, topic("t")) == (ErrorCode.KAFKA_STORAGE_ERROR, "no space left on device")
    assert (names(harness), [name for name, _ in harness.logs.found()]) == ([], ["__cluster_metadata"])
