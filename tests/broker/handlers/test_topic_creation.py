"""CreateTopics on several nodes, by the settings, and on a disk that fails."""

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


def test_segment_ms_of_a_created_topic_has_the_source_of_log_roll_hours(tmp_path: Path) -> None:
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


def test_an_assignment_with_different_replica_counts_is_rejected(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        assert refusal(harness, topic("t", assignment={0: [1], 1: [1, 2]})) == (
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes a partition with 2 replica(s), but this is not consistent with "
            "previous partitions, which have 1 replica(s).",
        )


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
    assert (names(harness), [name for name, _ in harness.logs.list_logs()]) == ([], ["__cluster_metadata"])
    create(harness, topic("t", 3))
    assert harness.produce("t", "v", partition=2) == 0


def test_a_topic_that_cannot_be_recorded_is_not_created(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(harness.cluster.metadata_log, "append_batch", full_disk)
        assert refusal(harness, topic("t")) == (ErrorCode.KAFKA_STORAGE_ERROR, "no space left on device")
    assert (names(harness), [name for name, _ in harness.logs.list_logs()]) == ([], ["__cluster_metadata"])
