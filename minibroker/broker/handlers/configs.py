"""DescribeConfigs: the settings of topics, brokers, groups and metrics subscriptions, and the levels of loggers.

Behaviour: a resource is described with all its settings, or with the ones that are asked for and exist. Settings that
Kafka 4 no longer has, or does not have yet, are described if they are set or asked for. The empty broker name means
all brokers. The settings and loggers of one broker are described by its own node only. An unknown group or
subscription is described with the defaults that it would have.

Versions: 1 brought synonyms and the source of a value in place of "is default" (KIP-226), 3 types and documentation
(KIP-569), 4 flexible fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import cache, partial

from minibroker.broker.configs.resource_configs import (
    describe_client_metrics_configs,
    describe_group_configs,
    describe_logger_configs,
)
from minibroker.broker.configs.settings import ConfigEntry, ConfigSource, Settings
from minibroker.broker.delayed_operations import run_in_slices
from minibroker.broker.metadata.partitions import check_topic_name
from minibroker.broker.requests.context import NameRepetitions, RequestContext
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import (
    CLUSTER_NAME,
    DENIAL_MESSAGES,
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_GROUP_CONFIGS,
    DESCRIBE_TOPIC_CONFIGS,
    Right,
)
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResponse
from minibroker.protocol.steps import apply_to_items_in_steps

DescribedConfigs = DescribeConfigsResponse.DescribeConfigsResult
DescribedEntry = DescribedConfigs.DescribeConfigsResourceResult

INTEGER = re.compile(r"[+-]?[0-9]{1,10}")


class ResourceType(IntEnum):
    """Kafka's ConfigResource.Type."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


TO_DESCRIBE: dict[int, Right] = {
    ResourceType.TOPIC: DESCRIBE_TOPIC_CONFIGS,
    ResourceType.BROKER: DESCRIBE_CLUSTER_CONFIGS,
    ResourceType.BROKER_LOGGER: DESCRIBE_CLUSTER_CONFIGS,
    ResourceType.CLIENT_METRICS: DESCRIBE_CLUSTER_CONFIGS,
    ResourceType.GROUP: DESCRIBE_GROUP_CONFIGS,
}
NAMED = (ResourceType.TOPIC, ResourceType.GROUP)  # rights to configs are per name here; for other types, on the cluster
UNTYPED = 0  # Kafka does not give a type for loggers


@handles(ApiKey.DESCRIBE_CONFIGS)
async def describe_configs(context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    unknown = [each.resource_type for each in request.resources if each.resource_type not in DESCRIBE]
    if unknown:  # as in Kafka, then all are refused, whatever the rights
        error = KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {unknown[0]}")
        return DescribeConfigsResponse(
            results=(
                await run_in_slices(apply_to_items_in_steps(partial(_make_error_result, error), request.resources))
            )
        )
    namings = NameRepetitions()
    described = cache(partial(_make_described_entry, request))  # most topics of thousands have equal entries
    results = await run_in_slices(
        apply_to_items_in_steps(
            lambda resource: _describe_configs_of_resource(context, resource, namings, described), request.resources
        )
    )
    return DescribeConfigsResponse(results=results)


def _make_error_result(error: KafkaError, resource: DescribeConfigsRequest.DescribeConfigsResource) -> DescribedConfigs:
    return DescribedConfigs(
        error_code=error.code,
        error_message=error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _describe_configs_of_resource(
    context: RequestContext,
    resource: DescribeConfigsRequest.DescribeConfigsResource,
    repetitions: NameRepetitions,
    describe_entry: Callable[[ConfigEntry], DescribedEntry],
) -> DescribedConfigs:
    """Return the configs of a resource, or an error, such as for one that is requested too often (`repetitions`)."""
    answer = DescribedConfigs(
        error_message="", resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    wanted = resource.configuration_keys
    try:
        repetitions.count_or_refuse_name((resource.resource_type, resource.resource_name))
        authorize_config_resource(context, TO_DESCRIBE, resource.resource_type, resource.resource_name)
        entries = DESCRIBE[resource.resource_type](context, resource.resource_name)
        answer.configs = [
            describe_entry(entry) for entry in entries if (entry.name in wanted if wanted else entry.is_listed)
        ]
    except KafkaError as error:
        answer.error_code = error.code
        answer.error_message = error.message or ""
    return answer


def authorize_config_resource(
    context: RequestContext, rights: Mapping[int, Right], resource_type: int, name: str
) -> None:
    """Check the right for resources of this type, if the type is known. Raises KafkaError."""
    right = rights.get(resource_type)
    if right is not None:
        message = DENIAL_MESSAGES[right.resource_type]
        context.authorize(right, name if resource_type in NAMED else CLUSTER_NAME, message=message)


def _describe_topic_configs(context: RequestContext, name: str) -> list[ConfigEntry]:
    check_topic_name(name)
    return _get_node_settings(context).describe_topic_configs(context.get_topic(name).overrides)


def _describe_broker_configs(context: RequestContext, name: str) -> list[ConfigEntry]:
    if not name:
        return _get_node_settings(context).describe_cluster_configs()
    check_resource_is_own_broker(context, name, "Broker id", " or empty string,")
    return _get_node_settings(context).describe_broker_configs()


def _get_node_settings(context: RequestContext) -> Settings:
    """Return the settings of the node that handles the request."""
    return context.cluster.get_node_settings(context.node.node_id)


def _describe_logger_levels(context: RequestContext, name: str) -> list[ConfigEntry]:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    check_resource_is_own_broker(context, name, "Broker id", "")
    return describe_logger_configs()


def _describe_client_metrics_configs(context: RequestContext, name: str) -> list[ConfigEntry]:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
    return describe_client_metrics_configs(_get_config_overrides(context, ResourceType.CLIENT_METRICS, name))


def _describe_group_configs(context: RequestContext, name: str) -> list[ConfigEntry]:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
    return describe_group_configs(_get_node_settings(context), _get_config_overrides(context, ResourceType.GROUP, name))


def _get_config_overrides(context: RequestContext, resource_type: ResourceType, name: str) -> dict[str, str]:
    return context.cluster.image.configs.get((resource_type, name), {})


DESCRIBE: dict[int, Callable[[RequestContext, str], list[ConfigEntry]]] = {
    ResourceType.TOPIC: _describe_topic_configs,
    ResourceType.BROKER: _describe_broker_configs,
    ResourceType.BROKER_LOGGER: _describe_logger_levels,
    ResourceType.CLIENT_METRICS: _describe_client_metrics_configs,
    ResourceType.GROUP: _describe_group_configs,
}


def check_resource_is_own_broker(
    context: RequestContext, name: str, resource_kind: str, alternative: str = ","
) -> None:
    """Raise KafkaError(INVALID_REQUEST) unless `name` is this node's id; `alternative` follows that in the message."""
    if not INTEGER.fullmatch(name):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{resource_kind} must be an integer, but it is: {name}")
    expected = context.node.node_id
    if int(name) != expected:
        message = f"Unexpected broker id, expected {expected}{alternative} but received {name}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def _make_described_entry(request: DescribeConfigsRequest, entry: ConfigEntry) -> DescribedEntry:
    synonyms = entry.synonyms if request.include_synonyms else ()
    is_logger = entry.source is ConfigSource.DYNAMIC_BROKER_LOGGER
    return DescribedEntry(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        is_default=entry.source is ConfigSource.DEFAULT,
        config_source=entry.source,
        is_sensitive=entry.setting.is_sensitive,
        synonyms=[
            DescribedEntry.DescribeConfigsSynonym(name=name, value=value, source=source)
            for name, value, source in synonyms
        ],
        config_type=UNTYPED if is_logger else entry.setting.type,
        documentation=entry.documentation if request.include_documentation and not is_logger else None,
    )
