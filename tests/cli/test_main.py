"""The command line as a whole: helps, versions, and errors in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import click
import pytest

from minibroker import __version__
from minibroker.cli.main import COMMANDS
from minibroker.cli.mistakes import INSTEAD
from minibroker.cli.pipeline.pipeline_command import JOBS
from minibroker.cli.shared import SHORT_OPTIONS
from minibroker.protocol.records import strides
from tests.cases import for_each
from tests.cli.conftest import Run, all_commands

SUBCOMMANDS = {
    "topics": ("list", "create", "describe", "alter", "config", "delete"),
    "groups": ("list", "describe", "reset-offsets", "delete"),
    "transactions": ("list", "describe", "abort", "find-hanging"),
    "tokens": ("create", "renew", "expire", "describe"),
    "pipeline": JOBS,
}
ALL = [*([name] for name in COMMANDS), *([group, name] for group, names in SUBCOMMANDS.items() for name in names)]


def test_the_printed_version_is_that_of_the_package(run: Run) -> None:
    assert run("--version").stdout == f"minibroker {__version__}\n"


def test_the_printed_version_says_that_the_hot_path_is_compiled(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strides, "IS_COMPILED", True)
    assert run("--version").stdout == f"minibroker {__version__} (compiled)\n"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_the_command_without_arguments_lists_its_commands(run: Run, arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 0
    assert all(f"  {name} " in result.stdout for name in COMMANDS)


@for_each("command", ALL)
def test_the_help_of_each_command_has_an_example(run: Run, command: list[str]) -> None:
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


@pytest.mark.skipif(not hasattr(click.ParamType, "__class_getitem__"), reason="this click is an older one")
def test_the_help_works_with_an_older_click() -> None:
    """All versions from the lower bound on are tried in `conformance/test_libraries.py`, which fetches them."""
    code = BESIDE_CLICK_8_3.format(arguments=ALL)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count("Usage: ") == len(ALL)


@for_each(
    ("arguments", "complaint"),
    [
        (["sevre"], "there is no command minibroker sevre; did you mean serve?"),
        (["start"], "there is no command minibroker start; did you mean serve?"),
        (["xyz"], "there is no command minibroker xyz; see minibroker --help"),
        (["version"], "there is no command minibroker version; did you mean --version?"),
        (["topics", "help"], "there is no command minibroker topics help; did you mean --help?"),
        (["topics", "lst"], "there is no command minibroker topics lst; did you mean list?"),
        (["topics", "--list"], "there is no option --list; did you mean minibroker topics list?"),
        (["-b", "a:1", "topics", "list"], "there is no option -b; options follow the command's name"),
        (["topics", "create"], "TOPIC is missing; usage: minibroker topics create [OPTIONS] TOPIC"),
        (["topics", "alter", "t"], "--partitions is missing; usage: minibroker topics alter [OPTIONS] TOPIC"),
        (["topics", "list", "--jsn"], "there is no option --jsn; did you mean --json?"),
        (["topics", "list", "--quux"], "there is no option --quux; see minibroker topics list --help"),
        (
            ["topics", "list", "--broker-list", "a"],
            "there is no option --broker-list; did you mean --bootstrap-server HOST:PORT?",
        ),
        (
            ["serve", "--port", "9"],
            "there is no option --port; did you mean --set listeners=PLAINTEXT://127.0.0.1:PORT?",
        ),
        (["serve", "--log-dirs", "/tmp"], "there is no option --log-dirs; did you mean --set log.dirs=VALUE?"),
        (["topics", "list", "--timeout"], "--timeout needs a value"),
        (["topics", "list", "all"], "too many arguments: all; usage: minibroker topics list [OPTIONS]"),
        (["topics", "list", "--timeout", "soon"], "--timeout: 'soon' is not a number"),
    ],
)
def test_invalid_arguments_are_reported_in_one_line_with_status_2(
    run: Run, arguments: list[str], complaint: str
) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"minibroker: {complaint}\n")


def test_options_suggested_in_place_of_unknown_ones_exist() -> None:
    options = {name for _, command in all_commands() for each in command.params for name in each.opts}
    meant = {words.split()[0] for choices in INSTEAD.values() for words in choices}
    assert meant <= {*options, "no"}


@for_each(
    ("given", "meant"),
    [
        (["topics", "describe", "-t", "orders"], {"name": "orders"}),
        (["topics", "delete", "--topic=a", "b", "-t", "c"], {"names": ("a", "b", "c")}),
        (["groups", "describe", "--group", "billing", "-J"], {"group": "billing", "as_json": True}),
        (["groups", "delete-offsets", "-g", "billing", "-t", "a"], {"group": "billing", "topics": ("a",)}),
        (["produce", "--key-separator", "-t", "--topic", "orders"], {"topic": "orders", "key_separator": "-t"}),
        (["topics", "delete", "--", "-t"], {"names": ("-t",)}),
    ],
)
def test_a_topic_and_a_group_may_be_given_by_an_option(given: list[str], meant: dict[str, object]) -> None:
    words = 1 if given[0] == "produce" else 2
    command = dict(all_commands())[" ".join(["minibroker", *given[:words]])]
    assert command.make_context("name", given[words:]).params.items() >= meant.items()


def test_each_short_option_is_the_same_in_all_commands() -> None:
    for path, command in all_commands():
        options = [each for each in command.params if isinstance(each, click.Option)]
        names = [name for each in options for name in each.opts]
        assert len(names) == len(set(names)), path
        for option in options:
            expected = {SHORT_OPTIONS[name] for name in option.opts if name in SHORT_OPTIONS}
            assert {name for name in option.opts if len(name) == 2} >= expected, (path, option.opts)


def test_the_short_option_o_always_takes_an_offset() -> None:
    named = {option.metavar for _, command in all_commands() for option in command.params if "-o" in option.opts}
    assert named == {"OFFSET", "WHERE"}


@for_each("server", ["127.0.0.1:", "a b:1", "host:0", "host:65536", ",", "[::1:9", "a://b:1"])
def test_a_server_that_is_not_a_host_and_a_port_is_rejected(run: Run, server: str) -> None:
    result = run("topics", "list", "--bootstrap-server", server)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"minibroker: --bootstrap-server: {server!r} is not HOST:PORT")


def test_python_m_minibroker_is_the_command() -> None:
    run = subprocess.run([sys.executable, "-m", "minibroker", "--version"], capture_output=True, text=True, check=True)
    assert run.stdout == f"minibroker {__version__}\n"


def test_garbage_collection_is_enabled_only_once_a_command_runs() -> None:
    program = (
        "import gc, sys, minibroker.__main__ as process; from minibroker.cli.formats_command import formats\n"
        "print(gc.isenabled()); formats.callback = lambda **_: print(gc.isenabled(), gc.get_freeze_count() > 10_000)\n"
        "sys.argv[1:] = ['formats']; process.main()"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "False\nTrue True\n"


def test_serve_does_not_import_what_only_clients_need() -> None:
    program = (
        "import sys; before = set(sys.modules)\n"
        "import minibroker.cli.main, minibroker.cli.serve_command\n"
        "import minibroker.broker.process, minibroker.broker.configuration\n"
        "unneeded = {'rich', 'confluent_kafka', 'difflib', 'importlib.metadata', 'pathlib', 'dataclasses'}\n"
        "print(sorted(unneeded & (set(sys.modules) - before)))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def program(*arguments: str, **streams: Any) -> subprocess.CompletedProcess[str]:
    """Run the program with a standard output of its own."""
    command = [sys.executable, "-m", "minibroker", *arguments]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, **streams)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no device that is always full")
@pytest.mark.parametrize("arguments", [["formats"], ["show", "Metadata"], ["--help"]], ids=" ".join)
def test_a_full_disk_is_reported_in_one_line(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        ended = program(*arguments, stdout=full)
    assert (ended.returncode, ended.stderr) == (1, "minibroker: cannot write the output: No space left on device\n")


def test_a_closed_output_pipe_is_not_reported_as_an_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = program("formats", stdout=writer)
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (1, "")


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
def test_a_command_started_with_a_closed_stdout_ends_with_status_0() -> None:
    ended = subprocess.run(f"{sys.executable} -m minibroker formats >&-", shell=True, stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
