"""docs/running.md names every command, and settings that are as it says."""

from __future__ import annotations

import re

from minibroker.broker.configs.settings import Settings
from minibroker.cli.main import COMMANDS
from tests.test_readme import README

DOCUMENT = README.parent / "docs" / "running.md"


def test_every_command_is_in_the_table() -> None:
    rows = re.findall(r"^\| (`minibroker .*?) \|", DOCUMENT.read_text(), re.MULTILINE)
    words = {word for row in rows for word in re.findall(r"[a-z]+", row)}
    assert COMMANDS.keys() <= words


def test_the_defaults_that_differ_are_as_it_says() -> None:
    text, settings = DOCUMENT.read_text(), Settings({})
    assert f"`listeners` is `{settings['listeners'][0]}`, `log.dir` is `{settings['log.dir'][0]}`" in text
    for name in ("group.initial.rebalance.delay.ms", "group.consumer.assignment.interval.ms"):
        assert f"`{name}`" in text and settings[name] == 0
