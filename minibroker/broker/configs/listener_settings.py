"""Settings that can be set for a listener, or for a SASL mechanism of it, as in Kafka.

listener.name.<listener>.<mechanism>.<setting>      in lower case; overrides the next ones
listener.name.<listener>.<setting>
<setting>
"""

from __future__ import annotations

from typing import Any

from minibroker.broker.configs.settings import Settings, SettingsError, get_broker_setting_declaration
from minibroker.broker.configs.settings_table import ConfigType
from minibroker.broker.configs.settings_values import InvalidValue, parse_setting_value


def get_listener_setting(settings: Settings, name: str, listener: str, mechanism: str | None = None) -> Any:
    """Return the typed value of a setting for a listener, or for a mechanism of it. Raises SettingsError."""
    own = f"listener.name.{listener.lower()}."
    prefixes = (own,) if mechanism is None else (f"{own}{mechanism.lower()}.", own)
    for prefix in prefixes:
        value = settings.get_value(prefix + name)
        if value is not None:
            return _parse_listener_value(name, prefix + name, value)
    return settings.get_value(name)


def _parse_listener_value(name: str, full_name: str, value: Any) -> Any:
    """Return the typed value; for a name without a row, return the text."""
    if get_broker_setting_declaration(full_name).type is not ConfigType.UNKNOWN:
        return value
    try:
        return parse_setting_value(get_broker_setting_declaration(name), full_name, value)
    except InvalidValue as error:
        raise SettingsError(str(error)) from None
