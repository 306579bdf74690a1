"""Delegation tokens with Kafka's own tool and Java's clients; and from directory to directory."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.clients import PATIENCE_S, java_command
from conformance.security.client_programs import running_program
from conformance.security.test_sasl import MODULES, SETTINGS, TOOLS, KafkaWithSasl, login, run
from conformance.wire.connection import Connection
from conformance.wire.requests import create_request, repeated, topic
from conformance.wire.test_delegation_tokens import described, expire, log_in_by, made
from conformance.wire.test_sasl import authenticate, handshake, is_served
from minibroker.broker.metadata.metadata_snapshots import find_newest_snapshot, iterate_record_values_in
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.metadata_records import DelegationTokenRecord
from minibroker.protocol.records.metadata_values import decode_metadata_record
from minibroker.storage.files import Disk
from tests.running import RunningBroker, running_broker

PROGRAM = Path(__file__).parent / "TokenHolder.java"
KEY = {"delegation.token.secret.key": "a key for tests", "delegation.token.expiry.check.interval.ms": "1000"}
COMMAND = f"{TOOLS}.DelegationTokenCommand"


def assignments(**more: str) -> list[str]:
    return [f"{name}={text}" for name, text in {**SETTINGS, **KEY, **more}.items()]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("tokens"), *assignments()) as running:
        yield running
        assert "Traceback" not in running.log


@pytest.mark.minibroker_only
def test_kafkas_tool_and_java_client_use_delegation_tokens(broker: RunningBroker, tmp_path: Path) -> None:
    address = broker.bootstrap_servers
    options = "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob"
    created = run(address, login("PLAIN"), tmp_path, COMMAND, *options)
    id, hmac, owner = created.splitlines()[-1].split()[:3]
    assert owner == "User:alice" and hmac not in broker.log
    secret = f'required username="{id}" password="{hmac}" tokenauth="true";'
    token = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule {secret}"}
    assert run(address, token, tmp_path, f"{TOOLS}.TopicCommand", "--list").strip() == ""
    renewed = run(address, login("PLAIN"), tmp_path, COMMAND, "--renew", "--renew-time-period", "-1", "--hmac", hmac)
    assert "Completed renew operation" in renewed
    described = run(address, login("PLAIN"), tmp_path, COMMAND, "--describe", "--owner-principal", "User:alice")
    assert id in described and "User:bob" in described
    run(address, login("PLAIN"), tmp_path, COMMAND, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    with pytest.raises(AssertionError, match="invalid credentials with SASL mechanism SCRAM-SHA-512"):
        run(address, token, tmp_path, f"{TOOLS}.TopicCommand", "--list")


@pytest.mark.minibroker_only
def test_a_client_of_kafka_4_4_logs_in_with_a_token(broker: RunningBroker) -> None:
    command = java_command("4.4.0", str(PROGRAM), broker.bootstrap_servers)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stdout.splitlines() == [
        "User:alice User:alice [User:bob]",
        "7200000",
        "true",
        "SCRAM-SHA-256 true",
        "SCRAM-SHA-512 true",
        "UnsupportedByAuthenticationException",
        "true",
        "true",
        "0",
        "SaslAuthenticationException",
        "false",
    ]


@pytest.mark.minibroker_only
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_franz_go_logs_in_with_a_token(broker: RunningBroker, mechanism: str) -> None:
    address = broker.bootstrap_servers
    case: dict[str, Any] = {"action": "round-trip", "records": 20, "seconds": 0, "topic": f"go-{mechanism}"}
    with alice(address) as client, running_program("franz-go") as program:
        assert client.ask(create_request(topic(case["topic"])), 7).topics[0].error_code == 0
        token = made(client)
        login = {"user": token.token_id, "password": base64.b64encode(token.hmac).decode(), "tokenauth": True}
        case |= {"bootstrap": address, "protocol": "SASL_PLAINTEXT", "mechanism": mechanism, **login}
        assert program.ask(case) == {"read": 20, "distinct": 20}
        expire(client, token.hmac)
        answer = program.ask({**case, "refused": True})
        assert f"invalid credentials with SASL mechanism {mechanism}" in answer["error"]


def alice(address: str) -> Connection:
    client = Connection(address)
    assert handshake(client).error_code == 0
    assert authenticate(client, b"\0alice\0a-secret").error_code == 0
    return client


@pytest.mark.minibroker_only
def test_delegation_tokens_survive_a_switch_to_kafka_and_back(tmp_path: Path) -> None:
    logs = tmp_path / "data"
    with running_broker(tmp_path, "node.id=0", *assignments()) as ours, alice(ours.bootstrap_servers) as client:
        token, gone = made(client, "bob"), made(client)
        expire(client, gone.hmac)
        told = described(client)
        assert list(told) == [token.token_id]
    often = {
        "metadata.log.max.snapshot.interval.ms": "1000",
        "metadata.log.max.record.bytes.between.snapshots": "1",
    }
    kafka = KafkaWithSasl(tmp_path / "kafka", {**KEY, **often}, logs=logs)
    kafka.start()
    try:
        with alice(kafka.sasl_address) as client:
            assert repeated(lambda: described(client), lambda seen: seen == told) == told
            theirs = made(client, "bob", lifetime_ms=900_000)
            with Connection(kafka.sasl_address) as holder:
                assert log_in_by(holder, token).error_code == 0
                assert is_served(holder)
            told = described(client)
            assert len(told) == 2
        assert repeated(lambda: in_a_snapshot(logs, theirs.token_id), bool)  # with which ours begins
        kafka.stop()
    finally:
        kafka.kill()
    (tmp_path / "second").mkdir()
    again = [*assignments(), "node.id=0", f"log.dirs={logs}"]
    with running_broker(tmp_path / "second", *again) as ours, alice(ours.bootstrap_servers) as client:
        assert described(client) == told
        with Connection(ours.bootstrap_servers) as holder:
            assert log_in_by(holder, theirs, "SCRAM-SHA-256").error_code == 0
            assert is_served(holder)
        assert expire(client, theirs.hmac)[0] == ErrorCode.NONE
        assert list(described(client)) == [token.token_id]


def in_a_snapshot(logs: Path, token_id: str) -> bool:
    snapshot = find_newest_snapshot(Disk(), str(logs / "__cluster_metadata-0"))
    records = (
        []
        if snapshot is None
        else [decode_metadata_record(value) for _, value in iterate_record_values_in(snapshot.data)]
    )
    return token_id in [record.token_id for record in records if isinstance(record, DelegationTokenRecord)]
