"""Completion in a shell: scripts for it, and the names that the program offers."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from click.shell_completion import ShellComplete

from minibroker.cli.completion_command import SHELLS, VARIABLE
from minibroker.cli.main import main
from tests.cases import for_each
from tests.cli.conftest import Run
from tests.running import RunningBroker


def completed(*words: str) -> list[str]:
    """Return what the program offers for the last word."""
    *given, incomplete = words
    found = ShellComplete(main, {}, "minibroker", VARIABLE).get_completions(list(given), incomplete)
    return [each.value for each in found]


@pytest.mark.parametrize("shell", SHELLS)
def test_each_completion_script_is_accepted_by_its_shell(run: Run, shell: str) -> None:
    result = run("completion", shell)
    assert result.exit_code == 0 and VARIABLE in result.stdout
    if shutil.which(shell) is not None:
        subprocess.run([shell, "-n"], input=result.stdout, text=True, check=True)


def test_an_unknown_shell_is_rejected(run: Run) -> None:
    assert run("completion", "cmd").exit_code == 2


@for_each(
    ("words", "expected"),
    [
        (("top",), ["topics"]),
        (("topics", "de"), ["delete", "describe"]),
        (("topics", "list", "--js"), ["--json"]),
        (("show", "Metadat"), ["Metadata", "MetadataRequest", "MetadataResponse"]),
        (("serve", "--set", "num.part"), ["num.partitions="]),
        (("topics", "create", "t", "--config", "retention.m"), ["retention.ms="]),
        (("topics", "config", "t", "--delete", "retention.m"), ["retention.ms"]),
        (("produce", "t", "--compression", "lz"), ["lz4"]),
    ],
)
def test_commands_options_and_kafkas_names_are_completed_without_a_server(
    words: tuple[str, ...], expected: list[str]
) -> None:
    assert completed(*words) == expected


def test_completed_topics_and_groups_are_requested_from_the_server(run_client: Run, broker: RunningBroker) -> None:
    server = ("-b", broker.bootstrap_servers)
    for name in ("orders", "orders-again", "payments"):
        run_client("topics", "create", name)
    run_client("produce", "orders", stdin=b"a\n")
    run_client("groups", "reset-offsets", "billing", "--topic", "orders", "--to-latest", "--execute")
    assert completed("topics", "describe", *server, "ord") == ["orders", "orders-again"]
    assert completed("topics", "describe", *server, "") == ["orders", "orders-again", "payments"]
    assert completed("topics", "delete", *server, "__") == ["__consumer_offsets"]
    assert completed("groups", "delete-offsets", "billing", *server, "--topic", "pay") == ["payments"]
    assert completed("groups", "describe", *server, "b") == ["billing"]


@pytest.mark.parametrize(
    "options",
    [("-b", "127.0.0.1:1"), ("-b", "a b"), ("--client", "foo=1"), ("--command-config", "/no/such/file")],
    ids=" ".join,
)
def test_nothing_is_completed_or_printed_without_a_server(
    options: tuple[str, str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINIBROKER_BOOTSTRAP_SERVER", "127.0.0.1:1")
    assert completed("topics", "describe", *options, "") == []
    assert capfd.readouterr() == ("", "")
