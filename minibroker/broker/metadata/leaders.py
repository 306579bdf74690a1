"""The nodes that serve a partition: its leader, reported to clients of another node (KIP-951), and followers (KIP-392).

The controller elects leaders. All nodes share one log of each partition, so a follower has the leader's records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from minibroker.broker.metadata.partitions import NO_LEADER, Partition, Topic
from minibroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from minibroker.broker.metadata.nodes import Node

NOT_HOSTED: Final = "This server does not host this topic-partition."
FIRST_WITH_RACKS: Final = 11  # of Fetch; older clients only read from leaders


def get_led_partition(node_id: int, topic: Topic | None, index: int) -> Partition:
    """Return the partition if the node leads it and its log is online.

    Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER, also without a leader.
    """
    partition = None if topic is None else topic.find_partition(index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED)
    if partition.leader_id != node_id:
        leader = "nobody" if partition.leader_id == NO_LEADER else f"node {partition.leader_id}"
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition} is led by {leader}, not by node {node_id}.")
    if partition.log.offline:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, partition.log.offline)
    return partition


def get_hosted_partition(node_id: int, topic: Topic | None, index: int) -> Partition:
    """Return the partition if the node has a replica, also as a follower, and its log is online.

    Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER.
    """
    partition = None if topic is None else topic.find_partition(index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED)
    if node_id not in partition.replicas:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Node {node_id} has no replica of {partition}.")
    if partition.log.offline:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, partition.log.offline)
    return partition


def list_advertised_nodes(nodes: Mapping[int, Node], listener: str) -> Mapping[int, Node]:
    """Return the nodes that advertise this listener: all, unless it was added at run time."""
    return (
        nodes
        if all(listener in node.endpoints for node in nodes.values())
        else {node_id: node for node_id, node in nodes.items() if listener in node.endpoints}
    )


def make_partition_answer(partition: Partition, nodes: Collection[int], answer_type: type[Any]) -> Any:
    """Return an `answer_type` of Metadata or DescribeTopicPartitions with the partition's leader, replicas and ISR.

    `nodes` are those that advertise the client's listener; no other is its leader. While its log is offline, which all
    nodes share, it has no leader, as in Kafka with a single replica.
    """
    leader_id, present = (NO_LEADER, ()) if partition.is_offline else (partition.leader_id, nodes)
    code = ErrorCode.LEADER_NOT_AVAILABLE if leader_id == NO_LEADER else ErrorCode.NONE
    if not code and leader_id not in nodes:
        leader_id, code = NO_LEADER, ErrorCode.LISTENER_NOT_FOUND
    return answer_type(
        error_code=code,
        partition_index=partition.index,
        leader_id=leader_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        offline_replicas=[node for node in partition.replicas if node not in present],
    )


def make_current_leader_answer(partition: Partition, answer_type: type[Any]) -> Any:
    """Return the partition's leader and epoch, as an `answer_type` with the fields leader_id and leader_epoch."""
    return answer_type(leader_id=partition.leader_id, leader_epoch=partition.leader_epoch)


def list_leader_endpoints(
    nodes: Mapping[int, Node], listener: str, leaders: Iterable[Any], endpoint_type: type[Any]
) -> list[Any]:
    """Return the leaders' endpoints on the client's listener, an `endpoint_type` per node."""
    found = {}
    for leader in leaders:
        node = None if leader is None else nodes.get(leader.leader_id)
        if node is not None and listener in node.endpoints:
            endpoint = node.endpoints[listener]
            found[node.node_id] = endpoint_type(
                node_id=node.node_id, host=endpoint.host, port=endpoint.port, rack=node.rack
            )
    return list(found.values())


def serves_fetch_as_follower(node: Node, partition: Partition, version: int) -> bool:
    """Return whether `node` serves a Fetch of this version as a follower of the partition.

    As in Kafka, any node with a replica serves it, in sync or not, even without a leader.
    """
    return (
        version >= FIRST_WITH_RACKS
        and partition.leader_id != node.node_id
        and node.node_id in partition.replicas
        and not partition.is_offline
    )


def find_preferred_read_replica(
    nodes: Mapping[int, Node], node: Node, partition: Partition, rack_id: str
) -> int | None:
    """Return the follower in the consumer's rack from which to read, or None; only the leader chooses one."""
    if not rack_id or partition.leader_id != node.node_id or node.rack == rack_id:
        return None
    followers = (replica for replica in partition.isr if replica in nodes)
    return next((replica for replica in followers if nodes[replica].rack == rack_id), None)
