"""Which node coordinates a group or a transactional id, and is so told by FindCoordinator.

A group is looked after by the node that leads its partition of `__consumer_offsets`. What coordinators do is not here.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from minibroker.broker.state_topics import SMALLEST_INT, java_hash
from minibroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster, Node

log = logging.getLogger("minibroker.coordinators")

TRANSACTION_PARTITIONS = 50  # Kafka's transaction.state.log.num.partitions


def coordinator_of_group(cluster: Cluster, group_id: str) -> Node:
    """The node that coordinates this group; the first one asked for has the topic of the groups created.

    Raises KafkaError(COORDINATOR_NOT_AVAILABLE) where there is none yet.
    """
    groups = cluster.groups
    try:
        groups.topic.create()
    except KafkaError as error:
        log.warning("%s cannot be created: %s", groups.topic.name, error)
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
    node = groups.node_of(group_id)
    if node is None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"Nobody leads the partition of group {group_id}.")
    return node


def coordinator_of(cluster: Cluster, transactional_id: str) -> Node:
    """The node that coordinates this transactional id: Kafka's hash of it, spread over the nodes that live.

    Raises KafkaError(COORDINATOR_NOT_AVAILABLE) where none does.
    """
    value = java_hash(transactional_id)
    nodes = sorted(cluster.nodes)
    if not nodes:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "No broker is registered.")
    index = 0 if value == SMALLEST_INT else abs(value) % TRANSACTION_PARTITIONS
    return cluster.nodes[nodes[index % len(nodes)]]


def check_coordinator(cluster: Cluster, node: Node, transactional_id: str) -> None:
    """Raises KafkaError(NOT_COORDINATOR) unless `node` coordinates this transactional id."""
    coordinator = coordinator_of(cluster, transactional_id)
    if coordinator is not node:
        raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{transactional_id} is coordinated by node {coordinator.node_id}.")
