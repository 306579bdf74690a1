"""AlterConfigs and IncrementalAlterConfigs: settings of topics, brokers, groups and metrics subscriptions, log levels.

Behaviour: a change is checked together with the other settings of its resource, and made as a whole or not at all.
Each resource succeeds or fails by itself. The change is recorded in the metadata log and in effect before the answer;
only levels of loggers are not recorded. The empty broker name means all brokers. The settings and loggers of one
broker are changed by its own node only. A setting that cannot change while the broker runs is refused. Unknown names,
and broker settings without effect here, are recorded as in Kafka, with a warning in the log. If several brokers share
a process, a log uses the settings of its leader's node. The process has only one cleaner, for example; such parts use
the settings of the node with the lowest id.

AlterConfigs, which clients used before the other existed, sets what it names and removes all other settings of the
resource; it cannot change levels of loggers, as in Kafka.

Of listeners, as in Kafka: they may be added, and those removed that are not advertised; what is open keeps its security
protocol and most of its settings, and keeps its address even if `listeners` names another one. Keys may be renewed.

Versions: AlterConfigs 1 and 2 are like 0; 2 has flexible fields. IncrementalAlterConfigs 1 has flexible fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from minibroker.broker.configs.client_metrics import MATCH, validate_client_metrics_overrides
from minibroker.broker.configs.config_changes import (
    ChangeKind,
    ConfigChange,
    apply_config_changes,
    check_config_text_sizes,
    find_config_changes,
)
from minibroker.broker.configs.group_settings import validate_group_overrides
from minibroker.broker.configs.listeners import get_listener_setting
from minibroker.broker.configs.resource_configs import change_logger_levels
from minibroker.broker.configs.settings import (
    Settings,
    SettingsError,
    get_broker_setting_declaration,
    validate_broker_overrides,
    validate_topic_overrides,
)
from minibroker.broker.configs.settings_table import TOPIC_SETTINGS, ConfigType, Setting
from minibroker.broker.control.controller import MINIMUM_ISR
from minibroker.broker.delayed_operations import run_in_slices
from minibroker.broker.handlers.configs import (
    INTEGER,
    ResourceType,
    authorize_config_resource,
    check_resource_is_own_broker,
)
from minibroker.broker.metadata.cordoning import CORDONED, supports_cordoning
from minibroker.broker.metadata.features import ELIGIBLE_LEADER_REPLICAS
from minibroker.broker.metadata.partitions import check_topic_name
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import ALTER_CLUSTER_CONFIGS, ALTER_GROUP_CONFIGS, ALTER_TOPIC_CONFIGS, Right
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from minibroker.protocol.steps import (
    Steps,
    apply_to_items_in_steps,
    count_items_in_steps,
    run_steps_of_each_item,
    split_into_portions,
)

if TYPE_CHECKING:
    from minibroker.broker.configs.listeners import Listener
    from minibroker.broker.metadata.nodes import Node


OF_LISTENERS = ("listeners", "listener.security.protocol.map")
LIMITS = ("max.connections", "max.connection.creation.rate")
ChangedResource = IncrementalAlterConfigsRequest.AlterConfigsResource
ResourceAnswer = AlterConfigsResponse.AlterConfigsResourceResponse


def check_listener_changes(
    context: RequestContext, changed: Iterable[str], texts: Mapping[str, str], *, per_broker: bool
) -> None:
    """Check changes of the settings of this broker (`per_broker`) or of all. Raises KafkaError(INVALID_REQUEST)."""
    node, changed = context.node, frozenset(changed)
    before = context.cluster.get_node_settings(node.node_id)
    after = before.with_dynamic_configs(**{"broker" if per_broker else "cluster": texts})
    if any(name.endswith(LIMITS) for name in changed):
        _check_connection_limits(node, before, after)
    if not per_broker:
        return
    if changed.intersection(OF_LISTENERS):
        _check_new_listeners(before, after)
    if any(name.startswith("listener.name.") for name in changed):
        _check_open_listeners_unchanged(node, changed)
    for tls in node.tls.values():
        try:
            tls.make_tls_settings_if_changed(after)
        except SettingsError as error:
            raise _make_invalid_change_error(
                f"Validation of dynamic config update of SSLFactory failed: {error}"
            ) from None


def _make_invalid_change_error(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _check_connection_limits(node: Node, before: Settings, after: Settings) -> None:
    """Raise KafkaError(INVALID_REQUEST) if a limit of connections of a listener becomes 0."""
    for name in LIMITS:
        for listener in node.endpoints:
            value = get_listener_setting(after, name, listener)
            if value == 0 != get_listener_setting(before, name, listener):
                raise _make_invalid_change_error(f"Invalid {name} {value}")


def _check_new_listeners(before: Settings, after: Settings) -> None:
    """Raise KafkaError(INVALID_REQUEST) if listeners cannot change like this while the broker runs."""
    try:
        opened = _map_listeners_by_name(after)
    except SettingsError as error:
        raise _make_invalid_change_error(str(error)) from None
    present = _map_listeners_by_name(before)
    advertised = [text.partition(":")[0].upper() for text in before["advertised.listeners"] or ()] or [*present]
    missing = [name for name in advertised if name not in opened]
    if missing:
        message = f"Advertised listeners {advertised} must be a subset of listeners {[*opened]}"
        raise _make_invalid_change_error(message)
    for name, listener in opened.items():
        if name in present and present[name].security_protocol != listener.security_protocol:
            raise _make_invalid_change_error(f"Security protocol cannot be updated for existing listener {name}")


def _map_listeners_by_name(settings: Settings) -> dict[str, Listener]:
    """Return the listeners of these settings by their names. Raises SettingsError."""
    from minibroker.broker.configs.listeners import make_broker_listeners

    return {listener.name: listener for listener in make_broker_listeners(settings, all_advertised=False)}


def _check_open_listeners_unchanged(node: Node, changed: Iterable[str]) -> None:
    """Raise KafkaError(INVALID_REQUEST) if a setting of an open listener changes that is fixed while it is open."""
    from minibroker.broker.configs.settings_without_effect import find_listener_of_setting, is_fixed_while_listener_open

    for listener in node.open_listeners:
        if any(
            find_listener_of_setting(name) == listener.lower() and is_fixed_while_listener_open(name)
            for name in changed
        ):
            message = f"Configs cannot be updated dynamically for existing listener {listener}, "
            raise _make_invalid_change_error(message + "restart broker or create a new listener for update")


AlteredResource = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
RequestedResource = IncrementalAlterConfigsRequest.AlterConfigsResource

TO_ALTER: dict[int, Right] = {
    ResourceType.TOPIC: ALTER_TOPIC_CONFIGS,
    ResourceType.BROKER: ALTER_CLUSTER_CONFIGS,
    ResourceType.BROKER_LOGGER: ALTER_CLUSTER_CONFIGS,
    ResourceType.CLIENT_METRICS: ALTER_CLUSTER_CONFIGS,
    ResourceType.GROUP: ALTER_GROUP_CONFIGS,
}
LIST_CHANGES = (ChangeKind.APPEND, ChangeKind.SUBTRACT)
NO_LISTS: dict[str, Setting] = {}  # Kafka appends and subtracts only where a topic or a broker has the list


@handles(ApiKey.INCREMENTAL_ALTER_CONFIGS, durable=True)
async def incremental_alter_configs(
    context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    answers = await run_in_slices(
        change_configs_of_resources(
            context, request.resources, validate_only=request.validate_only, may_change_loggers=True
        )
    )
    return IncrementalAlterConfigsResponse(responses=answers)


def change_configs_of_resources(
    context: RequestContext, resources: Sequence[RequestedResource], *, validate_only: bool, may_change_loggers: bool
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
    resource: RequestedResource,
    *,
    validate_only: bool,
    may_change_loggers: bool,
) -> Steps[AlteredResource]:
    """Check the changes of a resource, whose count in the request must be 1, and make them; return the result."""
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
        decided = _compute_config_changes(context, resource)
        check_config_text_sizes(decided.values())
        if decided and not validate_only:
            yield from context.cluster.controller.change_config_in_steps(kind, name, decided)
    except KafkaError as error:
        answer.error_code = error.code
        answer.error_message = error.message
    return answer


def _compute_config_changes(context: RequestContext, resource: RequestedResource) -> dict[str, str | None]:
    """Return the new texts of the changed settings by name, None for those to remove. Raises KafkaError."""
    if resource.resource_type == ResourceType.TOPIC:
        return _compute_topic_config_changes(context, resource.resource_name, _parse_config_changes(resource))
    if resource.resource_type == ResourceType.BROKER:
        return _compute_broker_config_changes(context, resource.resource_name, _parse_config_changes(resource))
    if resource.resource_type == ResourceType.GROUP:
        return _compute_group_config_changes(context, resource.resource_name, _parse_config_changes(resource))
    if resource.resource_type == ResourceType.CLIENT_METRICS:
        return _compute_client_metrics_config_changes(context, resource.resource_name, _parse_config_changes(resource))
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")


def _check_config_resource(resource: RequestedResource) -> None:
    """Refuse repeated names and null values, before rights are checked. Raises KafkaError(INVALID_REQUEST)."""
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


def _parse_config_changes(resource: RequestedResource) -> list[ConfigChange]:
    for config in resource.configs:
        if config.config_operation not in ChangeKind.__members__.values():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {config.config_operation}")
    return [
        ConfigChange(config.name, ChangeKind(config.config_operation), config.value or "")
        for config in resource.configs
    ]


def _compute_topic_config_changes(
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


def _compute_broker_config_changes(
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
    """Return the list settings, by name, that get values appended or subtracted. Raises KafkaError(INVALID_CONFIG)."""
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


def _compute_group_config_changes(
    context: RequestContext, name: str, changes: Iterable[ConfigChange]
) -> dict[str, str | None]:
    current = context.cluster.image.configs.get((ResourceType.GROUP, name), {})
    texts = apply_config_changes(NO_LISTS, current, changes)
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    return find_config_changes(current, validate_group_overrides(context.cluster.settings, texts))


def _compute_client_metrics_config_changes(
    context: RequestContext, name: str, changes: Iterable[ConfigChange]
) -> dict[str, str | None]:
    current = context.cluster.image.configs.get((ResourceType.CLIENT_METRICS, name), {})
    texts = apply_config_changes(NO_LISTS, current, changes)
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    texts = validate_client_metrics_overrides(texts)
    if MATCH in texts:
        from minibroker.broker.client_telemetry import compile_match_patterns  # imported late: few brokers need it

        compile_match_patterns(texts[MATCH])
    return find_config_changes(current, texts)


def _change_logger_levels(context: RequestContext, resource: RequestedResource, *, validate_only: bool) -> None:
    """Change the levels of loggers, unless `validate_only`. Raises KafkaError(INVALID_REQUEST or INVALID_CONFIG)."""
    name, node_id = resource.resource_name, context.node.node_id
    if not INTEGER.fullmatch(name):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if int(name) != node_id:
        message = f"Unexpected node id. Expected {node_id}, but received {int(name)}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    change_logger_levels(_parse_config_changes(resource), validate_only=validate_only)


@handles(ApiKey.ALTER_CONFIGS, durable=True)
async def alter_configs(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    changes = await run_in_slices(
        run_steps_of_each_item(partial(_make_changes_replacing_configs, context), request.resources)
    )
    answers = await run_in_slices(
        change_configs_of_resources(context, changes, validate_only=request.validate_only, may_change_loggers=False)
    )
    return AlterConfigsResponse(
        responses=await run_in_slices(apply_to_items_in_steps(_convert_to_resource_answer, answers))
    )


def _make_changes_replacing_configs(
    context: RequestContext, resource: AlterConfigsRequest.AlterConfigsResource
) -> Steps[ChangedResource]:
    """Return the change after which a resource has exactly the settings in the request."""
    current = context.cluster.image.configs.get((resource.resource_type, resource.resource_name), {})
    removed = dict.fromkeys(current)
    changes: list[ChangedResource.AlterableConfig] = []
    for configs in split_into_portions(resource.configs):
        for config in configs:
            removed.pop(config.name, None)
            changes.append(_make_incremental_change(config.name, ChangeKind.SET, config.value))
        yield
    changes += [_make_incremental_change(name, ChangeKind.DELETE, None) for name in removed]
    return ChangedResource(resource_type=resource.resource_type, resource_name=resource.resource_name, configs=changes)


def _make_incremental_change(name: str, kind: ChangeKind, value: str | None) -> ChangedResource.AlterableConfig:
    return ChangedResource.AlterableConfig(name=name, config_operation=kind, value=value)


def _convert_to_resource_answer(altered_resource: AlteredResource) -> ResourceAnswer:
    return ResourceAnswer(
        error_code=altered_resource.error_code,
        error_message=altered_resource.error_message,
        resource_type=altered_resource.resource_type,
        resource_name=altered_resource.resource_name,
    )
