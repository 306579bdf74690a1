"""Clients that log in by SASL, and what they are told if they cannot."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.abc
import aiokafka.errors
import confluent_kafka
import jwt
import kafka
import kafka.net.sasl.oauth
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from minibroker.client.blocking import Client as OwnClient
from minibroker.client.client_errors import ClientError
from minibroker.client.connection_settings import ClientSettings
from minibroker.protocol.messages.metadata import MetadataRequest
from tests.running import RunningBroker, running_broker

PATIENCE_S = 30
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret";'
SETTINGS = (
    "listeners=SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config="
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
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


def test_confluent_kafka_reports_a_wrong_password(broker: RunningBroker, mechanism: str) -> None:
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


def test_no_file_of_the_broker_holds_the_password(broker: RunningBroker, tmp_path: Path) -> None:
    for file in (broker.directory / "data").rglob("*"):
        assert not file.is_file() or b"alice-secret" not in file.read_bytes()


# --- tokens -------------------------------------------------------------------------------------


def unsecured(seconds: float) -> str:
    claims = {"sub": "alice", "exp": time.time() + seconds}
    parts = [base64.urlsafe_b64encode(json.dumps(each).encode()).decode() for each in ({"alg": "none"}, claims)]
    return ".".join(part.rstrip("=") for part in parts) + "."


@pytest.mark.thorough  # tests/testing/faults has sessions that end, too
def test_confluent_reauthenticates_repeatedly_with_tokens(broker: RunningBroker, topic_name: str) -> None:
    """Its tokens last for two seconds: it authenticates anew on the same connection, and no record is lost."""
    told: list[str] = []
    tokens: list[float] = []

    def token(_: str) -> tuple[str, float]:
        tokens.append(time.time())
        return unsecured(2), time.time() + 2

    settings = {**confluent(broker, "OAUTHBEARER", "", told), "oauth_cb": token}
    del settings["sasl.username"], settings["sasl.password"]
    producer = confluent_kafka.Producer({**settings, "enable.idempotence": True})
    sent = 0
    while len(tokens) < 4:
        producer.produce(topic_name, str(sent).encode())
        producer.poll(0.01)
        sent += 1
    assert producer.flush(PATIENCE_S) == 0
    consumer = confluent_kafka.Consumer({**settings, "group.id": topic_name, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic_name])
    read: list[bytes] = []
    while len(read) < sent:
        read += [message.value() for message in consumer.consume(500, timeout=1)]
    consumer.close()
    assert read == [str(number).encode() for number in range(sent)]


def test_confluent_kafka_reports_an_expired_token(broker: RunningBroker) -> None:
    told: list[str] = []
    settings = {**confluent(broker, "OAUTHBEARER", "", told), "oauth_cb": lambda _: (unsecured(-9), time.time() + 60)}
    del settings["sasl.username"], settings["sasl.password"]
    producer = confluent_kafka.Producer(settings)
    while not told:
        producer.poll(0.1)
    assert "invalid_token" in told[0]


class _Tokens(kafka.net.sasl.oauth.AbstractTokenProvider):
    def token(self) -> str:
        return unsecured(60)


class _AioTokens(aiokafka.abc.AbstractTokenProvider):
    async def token(self) -> str:
        return unsecured(60)


def test_kafka_python_logs_in_with_a_token(broker: RunningBroker, topic_name: str) -> None:
    with kafka.KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=_Tokens(),
    ) as producer:
        assert producer.send(topic_name, b"hello").get(PATIENCE_S).offset == 0


async def test_aiokafka_logs_in_with_a_token(broker: RunningBroker, topic_name: str, complaints: list[str]) -> None:
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=_AioTokens(),
    ) as producer:
        assert (await producer.send_and_wait(topic_name, b"hello")).offset == 0


def settings_for_tokens(keys: str) -> tuple[str, ...]:
    """The settings of a broker that takes tokens signed by the keys at this URL."""
    prefix = "listener.name.sasl_plaintext.oauthbearer."
    oauth = "org.apache.kafka.common.security.oauthbearer"
    return (
        "listeners=SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms=OAUTHBEARER",
        f"{prefix}sasl.jaas.config={oauth}.OAuthBearerLoginModule required;",
        f"{prefix}sasl.server.callback.handler.class={oauth}.OAuthBearerValidatorCallbackHandler",
        f"{prefix}sasl.oauthbearer.jwks.endpoint.url={keys}",
        f"{prefix}sasl.oauthbearer.expected.audience=kafka",
        f"{prefix}sasl.oauthbearer.allow.unverified.issuer=true",
    )


def client_with_token(running: RunningBroker, file: Path, signed_by: Any) -> OwnClient:
    now_s = int(time.time())
    claims = {"sub": "alice", "iat": now_s, "exp": now_s + 60, "aud": "kafka"}
    file.write_text(jwt.encode(claims, signed_by, algorithm="ES256"))
    login = {
        "bootstrap.servers": running.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
    }
    return OwnClient(ClientSettings(login))


def test_a_signed_token_is_verified_with_the_issuers_keys(tmp_path: Path) -> None:
    private = ec.generate_private_key(ec.SECP256R1())
    keys, token = tmp_path / "jwks.json", tmp_path / "token"
    keys.write_text(json.dumps({"keys": [ECAlgorithm.to_jwk(private.public_key(), as_dict=True)]}))
    with running_broker(tmp_path, *settings_for_tokens(keys.as_uri())) as running:
        with client_with_token(running, token, private) as accepted:
            assert len(accepted.request(MetadataRequest(topics=[])).brokers) == 1
        other = ec.generate_private_key(ec.SECP256R1())
        with (
            client_with_token(running, token, other) as refused,
            pytest.raises(ClientError, match="refuses the token|invalid_token"),
        ):
            refused.request(MetadataRequest(topics=[]))


def test_a_broker_can_stop_while_the_token_issuer_does_not_respond(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/keys"
        with running_broker(tmp_path, *settings_for_tokens(url)) as running:
            key = ec.generate_private_key(ec.SECP256R1())
            with client_with_token(running, tmp_path / "token", key) as client, ThreadPoolExecutor(1) as other:
                waiting = other.submit(client.request, MetadataRequest(topics=[]), timeout_ms=3000)
                silent.settimeout(PATIENCE_S)
                asking, _ = silent.accept()
                assert running.stop() == 0
                with pytest.raises(ClientError):
                    waiting.result(PATIENCE_S)
        assert "cannot be read" not in running.log  # as it would be if the broker had waited for it
        asking.close()
