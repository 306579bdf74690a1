"""IncrementalAlterConfigs: changes settings of topics, brokers, groups and metrics subscriptions, and logger levels.

Behaviour: a change is checked together with the other settings of its resource, and made as a whole or not at all.
Each resource succeeds or fails by itself. The change is recorded in the metadata log and in effect before the answer;
only levels of loggers are not recorded. The empty broker name means all brokers. The settings and loggers of one
broker are changed by its own node only. A setting that cannot change while the broker runs is refused. Unknown names,
and broker settings without effect here, are recorded as in Kafka, with a warning in the log. If several brokers share
a process, a log uses the settings of its leader's node. The process has only one cleaner, for example; such parts use
the settings of the node with the lowest id.

Versions: 1 has flexible fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from minibroker.broker.configs.client_metrics import CLIENT_METRICS_SETTINGS, MATCH, validate_client_metrics_overrides
from minibroker.broker.configs.config_changes import (
    ChangeKind,
    ConfigChange,
    apply_config_changes,
    check_config_text_sizes,
    find_config_changes,
)
from minibroker.broker.configs.group_settings import GROUP_SETTINGS, validate_group_overrides
from minibroker.broker.configs.logger_levels import change_logger_levels
from minibroker.broker.configs.settings import (
    get_broker_setting_declaration,
    validate_broker_overrides,
    validate_topic_overrides,
)
from minibroker.broker.configs.settings_table import TOPIC_SETTINGS, ConfigType, Setting
from minibroker.broker.control.controller import MINIMUM_ISR
from minibroker.broker.delayed_operations import in_slices
from minibroker.broker.handlers.configs import (
    INTEGER,
    ResourceType,
    authorize_config_resource,
    check_resource_is_own_broker,
)
from minibroker.broker.handlers.listener_changes import check_listener_changes
from minibroker.broker.metadata.cordoning import CORDONED, supports_cordoning
from minibroker.broker.metadata.features import ELIGIBLE_LEADER_REPLICAS
from minibroker.broker.metadata.partitions import check_topic_name
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import ALTER_CLUSTER_CONFIGS, ALTER_GROUP_CONFIGS, ALTER_TOPIC_CONFIGS, Right
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from minibroker.protocol.steps import Steps, count_items_in_steps, run_steps_of_each_item

AlteredResource = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
AskedResource = IncrementalAlterConfigsRequest.AlterConfigsResource

TO_ALTER: dict[int, Right] = {
    ResourceType.TOPIC: ALTER_TOPIC_CONFIGS,
    ResourceType.BROKER: ALTER_CLUSTER_CONFIGS,
    ResourceType.BROKER_LOGGER: ALTER_CLUSTER_CONFIGS,
    ResourceType.CLIENT_METRICS: ALTER_CLUSTER_CONFIGS,
    ResourceType.GROUP: ALTER_GROUP_CONFIGS,
}
LIST_CHANGES = (ChangeKind.APPEND, ChangeKind.SUBTRACT)
GROUP_ROWS = {name: setting.row for name, setting in GROUP_SETTINGS.items()}


@handles(ApiKey.INCREMENTAL_ALTER_CONFIGS, durable=True)
async def incremental_alter_configs(
    context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    answers = await in_slices(
        change_configs_of_resources(
            context, request.resources, validate_only=request.validate_only, may_change_loggers=True
        )
    )
    return IncrementalAlterConfigsResponse(responses=answers)


def change_configs_of_resources(
    context: RequestContext, resources: Sequence[AskedResource], *, validate_only: bool, may_change_loggers: bool
) -> Steps[list[AlteredResource]]:
    """Check the changes of all resources, make them unless `validate_only`, and return a result for each.

    `may_change_loggers` is whether levels of loggers may be changed.
    """
    counts = yield from count_items_in_steps((resource.resource_type, resource.resource_name) for resource in resources)
    change = partial(
        _alter_configs_of_resource, context, counts, validate_only=validate_only, may_change_loggers=may_change_loggers
    )
    return (yield from run_steps_of_each_item(change, resources))


def _alter_configs_of_resource(
    context: RequestContext,
    counts: Mapping[tuple[int, str], int],
    resource: AskedResource,
    *,
    validate_only: bool,
    may_change_loggers: bool,
) -> Steps[AlteredResource]:
    kind, name = resource.resource_type, resource.resource_name
    answer = AlteredResource(resource_type=kind, resource_name=name, error_message=None)
    try:
        if counts[kind, name] > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        _check_config_resource(resource)
        if kind == ResourceType.BROKER_LOGGER and not may_change_loggers:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")
        if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
            context.authorize(TO_ALTER[kind])  # without a message, as in Kafka
        else:
            authorize_config_resource(context, TO_ALTER, kind, name)
        if kind == ResourceType.BROKER_LOGGER:
            _change_logger_levels(context, resource, validate_only=validate_only)
            return answer
        decided = _compute_new_configs(context, resource)
        check_config_text_sizes(decided.values())
        if decided and not validate_only:
            yield from context.cluster.controller.change_config_in_steps(kind, name, decided)
    except KafkaError as error:
        answer.error_code = error.code
        answer.error_message = error.message
    return answer


def _compute_new_configs(context: RequestContext, resource: AskedResource) -> dict[str, str | None]:
    """Return the new texts of the changed settings by name; None for those that are removed. Raises KafkaError."""
    if resource.resource_type == ResourceType.TOPIC:
        return _compute_new_topic_configs(context, resource.resource_name, _parse_config_changes(resource))
    if resource.resource_type == ResourceType.BROKER:
        return _compute_new_broker_configs(context, resource.resource_name, _parse_config_changes(resource))
    if resource.resource_type == ResourceType.GROUP:
        return _compute_new_group_configs(context, resource.resource_name, _parse_config_changes(resource))
    if resource.resource_type == ResourceType.CLIENT_METRICS:
        return _compute_new_client_metrics_configs(context, resource.resource_name, _parse_config_changes(resource))
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")


def _check_config_resource(resource: AskedResource) -> None:
    """Check what does not depend on rights, as Kafka does first. Raises KafkaError(INVALID_REQUEST)."""
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


def _parse_config_changes(resource: AskedResource) -> list[ConfigChange]:
    for config in resource.configs:
        if config.config_operation not in ChangeKind.__members__.values():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {config.config_operation}")
    return [
        ConfigChange(config.name, ChangeKind(config.config_operation), config.value or "")
        for config in resource.configs
    ]


def _compute_new_topic_configs(
    context: RequestContext, name: str, changes: Iterable[ConfigChange]
) -> dict[str, str | None]:
    cluster = context.cluster
    topic = context.find_topic(name)
    current = {} if topic is None else topic.overrides
    texts = apply_config_changes(TOPIC_SETTINGS, current, changes)
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    check_topic_name(name)
    valid = validate_topic_overrides(cluster.settings, texts)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    return find_config_changes(current, valid)


def _compute_new_broker_configs(
    context: RequestContext, name: str, changes: Sequence[ConfigChange]
) -> dict[str, str | None]:
    cluster = context.cluster
    if name:
        check_resource_is_own_broker(context, name, "Node id")
    current = cluster.image.get_configs(ResourceType.BROKER, name)
    texts = apply_config_changes(_find_list_settings(changes), current, changes)
    validate_broker_overrides(cluster.get_node_settings(context.node.node_id), texts, per_broker=bool(name))
    changed = find_config_changes(current, texts)
    check_listener_changes(context, changed, texts, per_broker=bool(name))
    # Settings that are set to the same value again are recorded too, as in Kafka: this rereads key store files.
    changed |= {change.name: texts[change.name] for change in changes if change.kind is ChangeKind.SET}
    named = {change.name for change in changes}
    if MINIMUM_ISR in named and cluster.image.features.get(ELIGIBLE_LEADER_REPLICAS):
        _check_min_isr_change(name, texts.get(MINIMUM_ISR))
    if CORDONED in named and not supports_cordoning(cluster.image):
        reason = "configuration value cannot be set because it requires metadata.version >= 4.3-IV0"
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"The {CORDONED} {reason}")
    return changed


def _find_list_settings(changes: Iterable[ConfigChange]) -> dict[str, Setting]:
    """Return the rows of settings with values to append or subtract. Raises KafkaError(INVALID_CONFIG)."""
    changed = [
        (change, get_broker_setting_declaration(change.name)) for change in changes if change.kind in LIST_CHANGES
    ]
    for change, row in changed:
        if row.type is ConfigType.UNKNOWN:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown config name: {change.name}")
        if row.type is not ConfigType.LIST:
            what = f"Config value {change.kind.name.lower()}"
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{what} is not allowed for config key: {change.name}")
    return {change.name: row for change, row in changed}


def _check_min_isr_change(name: str, text: str | None) -> None:
    """Raise KafkaError(INVALID_CONFIG) unless one value is set for all brokers, as KIP-966 needs it."""
    if name:
        message = f"Broker-level {MINIMUM_ISR} cannot be altered while ELR is enabled."
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)
    if text is None:
        message = f"Cluster-level {MINIMUM_ISR} cannot be removed while ELR is enabled."
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)


def _compute_new_group_configs(
    context: RequestContext, name: str, changes: Iterable[ConfigChange]
) -> dict[str, str | None]:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    current = context.cluster.image.configs.get((ResourceType.GROUP, name), {})
    texts = validate_group_overrides(context.cluster.settings, apply_config_changes(GROUP_ROWS, current, changes))
    return find_config_changes(current, texts)


def _compute_new_client_metrics_configs(
    context: RequestContext, name: str, changes: Iterable[ConfigChange]
) -> dict[str, str | None]:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    current = context.cluster.image.configs.get((ResourceType.CLIENT_METRICS, name), {})
    texts = validate_client_metrics_overrides(apply_config_changes(CLIENT_METRICS_SETTINGS, current, changes))
    if MATCH in texts:
        from minibroker.broker.client_telemetry import compile_match_patterns  # imported late: few brokers need it

        compile_match_patterns(texts[MATCH])
    return find_config_changes(current, texts)


def _change_logger_levels(context: RequestContext, resource: AskedResource, *, validate_only: bool) -> None:
    """Change the levels of loggers, unless `validate_only`. Raises KafkaError(INVALID_REQUEST or INVALID_CONFIG)."""
    name, node_id = resource.resource_name, context.node.node_id
    if not INTEGER.fullmatch(name):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if int(name) != node_id:
        message = f"Unexpected node id. Expected {node_id}, but received {int(name)}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    change_logger_levels(_parse_config_changes(resource), validate_only=validate_only)
