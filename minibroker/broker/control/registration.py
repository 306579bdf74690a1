"""The registration of brokers in the metadata log: registered when they start, fenced when they stop.

A later reader of the log, such as Kafka, learns from it which brokers are live, where they listen, and which
directories they have. `elections` elects leaders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minibroker.broker.configs.listeners import make_broker_listeners
from minibroker.broker.configs.settings_table import PROTOCOLS
from minibroker.broker.control.elections import remove_absent_nodes_from_isr
from minibroker.broker.metadata.cordoning import supports_cordoning
from minibroker.broker.metadata.features import SUPPORTED
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from minibroker.protocol.primitives import parse_uuid
from minibroker.protocol.steps import Steps

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster
    from minibroker.broker.metadata.nodes import Node

FENCED = 1  # `fenced` in BrokerRegistrationChangeRecord: 1 to fence, -1 to unfence, 0 for no change


def register_nodes(cluster: Cluster) -> None:
    """Register the nodes, fence all other brokers, and set the nodes' broker epochs."""
    first = cluster.metadata_log.storage.log_end_offset
    registrations: list[Message] = []
    for epoch, node in enumerate(cluster.nodes.values(), first):
        node.broker_epoch = epoch  # as in Kafka, the offset of the record
        registrations.append(_make_registration_record(cluster, node))
    absent = [broker for broker in cluster.image.brokers.values() if broker.broker_id not in cluster.nodes]
    cluster.commit_metadata_records(
        [*registrations, *(_make_fence_record(one.broker_id, one.broker_epoch) for one in absent if not one.fenced)]
    )


def fence_nodes(cluster: Cluster) -> None:
    """Fence the nodes, so that a broker with the same id can register without waiting for the end of their session."""
    cluster.commit_metadata_records(
        _make_fence_record(node.node_id, node.broker_epoch) for node in cluster.nodes.values()
    )


def register_joining_node(cluster: Cluster, node: Node) -> None:
    """Register another node, and set its broker epoch."""
    node.broker_epoch = cluster.metadata_log.storage.log_end_offset
    cluster.commit_metadata_records([_make_registration_record(cluster, node)])


def fence_leaving_node(cluster: Cluster, node: Node) -> None:
    """Fence a node that is no longer in `cluster.nodes`, and remove it from leadership and all ISRs."""
    concerned = (partition for partition in cluster.iterate_partitions() if node.node_id in partition.replicas)
    remove_absent_nodes_from_isr(
        cluster,
        concerned,
        absent_nodes=[node.node_id],
        more_records=[_make_fence_record(node.node_id, node.broker_epoch)],
    )


def record_cordoned_directories(cluster: Cluster) -> None:
    """Record which log directories are cordoned, unless the registration says the same."""
    owner = cluster.node_id_of_log_directories
    cordoned = _list_cordoned_ids(cluster)
    if (
        owner not in cluster.nodes
        or cordoned is None
        or cordoned == (cluster.image.brokers[owner].cordoned_log_dirs or [])
    ):
        return
    epoch = cluster.nodes[owner].broker_epoch
    change = BrokerRegistrationChangeRecord(broker_id=owner, broker_epoch=epoch, cordoned_log_dirs=cordoned)
    cluster.commit_metadata_records([change])


def unregister_broker_in_steps(cluster: Cluster, broker_id: int) -> Steps[None]:
    """Unregister a broker, and remove it from leadership and all ISRs.

    A node of this process is then unknown to clients, and rejects their requests, until it registers again at the next
    start. Raises KafkaError: BROKER_ID_NOT_REGISTERED.
    """
    broker = cluster.image.brokers.get(broker_id)
    if broker is None:
        message = f"Broker ID {broker_id} is not currently registered"
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, message)
    cluster.commit_metadata_records([UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.broker_epoch)])
    cluster.nodes.pop(broker_id, None)  # before the steps, so that no new replica is placed there meanwhile
    for portion in cluster.iterate_partition_portions():
        concerned = [one for one in portion if broker_id in one.isr or broker_id in one.eligible_leader_replicas]
        remove_absent_nodes_from_isr(cluster, concerned, absent_nodes=[broker_id])
        yield


def _make_fence_record(broker_id: int, broker_epoch: int) -> Message:
    return BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker_epoch, fenced=FENCED)


def _list_directory_ids(cluster: Cluster) -> list[bytes]:
    """Return the ids of the log directories. Only one node registers them, as in Kafka no two brokers may share one."""
    return sorted(parse_uuid(directory.directory_id) for directory in cluster.logs.directories)


def _list_cordoned_ids(cluster: Cluster) -> list[bytes] | None:
    """Return the ids of the cordoned log directories, or None if metadata.version is too low to record them."""
    if not supports_cordoning(cluster.image):
        return None
    paths = cluster.list_cordoned_log_dirs(cluster.node_id_of_log_directories)
    found = (directory for directory in cluster.logs.directories if directory.path in paths)
    return sorted(parse_uuid(directory.directory_id) for directory in found)


def _make_registration_record(cluster: Cluster, node: Node) -> Message:
    listeners = make_broker_listeners(cluster.static_settings)
    protocols = {listener.name: PROTOCOLS.index(listener.security_protocol) for listener in listeners}
    return RegisterBrokerRecord(
        broker_id=node.node_id,
        incarnation_id=cluster.make_uuid(),
        broker_epoch=node.broker_epoch,
        end_points=[
            RegisterBrokerRecord.BrokerEndpoint(
                name=name, host=endpoint.host, port=endpoint.port, security_protocol=protocols.get(name, 0)
            )
            for name, endpoint in node.endpoints.items()
        ],
        features=[
            RegisterBrokerRecord.BrokerFeature(
                name=name, min_supported_version=levels[0], max_supported_version=levels[-1]
            )
            for name, levels in SUPPORTED.items()
        ],
        rack=node.rack,
        fenced=False,
        log_dirs=_list_directory_ids(cluster) if node.node_id == cluster.node_id_of_log_directories else [],
        cordoned_log_dirs=_list_cordoned_ids(cluster) if node.node_id == cluster.node_id_of_log_directories else None,
    )
