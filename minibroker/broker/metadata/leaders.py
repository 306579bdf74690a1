"""Who leads, told to a client that asked the wrong node (KIP-951), in the shapes that Produce and Fetch share.

Who is to lead is decided by the controller.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from minibroker.broker.metadata.partitions import NO_LEADER, Partition

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster
    from minibroker.broker.requests.dispatch import Context


def available_leader(partition: Partition) -> int:
    """Who leads, as clients are told: nobody while the log is offline, as with Kafka when its only replica is."""
    return NO_LEADER if partition.is_offline else partition.leader_id


def offline_replicas(cluster: Cluster, partition: Partition) -> list[int]:
    """The replicas whose nodes are away, or whose log is offline; all nodes here share one log."""
    nodes = () if partition.is_offline else cluster.nodes
    return [node for node in partition.replicas if node not in nodes]


def current_leader(partition: Partition, shape: type[Any]) -> Any:
    """The partition's leader and its epoch, as a `shape` with the fields leader_id and leader_epoch."""
    return shape(leader_id=partition.leader_id, leader_epoch=partition.leader_epoch)


def leader_endpoints(context: Context, leaders: Iterable[Any], shape: type[Any]) -> list[Any]:
    """Where the leaders are, each once, on the listener that the client came by, as `shape`s of a node's endpoint."""
    found = {}
    for leader in leaders:
        node = None if leader is None else context.cluster.nodes.get(leader.leader_id)
        if node is not None:
            endpoint = node.endpoints[context.connection.listener]
            found[node.node_id] = shape(node_id=node.node_id, host=endpoint.host, port=endpoint.port, rack=node.rack)
    return list(found.values())
