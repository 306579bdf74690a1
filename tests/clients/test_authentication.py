"""Clients that log in by SASL, and what they are told if they cannot."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import pytest

from minibroker.client.blocking import Client as OwnClient
from minibroker.client.client_errors import ClientError
from minibroker.client.connection_settings import ClientSettings
from minibroker.protocol.messages.metadata import MetadataRequest
from tests.running import RunningBroker, running_broker

PATIENCE_S = 30
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret";'
SETTINGS = (
    "listeners=SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    f"listener.name.sasl_plaintext.plain.sasl.jaas.config={PLAIN}",
)
USERS = ("SCRAM-SHA-256=[name=alice,password=alice-secret]", "SCRAM-SHA-512=[name=alice,password=alice-secret]")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
INVALID = "Authentication failed during authentication due to invalid credentials with SASL mechanism"
TOLD = {
    "PLAIN": "Authentication failed: Invalid username or password",
    "SCRAM-SHA-256": f"{INVALID} SCRAM-SHA-256",
    "SCRAM-SHA-512": f"{INVALID} SCRAM-SHA-512",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    options = tuple(word for user in USERS for word in ("--add-scram", user))
    with running_broker(tmp_path_factory.mktemp("sasl"), *SETTINGS, options=options) as running:
        yield running
        assert "secret" not in running.log and "Traceback" not in running.log


@pytest.fixture(params=MECHANISMS)
def mechanism(request: pytest.FixtureRequest) -> str:
    made: str = request.param
    return made


def confluent(broker: RunningBroker, mechanism: str, password: str, told: list[str]) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
        "error_cb": lambda error: told.append(str(error)),
        "log_level": 0,
    }


def test_confluent_logs_in(broker: RunningBroker, mechanism: str, topic_name: str) -> None:
    told: list[str] = []
    settings = confluent(broker, mechanism, "alice-secret", told)
    producer = confluent_kafka.Producer(settings)
    producer.produce(topic_name, b"hello")
    assert producer.flush(PATIENCE_S) == 0
    consumer = confluent_kafka.Consumer({**settings, "group.id": topic_name, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic_name])
    (message,) = consumer.consume(1, timeout=PATIENCE_S)
    consumer.close()
    assert (message.value(), told) == (b"hello", [])


def test_confluent_is_told_of_a_wrong_password(broker: RunningBroker, mechanism: str) -> None:
    told: list[str] = []
    producer = confluent_kafka.Producer(confluent(broker, mechanism, "wrong", told))
    while not told:
        producer.poll(0.1)
    assert TOLD[mechanism] in told[0]


async def test_aiokafka_logs_in(broker: RunningBroker, mechanism: str, topic_name: str, complaints: list[str]) -> None:
    complaints += ["in the clear", TOLD[mechanism]]
    settings: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": "alice-secret",
    }
    async with aiokafka.AIOKafkaProducer(**settings) as producer:
        sent = await producer.send_and_wait(topic_name, b"hello")
    assert sent.offset == 0
    refused = aiokafka.AIOKafkaProducer(**{**settings, "sasl_plain_password": "wrong"})
    with pytest.raises(aiokafka.errors.KafkaConnectionError):
        await asyncio.wait_for(refused.start(), PATIENCE_S)
    await refused.stop()


def test_kafka_python_logs_in(broker: RunningBroker, mechanism: str, topic_name: str, complaints: list[str]) -> None:
    complaints += ["in the clear"]
    settings: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
    }
    with kafka.KafkaProducer(**settings, sasl_plain_password="alice-secret") as producer:
        sent = producer.send(topic_name, b"hello").get(PATIENCE_S)
    assert sent.offset == 0


def own(broker: RunningBroker, mechanism: str, password: str) -> OwnClient:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    jaas = f'org.apache.kafka.common.security.{module} required username="alice" password="{password}";'
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas,
    }
    return OwnClient(ClientSettings(settings))


def test_our_client_logs_in(broker: RunningBroker, mechanism: str) -> None:
    with own(broker, mechanism, "alice-secret") as client:
        assert len(client.request(MetadataRequest(topics=[])).brokers) == 1
    with own(broker, mechanism, "wrong") as client, pytest.raises(ClientError, match=TOLD[mechanism]):
        client.request(MetadataRequest(topics=[]))


def test_the_password_is_not_in_what_is_kept(broker: RunningBroker, tmp_path: Path) -> None:
    for file in (broker.directory / "data").rglob("*"):
        assert not file.is_file() or b"alice-secret" not in file.read_bytes()
