"""The help for settings: the text of `minibroker serve --help-settings`, and the rows of the site's page.

Both are generated from the table in `broker.configs.settings_table`.
"""

from __future__ import annotations

from collections.abc import Iterator

from minibroker.broker.configs.settings_table import SETTINGS, Setting, SettingScope
from minibroker.broker.configs.settings_values import format_setting_value
from minibroker.broker.configs.valid_values import (
    STANDARD_AUTHORIZER,
    AnyCaseOf,
    AuthorizerClass,
    ConnectionCounts,
    FormatVersion,
    NonEmpty,
    OneOf,
    Principals,
    Range,
    ReplicaList,
)

HEAD = ("setting", "of a topic", "type", "default", "values", "changes", "meaning")


def iterate_setting_rows() -> Iterator[list[str]]:
    """Yield a row of cells for each setting, one cell for each column of `HEAD`."""
    for row in SETTINGS:
        if not row.internal:
            yield [
                "" if row.scope is SettingScope.TOPIC else row.name,
                row.topic or "",
                row.type.name.lower(),
                _format_default(row),
                _format_values(row),
                "yes" if row.is_dynamic or row.scope is SettingScope.TOPIC else "",
                row.full_documentation,
            ]


def format_help() -> str:
    """Return two lines for each setting: its facts and its meaning."""
    return "".join(
        f"{', '.join(filter(None, _make_labelled_lines(cells)))}\n    {cells[-1]}\n" for cells in iterate_setting_rows()
    )


def _make_labelled_lines(cells: list[str]) -> list[str]:
    """Return the facts about a setting, whose table cells these are, one in each line; empty if it has none."""
    broker, topic, type, default, values, changes, _ = cells
    name = f"{broker} (of a topic: {topic})" if broker and topic else broker or f"{topic} (of a topic)"
    return [
        f"{name}: {type}",
        f"default {default}" if default else "",
        values,
        "changes while running" if changes else "",
    ]


def _format_default(row: Setting) -> str:
    """Return the default, or the fallback if there is none, and Kafka's default where it differs."""
    text = format_setting_value(row.default)
    if not row.in_kafka:
        return f"{text} (Kafka 4: {row.kafka_default or 'no such setting'})".lstrip()
    if text is None:
        text = " or ".join(name for name, _ in row.fallbacks)
    if row.kafka_default is None:
        return text
    theirs = format_setting_value(row.kafka_default)
    return f"{text} (Kafka: {theirs})".lstrip()


def _format_values(row: Setting) -> str:
    valid = row.valid
    if isinstance(valid, OneOf | AnyCaseOf):
        return ", ".join(valid.choices)
    if isinstance(valid, NonEmpty):
        return "at least one"
    if isinstance(valid, FormatVersion):
        return "a version of Kafka, from 0.8.0 on"
    if isinstance(valid, ReplicaList):
        return "*, or partition:broker pairs"
    if isinstance(valid, ConnectionCounts):
        return "address:number pairs"
    if isinstance(valid, AuthorizerClass):
        return STANDARD_AUTHORIZER
    if isinstance(valid, Principals):
        return "type:name, with semicolons between them"
    return _format_range(valid) if isinstance(valid, Range) else ""


def _format_range(valid: Range) -> str:
    text = f"from {valid.minimum}" if valid.maximum is None else f"{valid.minimum} to {valid.maximum}"
    return text if valid.or_equal_to is None else f"{text}, or {valid.or_equal_to}"
