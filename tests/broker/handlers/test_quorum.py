"""DescribeQuorum, AddRaftVoter, RemoveRaftVoter: leader, voters and observers of the metadata log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.cluster import AddRaftVoterRequest, DescribeQuorumRequest, RemoveRaftVoterRequest
from tests.broker.harness import Harness, served_versions

VERSIONS = served_versions(DescribeQuorumRequest)


def describe(harness: Harness, *asked: tuple[str, int], version: int | None = None, node: int = 1) -> Any:
    shape = DescribeQuorumRequest.TopicData
    topics = [shape(topic_name=name, partitions=[shape.PartitionData(partition_index=index)]) for name, index in asked]
    return harness.request(DescribeQuorumRequest(topics=topics), version, node=node)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_first_node_is_the_quorum_leader_and_the_others_observe(tmp_path: Path, version: int) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        answer = describe(harness, ("__cluster_metadata", 0), version=version, node=2)
        (partition,) = answer.topics[0].partitions
        log = harness.cluster.metadata_log
        end, now_ms = log.storage.log_end_offset, harness.clock.wall_ms() if version else -1
        assert (answer.error_code, partition.error_code, partition.leader_id) == (0, 0, 1)
        assert (partition.leader_epoch, partition.high_watermark) == (log.leader_epoch, end)
        state = [
            (one.replica_id, one.log_end_offset, one.last_fetch_timestamp, one.last_caught_up_timestamp)
            for one in (*partition.current_voters, *partition.observers)
        ]
        assert state == [(1, end, now_ms, now_ms), (2, end, now_ms, now_ms), (3, end, now_ms, now_ms)]
        assert len(partition.current_voters) == 1
        voters = [(one.node_id, {each.name: each.port for each in one.listeners}) for one in answer.nodes]
        assert voters == ([(1, {"PLAINTEXT": 9001, "INTERNAL": 19001})] if version >= 2 else [])


def test_every_start_is_a_new_quorum_epoch(harness: Harness) -> None:
    before = harness.cluster.metadata_log.leader_epoch
    harness.restart()
    (partition,) = describe(harness, ("__cluster_metadata", 0)).topics[0].partitions
    assert partition.leader_epoch == before + 1


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("asked", [("t", 0), ("__cluster_metadata", 1)])
def test_only_the_metadata_log_has_a_described_quorum(harness: Harness, version: int, asked: tuple[str, int]) -> None:
    harness.create_topic("t")
    answer = describe(harness, asked, version=version)
    (partition,) = answer.topics[0].partitions
    message = "This server does not host this topic-partition." if version >= 2 else ""
    assert answer.error_code == ErrorCode.NONE
    assert (partition.error_code, partition.error_message) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)


def test_a_quorum_request_for_several_partitions_is_rejected(harness: Harness) -> None:
    answer = describe(harness, ("__cluster_metadata", 0), ("t", 0))
    assert [one.partitions[0].error_code for one in answer.topics] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    assert describe(harness).topics == []


ID = bytes(15) + b"\x09"


@pytest.mark.parametrize(
    ("cluster_id", "voter", "directory_id", "code"),
    [
        (None, 5, ID, ErrorCode.UNSUPPORTED_VERSION),
        ("another", 5, ID, ErrorCode.INCONSISTENT_CLUSTER_ID),
        (None, 5, bytes(16), ErrorCode.INVALID_REQUEST),
        (None, -1, ID, ErrorCode.INVALID_REQUEST),
    ],
)
def test_voters_can_be_neither_added_nor_removed(
    harness: Harness, cluster_id: str | None, voter: int, directory_id: bytes, code: ErrorCode
) -> None:
    named = {"cluster_id": cluster_id, "voter_id": voter, "voter_directory_id": directory_id}
    listener = AddRaftVoterRequest.Listener(name="CONTROLLER", host="h", port=1)
    for version in served_versions(AddRaftVoterRequest):
        added = harness.request(AddRaftVoterRequest(**named, listeners=[listener]), version)
        assert (added.error_code, bool(added.error_message)) == (code, True)
    removed = harness.request(RemoveRaftVoterRequest(**named))
    assert (removed.error_code, bool(removed.error_message)) == (code, True)
