"""ListConfigResources: the resources that have settings (KIP-1000, KIP-1142).

Behaviour: the answer lists all topics, all nodes of the process (once for their settings, once for their loggers), and
the groups and metrics subscriptions with settings of their own; or only resources of the types that are asked for. An
unknown type is answered with UNSUPPORTED_VERSION for the whole request.

Versions: 0 knows client metrics only; 1 brought the types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum

from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import DESCRIBE_CLUSTER_CONFIGS
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.configs import ListConfigResourcesRequest, ListConfigResourcesResponse

Resource = ListConfigResourcesResponse.ConfigResource

FIRST_WITH_TYPES = 1


class ResourceType(IntEnum):
    """Kafka's ConfigResource.Type, in the order in which Kafka lists them."""

    GROUP = 32
    CLIENT_METRICS = 16
    BROKER_LOGGER = 8
    BROKER = 4
    TOPIC = 2


@handles(ApiKey.LIST_CONFIG_RESOURCES)
def list_config_resources(context: RequestContext, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    context.authorize(DESCRIBE_CLUSTER_CONFIGS)
    kinds = set(request.resource_types) if context.version >= FIRST_WITH_TYPES else {ResourceType.CLIENT_METRICS}
    if kinds - set(ResourceType):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            Resource(resource_name=name, resource_type=kind)
            for kind in ResourceType
            if kind in kinds or not kinds
            for name in NAMES[kind](context)
        ]
    )


def _make_lister_of_resources(kind: ResourceType) -> Callable[[RequestContext], Iterable[str]]:
    """Return a function that returns the names of the resources of this type that have configs."""

    def list_names_of_type(context: RequestContext) -> Iterable[str]:
        configs = context.cluster.image.configs
        return [name for (resource_type, name), texts in configs.items() if resource_type == kind and texts]

    return list_names_of_type


NAMES: dict[ResourceType, Callable[[RequestContext], Iterable[str]]] = {
    ResourceType.GROUP: _make_lister_of_resources(ResourceType.GROUP),
    ResourceType.CLIENT_METRICS: _make_lister_of_resources(ResourceType.CLIENT_METRICS),
    ResourceType.BROKER_LOGGER: lambda context: map(str, context.cluster.nodes),
    ResourceType.BROKER: lambda context: map(str, context.cluster.nodes),
    ResourceType.TOPIC: lambda context: context.cluster.image.topics,
}
