"""Reading from followers: whom a follower serves, and whom a leader sends to one (KIP-392)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.fetch import FetchRequest
from tests.broker.harness import Harness

RACK_AWARE = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
Topic = FetchRequest.FetchTopic


def fetched(harness: Harness, node: int, version: int = 11, rack_id: str = "") -> Any:
    wanted = Topic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10_000)
    request = FetchRequest(
        max_wait_ms=0,
        max_bytes=10_000,
        session_epoch=-1,
        rack_id=rack_id,
        topics=[Topic(topic="t", partitions=[wanted])],
    )
    (partition,) = harness.request(request, version, node=node).responses[0].partitions
    return partition


def cluster(directory: Path, **settings: str) -> Harness:
    harness = Harness(directory, nodes=3, settings=settings)
    for node_id, rack in ((1, "a"), (2, "b"), (3, "c")):
        harness.cluster.nodes[node_id].rack = rack
    harness.create_topic("t", replicas=3)
    harness.produce("t", "v")
    return harness


def followers(harness: Harness) -> list[int]:
    return [node for node in (1, 2, 3) if node != harness.partition("t").leader_id]


def test_a_follower_serves_fetches_from_version_11_on(tmp_path: Path) -> None:
    with cluster(tmp_path) as harness:
        for node in followers(harness):
            partition = fetched(harness, node)
            assert partition.error_code == 0 and b"v" in bytes(partition.records)
            assert fetched(harness, node, version=10).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_node_without_a_replica_rejects_fetches(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        harness.create_topic("t")
        other = 3 - harness.partition("t").leader_id
        assert fetched(harness, other).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_follower_serves_fetches_without_a_leader(tmp_path: Path) -> None:
    with cluster(tmp_path) as harness:
        node = followers(harness)[0]
        harness.partition("t").leader_id = -1
        assert fetched(harness, node).error_code == 0


@pytest.mark.parametrize("rack_of", ["follower", "leader", "nobody", ""])
def test_a_leader_sends_consumers_only_to_a_follower_in_their_rack(tmp_path: Path, rack_of: str) -> None:
    with cluster(tmp_path, **RACK_AWARE) as harness:
        leader, follower = harness.partition("t").leader_id, followers(harness)[0]
        racks = {"follower": harness.cluster.nodes[follower].rack, "leader": harness.cluster.nodes[leader].rack}
        partition = fetched(harness, leader, rack_id=racks.get(rack_of) or rack_of)
        if rack_of == "follower":
            assert (partition.preferred_read_replica, bytes(partition.records or b"")) == (follower, b"")
        else:
            assert partition.preferred_read_replica == -1 and b"v" in bytes(partition.records)


@pytest.mark.parametrize("others", [0, 300])  # the answer is made in steps if there are many partitions
def test_a_session_gets_the_preferred_replica_with_each_fetch_from_the_leader(tmp_path: Path, others: int) -> None:
    with cluster(tmp_path, **RACK_AWARE) as harness:
        leader, follower = harness.partition("t").leader_id, followers(harness)[0]
        partitions = [Topic.FetchPartition(partition=index, partition_max_bytes=1000) for index in range(others + 1)]
        request = FetchRequest(rack_id=harness.cluster.nodes[follower].rack or "", max_bytes=10_000)
        request.topics = [Topic(topic="t", partitions=partitions)]
        for epoch in range(3):
            request.session_epoch = epoch
            answer = harness.request(request, 11, node=leader)
            told = {each.partition_index: each.preferred_read_replica for each in answer.responses[0].partitions}
            assert told[0] == follower
            request.session_id, request.topics = answer.session_id, []


def test_a_consumer_is_sent_to_a_follower_only_if_that_is_in_sync_and_a_selector_is_configured(tmp_path: Path) -> None:
    with cluster(tmp_path, **RACK_AWARE) as harness:
        follower = followers(harness)[0]
        rack = harness.cluster.nodes[follower].rack or ""
        harness.partition("t").isr.remove(follower)
        assert fetched(harness, harness.partition("t").leader_id, rack_id=rack).preferred_read_replica == -1
    with cluster(tmp_path / "other") as harness:
        rack = harness.cluster.nodes[followers(harness)[0]].rack or ""
        assert fetched(harness, harness.partition("t").leader_id, rack_id=rack).preferred_read_replica == -1
