"""DescribeCluster: the nodes and the controller, for admin clients (KIP-700).

Behaviour: nodes are listed with their address at the listener that the client uses. Brokers that are registered but
not running are fenced; on request they are listed too, with their last address. The controller has no endpoint of its
own: a client that asks for controllers gets MISMATCHED_ENDPOINT_TYPE.

Versions: 1 brought the kind of endpoint (KIP-919), 2 fenced brokers (KIP-1073).
"""

from __future__ import annotations

from enum import IntEnum

from minibroker.broker.metadata.leaders import list_advertised_nodes
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import DESCRIBE_CLUSTER, NOT_ASKED, ResourceType
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse


class EndpointType(IntEnum):
    """The kind of node to which a client wants to talk."""

    BROKER = 1
    CONTROLLER = 2


@handles(ApiKey.DESCRIBE_CLUSTER)
def describe_cluster(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type == EndpointType.CONTROLLER:
        message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        raise KafkaError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, message)
    if request.endpoint_type != EndpointType.BROKER:
        raise KafkaError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {request.endpoint_type}")
    return DescribeClusterResponse(
        cluster_id=context.cluster.cluster_id,
        controller_id=context.cluster.controller_id,
        brokers=[*_list_brokers(context), *(_list_fenced_brokers(context) if request.include_fenced_brokers else ())],
        cluster_authorized_operations=encode_authorized_cluster_operations(
            context, request.include_cluster_authorized_operations
        ),
    )


def encode_authorized_cluster_operations(context: RequestContext, is_requested: bool) -> int:
    """Return the operations that the client may do on the cluster, if `is_requested`; 0 if it may not describe it."""
    if not is_requested:
        return NOT_ASKED
    return context.get_allowed_operations(ResourceType.CLUSTER) if context.allows(DESCRIBE_CLUSTER) else 0


def _list_brokers(context: RequestContext) -> list[DescribeClusterResponse.DescribeClusterBroker]:
    listener = context.connection.listener
    return [
        DescribeClusterResponse.DescribeClusterBroker(
            broker_id=node.node_id,
            host=node.endpoints[listener].host,
            port=node.endpoints[listener].port,
            rack=node.rack,
        )
        for node in list_advertised_nodes(context.cluster.nodes, listener).values()
    ]


def _list_fenced_brokers(context: RequestContext) -> list[DescribeClusterResponse.DescribeClusterBroker]:
    """Return the registered brokers that are not running, and had a listener of the name of the client's."""
    cluster = context.cluster
    return [
        DescribeClusterResponse.DescribeClusterBroker(
            broker_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack, is_fenced=True
        )
        for broker in cluster.image.brokers.values()
        if broker.broker_id not in cluster.nodes
        for endpoint in broker.end_points
        if endpoint.name == context.connection.listener
    ]
