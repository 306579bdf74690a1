"""The methods for nodes, leaders, coordinators, and the history of a log.

Each change goes into the metadata log, as if a controller had decided it.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from minibroker.broker.control.elections import commit_partition_changes, elect_leaders_at_start
from minibroker.broker.metadata.partitions import NO_LEADER
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.metadata_records import PartitionChangeRecord
from minibroker.testing.embedded.embedded_broker import EmbeddedBroker
from minibroker.testing.embedded.pausing import PausedNodes, StaleNodes
from minibroker.testing.loops import blocking, immediate, make_coroutine_of_blocking_verb

if TYPE_CHECKING:
    from minibroker.broker.assembly import Broker
    from minibroker.broker.coordination.runtime import CoordinatorRuntime
    from minibroker.broker.metadata.partitions import Partition


class NodeVerbs(EmbeddedBroker):
    """Nodes, leaders, coordinators. Each method raises KafkaError for a node or a partition that does not exist."""

    @cached_property
    def _paused(self) -> PausedNodes:
        return PausedNodes(self)

    @cached_property
    def _stale(self) -> StaleNodes:
        return StaleNodes(self)

    # --- nodes ------------------------------------------------------------------------------------

    @immediate
    def stop_node(self, node: int) -> None:
        """Stop a node: queued answers are sent, its port refuses connections, other nodes take over its partitions.

        Raises KafkaError(BROKER_ID_NOT_REGISTERED).
        """
        self._remove_node(node, cleanly=True)

    @immediate
    def kill_node(self, node: int) -> None:
        """Kill a node: clients are disconnected, its port refuses connections, other nodes take over its partitions.

        Raises KafkaError(BROKER_ID_NOT_REGISTERED).
        """
        self._remove_node(node, cleanly=False)

    @blocking
    async def start_node(self, node: int) -> None:
        """Bring back a node that is stopped or killed, at its port. Raises KafkaError(BROKER_ID_NOT_REGISTERED)."""
        if node in self.running.cluster.nodes or node not in self.ports.listeners:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"node {node} is not one that was stopped or killed")
        await self.running.restart_node(node, self.ports.bind_listeners_of_node(node, self._make_settings()))
        self.notify_event_listeners("node", f"start node {node}")

    astart_node = make_coroutine_of_blocking_verb(start_node)

    @immediate
    def pause_node(self, node: int) -> None:
        """Pause a node: it accepts requests and sends no answers, like a process stopped by SIGSTOP.

        Raises KafkaError(BROKER_ID_NOT_REGISTERED).
        """
        _check_node_exists(self.running.cluster, node)
        self._paused.pause(node)
        self.notify_event_listeners("node", f"pause node {node}")

    @immediate
    def resume_node(self, node: int) -> None:
        """Resume a paused node. It answers the requests that arrived meanwhile."""
        self.notify_event_listeners("node", f"resume node {node}")
        self._paused.resume(node)

    @immediate
    def make_stale(self, node: int) -> None:
        """Freeze the leaders in a node's Metadata until `refresh`. Raises KafkaError(BROKER_ID_NOT_REGISTERED)."""
        _check_node_exists(self.running.cluster, node)
        self._stale.make_stale(node, self.running.cluster)
        self.notify_event_listeners("node", f"make node {node} stale")

    @immediate
    def refresh(self, node: int) -> None:
        """Make a stale node's Metadata answers name the current leaders again."""
        self._stale.refresh(node)
        self.notify_event_listeners("node", f"refresh node {node}")

    def _remove_node(self, node: int, *, cleanly: bool) -> None:
        """Stop or kill a node, after resuming it if it is paused."""
        _check_node_exists(self.running.cluster, node)
        self._paused.resume(node)
        self.notify_event_listeners("node", f"{'stop' if cleanly else 'kill'} node {node}")
        self.running.remove_node(node, cleanly=cleanly)

    # --- leaders ----------------------------------------------------------------------------------

    @immediate
    def leader(self, topic: str, partition: int = 0) -> int | None:
        """Return the node that leads the partition, or None. Raises KafkaError(UNKNOWN_TOPIC_OR_PARTITION)."""
        leader = _find_partition(self.running.cluster, topic, partition).leader_id
        return None if leader == NO_LEADER else leader

    @immediate
    def move_leader(self, topic: str, node: int, partition: int = 0) -> None:
        """Make a node the partition's leader. A node that is not a replica becomes one.

        Raises KafkaError(UNKNOWN_TOPIC_OR_PARTITION), KafkaError(BROKER_ID_NOT_REGISTERED).
        """
        _check_node_exists(self.running.cluster, node)
        moved = _find_partition(self.running.cluster, topic, partition)
        change = _make_leader_change(moved, leader=node)
        if node not in moved.replicas:
            change.replicas = [*moved.replicas, node]
            change.directories = [*moved.directories, bytes(16)] if moved.directories else None
        if node not in moved.isr:
            change.isr = [*moved.isr, node]
        self.notify_event_listeners("node", f"move the leader of {topic}-{partition} to node {node}")
        commit_partition_changes(self.running.cluster, [change])

    @immediate
    def leave_leaderless(self, topic: str, partition: int = 0) -> None:
        """Leave the partition without a leader until `move_leader` or `elect_leaders`.

        Raises KafkaError(UNKNOWN_TOPIC_OR_PARTITION).
        """
        found = _find_partition(self.running.cluster, topic, partition)
        commit_partition_changes(self.running.cluster, [_make_leader_change(found, leader=NO_LEADER)])
        self.notify_event_listeners("node", f"leave {topic}-{partition} without a leader")

    @immediate
    def elect_leaders(self) -> None:
        """Elect a leader for every partition that can have one."""
        elect_leaders_at_start(self.running.cluster)

    @immediate
    def begin_epoch(self, topic: str, partition: int = 0) -> int:
        """Begin a new leader epoch, as if the leader had been elected again; return the epoch.

        Raises KafkaError(UNKNOWN_TOPIC_OR_PARTITION).
        """
        found = _find_partition(self.running.cluster, topic, partition)
        commit_partition_changes(self.running.cluster, [_make_leader_change(found, leader=found.leader_id)])
        return found.leader_epoch

    @immediate
    def truncate(self, topic: str, offset: int, partition: int = 0) -> int:
        """Drop the batch with `offset` and all later ones, as an unclean election does; return the new leader epoch.

        Clients that have read further detect it by the epoch (KIP-320). Raises KafkaError(UNKNOWN_TOPIC_OR_PARTITION).
        """
        _find_partition(self.running.cluster, topic, partition).log.truncate_to(offset)
        self.notify_event_listeners("node", f"truncate {topic}-{partition} to offset {offset}")
        return self.begin_epoch(topic, partition)

    # --- coordinators -----------------------------------------------------------------------------

    @immediate
    def coordinator(self, *, group: str | None = None, transactional_id: str | None = None) -> int | None:
        """Return the node that coordinates a group or a transactional id, or None if no node does yet.

        Raises ValueError unless exactly one of them is given.
        """
        coordinators, key = _find_coordinators(self.running.cluster, group, transactional_id)
        node = coordinators.find_coordinator_node(key)
        return None if node is None else node.node_id

    @immediate
    def move_coordinator(self, node: int, *, group: str | None = None, transactional_id: str | None = None) -> None:
        """Make a node the coordinator of a group or a transactional id, and of all others in the same partition.

        Raises KafkaError(BROKER_ID_NOT_REGISTERED), and ValueError unless exactly one of them is given.
        """
        coordinators, key = _find_coordinators(self.running.cluster, group, transactional_id)
        coordinators.log.create_topic()
        self.move_leader(coordinators.log.name, node, coordinators.log.get_partition_index(key))


def _check_node_exists(cluster: Broker, node: int) -> None:
    if node not in cluster.nodes:
        there = ", ".join(map(str, cluster.nodes))
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"there is no node {node}, but {there}")


def _find_partition(cluster: Broker, topic: str, partition: int) -> Partition:
    found = cluster.image.topics.get(topic)
    there = None if found is None else found.find_partition(partition)
    if there is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {topic}-{partition}")
    return there


def _make_leader_change(partition: Partition, *, leader: int) -> PartitionChangeRecord:
    """Return the metadata record that makes a node the partition's leader."""
    return PartitionChangeRecord(partition_id=partition.index, topic_id=partition.topic.topic_id, leader=leader)


def _find_coordinators(
    cluster: Broker, group: str | None, transactional_id: str | None
) -> tuple[CoordinatorRuntime[Any], str]:
    """Return the group or the transaction coordinator, and the given id. Raises ValueError unless one is given."""
    if group is not None and transactional_id is None:
        return cluster.groups, group
    if transactional_id is not None and group is None:
        return cluster.transactions, transactional_id
    raise ValueError("name either a group or a transactional id")
