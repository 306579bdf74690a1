"""What docs/pipeline.md says of tables and options is what there is."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from minibroker.cli.pipeline.pipeline_command import pipeline
from minibroker.client.connection_settings import RemainingSettings
from minibroker.pipeline.brokers.broker_source import FetchSettings
from minibroker.pipeline.brokers.client import FIXED, make_client_settings
from minibroker.pipeline.log_source import OptionError
from minibroker.pipeline.options import NAMES
from minibroker.pipeline.schemas import BATCHES, RECORDS
from minibroker.pipeline.sink.sink_settings import parse_settings

DOCUMENT = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text()


def first_cells(heading: str) -> list[str]:
    """The words in code in the first column of a section's table."""
    section = DOCUMENT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    cells = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    return [word for cell in cells for word in re.findall(r"`([^`]+)`", cell)]


def test_exactly_the_existing_options_are_documented() -> None:
    assert sorted(first_cells("Options")) == sorted([*NAMES, "kafka.*"])


def test_the_documented_pipeline_commands_for_a_cluster_are_parsed() -> None:
    """None of them can run here: there is neither that cluster nor a log directory that its machines share."""
    commands = re.findall(r"^    minibroker pipeline ((?:.*\\\n)*.*)$", DOCUMENT, re.MULTILINE)
    masters = set()
    for words in (shlex.split(command.replace("\\\n", " ").replace("/shared/", "/")) for command in commands):
        words = ["." if word == "/minibroker-data" else word for word in words]
        command = pipeline.get_command(click.Context(pipeline), words[0])
        assert command is not None
        masters.add(command.make_context(words[0], words[1:]).params["master"].partition("://")[0])
    assert masters == {"spark", "k8s"}


def test_exactly_the_existing_columns_are_documented() -> None:
    assert first_cells("The records") == RECORDS.names
    assert first_cells("The batches") == BATCHES.names


def names_offered(settings: RemainingSettings, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the names among which the nearest one is looked for when a setting is not known."""
    offered: list[str] = []
    monkeypatch.setattr("difflib.get_close_matches", lambda _, names, *__: offered.extend(names) or [])
    with pytest.raises(OptionError, match=r"kafka\.colour is not known$"):
        make_client_settings("127.0.0.1:9092", RemainingSettings({**settings, "colour": "red"}, settings.known))
    return set(offered)


def test_exactly_the_existing_connection_settings_are_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = RemainingSettings({})
    FetchSettings.pop_from_settings(settings)
    names = (
        names_offered(settings, monkeypatch) - FIXED.keys() - {"ssl.keystore.password", "bootstrap.servers"}
    )  # always refused
    assert set(first_cells("To which broker, and as whom")) == names
    assert all(re.search(rf"`{re.escape(name)}`\s(can )?only", DOCUMENT) for name in FIXED)


def test_every_producer_setting_is_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = parse_settings({"kafka.bootstrap.servers": "127.0.0.1:9092"}).client
    assert isinstance(settings, RemainingSettings)
    section = DOCUMENT.split("\nThe producer uses these settings: ")[1].split("\n\n")[0]
    codecs = {name for name in settings.known if re.fullmatch(r"compression\.[a-z0-9]+\.level", name)}
    assert codecs == {f"compression.{codec}.level" for codec in ("gzip", "lz4", "zstd")}
    documented = set(re.findall(r"`([a-z.]+)`", section)) - {"all"}
    assert documented == settings.known - codecs - {"bootstrap.servers"}
    assert settings.known < names_offered(settings, monkeypatch)
