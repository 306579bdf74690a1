"""Which node coordinates a group or a transactional id: the leader of its partition of the internal topic."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.broker.coordination.coordinators import find_coordinator_or_create_topic
from minibroker.protocol.errors import ErrorCode, KafkaError
from tests.broker.harness import Harness

KEYS = [f"key-{number}" for number in range(60)]


def test_a_transactional_id_is_coordinated_by_the_leader_of_its_partition(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        found = {key: find_coordinator_or_create_topic(harness.cluster.transactions, key).node_id for key in KEYS}
        topic = harness.cluster.transactions.log
        assert found == {key: topic.get_partition(topic.get_partition_index(key)).leader_id for key in KEYS}
        assert set(found.values()) == {1, 2, 3}
        harness.restart(nodes=[1, 3])
        assert {find_coordinator_or_create_topic(harness.cluster.transactions, key).node_id for key in KEYS} == {1, 3}


def test_a_node_that_does_not_coordinate_a_transactional_id_rejects_it(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        coordinator = find_coordinator_or_create_topic(harness.cluster.transactions, "tx")
        harness.cluster.transactions.check_is_coordinator(coordinator, "tx")
        with pytest.raises(KafkaError) as raised:
            harness.cluster.transactions.check_is_coordinator(harness.cluster.nodes[3 - coordinator.node_id], "tx")
        assert raised.value.code == ErrorCode.NOT_COORDINATOR


def test_a_group_is_coordinated_by_the_leader_of_its_partition(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        found = {key: find_coordinator_or_create_topic(harness.cluster.groups, key).node_id for key in KEYS}
        topic = harness.cluster.groups.log
        assert found == {key: topic.get_partition(topic.get_partition_index(key)).leader_id for key in KEYS}
        assert set(found.values()) == {1, 2, 3}


def test_a_group_moves_to_another_coordinator_when_its_node_stays_away(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        assert {find_coordinator_or_create_topic(harness.cluster.groups, key).node_id for key in KEYS} == {1, 2}
        harness.restart(nodes=[2])
        assert {find_coordinator_or_create_topic(harness.cluster.groups, key).node_id for key in KEYS} == {2}


def test_a_group_whose_partition_has_no_leader_has_no_coordinator(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2, settings={"offsets.topic.replication.factor": "1"}) as harness:
        away = next(key for key in KEYS if find_coordinator_or_create_topic(harness.cluster.groups, key).node_id == 1)
        harness.restart(nodes=[2])
        with pytest.raises(KafkaError) as raised:
            find_coordinator_or_create_topic(harness.cluster.groups, away)
        assert raised.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
