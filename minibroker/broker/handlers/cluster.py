"""DescribeCluster: the nodes and the controller, for admin clients (KIP-700).

Behaviour: a node is listed with the address of the listener that the client came by. Fenced are the brokers that are
registered and not there; they are listed with the address they had, if they are asked for. The controller is no
endpoint of its own: a client that asks for controllers has come to a broker, and gets MISMATCHED_ENDPOINT_TYPE.

Versions: 1 brought the kind of endpoint (KIP-919), 2 fenced brokers (KIP-1073).
"""

from __future__ import annotations

from enum import IntEnum

from minibroker.broker.requests.dispatch import Context, handles
from minibroker.broker.security.operations import CLUSTER_OPERATIONS, NOT_ASKED
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse


class EndpointType(IntEnum):
    """The kind of node that a client wants to talk to."""

    BROKER = 1
    CONTROLLER = 2


@handles(ApiKey.DESCRIBE_CLUSTER, "0-2")
def describe_cluster(context: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type == EndpointType.CONTROLLER:
        message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        return DescribeClusterResponse(error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE, error_message=message)
    if request.endpoint_type != EndpointType.BROKER:
        message = f"Unsupported endpoint type {request.endpoint_type}"
        return DescribeClusterResponse(error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, error_message=message)
    return DescribeClusterResponse(
        cluster_id=context.cluster.cluster_id,
        controller_id=context.cluster.controller_id,
        brokers=[*_brokers(context), *(_fenced(context) if request.include_fenced_brokers else ())],
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _brokers(context: Context) -> list[DescribeClusterResponse.DescribeClusterBroker]:
    listener = context.connection.listener
    return [
        DescribeClusterResponse.DescribeClusterBroker(
            broker_id=node.node_id,
            host=node.endpoints[listener].host,
            port=node.endpoints[listener].port,
            rack=node.rack,
        )
        for node in context.cluster.nodes.values()
    ]


def _fenced(context: Context) -> list[DescribeClusterResponse.DescribeClusterBroker]:
    """The registered brokers that are away, as far as they had a listener of that name."""
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
