"""The settings that a group has for itself, as administrators give and see them: checked, and described.

Which there are, and what is in force, is in `group_settings`; how they are asked for is the handlers' business.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minibroker.broker.group_settings import GROUP_SETTINGS
from minibroker.broker.settings import ConfigEntry, ConfigSource, ConfigSynonym, Settings
from minibroker.broker.settings_values import InvalidValue, canonical_text, format_value, parse_value
from minibroker.protocol.errors import ErrorCode, KafkaError


def validate_group_overrides(settings: Settings, overrides: Mapping[str, str]) -> dict[str, str]:
    """The settings of a group, all of them together, as they are to be kept. Raises KafkaError(INVALID_CONFIG)."""
    texts = {name: _text(name, text) for name, text in overrides.items()}
    values: dict[str, Any] = {name: settings[setting.default] for name, setting in GROUP_SETTINGS.items()}
    for name, text in texts.items():
        setting = GROUP_SETTINGS[name]
        value: Any = parse_value(setting.row, name, text)
        if value < settings[setting.minimum]:
            raise _invalid(f"{name} must be greater than or equal to {setting.minimum}")
        if value > settings[setting.maximum]:
            raise _invalid(f"{name} must be less than or equal to {setting.maximum}")
        values[name] = value
    if values["consumer.session.timeout.ms"] <= values["consumer.heartbeat.interval.ms"]:
        raise _invalid("consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms")
    return texts


def _text(name: str, text: str) -> str:
    if name not in GROUP_SETTINGS:
        raise _invalid(f"Unknown group config name: {name}")
    try:
        return canonical_text(GROUP_SETTINGS[name].row, name, text)
    except InvalidValue as error:
        raise _invalid(str(error)) from None


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)


def describe_group(settings: Settings, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """All settings of a group with these (valid) overrides; those that it does not have are the broker's."""
    entries = []
    for name, setting in sorted(GROUP_SETTINGS.items()):
        synonyms = settings.synonyms(setting.default)
        value = format_value(settings[setting.default])
        if name in overrides:
            value = overrides[name]
            synonyms = (ConfigSynonym(name, value, ConfigSource.DYNAMIC_GROUP), *synonyms)
        entries.append(ConfigEntry(name, value, synonyms[0].source, setting.row, False, synonyms))
    return entries
