"""What a test does to the nodes of a broker, to who leads and who coordinates, and to the history of a log.

It is done on the broker's loop, and recorded in the metadata log as a controller would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minibroker.broker.control.elections import apply_changes, bring_up
from minibroker.broker.metadata.partitions import NO_LEADER
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.metadata_records import PartitionChangeRecord
from minibroker.testing.pausing import Paused, Stale

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster
    from minibroker.broker.coordination.coordinator_logs import StateTopic
    from minibroker.broker.metadata.partitions import Partition
    from minibroker.testing.embedded import Embedded


class Topology:
    """Nodes by their ids, partitions by topic and index. Every method raises KafkaError for what is not there."""

    def __init__(self, broker: Embedded) -> None:
        self._broker = broker
        self._paused = Paused(broker)
        self._stale = Stale(broker)

    @property
    def _cluster(self) -> Cluster:
        return self._broker.running.cluster

    # --- nodes ------------------------------------------------------------------------------------

    def stop(self, node_id: int, *, cleanly: bool) -> None:
        """Take a node away, with its answers that are queued (`cleanly`) or without."""
        self._check_node(node_id)
        self._paused.resume(node_id)
        self._broker.running.node_leaves(node_id, cleanly=cleanly)

    async def start(self, node_id: int) -> None:
        """Bring a node back that was taken away, with the port that it had."""
        if node_id in self._cluster.nodes or node_id not in self._broker.ports.listeners:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"node {node_id} is no node that is away")
        await self._broker.running.node_returns(node_id, self._broker.ports.listen_for(node_id))

    def pause(self, node_id: int) -> None:
        """Pause a node: it takes requests, and answers none until it goes on, nor those that wait there already."""
        self._check_node(node_id)
        self._paused.pause(node_id)

    def resume(self, node_id: int) -> None:
        """Let a paused node go on."""
        self._paused.resume(node_id)

    def make_stale(self, node_id: int) -> None:
        """Make a node answer clients with the cluster as it is now, whatever it becomes."""
        self._check_node(node_id)
        self._stale.make_stale(node_id, self._cluster)

    def refresh(self, node_id: int) -> None:
        """Make a stale node answer with the cluster as it is."""
        self._stale.refresh(node_id)

    def _check_node(self, node_id: int) -> None:
        if node_id not in self._cluster.nodes:
            there = ", ".join(map(str, self._cluster.nodes))
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"there is no node {node_id}, but {there}")

    # --- leaders ----------------------------------------------------------------------------------

    def leader(self, topic: str, partition: int) -> int | None:
        """Return the node that leads, None for nobody."""
        leader = self._partition(topic, partition).leader_id
        return None if leader == NO_LEADER else leader

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Make a node the leader; one that is no replica becomes one."""
        self._check_node(node_id)
        found = self._partition(topic, partition)
        change = _change(found)
        change.leader = node_id
        if node_id not in found.replicas:
            change.replicas = [*found.replicas, node_id]
            change.directories = [*found.directories, bytes(16)] if found.directories else None
        if node_id not in found.isr:
            change.isr = [*found.isr, node_id]
        apply_changes(self._cluster, [change])

    def leave_leaderless(self, topic: str, partition: int) -> None:
        """Leave the partition without a leader, until somebody is made its leader or the nodes are elected anew."""
        change = _change(self._partition(topic, partition))
        change.leader = NO_LEADER
        apply_changes(self._cluster, [change])

    def elect(self) -> None:
        """Elect a leader for every partition that can have one, as a controller does when nodes come."""
        bring_up(self._cluster)

    def begin_epoch(self, topic: str, partition: int) -> int:
        """Begin another epoch, as after an election that the leader has won again; return the epoch."""
        found = self._partition(topic, partition)
        change = _change(found)
        change.leader = found.leader_id
        apply_changes(self._cluster, [change])
        return found.leader_epoch

    def truncate(self, topic: str, partition: int, offset: int) -> int:
        """Cut the log at `offset`, as an election of a replica that lacks the rest does; return the new leader's epoch.

        Clients that have read more find out by the epochs (KIP-320).
        """
        found = self._partition(topic, partition)
        found.log.truncate_to(offset)
        return self.begin_epoch(topic, partition)

    def _partition(self, topic: str, partition: int) -> Partition:
        found = self._cluster.image.topics.get(topic)
        there = None if found is None else found.partition(partition)
        if there is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {topic}-{partition}")
        return there

    # --- coordinators -----------------------------------------------------------------------------

    def coordinator(self, *, group: str | None, transactional_id: str | None) -> int | None:
        """The node that coordinates a group or a transactional id; None for nobody."""
        state, key = self._state_topic(group, transactional_id)
        node = state.node_of(key)
        return None if node is None else node.node_id

    def move_coordinator(self, node_id: int, *, group: str | None, transactional_id: str | None) -> None:
        """Make a node coordinate a group or transactional id, and all others of the same partition of its topic."""
        state, key = self._state_topic(group, transactional_id)
        state.create()
        self.move_leader(state.name, state.partition_of(key), node_id)

    def _state_topic(self, group: str | None, transactional_id: str | None) -> tuple[StateTopic, str]:
        if group is not None and transactional_id is None:
            return self._cluster.groups.topic, group
        if transactional_id is not None and group is None:
            return self._cluster.transactions.topic, transactional_id
        raise ValueError("either a group or a transactional id is to be named")


def _change(partition: Partition) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=partition.index, topic_id=partition.topic.topic_id)
