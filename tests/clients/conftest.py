"""What the tests with real clients share: a broker a test process, a topic of its own for each test, quiet clients.

How each library does it is in the file of its name.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pytest

from tests.clients.aio import Aio
from tests.clients.confluent import Confluent
from tests.clients.interface import Client
from tests.clients.kafka_python import KafkaPython
from tests.running import RunningBroker, running_broker

CLIENTS: tuple[Client, ...] = (Confluent(), Aio(), KafkaPython())


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker that all tests of this process share: one that is not to be stopped, and topics that are others'."""
    # Records have times of years ago, and retention would delete them after five minutes.
    with running_broker(tmp_path_factory.mktemp("broker"), "log.retention.ms=-1") as running:
        yield running
        assert not re.search(" (WARNING|ERROR|CRITICAL) ", running.log), running.log


@pytest.fixture(params=CLIENTS, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> Client:
    """Each client library in turn."""
    made: Client = request.param
    return made


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    return re.sub(r"[^a-zA-Z0-9-]+", "-", request.node.name)


@pytest.fixture
def topic(broker: RunningBroker, topic_name: str) -> str:
    """A new topic of one partition."""
    with Confluent().admin(broker.bootstrap_servers) as admin:
        admin.create_topic(topic_name, 1, {})
    return topic_name


@pytest.fixture(autouse=True)
def complaints(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """Fail the test for what a client logs as a warning or an error, unless it matches a pattern that the test adds."""
    expected: list[str] = [
        "blocking the event loop",  # kafka-python's remark on a busy machine
        # Who makes a topic by its first use is told that it is not there yet, as by Kafka.
        "Topic .* (not found in cluster metadata|is not available during auto-create)",
        # librdkafka's, where it asks at the moment at which it gives up the address it began with for the broker's own
        "Failed to acquire idempotence PID .* Broker handle destroyed without termination: retrying",
    ]
    yield expected
    records = [record for phase in ("setup", "call") for record in caplog.get_records(phase)]
    logged = [f"{record.name}: {record.getMessage()}" for record in records if record.levelno >= logging.WARNING]
    assert [line for line in logged if not any(re.search(pattern, line) for pattern in expected)] == []
