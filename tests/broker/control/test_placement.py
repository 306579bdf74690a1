"""Where replicas of new partitions lie: spread over the nodes, and over brokers that are away where they must be."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from minibroker.broker.control.placement import (
    DEFAULT,
    Assignment,
    check_replica_assignment,
    place_replicas,
    validate_manual_assignment,
)
from minibroker.protocol.errors import ErrorCode, KafkaError
from tests.broker.harness import Harness
from tests.cases import for_each


@pytest.mark.parametrize(("nodes", "partitions", "replicas"), [(1, 5, 1), (3, 6, 1), (3, 6, 2), (3, 3, 3), (5, 10, 3)])
def test_replicas_are_spread_evenly(tmp_path: Path, nodes: int, partitions: int, replicas: int) -> None:
    with Harness(tmp_path, nodes=nodes) as harness:
        placed = place_replicas(harness.cluster, partitions, replicas)
    assert all(len(set(one)) == replicas for one in placed)
    if partitions % nodes == 0:
        assert set(Counter(one[0] for one in placed).values()) == {partitions // nodes}
        assert set(Counter(node for one in placed for node in one).values()) == {partitions * replicas // nodes}


def placed_over(racks: str, directory: Path, partitions: int, replicas: int) -> Assignment:
    """Place partitions on nodes 1, 2 and so on, which are in these racks."""
    with Harness(directory, nodes=len(racks)) as harness:
        for node, rack in zip(harness.cluster.nodes.values(), racks, strict=True):
            node.rack = rack
        return place_replicas(harness.cluster, partitions, replicas)


@pytest.mark.parametrize("racks", ["abab", "baab", "aabb"])
def test_replicas_are_spread_over_racks_and_leaders_over_brokers(tmp_path: Path, racks: str) -> None:
    placed = placed_over(racks, tmp_path, 8, 2)
    assert all({racks[node - 1] for node in one} == {"a", "b"} for one in placed)
    assert Counter(one[0] for one in placed) == {1: 2, 2: 2, 3: 2, 4: 2}
    assert Counter(node for one in placed for node in one) == {1: 4, 2: 4, 3: 4, 4: 4}


def test_more_replicas_than_racks_use_brokers_of_all_racks(tmp_path: Path) -> None:
    placed = placed_over("aaab", tmp_path, 12, 3)
    assert all(len(set(one)) == 3 and 4 in one for one in placed)


def test_the_leader_of_the_first_partition_is_random(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        drawn = {place_replicas(harness.cluster, 1, 1)[0][0] for _ in range(50)}
        assert drawn == {1, 2, 3}


def test_offline_brokers_are_placed_last_and_are_not_in_sync(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        harness.restart(nodes=[1, 2])
        assert {tuple(sorted(one[:2])) for one in place_replicas(harness.cluster, 8, 3)} == {(1, 2)}
        assert {one[2] for one in place_replicas(harness.cluster, 8, 3)} == {3}
        harness.create_topic("t", 1, 3)
        partition = harness.partition("t")
        assert (sorted(partition.isr), partition.replicas[2]) == ([1, 2], 3)
        assert partition.leader_id == partition.isr[0]
        harness.restart(nodes=[1, 2, 3])
        assert sorted(harness.partition("t").isr) == [1, 2, 3]


def test_a_replication_factor_above_the_number_of_brokers_is_rejected(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness, pytest.raises(KafkaError, match="only 2 broker") as raised:
        harness.restart(nodes=[1])
        place_replicas(harness.cluster, 1, 3)
    assert raised.value.code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_partition_whose_brokers_are_all_offline_is_rejected(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        harness.restart(nodes=[1])
        message = "for partition 6 are fenced or in controlled shutdown"
        with pytest.raises(KafkaError, match=message) as raised:
            check_replica_assignment(harness.cluster, [[1, 2], [2, 3]], 2, first=5)
        assert raised.value.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        check_replica_assignment(harness.cluster, [[2, 1], [3, 1]], 2)


@for_each(
    ("given", "count", "factor", "code"),
    [
        ([(0, [1])], 1, DEFAULT, ErrorCode.INVALID_REQUEST),
        ([(0, [1])], DEFAULT, 1, ErrorCode.INVALID_REQUEST),
        ([(0, [1]), (0, [1])], DEFAULT, DEFAULT, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [1]), (2, [1])], DEFAULT, DEFAULT, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [])], DEFAULT, DEFAULT, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [9])], DEFAULT, DEFAULT, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_an_invalid_replica_assignment_is_rejected(
    harness: Harness, given: list[tuple[int, list[int]]], count: int, factor: int, code: ErrorCode
) -> None:
    with pytest.raises(KafkaError) as raised:
        validate_manual_assignment(harness.cluster, given, count, factor)
    assert raised.value.code == code
