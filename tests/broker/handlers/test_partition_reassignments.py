"""AlterPartitionReassignments and ListPartitionReassignments: moved at once, under way, cancelled, refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.metadata.partitions import NO_LEADER
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages import metadata_records as records
from minibroker.protocol.messages.replicas import AlterPartitionReassignmentsRequest, ListPartitionReassignmentsRequest
from tests.broker.harness import Harness, served_versions

VERSIONS = served_versions(AlterPartitionReassignmentsRequest)
Asked = AlterPartitionReassignmentsRequest.ReassignableTopic
Listed = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics


def request_for(name: str, *moves: tuple[int, list[int] | None], **fields: Any) -> AlterPartitionReassignmentsRequest:
    partitions = [Asked.ReassignablePartition(partition_index=index, replicas=replicas) for index, replicas in moves]
    request: AlterPartitionReassignmentsRequest = AlterPartitionReassignmentsRequest(
        topics=[Asked(name=name, partitions=partitions)], **fields
    )
    return request


def move(
    harness: Harness, *moves: tuple[int, list[int] | None], name: str = "t", version: int | None = None, **fields: Any
) -> list[tuple[int, str | None]]:
    """(error code, message) for each partition."""
    answer = harness.request(request_for(name, *moves, **fields), version, node=min(harness.cluster.nodes))
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    (topic,) = answer.responses
    assert [one.partition_index for one in topic.partitions] == [index for index, _ in moves]
    return [(one.error_code, one.error_message) for one in topic.partitions]


def ongoing(harness: Harness, *asked: tuple[str, list[int]]) -> dict[tuple[str, int], tuple[list[int], ...]]:
    """(replicas, adding, removing) of the moves under way, of all partitions if none are asked for."""
    topics = [Listed(name=name, partition_indexes=indexes) for name, indexes in asked] or None
    answer = harness.request(ListPartitionReassignmentsRequest(topics=topics), node=min(harness.cluster.nodes))
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    return {
        (topic.name, one.partition_index): (one.replicas, one.adding_replicas, one.removing_replicas)
        for topic in answer.topics
        for one in topic.partitions
    }


def create(harness: Harness, *assignment: list[int], **overrides: str) -> None:
    configs = {name.replace("_", "."): value for name, value in overrides.items()}
    harness.cluster.controller.create_topic("t", assignment=list(enumerate(assignment)), overrides=configs)


def state(harness: Harness, index: int = 0) -> tuple[list[int], list[int], int, int]:
    """(replicas, replicas in sync, leader, leader epoch)."""
    partition = harness.partition("t", index)
    return partition.replicas, partition.isr, partition.leader_id, partition.leader_epoch


@pytest.mark.parametrize("version", VERSIONS)
def test_a_partition_moves_immediately_to_online_nodes(tmp_path: Path, version: int) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        create(harness, [1], [2])
        harness.produce("t", "a")
        assert move(harness, (0, [2, 3]), (1, [2, 1]), version=version) == [(0, None), (0, None)]
        assert ongoing(harness) == {}
        assert state(harness) == ([2, 3], [2, 3], 2, 1)
        assert state(harness, 1) == ([2, 1], [2, 1], 2, 0)
        assert harness.produce("t", "b") == 1
        harness.restart(crash=True)
        assert state(harness)[:3] == ([2, 3], [2, 3], 2)
        assert harness.produce("t", "c") == 2


def test_a_reassignment_is_recorded_as_kafka_records_it(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        create(harness, [1, 2])
        move(harness, (0, [2, 3]))
        seen: list[Any] = []
        harness.cluster.metadata_log.replay_all_records(seen.append)
        begun, ended = (record for record in seen if isinstance(record, records.PartitionChangeRecord))
        assert (begun.replicas, begun.adding_replicas, begun.removing_replicas) == ([2, 3, 1], [3], [1])
        assert (begun.isr, begun.leader) == (None, -2)
        assert (ended.replicas, ended.adding_replicas, ended.removing_replicas) == ([2, 3], [], [])
        assert (ended.isr, ended.leader) == ([2, 3], 2)
        assert len(ended.directories) == 2


def test_reordering_the_replicas_keeps_the_leader(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        create(harness, [1, 2])
        assert move(harness, (0, [2, 1])) == [(0, None)]
        assert state(harness) == ([2, 1], [1, 2], 1, 0)


def test_a_reassignment_to_an_offline_node_continues_until_it_is_online(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        create(harness, [1, 2], [1, 2])
        harness.restart(nodes=[1, 2])
        assert move(harness, (0, [2, 3])) == [(0, None)]
        under_way = {("t", 0): ([2, 3, 1], [3], [1])}
        assert ongoing(harness) == under_way
        assert ongoing(harness, ("t", [0, 1, 9]), ("nope", [0])) == under_way
        assert ongoing(harness, ("t", [1])) == {}
        assert state(harness) == ([2, 3, 1], [1, 2], 1, 0)
        harness.restart(nodes=[1, 2])
        assert ongoing(harness) == under_way
        harness.restart(nodes=[1, 2, 3])
        assert ongoing(harness) == {}
        assert state(harness)[0] == [2, 3]


def test_an_ongoing_reassignment_can_be_cancelled(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        create(harness, [1, 2])
        harness.restart(nodes=[1, 2])
        move(harness, (0, [3]))
        assert ongoing(harness) == {("t", 0): ([3, 1, 2], [3], [1, 2])}
        assert move(harness, (0, None)) == [(0, None)]
        assert (ongoing(harness), state(harness)[:3]) == ({}, ([1, 2], [1, 2], 1))
        assert move(harness, (0, None)) == [(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)]


def test_a_new_reassignment_replaces_the_ongoing_one(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=4) as harness:
        create(harness, [1])
        harness.restart(nodes=[1, 2])
        move(harness, (0, [3]))
        assert move(harness, (0, [4])) == [(0, None)]
        assert ongoing(harness) == {("t", 0): ([4, 1, 3], [4], [1, 3])}
        assert move(harness, (0, [2])) == [(0, None)]
        assert (ongoing(harness), state(harness)[:3]) == ({}, ([2], [2], 2))


@pytest.mark.parametrize("allowed", [False, True])
def test_a_cancellation_may_require_an_unclean_leader_election(tmp_path: Path, allowed: bool) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        create(harness, [1], unclean_leader_election_enable=str(allowed).lower())
        change = records.PartitionChangeRecord(partition_id=0, topic_id=harness.partition("t").topic.topic_id)
        change.replicas, change.adding_replicas, change.removing_replicas = [2, 3, 1], [2, 3], [1]
        change.isr, change.leader = [2], 2
        harness.cluster.commit_metadata_records([change])
        (answer,) = move(harness, (0, None))
        if allowed:
            assert (answer, state(harness)[:3]) == ((0, None), ([1], [1], 1))
        else:
            message = (
                "Unable to revert partition assignment for t-0 because it would require an unclean leader election."
            )
            assert answer == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


@pytest.mark.parametrize(
    ("replicas", "message"),
    [
        ([], "The manual partition assignment includes an empty replica list."),
        ([1, 9], "The manual partition assignment includes broker 9, but no such broker is registered."),
        ([1, 1], "The manual partition assignment includes the broker 1 more than once."),
    ],
)
def test_a_reassignment_to_invalid_replicas_is_rejected(harness: Harness, replicas: list[int], message: str) -> None:
    create(harness, [1])
    assert move(harness, (0, replicas)) == [(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)]
    assert state(harness) == ([1], [1], 1, 0)


def test_a_change_of_the_replication_factor_is_rejected_if_the_request_disallows_it(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        create(harness, [1, 2], [1, 2])
        refused = (ErrorCode.INVALID_REPLICATION_FACTOR, "The replication factor is changed from 2 to 1")
        keep = {"allow_replication_factor_change": False}
        assert move(harness, (0, [2]), (1, [3, 2]), **keep) == [refused, (0, None)]
        assert move(harness, (0, [2])) == [(0, None)]
        assert state(harness)[:3] == ([2], [2], 2)


def test_the_replication_factor_to_keep_is_that_of_the_ongoing_reassignment(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        create(harness, [1, 2])
        harness.restart(nodes=[1, 2])
        move(harness, (0, [3]))
        keep = {"allow_replication_factor_change": False}
        refused = (ErrorCode.INVALID_REPLICATION_FACTOR, "The replication factor is changed from 1 to 2")
        assert move(harness, (0, [2, 3]), **keep) == [refused]


def test_a_reassignment_of_unknown_partitions_is_rejected(harness: Harness) -> None:
    create(harness, [1])
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move(harness, (5, [1]), (-1, None)) == [
        (unknown, "Unable to find partition t:5."),
        (unknown, "Unable to find partition t:-1."),
    ]
    assert move(harness, (0, [1]), name="nope") == [(unknown, "Unable to find a topic named nope.")]


def test_a_remote_partition_gets_a_local_log_when_a_replica_moves_here(tmp_path: Path) -> None:
    topic_id = bytes(15) + b"\x07"
    with Harness(tmp_path) as harness:
        broker = records.RegisterBrokerRecord(broker_id=7, incarnation_id=bytes(16), broker_epoch=1)
        topic = records.TopicRecord(name="t", topic_id=topic_id)
        away = records.PartitionRecord(partition_id=0, topic_id=topic_id, replicas=[7], isr=[7], leader=NO_LEADER)
        harness.cluster.commit_metadata_records([broker, topic, away])
        harness.restart()
        assert not harness.partition("t").has_local_log
        move(harness, (0, [1]))
        assert (harness.partition("t").has_local_log, state(harness)[2]) == (True, NO_LEADER)
        assert ongoing(harness) == {("t", 0): ([1, 7], [1], [7])}


def test_a_reassignment_that_cannot_be_recorded_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left on device")

    with Harness(tmp_path, nodes=2) as harness:
        create(harness, [1])
        monkeypatch.setattr(harness.cluster.metadata_log, "append_messages", fail)
        answer = harness.request(request_for("t", (0, [2])))
        assert (answer.error_code, answer.responses) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
        assert state(harness) == ([1], [1], 1, 0)
