"""The settings as help: a text for `minibroker serve --help-settings`, and docs/settings.md.

    python3 -m minibroker.cli.settings_help > docs/settings.md

Both are made from the table in `broker.settings_table`; nothing is said here that is not there.
"""

from __future__ import annotations

from collections.abc import Iterator

from minibroker.broker.configs.settings_table import (
    SETTINGS,
    AnyCaseOf,
    AuthorizerClass,
    FormatVersion,
    NonEmpty,
    OneOf,
    Principals,
    Range,
    ReplicaList,
    Scope,
    Setting,
)
from minibroker.broker.configs.settings_values import format_value
from minibroker.broker.security.authorizer import STANDARD_AUTHORIZER

HEAD = ("setting", "of a topic", "type", "default", "values", "changes", "meaning")
PREAMBLE = """\
# Settings

Names, types, defaults and meaning are those of Apache Kafka 4.3. Where ours differ, the default says so. A setting
comes from `server.properties`, then from the environment (`MINIBROKER_LOG_SEGMENT_BYTES` is `log.segment.bytes`; two
underscores are one, three a dash), then from `--set` on the command line; the later wins. Under "of a topic" stands the
name by which a topic can have a value of its own, given to CreateTopics and IncrementalAlterConfigs. "Changes" is
whether a running broker takes a new value, from IncrementalAlterConfigs. With `--nodes` each node has its own id, rack
and ports, and takes changes for itself: a log goes by what its leader's node has, and what the process has but once,
such as the cleaner, by what the first node has.

A name that Kafka does not know is refused at the start. A name that Kafka knows and that changes nothing here yet is
accepted with a warning that names it, and so is any name that is set while the broker runs, as in Kafka.
DescribeConfigs lists all of them, and says "No effect yet"; those of them that a topic can have stand in this table.

Made from `minibroker/broker/configs/settings_table.py`: `python3 -m minibroker.cli.settings_help > docs/settings.md`.
"""


def rows() -> Iterator[list[str]]:
    """A row of texts for each setting, under HEAD, in the order of the table."""
    for row in SETTINGS:
        if not row.internal:
            yield [
                "" if row.scope is Scope.TOPIC else row.name,
                row.topic or "",
                row.type.name.lower(),
                _default(row),
                _values(row),
                "yes" if row.dynamic or row.scope is Scope.TOPIC else "",
                row.documentation if row.acts else f"{row.documentation} No effect yet.",
            ]


def help_text() -> str:
    """Two lines for each setting: what it is, and what it means."""
    return "".join(f"{', '.join(filter(None, _labelled(cells)))}\n    {cells[-1]}\n" for cells in rows())


def _labelled(cells: list[str]) -> list[str]:
    broker, topic, type, default, values, changes, _ = cells
    name = f"{broker} (of a topic: {topic})" if broker and topic else broker or f"{topic} (of a topic)"
    return [
        f"{name}: {type}",
        f"default {default}" if default else "",
        values,
        "changes while running" if changes else "",
    ]


def markdown() -> str:
    """The text of docs/settings.md."""
    lines = [HEAD, tuple("---" for _ in HEAD), *map(_marked, rows())]
    return PREAMBLE + "\n" + "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _marked(cells: list[str]) -> list[str]:
    """Names as code, and nothing that Markdown would read as its own."""
    escaped = [cell.replace("|", "\\|").replace("*", "\\*") for cell in cells]
    return [f"`{cell}`" if cell and index < 2 else cell for index, cell in enumerate(escaped)]


def _default(row: Setting) -> str:
    """The default, the fallback for want of one, and Kafka's where it is another."""
    text = format_value(row.default)
    if not row.in_kafka:
        return f"{text} (Kafka 4: {row.kafka_default or 'no such setting'})".lstrip()
    if text is None:
        text = " or ".join(name for name, _ in row.fallbacks)
    if row.kafka_default is None:
        return text
    theirs = format_value(row.kafka_default)
    return f"{text} (Kafka: {theirs})".lstrip()


def _values(row: Setting) -> str:
    valid = row.valid
    if isinstance(valid, OneOf | AnyCaseOf):
        return ", ".join(valid.choices)
    if isinstance(valid, NonEmpty):
        return "at least one"
    if isinstance(valid, FormatVersion):
        return "a version of Kafka, from 0.8.0 on"
    if isinstance(valid, ReplicaList):
        return "*, or partition:broker pairs"
    if isinstance(valid, AuthorizerClass):
        return STANDARD_AUTHORIZER
    if isinstance(valid, Principals):
        return "type:name, with semicolons between them"
    return _range(valid) if valid is not None else ""


def _range(valid: Range) -> str:
    text = f"from {valid.minimum}" if valid.maximum is None else f"{valid.minimum} to {valid.maximum}"
    return text if valid.or_equal_to is None else f"{text}, or {valid.or_equal_to}"


if __name__ == "__main__":
    print(markdown(), end="")
