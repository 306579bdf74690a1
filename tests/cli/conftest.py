"""What the tests of the command line share: a command run in this process, and a broker for those that need one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from minibroker.cli.main import main
from tests.running import RunningBroker, running_broker

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    """Run `minibroker` with these arguments and this standard input; the result has exit_code, stdout and stderr."""

    def invoke(*arguments: str, stdin: bytes = b"") -> Result:
        return CliRunner().invoke(main, arguments, input=stdin)

    return invoke


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker that the tests of a module share, each with topics of its own."""
    with running_broker(tmp_path_factory.mktemp("broker"), "num.partitions=2") as broker:
        yield broker


@pytest.fixture
def run_client(run: Run, broker: RunningBroker) -> Run:
    """Run a command of `minibroker` that is a client, against the broker."""

    def invoke(*arguments: str, stdin: bytes = b"") -> Result:
        return run(*arguments, "--bootstrap-server", broker.bootstrap_servers, stdin=stdin)

    return invoke
