"""Users and tokens that minibroker has recorded log in at Apache Kafka 4.4 on the same directory, and vice versa."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from conformance.kafka_files.conftest import KAFKA_PROPERTIES, OUR_SETTINGS
from conformance.wire.connection import Connection
from conformance.wire.requests import repeated
from conformance.wire.test_delegation_tokens import PROPERTIES, expire, log_in_by, logged_in, made
from conformance.wire.test_sasl import KafkaWithSasl, add_alice, authenticate, handshake, is_served
from minibroker.client.client_mechanisms import authenticate_by_scram
from tests.running import running_broker

LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
}


def alice_logs_in(address: str) -> bool:
    """Whether the user that is recorded may log in."""
    with Connection(address) as client:
        assert handshake(client, "SCRAM-SHA-256").error_code == 0
        exchange = authenticate_by_scram("sha256", "alice", "a-secret")
        answer = authenticate(client, next(exchange))
        return not answer.error_code and not authenticate(client, exchange.send(answer.auth_bytes)).error_code


def owner_logs_in(address: str, token: Any) -> bool:
    with Connection(address) as client:
        return not log_in_by(client, token).error_code and is_served(client)


def test_users_and_tokens_can_log_in_after_a_switch_to_kafka_and_back(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    changed = {**PROPERTIES, **LISTENERS, "log.dirs": str(logs)}
    ours = (*OUR_SETTINGS, *(f"{name}={value}" for name, value in changed.items()))
    (tmp_path / "first").mkdir()
    with running_broker(tmp_path / "first", *ours) as broker:
        plain, sasl = broker.bootstrap_servers.split(",")
        add_alice(plain)
        with logged_in(sasl, "alice") as alice:
            token = made(alice)
        assert alice_logs_in(sasl) and owner_logs_in(sasl, token)

    kafka = KafkaWithSasl(tmp_path / "kafka", {**KAFKA_PROPERTIES, **PROPERTIES}, logs=logs)
    kafka.start()
    try:
        assert repeated(lambda: alice_logs_in(kafka.sasl_address), bool)
        assert repeated(lambda: owner_logs_in(kafka.sasl_address, token), bool)
        with logged_in(kafka.sasl_address, "bob") as bob:
            theirs = made(bob)
        kafka.stop()
    finally:
        kafka.kill()

    (tmp_path / "second").mkdir()
    with running_broker(tmp_path / "second", *ours) as broker:
        _, sasl = broker.bootstrap_servers.split(",")
        assert alice_logs_in(sasl) and owner_logs_in(sasl, token) and owner_logs_in(sasl, theirs)
        with logged_in(sasl, "bob") as bob:
            assert expire(bob, theirs.hmac)[0] == 0
        assert not owner_logs_in(sasl, theirs)
