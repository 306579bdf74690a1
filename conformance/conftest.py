"""What every test here starts from: a broker to ask, which is minibroker unless `--against kafka` says otherwise."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import pytest

from conformance import spec
from conformance.builds import QUICK_JAVA
from conformance.clients import CLIENTS
from conformance.kafka_reference import running_kafka
from conformance.kafka_tools import Tool, run_tool
from tests.leaving import leaves_sockets
from tests.running import RunningBroker, running_broker

__all__ = ["leaves_sockets"]
HERE = Path(__file__).parent
collect_ignore_glob = ["*/target/*"]  # libraries of programs in Python, with tests of their own
# The first test that needs a program also builds it, and fetches what it is built from.
TIMEOUT_S = 600
SETTINGS = {"num.partitions": str(spec.PARTITIONS)}


class Broker(Protocol):
    """A broker process, whichever it is, as the tests use it."""

    bootstrap_servers: str

    def kill(self) -> None:
        """Ends the process as a crash would."""

    def start(self) -> None:
        """Starts it again on the same data; the address may be another."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--against", choices=("minibroker", "kafka"), help="the broker to ask, a process; minibroker's")


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("MAVEN_OPTS", " ".join(QUICK_JAVA))
    config.addinivalue_line("markers", "minibroker_only: asks for what the one Apache Kafka of these tests has not")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ours = [item for item in items if item.path.is_relative_to(HERE)]
    for item in ours:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))
    if config.getoption("--against") == "kafka":
        left_out = [item for item in ours if item.get_closest_marker("minibroker_only")]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


@pytest.fixture(scope="session")
def against(request: pytest.FixtureRequest) -> str:
    """Which broker is asked: "minibroker" or "kafka"."""
    chosen: str | None = request.config.getoption("--against")
    return chosen or "minibroker"


StartMinibroker = Callable[[Path, Mapping[str, str]], AbstractContextManager[Broker]]


def process_with(directory: Path, settings: Mapping[str, str]) -> AbstractContextManager[RunningBroker]:
    """A minibroker in a process of its own for the length of a block."""
    return running_broker(directory, *(f"{name}={value}" for name, value in settings.items()))


@pytest.fixture(scope="session")
def start_minibroker() -> StartMinibroker:
    """Starts a minibroker with its data in a directory, and with settings."""
    return process_with


@pytest.fixture(scope="session")
def start_broker(against: str, start_minibroker: StartMinibroker) -> Callable[[Path], AbstractContextManager[Broker]]:
    """Starts a broker of its own with the data in a directory, for tests that end it."""
    start = running_kafka if against == "kafka" else start_minibroker
    return lambda directory: start(directory, SETTINGS)


@pytest.fixture(scope="session")
def broker(
    start_broker: Callable[[Path], AbstractContextManager[Broker]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """The broker that most tests share; every test has topics of its own there."""
    with start_broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="session")
def kafka_tool() -> Tool:
    """Runs a command-line tool of Apache Kafka by its class and arguments, and returns what it printed."""
    return lambda name, *arguments: run_tool(name, *arguments).out


@pytest.fixture(scope="session")
def specifications(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """By writer the file with the records that it writes and others read."""
    folder = tmp_path_factory.mktemp("specifications")
    files = {client.name: folder / f"{client.name}.jsonl" for client in CLIENTS}
    for name, file in files.items():
        spec.write_file(spec.for_writer(name), file)
    return {name: str(file) for name, file in files.items()}
