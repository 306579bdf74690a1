"""Reading from followers (KIP-392): which nodes may serve a consumer, and which one it should use.

All nodes share one log of each partition, so a follower has the leader's records. `handlers/fetch_reading` reads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minibroker.broker.configs.settings_table import RACK_AWARE
from minibroker.broker.metadata.partitions import Partition

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster, Node

FIRST_WITH_RACKS = 11  # of Fetch; older clients only read from leaders


def serves_as_follower(node: Node, partition: Partition, version: int) -> bool:
    """Return whether `node` serves a Fetch of this version without leading the partition.

    As in Kafka, any node with a replica serves it, in sync or not, even without a leader.
    """
    return (
        version >= FIRST_WITH_RACKS
        and partition.leader_id != node.node_id
        and node.node_id in partition.replicas
        and not partition.is_offline
    )


def preferred_replica(cluster: Cluster, node: Node, partition: Partition, rack_id: str) -> int | None:
    """Return the follower in the consumer's rack from which to read, or None; only the leader chooses one."""
    if not rack_id or partition.leader_id != node.node_id or node.rack == rack_id:
        return None
    if cluster.settings["replica.selector.class"] != RACK_AWARE:
        return None
    followers = (replica for replica in partition.isr if replica in cluster.nodes)
    return next((replica for replica in followers if cluster.nodes[replica].rack == rack_id), None)
