"""The descriptions of groups, client metrics subscriptions and loggers for DescribeConfigs.

`settings` describes topics and brokers; `group_settings`, `client_metrics` and `logger_levels` define valid values.
"""

from __future__ import annotations

from collections.abc import Mapping

from minibroker.broker.configs.client_metrics import CLIENT_METRICS_SETTINGS
from minibroker.broker.configs.group_settings import GROUP_SETTINGS, GroupSetting
from minibroker.broker.configs.logger_levels import get_logger_levels
from minibroker.broker.configs.settings import ConfigEntry, ConfigSource, ConfigSynonym, Settings
from minibroker.broker.configs.settings_table import STRING, Setting
from minibroker.broker.configs.settings_values import format_setting_value


def describe_group_configs(settings: Settings, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Describe all settings of a group with these (valid) overrides; the broker's value is a synonym of its own."""
    return [
        _make_group_config_entry(settings, setting, overrides.get(name))
        for name, setting in sorted(GROUP_SETTINGS.items())
    ]


def _make_group_config_entry(settings: Settings, setting: GroupSetting, text: str | None) -> ConfigEntry:
    row, of_broker = setting.row, setting.default
    if of_broker is None:
        default = format_setting_value(row.default)
        others: tuple[ConfigSynonym, ...] = (ConfigSynonym(row.name, default, ConfigSource.DEFAULT),)
    else:
        default, others = format_setting_value(settings.get_value(of_broker)), settings.list_config_synonyms(of_broker)
    return _make_config_entry(row, text, ConfigSource.DYNAMIC_GROUP, default, others)


def describe_client_metrics_configs(overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Describe all settings of a subscription with these (valid) overrides."""
    return [
        _make_config_entry(
            row, overrides.get(name), ConfigSource.DYNAMIC_CLIENT_METRICS, format_setting_value(row.default), ()
        )
        for name, row in sorted(CLIENT_METRICS_SETTINGS.items())
    ]


def _make_config_entry(
    row: Setting,
    text: str | None,
    source: ConfigSource,
    default: str | None,
    further_synonyms: tuple[ConfigSynonym, ...],
) -> ConfigEntry:
    if text is not None:
        return ConfigEntry(
            row.name, text, source, row, False, (ConfigSynonym(row.name, text, source), *further_synonyms)
        )
    return ConfigEntry(
        row.name,
        default,
        further_synonyms[0].source if further_synonyms else ConfigSource.DEFAULT,
        row,
        False,
        further_synonyms,
    )


def describe_logger_configs() -> list[ConfigEntry]:
    """Describe the loggers of this process, with their effective levels as values."""
    return [
        ConfigEntry(name, level, ConfigSource.DYNAMIC_BROKER_LOGGER, Setting(name, STRING, None, ""), False, ())
        for name, level in get_logger_levels().items()
    ]
