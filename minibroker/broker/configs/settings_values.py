"""Parsing and formatting of a setting's value, by Kafka's rules and with Kafka's error messages.

Rules between settings are in `settings`; `configuration` knows the sources of texts.
"""

from __future__ import annotations

import re
from math import isinf
from typing import Any

from minibroker.broker.configs.settings_table import ConfigType, Setting, SettingValue
from minibroker.broker.configs.valid_values import OneOf

BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
# What Java's Integer.parseInt and Double.parseDouble take; Python's int() also takes 1_000, and float() also nan.
INTEGER = re.compile(r"[+-]?[0-9]+")
DECIMAL = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?(?=[fFdD]?$)"
# The longest meaningful number; int() of a million digits would stall the broker.
NUMBER_LENGTH = 400
CLIENT_METRICS_LISTS = frozenset({"match", "metrics"})
MOST_PLACES = 16  # after the point, to distinguish all doubles


class InvalidValue(ValueError):
    """A text that is no valid value of its setting; the message is Kafka's, in one line."""


def parse_setting_value(setting: Setting, name: str, text: str) -> SettingValue:
    """Return the typed value of a text.

    `name` is the setting's name in error messages, that of the broker or of the topic. Raises InvalidValue.
    """
    try:
        value = _parse_as_config_type(setting.type, text.strip())
    except ValueError as error:
        raise InvalidValue(f"Invalid value {text} for configuration {name}: {error}") from None
    if isinstance(value, tuple):
        may_repeat = name == setting.topic or name in CLIENT_METRICS_LISTS
        value = _remove_duplicates_of_list(value, name, may_repeat=may_repeat)
    objection = setting.valid.find_validation_error(value) if setting.valid is not None else None
    if objection is not None:
        raise InvalidValue(
            f"Invalid value {_find_unparsable_part(setting, value)} for configuration {name}: {objection}"
        )
    return value


def _find_unparsable_part(setting: Setting, value: SettingValue) -> str | None:
    """Return the text that an error names: in a list, the first element that is not allowed."""
    if isinstance(setting.valid, OneOf) and isinstance(value, tuple):
        return next((word for word in value if word not in setting.valid.choices), "")
    return format_setting_value(value)


def _parse_as_config_type(type: ConfigType, text: str) -> SettingValue:
    if type is ConfigType.BOOLEAN:
        return _parse_boolean(text)
    if type in BITS:
        return _parse_integer(type, text)
    if type is ConfigType.DOUBLE:
        return _parse_double(text)
    if type is ConfigType.LIST:
        return _parse_list(text)
    return text


def _parse_boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("Expected value to be either true or false")
    return text.lower() == "true"


def _parse_integer(type: ConfigType, text: str) -> int:
    bound = 1 << (BITS[type] - 1)
    if len(text) > NUMBER_LENGTH or not INTEGER.fullmatch(text) or not -bound <= int(text) < bound:
        raise ValueError(f"Not a number of type {type.name}")
    return int(text)


def _parse_double(text: str) -> float:
    number = re.match(DECIMAL, text) if len(text) <= NUMBER_LENGTH else None
    if number is None:
        raise ValueError("Not a number of type DOUBLE")
    return float(number[0])


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(element.strip() for element in text.split(",")) if text else ()


def _remove_duplicates_of_list(elements: tuple[str, ...], name: str, *, may_repeat: bool) -> tuple[str, ...]:
    """Return the list without duplicates, which Kafka accepts for topics and client metrics, not for a broker."""
    if not all(elements):
        raise InvalidValue(f"Configuration '{name}' values must not be empty.")
    once = tuple(dict.fromkeys(elements))
    if len(once) < len(elements) and not may_repeat:
        raise InvalidValue(f"Configuration '{name}' values must not be duplicated.")
    return once


def format_setting_value(value: Any) -> str | None:
    """Return the text of a typed value, as DescribeConfigs shows it; None for None."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return _format_double(value) if isinstance(value, float) else str(value)


def _format_double(value: float) -> str:
    """Return the number as Java writes it: 1.0E7 from ten million on, 1.0E-4 below a thousandth."""
    if isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    texts = (f"{value:.{places}e}" for places in range(1, MOST_PLACES + 1))
    mantissa, _, exponent = next(text for text in texts if float(text) == value).partition("e")
    return f"{mantissa}E{int(exponent)}"


def normalize_setting_text(setting: Setting, name: str, text: str) -> str:
    """Return the normalized text: trimmed, a list without blanks and duplicates. Raises InvalidValue."""
    return format_setting_value(parse_setting_value(setting, name, text)) or ""
