"""The options of `serve` that are read without click are read as click reads them."""

from __future__ import annotations

from typing import Any

import click
import pytest

from minibroker.cli import serve_command
from minibroker.cli.plain_options import FLAGS, MANY, ONE, parse_plain_options

BY_CLICK = ("--help-settings",)


def by_click(words: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what the command hands on."""
    found: dict[str, Any] = {}
    monkeypatch.setattr(serve_command, "serve_until_signal", lambda **options: found.update(options))
    with pytest.raises(SystemExit):
        serve_command.serve(words)
    return found


def test_each_option_of_serve_is_parsed_without_click() -> None:
    declared = [each for each in serve_command.serve.params if isinstance(each, click.Option)]
    assert {name for each in declared for name in each.opts} - {*BY_CLICK} == {*ONE, *MANY, *FLAGS}
    assert {name for each in declared if each.is_flag for name in each.opts} - {*BY_CLICK} == {*FLAGS}
    assert {name for each in declared if each.multiple for name in each.opts} == {*MANY}


@pytest.mark.parametrize(
    "line",
    [
        "",
        "server.properties --nodes 3",
        "--nodes=100 server.properties",
        "--set a=b --set=c=d=e --user alice:secret --add-scram SCRAM-SHA-256=[name=a,password=b]",
        "--control 0 --control-token t --registry=127.0.0.1:8081 --explorer --faults faults.yaml",
        "--metrics-port 0 --metrics-tls --emulate 2.8 --security SASL_SSL --cluster-id abc",
        "--ready-file /tmp/ready --until-stdin-closes --temporary --container",
        "--log-level debug --log-format json --log-level error",
        "--set --nodes",
    ],
)
def test_options_parsed_without_click_equal_those_parsed_by_click(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_plain_options(line.split(), {}) == by_click(line.split(), monkeypatch)


@pytest.mark.parametrize("token", ["t", ""])
def test_the_control_token_may_come_from_the_environment(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINIBROKER_CONTROL_TOKEN", token)
    found = parse_plain_options(["--control", "0"], {"MINIBROKER_CONTROL_TOKEN": token})
    assert found == by_click(["--control", "0"], monkeypatch)


@pytest.mark.parametrize(
    "line",
    [
        "--help",
        "-h",
        "--help-settings",
        "--nodes",
        "--nodes 0",
        "--nodes 101",
        "--nodes three",
        "--nodes +3",
        "--metrics-port 65536",
        "--security TLS",
        "--log-level WARN",
        "--explorer=yes",
        "--control-token t",
        "--prot 1",
        "one.properties two.properties",
        "-- one.properties",
    ],
)
def test_arguments_that_the_plain_parser_does_not_know_are_left_to_click(line: str) -> None:
    assert parse_plain_options(line.split(), {}) is None


def test_shell_completion_is_left_to_click() -> None:
    assert parse_plain_options([], {"_MINIBROKER_COMPLETE": "bash_complete"}) is None
