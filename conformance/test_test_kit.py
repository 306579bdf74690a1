"""The faults of the test kit, and what Kafka's own Java client makes of them: what it retries and what it reports."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.clients import CLIENTS, run
from minibroker.testing import Broker

pytestmark = pytest.mark.minibroker_only
(JAVA,) = (client for client in CLIENTS if client.name == "java-4")


@pytest.fixture(scope="module")
def started() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def broker(started: Broker) -> Broker:
    started.reset()
    started.create_topic("t", 1)
    return started


def sent(broker: Broker) -> str:
    return run(JAVA, "send", broker.bootstrap_servers, "t", "v")


def values(broker: Broker) -> list[str | None]:
    return [record.text for record in broker.records("t")]


def test_an_error_that_is_not_retried_is_reported(broker: Broker) -> None:
    fault = broker.faults.add(api="Produce", topic="t", error="TOPIC_AUTHORIZATION_FAILED")
    assert sent(broker) == "TopicAuthorizationException"
    assert (fault.hits, values(broker)) == (1, [])


@pytest.mark.parametrize(
    "words",
    [
        {"error": "NOT_LEADER_OR_FOLLOWER", "times": 2},
        {"error": "REQUEST_TIMED_OUT", "when": "after", "once": True},
        {"close": "after", "once": True},
    ],
    ids=["before", "after", "close"],
)
def test_what_is_retried_is_there_once(broker: Broker, words: dict[str, object]) -> None:
    fault = broker.faults.add(api="Produce", topic="t", **words)
    assert sent(broker) == "offset 0"
    assert fault.hits == words.get("times", 1)
    assert values(broker) == ["v"]


def test_a_consumer_stops_at_the_planted_corruption_and_reads_the_record_without_it(broker: Broker) -> None:
    broker.produce("t", "v")
    fault = broker.faults.add(api="Fetch", topic="t", corrupt="crc")
    reported = run(JAVA, "receive", broker.bootstrap_servers, "t")
    assert "t-0 at offset 0 is invalid, cause: Record is corrupt (stored crc" in reported, reported
    assert fault.hits >= 1
    fault.remove()
    assert run(JAVA, "receive", broker.bootstrap_servers, "t") == "value v"
