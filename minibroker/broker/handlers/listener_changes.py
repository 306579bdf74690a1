"""What AlterConfigs may change of listeners while a broker runs.

As in Kafka: listeners may be added, and those removed that are not advertised; what is open keeps its security protocol
and most of its settings, and keeps its address even if `listeners` names another one. Keys may be renewed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from minibroker.broker.configs.listener_settings import get_listener_setting
from minibroker.broker.configs.settings import Settings, SettingsError
from minibroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from minibroker.broker.configs.listeners import Listener
    from minibroker.broker.metadata.nodes import Node
    from minibroker.broker.requests.context import RequestContext

OF_LISTENERS = ("listeners", "listener.security.protocol.map")
LIMITS = ("max.connections", "max.connection.creation.rate")


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
    for name in LIMITS:
        for listener in node.endpoints:
            value = get_listener_setting(after, name, listener)
            if value == 0 != get_listener_setting(before, name, listener):
                raise _make_invalid_change_error(f"Invalid {name} {value}")


def _check_new_listeners(before: Settings, after: Settings) -> None:
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
    from minibroker.broker.configs.settings_without_effect import find_listener_of_setting, is_fixed_while_listener_open

    for listener in node.open_listeners:
        if any(
            find_listener_of_setting(name) == listener.lower() and is_fixed_while_listener_open(name)
            for name in changed
        ):
            message = f"Configs cannot be updated dynamically for existing listener {listener}, "
            raise _make_invalid_change_error(message + "restart broker or create a new listener for update")
