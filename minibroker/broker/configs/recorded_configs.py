"""Configs in the metadata log that this broker cannot use, such as those of a newer Kafka.

`settings` validates new configs before they are recorded; this file handles those that a start finds.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from minibroker.broker.configs.client_metrics import CLIENT_METRICS_SETTINGS
from minibroker.broker.configs.group_settings import GROUP_SETTINGS
from minibroker.broker.configs.settings import get_broker_setting_declaration
from minibroker.broker.configs.settings_table import BROKER_SETTINGS, TOPIC_SETTINGS, Setting, SettingScope
from minibroker.broker.configs.settings_values import InvalidValue, parse_setting_value
from minibroker.protocol.messages.metadata_records import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)

log = logging.getLogger("minibroker.configs")

# What the broker settings begin with that nodes have each, beside the defaults of topics.
OF_EACH_NODE = ("cordoned.log.dirs", "listener", "max.connection")

# The settings of each kind of resource, and the name of the kind.
TABLES: dict[int, tuple[Mapping[str, Setting], str]] = {
    TOPIC_RESOURCE: (TOPIC_SETTINGS, "topic"),
    BROKER_RESOURCE: (BROKER_SETTINGS, "broker"),
    CLIENT_METRICS_RESOURCE: (CLIENT_METRICS_SETTINGS, "client metrics"),
    GROUP_RESOURCE: ({name: setting.row for name, setting in GROUP_SETTINGS.items()}, "group"),
}


def drop_unusable_configs(configs: Mapping[tuple[int, str], dict[str, str]]) -> None:
    """Remove what is unknown or invalid from `configs` (texts by name, by resource), and warn of each."""
    for (resource_type, resource), texts in configs.items():
        if resource_type not in TABLES:
            continue
        kind = TABLES[resource_type][1]
        for name in list(texts):
            reason = _find_reason_to_drop_config(_find_setting(resource_type, name), name, texts[name])
            if reason is not None:
                log.warning("the metadata sets %s of %s %s: ignored, %s", name, kind, resource or "(all)", reason)
                del texts[name]
        if resource_type == BROKER_RESOURCE:
            _warn_of_configs_without_effect(resource_type, resource, texts)


def _find_setting(resource_type: int, name: str) -> Setting | None:
    """Return the declaration of a setting; None if it is unknown, except for a broker, where Kafka allows any name."""
    return (
        get_broker_setting_declaration(name) if resource_type == BROKER_RESOURCE else TABLES[resource_type][0].get(name)
    )


def _find_reason_to_drop_config(setting: Setting | None, name: str, text: str) -> str | None:
    """Return why a recorded config is unknown or invalid, or None if it is usable."""
    if setting is None:
        return "as this broker does not know it"
    try:
        parse_setting_value(setting, name, text)
    except InvalidValue as error:
        return str(error)
    return None


def warn_of_settings_without_effect(
    resource_type: int, resource: str, configs: Mapping[str, str | None], first_node: int
) -> None:
    """Warn of settings that have no effect here, so that none is ignored silently.

    For parts that exist once per process, the settings of the first node apply.
    """
    is_further = resource_type == BROKER_RESOURCE and resource not in ("", str(first_node))
    for name in sorted(name for name, value in configs.items() if value is not None):
        row = _find_setting(resource_type, name)
        is_shared = (
            row is not None
            and row.has_effect
            and row.scope is not SettingScope.BOTH
            and not name.startswith(OF_EACH_NODE)
        )
        if is_further and is_shared:
            log.warning("broker %s: %s acts only as broker %d has it, for all nodes here", resource, name, first_node)
    _warn_of_configs_without_effect(resource_type, resource, configs)


def _warn_of_configs_without_effect(resource_type: int, resource: str, configs: Mapping[str, str | None]) -> None:
    kind = TABLES[resource_type][1]
    for name in sorted(name for name, value in configs.items() if value is not None):
        row = _find_setting(resource_type, name)
        if row is not None and not row.has_effect:
            log.warning("%s %s: %s is kept, but has no effect: %s", kind, resource or "(all)", name, row.inert)
