"""DeleteTopics and CreatePartitions: what they do at once and later, on several nodes, and on a disk that fails.

CreateTopics is tested in `test_topic_creation`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.topics import CreatePartitionsRequest, DeleteTopicsRequest
from minibroker.protocol.primitives import ZERO_UUID
from tests.broker.harness import Harness, served_versions

DELETE, GROW = served_versions(DeleteTopicsRequest), served_versions(CreatePartitionsRequest)
BY_ID, WITH_DELETION_DISABLED = 6, 3


def names(harness: Harness) -> list[str]:
    return sorted(harness.cluster.image.topics)


def delete(harness: Harness, *asked: str | bytes | tuple[str, bytes], version: int = DELETE[-1]) -> list[Any]:
    """The results of a deletion by names, ids, or both."""
    if version < BY_ID:
        return list(harness.request(DeleteTopicsRequest(topic_names=list(asked)), version).responses)
    topics = []
    for one in asked:
        name, topic_id = one if isinstance(one, tuple) else (None, one) if isinstance(one, bytes) else (one, ZERO_UUID)
        topics.append(DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=topic_id))
    return list(harness.request(DeleteTopicsRequest(topics=topics), version).responses)


def grow(
    harness: Harness, name: str, count: int, assignment: list[list[int]] | None = None, **more: Any
) -> tuple[int, str | None]:
    """(error, message) of CreatePartitions for one topic."""
    version = more.pop("version", GROW[-1])
    kind = CreatePartitionsRequest.CreatePartitionsTopic
    given = None if assignment is None else [kind.CreatePartitionsAssignment(broker_ids=ids) for ids in assignment]
    asked = kind(name=name, count=count, assignments=given)
    (result,) = harness.request(CreatePartitionsRequest(topics=[asked], **more), version).results
    assert result.name == name
    return result.error_code, result.error_message


def full_disk(*_: object, **__: object) -> None:
    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left on device")


# --- DeleteTopics -------------------------------------------------------------------------------


def test_a_recreated_topic_of_the_same_name_is_a_new_topic(harness: Harness) -> None:
    harness.create_topic("t", segment_ms="5")
    harness.produce("t", "old")
    before = harness.cluster.image.topics["t"].topic_id
    delete(harness, "t")
    harness.create_topic("t")
    after = harness.cluster.image.topics["t"]
    assert (after.topic_id != before, after.overrides) == (True, {})
    assert harness.produce("t", "new") == 0


def test_the_files_of_a_deleted_topic_are_removed_after_a_delay(harness: Harness) -> None:
    harness.create_topic("t")
    delete(harness, "t")
    data = harness.directory / "data"
    assert [path.suffix for path in data.glob("t-*")] != []
    harness.clock.advance(60_000)
    assert list(data.glob("t-*")) == []


@pytest.mark.parametrize("version", DELETE)
def test_topic_deletion_can_be_disabled(tmp_path: Path, version: int) -> None:
    with Harness(tmp_path, settings={"delete.topic.enable": "false"}) as harness:
        harness.create_topic("t")
        (result,) = delete(harness, "t", version=version)
        disabled = version >= WITH_DELETION_DISABLED
        assert result.error_code == (ErrorCode.TOPIC_DELETION_DISABLED if disabled else ErrorCode.INVALID_REQUEST)
        assert names(harness) == ["t"]


def test_a_deletion_that_cannot_be_recorded_keeps_the_topic(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.create_topic("t")
    with monkeypatch.context() as patched:
        patched.setattr(harness.cluster.metadata_log, "append_messages", full_disk)
        (result,) = delete(harness, "t")
    assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert harness.produce("t", "v") == 0


def test_a_log_that_cannot_be_removed_does_not_block_the_deletion(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic("t", 2)
    with monkeypatch.context() as patched:
        patched.setattr(harness.logs, "delete_log", full_disk)
        (result,) = delete(harness, "t")
    assert (result.error_code, names(harness)) == (ErrorCode.NONE, [])
    harness.create_topic("t", 2)
    assert harness.produce("t", "v", partition=1) == 0


# --- CreatePartitions ---------------------------------------------------------------------------


@pytest.mark.parametrize("version", GROW)
def test_new_partitions_are_usable_when_the_request_is_answered(harness: Harness, version: int) -> None:
    harness.create_topic("t", 2)
    harness.produce("t", "kept")
    assert grow(harness, "t", 4, version=version) == (ErrorCode.NONE, None)
    assert [harness.produce("t", "v", partition=index) for index in range(4)] == [1, 0, 0, 0]


def test_new_partitions_are_placed_where_the_client_assigns_them(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        harness.create_topic("t", 1, 2)
        assert grow(harness, "t", 3, [[2, 1], [1, 2]]) == (ErrorCode.NONE, None)
        assert [partition.replicas for partition in harness.cluster.image.topics["t"].partitions][1:] == [
            [2, 1],
            [1, 2],
        ]


def test_new_partitions_have_as_many_replicas_as_the_old_ones(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        harness.create_topic("t", 1, 2)
        assert grow(harness, "t", 4) == (ErrorCode.NONE, None)
        assert {len(partition.replicas) for partition in harness.cluster.image.topics["t"].partitions} == {2}


def test_an_assignment_with_another_replica_count_for_new_partitions_is_rejected(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        harness.create_topic("t")
        code, message = grow(harness, "t", 2, [[1, 2]])
        assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert message is not None and "not consistent with previous partitions" in message


def test_adding_more_than_ten_thousand_partitions_is_rejected(harness: Harness) -> None:
    harness.create_topic("t")
    assert grow(harness, "t", 10_002)[0] == ErrorCode.POLICY_VIOLATION


def test_a_full_disk_prevents_adding_any_partition(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.create_topic("t")
    with monkeypatch.context() as patched:
        patched.setattr(harness.logs, "create_log", full_disk)
        assert grow(harness, "t", 3) == (ErrorCode.KAFKA_STORAGE_ERROR, "no space left on device")
    assert len(harness.cluster.image.topics["t"].partitions) == 1
    assert grow(harness, "t", 3) == (ErrorCode.NONE, None)
