"""Reading from followers (KIP-392): which nodes may serve a consumer, and which one it is told to ask.

All nodes here share one log of each partition, so a follower has what the leader has. What is read is in
`handlers/fetch`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minibroker.broker.configs.settings_table import RACK_AWARE
from minibroker.broker.metadata.partitions import Partition, Topic

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster, Node

FIRST_WITH_RACKS = 11  # of Fetch: older clients do not know that a follower may serve them


def readable_partition(cluster: Cluster, node: Node, topic: Topic | None, index: int, version: int) -> Partition:
    """The partition, if `node` leads it, or has a replica of it. Raises as `Cluster.led_partition` does."""
    partition = None if topic is None else topic.partition(index)
    if partition is not None and version >= FIRST_WITH_RACKS and _follows(node, partition):
        return partition
    return cluster.led_partition(node, topic, index)


def _follows(node: Node, partition: Partition) -> bool:
    """As in Kafka, whoever has a replica serves it, in sync or not, and also while nobody leads."""
    return partition.leader_id != node.node_id and node.node_id in partition.replicas and not partition.is_offline


def preferred_replica(cluster: Cluster, node: Node, partition: Partition, rack_id: str) -> int | None:
    """The follower that the leader tells a consumer to read from: one in its rack, if the leader is in another."""
    if not rack_id or partition.leader_id != node.node_id or node.rack == rack_id:
        return None
    if cluster.settings["replica.selector.class"] != RACK_AWARE:
        return None
    followers = (replica for replica in partition.isr if replica in cluster.nodes)
    return next((replica for replica in followers if cluster.nodes[replica].rack == rack_id), None)
