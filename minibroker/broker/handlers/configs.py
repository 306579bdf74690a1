"""DescribeConfigs and IncrementalAlterConfigs: the settings of topics and brokers, looked up and changed.

Behaviour: a resource is described with all its settings, or with those that are named and exist. A change is checked
with all that is set on its resource, and is made whole or not at all; each resource stands alone. It is recorded in the
metadata log and in force when the answer is sent. The broker without a name stands for all brokers; any other is asked
at its own node. A setting that cannot change while the broker runs is refused, and so is, other than in Kafka, a name
that this broker does not know: to keep it without acting on it would be no help.

Versions: DescribeConfigs 1 brought synonyms and the source of a value in place of "is default" (KIP-226), 3 types and
documentation (KIP-569), 4 flexible fields; IncrementalAlterConfigs 1 flexible fields.

Not implemented: loggers, client metrics and groups, which are refused as by a Kafka that does not know them; values for
one broker where several share a process, which have their settings in common.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

from minibroker.broker.config_changes import Change, ChangeKind, differences, outcome
from minibroker.broker.controller import MINIMUM_ISR
from minibroker.broker.dispatch import Context, handles
from minibroker.broker.durable import durably
from minibroker.broker.features import ELIGIBLE_LEADER_REPLICAS
from minibroker.broker.settings import (
    ConfigEntry,
    ConfigSource,
    validate_broker_overrides,
    validate_topic_overrides,
)
from minibroker.broker.settings_table import BROKER_SETTINGS, TOPIC_SETTINGS
from minibroker.broker.topics import check_name
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

Described = DescribeConfigsResponse.DescribeConfigsResult
DescribedEntry = Described.DescribeConfigsResourceResult
Altered = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
AskedResource = IncrementalAlterConfigsRequest.AlterConfigsResource

INTEGER = re.compile(r"[+-]?[0-9]{1,10}")


class ResourceType(IntEnum):
    """Kafka's ConfigResource.Type, as far as settings are kept here."""

    TOPIC = 2
    BROKER = 4


# --- DescribeConfigs ----------------------------------------------------------------------------


@handles(ApiKey.DESCRIBE_CONFIGS, "0-4")
def describe_configs(context: Context, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_described(context, request, resource) for resource in request.resources])


def _described(
    context: Context, request: DescribeConfigsRequest, resource: DescribeConfigsRequest.DescribeConfigsResource
) -> Described:
    answer = Described(error_message="", resource_type=resource.resource_type, resource_name=resource.resource_name)
    wanted = resource.configuration_keys
    try:
        entries = _entries(context, resource.resource_type, resource.resource_name)
        answer.configs = [_entry(request, entry) for entry in entries if not wanted or entry.name in wanted]
    except KafkaError as error:
        answer.error_code = error.code
        answer.error_message = error.message or ""
    return answer


def _entries(context: Context, resource_type: int, name: str) -> list[ConfigEntry]:
    settings = context.cluster.settings
    if resource_type == ResourceType.TOPIC:
        check_name(name)
        topic = context.cluster.image.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return settings.describe_topic(topic.overrides)
    if resource_type != ResourceType.BROKER:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource_type}")
    if not name:
        return settings.describe_cluster()
    _check_broker(context, name, "Broker id", " or empty string")
    return [_of_node(context, entry) for entry in settings.describe_broker()]


def _check_broker(context: Context, name: str, kind: str, alternative: str = "") -> None:
    """Raises KafkaError(INVALID_REQUEST), in Kafka's words, unless `name` is the id of the node that is asked."""
    if not INTEGER.fullmatch(name):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{kind} must be an integer, but it is: {name}")
    expected = context.node.node_id
    if int(name) != expected:
        message = f"Unexpected broker id, expected {expected}{alternative}, but received {name}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def _of_node(context: Context, entry: ConfigEntry) -> ConfigEntry:
    """The entry as it is on this node: the ids of the second and later nodes follow from that of the first."""
    if entry.name not in ("node.id", "broker.id"):
        return entry
    text = str(context.node.node_id)
    synonyms = (
        synonym if synonym.source is ConfigSource.DEFAULT else synonym._replace(value=text)
        for synonym in entry.synonyms
    )
    return entry._replace(value=text, synonyms=tuple(synonyms))


def _entry(request: DescribeConfigsRequest, entry: ConfigEntry) -> DescribedEntry:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribedEntry(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        is_default=entry.source is ConfigSource.DEFAULT,
        config_source=entry.source,
        is_sensitive=entry.setting.sensitive,
        synonyms=[
            DescribedEntry.DescribeConfigsSynonym(name=name, value=value, source=source)
            for name, value, source in synonyms
        ],
        config_type=entry.setting.type,
        documentation=entry.documentation if request.include_documentation else None,
    )


# --- IncrementalAlterConfigs --------------------------------------------------------------------


@handles(ApiKey.INCREMENTAL_ALTER_CONFIGS, "0-1")
@durably
def incremental_alter_configs(
    context: Context, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=altered(context, request.resources, validate_only=request.validate_only)
    )


def altered(context: Context, resources: Sequence[AskedResource], *, validate_only: bool) -> list[Altered]:
    """Make the changes of all resources, each alone, unless they are only to be checked; an answer for each."""
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    return [_altered(context, resource, counts, validate_only=validate_only) for resource in resources]


def _altered(
    context: Context, resource: AskedResource, counts: Mapping[tuple[int, str], int], *, validate_only: bool
) -> Altered:
    kind, name = resource.resource_type, resource.resource_name
    answer = Altered(resource_type=kind, resource_name=name, error_message=None)
    try:
        if counts[kind, name] > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        decided = _decided(context, resource)
        if decided and not validate_only:
            context.cluster.controller.change_config(kind, name, decided)
    except KafkaError as error:
        answer.error_code = error.code
        answer.error_message = error.message
    return answer


def _decided(context: Context, resource: AskedResource) -> dict[str, str | None]:
    """What the change comes to: new texts by name, None for what is removed. Raises KafkaError."""
    _check_form(resource)
    if resource.resource_type == ResourceType.TOPIC:
        return _topic_change(context, resource.resource_name, _changes(resource))
    if resource.resource_type == ResourceType.BROKER:
        return _broker_change(context, resource.resource_name, _changes(resource))
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")


def _check_form(resource: AskedResource) -> None:
    names = [config.name for config in resource.configs]
    if len(set(names)) < len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [
        config.name
        for config in resource.configs
        if config.value is None and config.config_operation != ChangeKind.DELETE
    ]
    if nulls:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")


def _changes(resource: AskedResource) -> list[Change]:
    for config in resource.configs:
        if config.config_operation not in ChangeKind.__members__.values():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {config.config_operation}")
    return [Change(config.name, ChangeKind(config.config_operation), config.value or "") for config in resource.configs]


def _topic_change(context: Context, name: str, changes: Iterable[Change]) -> dict[str, str | None]:
    cluster = context.cluster
    topic = cluster.image.topics.get(name)
    current = {} if topic is None else topic.overrides
    texts = outcome(TOPIC_SETTINGS, current, changes)
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    check_name(name)
    valid = validate_topic_overrides(cluster.settings, texts)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    return differences(current, valid)


def _broker_change(context: Context, name: str, changes: Iterable[Change]) -> dict[str, str | None]:
    cluster = context.cluster
    if name:
        _check_broker(context, name, "Node id")
        if len(cluster.nodes) > 1:
            message = "The nodes of this process share their settings: change those of all brokers, with an empty name."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    current = cluster.image.config(ResourceType.BROKER, name)
    texts = outcome(BROKER_SETTINGS, current, changes)
    validate_broker_overrides(cluster.settings, texts, per_broker=bool(name))
    changed = differences(current, texts)
    if MINIMUM_ISR in changed and cluster.image.features.get(ELIGIBLE_LEADER_REPLICAS):
        _check_minimum_isr(name, changed[MINIMUM_ISR])
    return changed


def _check_minimum_isr(name: str, text: str | None) -> None:
    """KIP-966 has one value for all brokers. Raises KafkaError(INVALID_CONFIG)."""
    if name:
        message = f"Broker-level {MINIMUM_ISR} cannot be altered while ELR is enabled."
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)
    if text is None:
        message = f"Cluster-level {MINIMUM_ISR} cannot be removed while ELR is enabled."
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)
