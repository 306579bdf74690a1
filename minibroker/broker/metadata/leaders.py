"""The present leader: checked for the node that is asked, and reported to a client that asked another (KIP-951).

The controller decides who leads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from minibroker.broker.metadata.partitions import NO_LEADER, Partition, Topic
from minibroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from minibroker.broker.cluster import Node

NOT_HOSTED = "This server does not host this topic-partition."


def led_partition(node_id: int, topic: Topic | None, index: int) -> Partition:
    """Return the partition if the node leads it and its log is online.

    Raise KafkaError: UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR, or NOT_LEADER_OR_FOLLOWER, also if nobody
    leads.
    """
    partition = None if topic is None else topic.partition(index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED)
    if partition.leader_id != node_id:
        leader = "nobody" if partition.leader_id == NO_LEADER else f"node {partition.leader_id}"
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition} is led by {leader}, not by node {node_id}.")
    if partition.log.offline:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, partition.log.offline)
    return partition


def available_leader(partition: Partition) -> int:
    """Return the leader that clients see: nobody while the log is offline, as in Kafka with a single replica."""
    return NO_LEADER if partition.is_offline else partition.leader_id


def offline_replicas(nodes: Collection[int], partition: Partition) -> list[int]:
    """Return the replicas whose nodes are away or whose log, which all nodes share, is offline."""
    present = () if partition.is_offline else nodes
    return [node for node in partition.replicas if node not in present]


def current_leader(partition: Partition, shape: type[Any]) -> Any:
    """Return the leader of the partition and its epoch, as a `shape` with the fields leader_id and leader_epoch."""
    return shape(leader_id=partition.leader_id, leader_epoch=partition.leader_epoch)


def leader_endpoints(nodes: Mapping[int, Node], listener: str, leaders: Iterable[Any], shape: type[Any]) -> list[Any]:
    """Return the endpoints of the leaders on the listener of the client, each node once, as `shape`s."""
    found = {}
    for leader in leaders:
        node = None if leader is None else nodes.get(leader.leader_id)
        if node is not None:
            endpoint = node.endpoints[listener]
            found[node.node_id] = shape(node_id=node.node_id, host=endpoint.host, port=endpoint.port, rack=node.rack)
    return list(found.values())
