"""The descriptions of groups, client metrics subscriptions and loggers for DescribeConfigs.

`settings` describes topics and brokers; `group_settings` and `client_metrics` define valid
values. Levels of loggers have Kafka's names (KIP-412), and are not stored: the next start uses those of its command
line.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from minibroker.broker.configs.client_metrics import CLIENT_METRICS_SETTINGS
from minibroker.broker.configs.config_changes import ChangeKind, ConfigChange
from minibroker.broker.configs.group_settings import GROUP_SETTINGS, GroupSetting
from minibroker.broker.configs.settings import ConfigEntry, ConfigSource, ConfigSynonym, Settings
from minibroker.broker.configs.settings_table import STRING, Setting
from minibroker.broker.configs.settings_values import format_setting_value
from minibroker.protocol.errors import ErrorCode, KafkaError

ROOT = "root"
# Kafka's names, the quietest first; Python has no level below DEBUG.
LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}

log = logging.getLogger("minibroker.configs")


def get_logger_levels() -> dict[str, str]:
    """Return the effective level of each logger, by name."""
    found = {ROOT: logging.getLogger()}
    for name, known in sorted(logging.root.manager.loggerDict.items()):
        if isinstance(known, logging.Logger):  # otherwise it is only a prefix of another name
            found[name] = known
    return {name: _get_level_name(logger.getEffectiveLevel()) for name, logger in found.items()}


def _get_level_name(level: int) -> str:
    return next((text for text, number in LEVELS.items() if number <= level), "TRACE")


def change_logger_levels(changes: Iterable[ConfigChange], *, validate_only: bool) -> None:
    """Set and unset levels, all or none. Raises KafkaError: INVALID_CONFIG, INVALID_REQUEST."""
    wanted = list(changes)
    known = get_logger_levels()
    for change in wanted:
        _check_level_change(change, known)
    if not validate_only:
        for change in wanted:
            logger = logging.getLogger(None if change.name == ROOT else change.name)
            logger.setLevel(LEVELS[change.value] if change.kind is ChangeKind.SET else logging.NOTSET)
            log.warning("logger %s is at level %s now", change.name, _get_level_name(logger.getEffectiveLevel()))


def _check_level_change(change: ConfigChange, known_levels: dict[str, str]) -> None:
    if change.kind not in (ChangeKind.SET, ChangeKind.DELETE):
        message = f"{change.kind.name} operation is not allowed for the BROKER_LOGGER resource"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    if change.name not in known_levels:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!")
    if change.kind is ChangeKind.DELETE and change.name == ROOT:
        message = f"Removing the log level of the {ROOT} logger is not allowed"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    if change.kind is ChangeKind.SET and change.value not in LEVELS:
        reason = f"as it is not a supported log level. Valid log levels are {', '.join(sorted(LEVELS))}"
        message = f"Cannot set the log level of {change.name} to {change.value} {reason}"
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)


def describe_group_configs(settings: Settings, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Describe all settings of a group with these (valid) overrides, with the broker's defaults as synonyms."""
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
    setting: Setting,
    text: str | None,
    source: ConfigSource,
    default: str | None,
    further_synonyms: tuple[ConfigSynonym, ...],
) -> ConfigEntry:
    """Return the entry of a setting with the value `text` from `source`; without a text, the `default` in its place."""
    if text is not None:
        return ConfigEntry(
            setting.name, text, source, setting, False, (ConfigSynonym(setting.name, text, source), *further_synonyms)
        )
    return ConfigEntry(
        setting.name,
        default,
        further_synonyms[0].source if further_synonyms else ConfigSource.DEFAULT,
        setting,
        False,
        further_synonyms,
    )


def describe_logger_configs() -> list[ConfigEntry]:
    """Describe the loggers of this process, with their effective levels as values."""
    return [
        ConfigEntry(name, level, ConfigSource.DYNAMIC_BROKER_LOGGER, Setting(name, STRING, None, ""), False, ())
        for name, level in get_logger_levels().items()
    ]
