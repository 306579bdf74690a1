"""The table of the kinds of coordinators, and their instances in a cluster.

An instance is created on first use, so that a broker without groups starts without their code.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from minibroker.broker.metadata.partitions import (
    GROUPS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
    Partition,
    Topic,
)
from minibroker.named_tuples import NamedTuple
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.steps import Steps

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster
    from minibroker.broker.control.controller import Controller
    from minibroker.broker.coordination.runtime import CoordinatorRuntime
    from minibroker.broker.metadata.nodes import Node

log = logging.getLogger("minibroker.coordinators")


class CoordinatorKind(NamedTuple):
    """A kind of coordinator: its topic, FindCoordinator's type of its keys, and its `CoordinatorRuntime`."""

    topic: str
    key_type: int
    module: str
    name: str


KINDS = (
    CoordinatorKind(GROUPS_TOPIC, 0, "minibroker.broker.groups.group_coordinator", "GroupCoordinator"),
    CoordinatorKind(
        TRANSACTIONS_TOPIC, 1, "minibroker.broker.transactions.transaction_coordinator", "TransactionCoordinator"
    ),
    CoordinatorKind(SHARE_STATE_TOPIC, 2, "minibroker.broker.share.share_coordinator", "ShareCoordinator"),
)


class Coordinators:
    """The coordinators of a cluster, by the topics of their state."""

    def __init__(self, cluster: Cluster, controller: Controller) -> None:
        self._cluster = cluster
        self._controller = controller
        self.made: dict[str, CoordinatorRuntime[Any]] = {}

    def find_coordinator_by_state_topic(self, topic: str) -> CoordinatorRuntime[Any] | None:
        """Return the coordinators whose state is in this internal topic, or None if it is another topic."""
        if topic not in self.made:
            for kind in KINDS:
                if kind.topic == topic:
                    self.made[topic] = getattr(import_module(kind.module), kind.name)(self._cluster, self._controller)
        return self.made.get(topic)

    def get_coordinator_by_key_type(self, key_type: int) -> CoordinatorRuntime[Any]:
        """Return the coordinators for keys of this type. Raises KafkaError(INVALID_REQUEST)."""
        for kind in KINDS:
            coordinators = self.find_coordinator_by_state_topic(kind.topic) if kind.key_type == key_type else None
            if coordinators is not None:
                return coordinators
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no coordinator for keys of type {key_type}.")

    # --- changes to their topics ------------------------------------------------------------------

    def load_all_coordinators(self) -> None:
        """Load the state of all coordinators whose topic exists."""
        for kind in KINDS:
            coordinators = (
                self.find_coordinator_by_state_topic(kind.topic) if kind.topic in self._cluster.image.topics else None
            )
            if coordinators is not None:
                coordinators.load_all_shards()

    def on_leader_changed(self, partition: Partition) -> None:
        """Notify the coordinators of this topic that a partition has a new leader."""
        coordinators = self.made.get(partition.topic.name)
        if coordinators is not None:
            coordinators.on_leader_changed(partition)

    def on_topic_deleted(self, topic: Topic) -> Steps[None]:
        """Notify all coordinators that a topic was deleted: their own, or one that their state refers to."""
        for coordinators in list(self.made.values()):
            yield from coordinators.on_topic_deleted(topic)

    def on_transaction_ended(self, topic: str, index: int, producer_id: int, *, committed: bool) -> None:
        """Notify the coordinators of this topic that a transaction in one of its partitions has ended."""
        coordinators = self.made.get(topic)
        if coordinators is not None:
            coordinators.on_transaction_ended(index, producer_id, committed=committed)


def find_coordinator_or_create_topic(coordinators: CoordinatorRuntime[Any], key: str) -> Node:
    """Return the node that coordinates `key`; create the topic if it does not exist.

    Raises KafkaError(COORDINATOR_NOT_AVAILABLE) if there is no such node yet.
    """
    topic = coordinators.log
    try:
        topic.create_topic()
    except KafkaError as error:
        log.warning("%s cannot be created: %s", topic.name, error)
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
    node = coordinators.find_coordinator_node(key)
    if node is None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"Nobody leads the partition of {key} in {topic.name}.")
    return node
