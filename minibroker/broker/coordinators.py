"""Which node coordinates a group or a transactional id: Kafka's hash of it, spread over the nodes that live.

What a coordinator does is not here, and neither is how clients ask for it.
"""

from __future__ import annotations

from struct import iter_unpack
from typing import TYPE_CHECKING

from minibroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster, Node

COORDINATING_PARTITIONS = 50  # Kafka's offsets.topic.num.partitions and transaction.state.log.num.partitions
SMALLEST_INT = -(1 << 31)


def java_hash(text: str) -> int:
    """Java's String.hashCode, an int32: over the UTF-16 code units, each times a power of 31."""
    value = 0
    for (unit,) in iter_unpack(">H", text.encode("utf-16-be")):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def coordinating_partition(key: str) -> int:
    """The partition of the internal topic in which the state of this group or transactional id lies."""
    value = java_hash(key)
    return 0 if value == SMALLEST_INT else abs(value) % COORDINATING_PARTITIONS


def coordinator_of(cluster: Cluster, key: str) -> Node:
    """The node that coordinates this group or transactional id."""
    nodes = sorted(cluster.nodes)
    return cluster.nodes[nodes[coordinating_partition(key) % len(nodes)]]


def check_coordinator(cluster: Cluster, node: Node, key: str) -> None:
    """Raises KafkaError(NOT_COORDINATOR) unless `node` coordinates this group or transactional id."""
    coordinator = coordinator_of(cluster, key)
    if coordinator is not node:
        raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{key} is coordinated by node {coordinator.node_id}.")
