"""What the tests of the command line share: a command run in this process, and a broker for those that need one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import signature

import click
import pytest
from click.testing import CliRunner, Result

from minibroker.cli.main import main
from tests.running import RunningBroker, running_broker

Run = Callable[..., Result]


def all_commands() -> Iterator[tuple[str, click.Command]]:
    """Yield each command that is no group, by its path."""

    def below(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
        context = click.Context(group)
        for name in group.list_commands(context):
            found = group.get_command(context, name)
            assert found is not None
            yield from below(found, f"{path} {name}") if isinstance(found, click.Group) else [(f"{path} {name}", found)]

    return below(main, "minibroker")


def runner() -> CliRunner:
    """Return what runs commands and keeps stdout and stderr apart, which click does by itself from 8.2 on."""
    is_older = "mix_stderr" in signature(CliRunner).parameters
    return CliRunner(mix_stderr=False) if is_older else CliRunner()  # type: ignore[call-arg,unused-ignore]


@pytest.fixture
def run() -> Run:
    """Run `minibroker` with these arguments and this standard input; the result has exit_code, stdout and stderr."""

    def invoke(*arguments: str, stdin: bytes = b"") -> Result:
        return runner().invoke(main, arguments, input=stdin)

    return invoke


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker that the tests of a module share, each with topics of its own."""
    with running_broker(tmp_path_factory.mktemp("broker"), "num.partitions=2") as broker:
        yield broker


FOR_EVER = ("--config", "retention.ms=-1")  # for topics with records of long ago, which retention would delete


@pytest.fixture
def run_client(run: Run, broker: RunningBroker) -> Run:
    """Run a command of `minibroker` that is a client, against the broker."""

    def invoke(*arguments: str, stdin: bytes = b"") -> Result:
        return run(*arguments, "--bootstrap-server", broker.bootstrap_servers, stdin=stdin)

    return invoke
