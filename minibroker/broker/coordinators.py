"""Which node coordinates a group or a transactional id, and is so told by FindCoordinator.

A group is looked after by the node that leads its partition of `__consumer_offsets`, a transactional id by that of its
partition of `__transaction_state`. What coordinators do is not here.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from minibroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster, Node

log = logging.getLogger("minibroker.coordinators")


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


def coordinator_of_transactions(cluster: Cluster, transactional_id: str) -> Node:
    """The node that coordinates this transactional id; the first one asked for has their topic created.

    Raises KafkaError(COORDINATOR_NOT_AVAILABLE) where there is none yet.
    """
    transactions = cluster.transactions
    try:
        transactions.create_topic()
    except KafkaError as error:
        log.warning("%s cannot be created: %s", transactions.topic.name, error)
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
    node = transactions.node_of(transactional_id)
    if node is None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"Nobody leads the partition of {transactional_id}.")
    return node
