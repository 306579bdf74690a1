"""What the tests of the protocol start from: a connection, topics, groups and producers of their own.

The broker is in the tests' own process unless `--against` says which process to ask.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, Protocol

import pytest

from conformance.conftest import Broker, StartMinibroker, broker, process_with, start_broker
from conformance.wire.connection import Connection
from conformance.wire.consumer_members import await_topic
from conformance.wire.in_process import broker_in_process
from conformance.wire.members import Member, look_up
from conformance.wire.requests import LATEST, create_request, list_offset, repeated, topic
from conformance.wire.transactional import TransactionalProducer

__all__ = ["broker", "start_broker"]  # as elsewhere, but with the `start_minibroker` of this folder

# The beginnings of the files whose tests need more of a new topic: that the group coordinator knows of it.
TESTS_OF_GROUPS = ("test_consumer_group", "test_streams_")


class NewTopic(Protocol):
    """Creates a topic with a name of its own, waits until it can be written to, and returns the name."""

    def __call__(self, partitions: int = 1, **configs: str) -> str:
        """Configs are given by Kafka's names with underscores for dots."""


@pytest.fixture(scope="session")
def start_minibroker(request: pytest.FixtureRequest) -> StartMinibroker:
    """Starts a minibroker with its data in a directory, and with settings."""
    return broker_in_process if request.config.getoption("--against") is None else process_with


@pytest.fixture
def connection(broker: Broker) -> Iterator[Connection]:
    with Connection(broker.bootstrap_servers) as opened:
        yield opened


@pytest.fixture
def connect(broker: Broker) -> Callable[[], Connection]:
    """Opens one more connection, to use in a with block."""
    return lambda: Connection(broker.bootstrap_servers)


@pytest.fixture(scope="session")
def new_name() -> Callable[[], str]:
    """A topic name that nobody else has."""
    numbers = itertools.count()
    return lambda: f"wire-{next(numbers)}"


@pytest.fixture
def new_topic(request: pytest.FixtureRequest, connection: Connection, new_name: Callable[[], str]) -> NewTopic:
    def create(partitions: int = 1, **configs: str) -> str:
        name = new_name()
        wanted = topic(name, partitions, configs={key.replace("_", "."): value for key, value in configs.items()})
        answer = connection.ask(create_request(wanted), 7).topics[0]
        assert answer.error_code == 0, answer
        for partition in range(partitions):
            usable = repeated(
                partial(list_offset, connection, name, LATEST, partition), lambda seen: seen.error_code == 0
            )
            assert usable.offset == 0
        if request.path.name.startswith(TESTS_OF_GROUPS):
            await_topic(connection, name)
        return name

    return create


@pytest.fixture
def name(new_topic: NewTopic) -> str:
    """A topic with one partition."""
    return new_topic()


class NewMember(Protocol):
    """Makes a member of the test's group, on a connection of its own; `settings` are those of `join_request`."""

    def __call__(self, **settings: Any) -> Member: ...


@pytest.fixture
def group(connection: Connection, new_name: Callable[[], str]) -> str:
    """A group id that nobody else has, of a group that does not exist."""
    name = f"group-{new_name()}"
    look_up(connection, name)
    return name


@pytest.fixture
def new_member(connect: Callable[[], Connection], group: str) -> Iterator[NewMember]:
    with ExitStack() as stack:
        yield lambda **settings: Member(stack.enter_context(connect()), group, **settings)


@pytest.fixture
def producer(connection: Connection) -> TransactionalProducer:
    """It has its id, and no transaction yet."""
    made = TransactionalProducer(connection)
    assert made.init() == 0
    return made


class Differing(Protocol):
    """Chooses what is expected where minibroker answers otherwise than Kafka on purpose."""

    def __call__(self, *, kafka: Any, minibroker: Any, because: str) -> Any:
        """`because` is for the reader, and must not be empty."""


@pytest.fixture
def differing(against: str) -> Differing:
    def choose(*, kafka: Any, minibroker: Any, because: str) -> Any:
        assert because
        return kafka if against == "kafka" else minibroker

    return choose
