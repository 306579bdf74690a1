"""docs/running.md names every command, and settings that are as it says."""

from __future__ import annotations

import re

from minibroker.broker.configs.settings import Settings
from minibroker.broker.configs.settings_table import BROKER_SETTINGS, Setting, SettingScope
from minibroker.cli.main import COMMANDS
from tests.test_readme import README

DOCUMENT = README.parent / "docs" / "running.md"


def test_every_command_is_in_the_table_of_the_running_page() -> None:
    rows = re.findall(r"^\| (`minibroker .*?) \|", DOCUMENT.read_text(), re.MULTILINE)
    words = {word for row in rows for word in re.findall(r"[a-z]+", row)}
    assert COMMANDS.keys() <= words


def test_the_documented_defaults_that_differ_from_kafkas_are_those_of_the_code() -> None:
    text, settings = DOCUMENT.read_text(), Settings({})
    assert f"`listeners` is `{settings['listeners'][0]}`, and `log.dir` is `{settings['log.dir'][0]}`" in text
    paragraph = text.split("A few defaults differ from Kafka's")[1].split("\n\n")[0]
    named = {name for name in re.findall(r"`([a-z.]+)`", paragraph) if name in BROKER_SETTINGS}
    assert named == {row.name for row in BROKER_SETTINGS.values() if is_another_default(row)}
    waits = {name for name in named if name.startswith("group.")}
    assert len(waits) == 5 and {settings[name] for name in waits} == {0}


def is_another_default(row: Setting) -> bool:
    """Whether Kafka has the setting, with another default, and it is one that is set here."""
    return row.in_kafka and None not in (row.kafka_default, row.default) and row.scope is not SettingScope.TOPIC
