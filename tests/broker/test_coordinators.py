"""Which node coordinates a key: Java's hash, spread over the nodes that live."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.broker.coordinators import (
    COORDINATING_PARTITIONS,
    check_coordinator,
    coordinating_partition,
    coordinator_of,
    java_hash,
)
from minibroker.protocol.errors import ErrorCode, KafkaError
from tests.broker.harness import Harness

# What java.lang.String.hashCode gives (OpenJDK 17).
HASHES = {
    "": 0,
    "a": 97,
    "group": 98629247,
    "my-consumer-group": 1513705513,
    "polygenelubricants": -2147483648,
    "ümläut": -1271284472,
    "\U0001f600": 1772899,
}


@pytest.mark.parametrize(("text", "value"), HASHES.items())
def test_the_hash_is_that_of_java(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_a_partition_is_the_remainder_of_the_hash_without_its_sign() -> None:
    assert coordinating_partition("group") == 98629247 % COORDINATING_PARTITIONS
    assert coordinating_partition("ümläut") == 1271284472 % COORDINATING_PARTITIONS


def test_the_smallest_hash_has_no_positive_counterpart_and_stands_for_0() -> None:
    assert coordinating_partition("polygenelubricants") == 0


def test_keys_are_spread_over_the_nodes_that_live(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        keys = [f"group-{number}" for number in range(60)]
        assert {coordinator_of(harness.cluster, key).node_id for key in keys} == {1, 2, 3}
        harness.restart(nodes=[1, 3])
        assert {coordinator_of(harness.cluster, key).node_id for key in keys} == {1, 3}


def test_a_node_that_does_not_coordinate_a_key_is_told(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        coordinator = coordinator_of(harness.cluster, "group")
        check_coordinator(harness.cluster, coordinator, "group")
        with pytest.raises(KafkaError) as raised:
            check_coordinator(harness.cluster, harness.cluster.nodes[3 - coordinator.node_id], "group")
        assert raised.value.code == ErrorCode.NOT_COORDINATOR
