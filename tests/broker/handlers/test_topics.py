"""DeleteTopics and CreatePartitions: what they do at once, and every error, in Kafka's words.

CreateTopics is tested in `test_topic_creation`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.security.operations import CLUSTER_NAME, DELETE_CLUSTER
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.topics import CreatePartitionsRequest, DeleteTopicsRequest
from minibroker.protocol.primitives import ZERO_UUID
from tests.broker.harness import AUTHORIZED, Harness, served_versions
from tests.cases import for_each

DELETE, GROW = served_versions(DeleteTopicsRequest), served_versions(CreatePartitionsRequest)
BY_ID, WITH_DELETION_MESSAGE, WITH_DELETION_DISABLED = 6, 5, 3
UNKNOWN_ID = bytes(range(16))


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


@pytest.mark.parametrize("version", DELETE)
def test_a_topic_no_longer_exists_when_its_deletion_is_answered(harness: Harness, version: int) -> None:
    harness.create_topic("t", 2)
    harness.create_topic("u")
    topic_id = harness.cluster.image.topics["t"].topic_id
    (result,) = delete(harness, "t", version=version)
    assert (result.name, result.error_code, result.error_message) == ("t", ErrorCode.NONE, None)
    assert result.topic_id == (topic_id if version >= BY_ID else ZERO_UUID)
    asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)
    assert harness.request(asked).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (names(harness), ("t", 0) in harness.logs.found()) == (["u"], False)


def test_a_topic_is_deleted_by_its_id(harness: Harness) -> None:
    harness.create_topic("t")
    topic_id = harness.cluster.image.topics["t"].topic_id
    (result,) = delete(harness, topic_id)
    assert (result.name, result.topic_id, result.error_code) == ("t", topic_id, ErrorCode.NONE)
    (again,) = delete(harness, topic_id)
    assert (again.name, again.topic_id, again.error_code) == (None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
    assert again.error_message == "This server does not host this topic ID."


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


@for_each("version", DELETE)
@for_each("name", ["nope", "a b", "__cluster_metadata", ""])
def test_an_unknown_topic_cannot_be_deleted(harness: Harness, version: int, name: str) -> None:
    (result,) = delete(harness, name, version=version)
    assert (result.name, result.error_code) == (name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    message = "This server does not host this topic-partition." if version >= WITH_DELETION_MESSAGE else None
    assert result.error_message == message


@pytest.mark.parametrize("version", DELETE)
def test_a_duplicate_name_is_rejected_and_the_others_are_deleted(harness: Harness, version: int) -> None:
    harness.create_topic("t")
    harness.create_topic("u")
    codes = {result.name: result.error_code for result in delete(harness, "t", "u", "t", version=version)}
    assert codes == {"t": ErrorCode.INVALID_REQUEST, "u": ErrorCode.NONE}
    assert names(harness) == ["t"]


def test_a_duplicate_topic_id_is_rejected(harness: Harness) -> None:
    harness.create_topic("t")
    topic_id = harness.cluster.image.topics["t"].topic_id
    (result,) = delete(harness, topic_id, topic_id)
    assert (result.name, result.topic_id) == (None, topic_id)
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
    assert names(harness) == ["t"]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_topic_given_by_its_name_and_by_its_id_is_rejected_once(harness: Harness, reverse: bool) -> None:
    harness.create_topic("t")
    topic_id = harness.cluster.image.topics["t"].topic_id
    (result,) = delete(harness, *((topic_id, "t") if reverse else ("t", topic_id)))
    assert (result.name, result.topic_id, result.error_code) == ("t", topic_id, ErrorCode.INVALID_REQUEST)
    assert result.error_message == "The provided topic name maps to an ID that was already supplied."
    assert names(harness) == ["t"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (ZERO_UUID, "Neither topic name nor id were specified."),
        (("t", UNKNOWN_ID), "You may not specify both topic name and topic id."),
    ],
)
def test_a_topic_is_given_by_either_name_or_id(
    harness: Harness, asked: bytes | tuple[str, bytes], message: str
) -> None:
    harness.create_topic("t")
    (result,) = delete(harness, asked)
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REQUEST, message)
    assert names(harness) == ["t"]


@pytest.mark.parametrize("version", DELETE)
def test_topic_deletion_can_be_disabled(tmp_path: Path, version: int) -> None:
    with Harness(tmp_path, settings={"delete.topic.enable": "false"}) as harness:
        harness.create_topic("t")
        (result,) = delete(harness, "t", version=version)
        disabled = version >= WITH_DELETION_DISABLED
        assert result.error_code == (ErrorCode.TOPIC_DELETION_DISABLED if disabled else ErrorCode.INVALID_REQUEST)
        assert names(harness) == ["t"]


def test_delete_permission_on_the_cluster_allows_deleting_each_topic(tmp_path: Path) -> None:
    def deleted(name: str) -> tuple[int, str | None]:
        request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=name)])
        (answer,) = harness.request(request, user="alice").responses
        return answer.error_code, answer.error_message

    with Harness(tmp_path, settings=AUTHORIZED) as harness:
        harness.create_topic("t", user="admin")
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."
        assert [deleted("t"), deleted("absent")] == [denied, denied]
        harness.add_acl(DELETE_CLUSTER, CLUSTER_NAME)
        assert deleted("absent")[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert deleted("t") == (0, None)


def test_a_request_without_deletions_has_an_empty_response(harness: Harness) -> None:
    assert delete(harness) == []


def test_a_deletion_that_cannot_be_recorded_keeps_the_topic(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.create_topic("t")
    with monkeypatch.context() as patched:
        patched.setattr(harness.cluster.metadata_log, "append", full_disk)
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


@pytest.mark.parametrize("version", GROW)
def test_validate_only_adds_no_partitions(harness: Harness, version: int) -> None:
    harness.create_topic("t")
    assert grow(harness, "t", 2, version=version, validate_only=True) == (ErrorCode.NONE, None)
    assert grow(harness, "t", 1, version=version, validate_only=True)[0] == ErrorCode.INVALID_PARTITIONS
    assert len(harness.cluster.image.topics["t"].partitions) == 1


@pytest.mark.parametrize("version", GROW)
@pytest.mark.parametrize(
    ("name", "count", "assignment", "code", "message"),
    [
        ("nope", 2, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
        ("a b", 2, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
        ("t", 2, None, ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
        (
            "t",
            1,
            None,
            ErrorCode.INVALID_PARTITIONS,
            "The topic t currently has 2 partition(s); 1 would not be an increase.",
        ),
        (
            "t",
            -1,
            None,
            ErrorCode.INVALID_PARTITIONS,
            "The topic t currently has 2 partition(s); -1 would not be an increase.",
        ),
        (
            "t",
            4,
            [[1]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            "t",
            3,
            [],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 1 additional partition(s), but only 0 assignment(s) were specified.",
        ),
        (
            "t",
            3,
            [[1], [1]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 1 additional partition(s), but only 2 assignment(s) were specified.",
        ),
        (
            "t",
            3,
            [[9]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            "t",
            3,
            [[1, 1]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            "t",
            3,
            [[]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
    ],
)
def test_invalid_partition_counts_and_assignments_are_rejected(
    harness: Harness,
    version: int,
    name: str,
    count: int,
    assignment: list[list[int]] | None,
    code: ErrorCode,
    message: str | None,
) -> None:
    harness.create_topic("t", 2)
    assert grow(harness, name, count, assignment, version=version) == (code, message)
    assert len(harness.cluster.image.topics["t"].partitions) == 2


def test_new_partitions_have_as_many_replicas_as_the_old_ones_on_any_nodes(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        harness.create_topic("t")
        code, message = grow(harness, "t", 2, [[1, 2]])
        assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert message is not None and "not consistent with previous partitions" in message


def test_too_many_partitions_are_rejected(harness: Harness) -> None:
    harness.create_topic("t")
    assert grow(harness, "t", 10_002)[0] == ErrorCode.POLICY_VIOLATION


def test_a_duplicate_topic_is_rejected_and_the_others_get_new_partitions(harness: Harness) -> None:
    harness.create_topic("t")
    harness.create_topic("u")
    kind = CreatePartitionsRequest.CreatePartitionsTopic
    asked = [kind(name=name, count=2, assignments=None) for name in ("t", "u", "t")]
    results = harness.request(CreatePartitionsRequest(topics=asked)).results
    assert {result.name: (result.error_code, result.error_message) for result in results} == {
        "t": (ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
        "u": (ErrorCode.NONE, None),
    }
    assert len(results) == 2


def test_a_full_disk_prevents_adding_any_partition(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.create_topic("t")
    with monkeypatch.context() as patched:
        patched.setattr(harness.logs, "create_log", full_disk)
        assert grow(harness, "t", 3) == (ErrorCode.KAFKA_STORAGE_ERROR, "no space left on device")
    assert len(harness.cluster.image.topics["t"].partitions) == 1
    assert grow(harness, "t", 3) == (ErrorCode.NONE, None)
