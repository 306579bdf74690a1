"""The command line as a whole: helps, versions, and errors in one line."""

from __future__ import annotations

import subprocess
import sys

import pytest

from minibroker import __version__
from minibroker.cli.main import COMMANDS
from minibroker.cli.pipeline.pipeline_command import JOBS
from tests.cli.conftest import Run

SUBCOMMANDS = {
    "topics": ("list", "create", "describe", "alter", "config", "delete"),
    "groups": ("list", "describe", "reset-offsets", "delete"),
    "transactions": ("list", "describe", "abort", "find-hanging"),
    "tokens": ("create", "renew", "expire", "describe"),
    "pipeline": JOBS,
}
ALL = [*([name] for name in COMMANDS), *([group, name] for group, names in SUBCOMMANDS.items() for name in names)]


def test_the_version_is_the_packages(run: Run) -> None:
    assert run("--version").stdout == f"minibroker {__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_alone_it_names_its_commands(run: Run, arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 0
    assert all(f"  {name} " in result.stdout for name in COMMANDS)


@pytest.mark.parametrize("command", ALL, ids=" ".join)
def test_each_command_explains_itself_with_an_example(run: Run, command: list[str]) -> None:
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert f"Example:\n      minibroker {command[0]}" in result.stdout or "| minibroker produce" in result.stdout


# Before click 8.4 its types take no parameters in brackets.
BESIDE_CLICK_8_3 = """
import click
class ParamType(click.ParamType[object]):
    name = "any"
click.ParamType = ParamType
from minibroker.cli.main import main
for arguments in {arguments}:
    try:
        main([*arguments, "--help"])
    except SystemExit as end:
        assert not end.code, arguments
"""


def test_each_command_explains_itself_beside_an_older_click() -> None:
    """All versions from the lower bound on are tried in `conformance/test_libraries.py`, which fetches them."""
    code = BESIDE_CLICK_8_3.format(arguments=ALL)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count("Usage: ") == len(ALL)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["sevre"], "No such command 'sevre'."),
        (["topics", "lst"], "No such command 'lst'."),
        (["topics", "create"], "Missing argument 'NAME'."),
        (["topics", "list", "--nope"], "No such option"),
    ],
)
def test_bad_input_is_one_line_and_status_2(run: Run, arguments: list[str], complaint: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert result.stderr.startswith(f"minibroker: {complaint}")


@pytest.mark.parametrize("server", ["127.0.0.1", "127.0.0.1:", "a b:1", "host:0", "host:65536", ",", "[::1:9"])
def test_a_server_is_a_host_and_a_port(run: Run, server: str) -> None:
    result = run("topics", "list", "--bootstrap-server", server)
    assert result.exit_code == 2
    assert result.stderr.startswith("minibroker: Invalid value for '--bootstrap-server': ")


def test_python_m_minibroker_is_the_command() -> None:
    run = subprocess.run([sys.executable, "-m", "minibroker", "--version"], capture_output=True, text=True, check=True)
    assert run.stdout == f"minibroker {__version__}\n"


def test_serving_does_not_load_what_only_the_clients_need() -> None:
    program = (
        "import sys, minibroker.cli.main, minibroker.cli.serve_command\n"
        "import minibroker.broker.process, minibroker.broker.configs.configuration\n"
        "print(sorted({'rich', 'confluent_kafka', 'difflib', 'importlib.metadata'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
