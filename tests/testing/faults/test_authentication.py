"""Faults on authentication, as real clients meet them: refused, expired, slow, and without the mechanism."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest

from minibroker.testing import Broker
from minibroker.testing.embedded.broker_security import MECHANISMS

PATIENCE_S = 20
REFUSED = {"confluent": "_AUTHENTICATION", "aiokafka": "KafkaConnectionError"}  # kafka-python tries again, for long
LIBRARIES = [*REFUSED, "kafka-python"]
SCRAM = "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512"


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    with Broker(security="SASL_PLAINTEXT", users={"alice": "a", "bob": "b"}) as broker:
        yield broker


@pytest.fixture
def broker(shared: Broker) -> Broker:
    shared.reset()
    shared.journal.on()
    return shared


def confluent_outcome(config: dict[str, Any]) -> str | None:
    """The first thing that happens to a record: how the client failed to log in, or None."""
    found: list[str | None] = []

    def noted(error: confluent_kafka.KafkaError) -> None:
        if error.name() == "_AUTHENTICATION":  # it may also report that it connects again
            found.append(error.name())

    producer = confluent_kafka.Producer({**config, "log_level": 0, "error_cb": noted})
    producer.produce("t", b"x", on_delivery=lambda error, _: found.append(error and error.name()))
    while not found:
        producer.poll(0.1)
    producer.purge()
    return found[0]


def aiokafka_outcome(config: dict[str, Any]) -> str | None:
    async def produce() -> str | None:
        producer = aiokafka.AIOKafkaProducer(**config)
        try:
            await producer.start()
            await producer.send_and_wait("t", b"x")
        except aiokafka.errors.KafkaError as error:
            return type(error).__name__
        finally:
            await producer.stop()
        return None

    return asyncio.run(produce())


def kafka_python_outcome(config: dict[str, Any]) -> str | None:
    producer = kafka.KafkaProducer(**config)
    try:
        producer.send("t", b"x").get(PATIENCE_S)
    finally:
        producer.close()
    return None


def outcome(broker: Broker, library: str, **access: str) -> str | None:
    config = broker.client_config(library, **{"user": "alice", **access})
    ask = {"confluent": confluent_outcome, "aiokafka": aiokafka_outcome, "kafka-python": kafka_python_outcome}
    return ask[library](config)


@pytest.mark.parametrize("library", REFUSED)
def test_an_authentication_fault_rejects_only_its_user(broker: Broker, library: str) -> None:
    fault = broker.faults.add(authentication="refuse", user="alice")
    assert outcome(broker, library) == REFUSED[library]
    assert fault.hits >= 1
    seen = broker.requests("SaslAuthenticate", error="SASL_AUTHENTICATION_FAILED")[0]
    assert (seen.answer.error_message, seen.faults) == (SCRAM, ("user alice, authentication refuse",))
    assert outcome(broker, library, user="bob") is None
    fault.remove()
    assert outcome(broker, library) is None


@pytest.mark.parametrize("library", ["confluent", "kafka-python"])
def test_a_refused_login_fails_unless_the_client_retries_until_the_fault_ends(broker: Broker, library: str) -> None:
    fault = broker.faults.add(authentication="refuse", times=2)
    assert outcome(broker, library) == (None if library == "kafka-python" else "_AUTHENTICATION")
    fault.wait_for_hits(2, timeout="20 s") if library == "kafka-python" else fault.remove()
    assert outcome(broker, library) is None


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_an_authentication_fault_refuses_only_its_mechanism_with_its_error_message(
    broker: Broker, mechanism: str
) -> None:
    fault = broker.faults.add(authentication="refuse", mechanism=mechanism, client_id="rdkafka")
    others = [each for each in MECHANISMS if each != mechanism][:2]
    assert [outcome(broker, "confluent", mechanism=each) for each in others] == [None, None]
    assert fault.matches == 0
    assert outcome(broker, "confluent", mechanism=mechanism) == "_AUTHENTICATION"
    told = broker.requests("SaslAuthenticate", error="SASL_AUTHENTICATION_FAILED")[0].answer.error_message
    expected = "Invalid username or password" if mechanism == "PLAIN" else f"SASL mechanism {mechanism}"
    assert told.endswith(expected)


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_error_for_an_unsupported_mechanism_names_the_supported_ones(broker: Broker, library: str) -> None:
    fault = broker.faults.add(authentication="wrong-mechanism", mechanism="SCRAM-SHA-512", once=True)
    found = outcome(broker, library)
    assert (fault.hits, found) == (1, REFUSED.get(library))
    (seen, *_) = broker.requests("SaslHandshake", error="UNSUPPORTED_SASL_MECHANISM")
    assert set(seen.answer.mechanisms) == set(MECHANISMS) - {"SCRAM-SHA-512"}
    assert seen.faults == ("mechanism SCRAM-SHA-512, authentication wrong-mechanism, once True",)
    assert outcome(broker, library) is None


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_fault_delays_a_login_by_the_brokers_clock(broker: Broker, library: str) -> None:
    fault = broker.faults.add(authentication="slow", user="alice", delay="10 s", once=True)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(outcome, broker, library)
        fault.wait_for_hits(1, timeout="20 s")
        assert not waiting.done() and broker.requests("Produce") == []
        broker.clock.advance("10 s")
        assert waiting.result(PATIENCE_S) is None


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_session_expires_immediately_and_the_client_reconnects(broker: Broker, library: str) -> None:
    fault = broker.faults.add(authentication="expire", nth=2 if library == "aiokafka" else 1)  # which gives up at first
    assert outcome(broker, library) is None
    assert fault.hits == 1
    assert len(broker.requests("SaslAuthenticate")) >= 4  # two of each login


def test_a_client_reauthenticates_in_a_short_session(broker: Broker) -> None:
    fault = broker.faults.add(authentication="expire", session="1.5 s")
    producer = confluent_kafka.Producer(broker.client_config("confluent", user="alice", mechanism="PLAIN"))
    fault.wait_for_hits(4, timeout="20 s")  # two connections, each of which authenticates twice
    producer.produce("t", b"x")
    assert producer.flush(PATIENCE_S) == 0
    seen = broker.requests("SaslAuthenticate")
    assert {each.answer.session_lifetime_ms for each in seen} == {1500}
    assert len({each.connection for each in seen}) < len(seen)


def test_a_fault_strikes_only_requests_of_its_user_or_mechanism(broker: Broker) -> None:
    of_alice = broker.faults.add(user="alice", api="Produce", error="TOPIC_AUTHORIZATION_FAILED")
    by_plain = broker.faults.add(mechanism="PLAIN", api="Produce", error="INVALID_RECORD")
    assert outcome(broker, "confluent") == "TOPIC_AUTHORIZATION_FAILED"
    assert outcome(broker, "confluent", user="bob") is None
    assert outcome(broker, "confluent", user="bob", mechanism="PLAIN") == "INVALID_RECORD"
    assert (of_alice.hits, by_plain.hits) == (1, 1)


def test_a_delayed_login_continues_after_a_reset(broker: Broker) -> None:
    fault = broker.faults.add(authentication="slow", delay="10 s")
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(outcome, broker, "kafka-python")
        fault.wait_for_hits(1, timeout="20 s")
        broker.reset()
        broker.clock.advance("10 s")
        assert waiting.result(PATIENCE_S) is None


def test_authentication_faults_are_read_from_yaml(broker: Broker, tmp_path: Path) -> None:
    (tmp_path / "faults.yaml").write_text("- {authentication: refuse, user: alice, times: 1}\n")
    (fault,) = broker.faults.load(tmp_path / "faults.yaml")
    assert outcome(broker, "confluent") == "_AUTHENTICATION"
    fault.wait_for_hits(1)
