"""Which node coordinates a group or a transactional id, and is so told by FindCoordinator.

A group is looked after by the node that leads its partition of `__consumer_offsets`, a transactional id by that of its
partition of `__transaction_state`. What coordinators do is not here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from minibroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster, Node
    from minibroker.broker.coordination.coordinator_logs import StateTopic

log = logging.getLogger("minibroker.coordinators")


def coordinator_of_group(cluster: Cluster, group_id: str) -> Node:
    """The node that coordinates this group; the first one asked for has the topic of the groups created.

    Raises KafkaError(COORDINATOR_NOT_AVAILABLE) where there is none yet.
    """
    groups = cluster.groups
    return _coordinator(groups.topic, groups.topic.create, group_id)


def coordinator_of_transactions(cluster: Cluster, transactional_id: str) -> Node:
    """The node that coordinates this transactional id; the first one asked for has their topic created.

    Raises KafkaError(COORDINATOR_NOT_AVAILABLE) where there is none yet.
    """
    transactions = cluster.transactions
    return _coordinator(transactions.topic, transactions.create_topic, transactional_id)


def _coordinator(topic: StateTopic, create: Callable[[], None], key: str) -> Node:
    try:
        create()
    except KafkaError as error:
        log.warning("%s cannot be created: %s", topic.name, error)
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
    node = topic.node_of(key)
    if node is None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"Nobody leads the partition of {key} in {topic.name}.")
    return node
