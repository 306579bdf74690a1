"""`minibroker replay`: says which answers differ, and by its status whether any does."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from minibroker.cli.main import main
from minibroker.client.blocking import Client
from minibroker.client.connection_settings import ClientSettings
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.testing import Broker


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """The journal of a broker without topics."""
    with Broker() as broker, Client(ClientSettings({"bootstrap.servers": broker.bootstrap_servers})) as client:
        broker.journal.on()
        client.request(MetadataRequest(topics=None))
        broker.journal.save(tmp_path / "journal")
    return tmp_path / "journal"


def test_equal_responses_end_with_status_0(recorded: Path) -> None:
    with Broker() as broker:
        run = CliRunner().invoke(main, ["replay", str(recorded), "--to", broker.bootstrap_servers, "--api", "Metadata"])
    assert (run.output, run.exit_code) == ("1 request sent, 0 answers differ\n", 0)


def test_different_responses_are_shown_and_end_with_status_1(recorded: Path) -> None:
    with Broker() as broker:
        broker.create_topic("t")
        run = CliRunner().invoke(main, ["replay", str(recorded), "--to", broker.bootstrap_servers])
    assert run.exit_code == 1
    assert "  topics: 1 item in the place of 0\n" in run.output


def test_invalid_replay_arguments_are_reported_in_one_line(recorded: Path, tmp_path: Path) -> None:
    (tmp_path / "no").write_text("nothing")
    for arguments in (["no", "--to", "a:1"], [str(recorded), "--to", "127.0.0.1:1"]):
        run = CliRunner().invoke(main, ["replay", str(tmp_path / arguments[0]), *arguments[1:]])
        assert run.exit_code == 2 and len(run.stderr.splitlines()) == 1, run.output
