"""Kafka's own tools log in by SASL; users go from directory to directory."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from conformance.clients import PATIENCE_S
from conformance.kafka_reference import KafkaProcess, kafka_command
from tests.clients.ports import free_ports
from tests.running import RunningBroker, running_broker

TOOLS = "org.apache.kafka.tools"
MODULES = "org.apache.kafka.common.security"
NAME = "listener.name.sasl_plaintext"
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    f"{NAME}.plain.sasl.jaas.config": f'{MODULES}.plain.PlainLoginModule required user_alice="a-secret";',
    f"{NAME}.scram-sha-256.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
    f"{NAME}.scram-sha-512.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
    f"{NAME}.oauthbearer.sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required "
    'unsecuredLoginStringClaim_sub="broker";',
}
USERS = ("SCRAM-SHA-256=[name=alice,password=a-secret]", "SCRAM-SHA-512=[name=alice,password=a-secret]")
ALICE = 'username="alice" password="a-secret"'
LOGINS = {
    "PLAIN": f"{MODULES}.plain.PlainLoginModule required {ALICE};",
    "SCRAM-SHA-256": f"{MODULES}.scram.ScramLoginModule required {ALICE};",
    "SCRAM-SHA-512": f"{MODULES}.scram.ScramLoginModule required {ALICE};",
    "OAUTHBEARER": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=alice;",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    assignments = [f"{name}={text}" for name, text in SETTINGS.items()]
    options = tuple(word for user in USERS for word in ("--add-scram", user))
    with running_broker(tmp_path_factory.mktemp("broker"), *assignments, options=options) as running:
        yield running
        assert "Traceback" not in running.log and "secret" not in running.log


def run(address: str, login: Mapping[str, str], directory: Path, name: str, *arguments: str, sent: str = "") -> str:
    """Run a tool that logs in, and return what it printed; AssertionError if it fails."""
    properties = directory / "client.properties"
    client = {"security.protocol": "SASL_PLAINTEXT", **login}
    properties.write_text("".join(f"{key}={text}\n" for key, text in client.items()))
    command = kafka_command(name, "--bootstrap-server", address)
    command += ["--command-config", str(properties), *arguments]
    ended = subprocess.run(command, input=sent, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode == 0, f"{ended.stdout[-3000:]}{ended.stderr[-3000:]}"
    return ended.stdout


def login(mechanism: str) -> dict[str, str]:
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": LOGINS[mechanism]}


@pytest.mark.minibroker_only
def test_kafka_configs_adds_and_removes_users(broker: RunningBroker, tmp_path: Path) -> None:
    configs = ("org.apache.kafka.tools.ConfigCommand", "--entity-type", "users", "--entity-name", "bob")
    address = broker.bootstrap_servers
    credential = "SCRAM-SHA-512=[iterations=8192,password=b-secret]"
    run(address, login("PLAIN"), tmp_path, *configs, "--alter", "--add-config", credential)
    bob = {**login("SCRAM-SHA-512"), "sasl.jaas.config": LOGINS["SCRAM-SHA-512"].replace("alice", "bob")}
    bob["sasl.jaas.config"] = bob["sasl.jaas.config"].replace("a-secret", "b-secret")
    assert "SCRAM-SHA-512=iterations=8192" in run(address, bob, tmp_path, *configs, "--describe")
    run(address, login("PLAIN"), tmp_path, *configs, "--alter", "--delete-config", "SCRAM-SHA-512")
    with pytest.raises(AssertionError, match="invalid credentials with SASL mechanism SCRAM-SHA-512"):
        run(address, bob, tmp_path, *configs, "--describe")


class KafkaWithSasl(KafkaProcess):
    """Two listeners: one without security, one with SASL; with users from its first start on."""

    format_options = tuple(word for user in USERS for word in ("--add-scram", user))

    def _write_properties(self, controller_port: int, properties: Mapping[str, str]) -> None:
        self.sasl_address = f"127.0.0.1:{free_ports(1)}"
        listeners = f"PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{controller_port}"
        given = {
            "listeners": f"{listeners},SASL_PLAINTEXT://{self.sasl_address}",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
            ),
        }
        super()._write_properties(controller_port, {**SETTINGS, **given, **properties})


@pytest.mark.minibroker_only
def test_our_scram_users_can_log_in_to_kafka(tmp_path: Path) -> None:
    assignments = [f"{name}={text}" for name, text in SETTINGS.items()]
    options = tuple(word for user in USERS for word in ("--add-scram", user))
    with running_broker(tmp_path, "node.id=0", *assignments, options=options) as ours:
        listed = (f"{TOOLS}.TopicCommand", "--create", "--topic", "t")
        run(ours.bootstrap_servers, login("SCRAM-SHA-256"), tmp_path, *listed)
    kafka = KafkaWithSasl(tmp_path / "kafka", {}, logs=tmp_path / "data")
    kafka.start()
    try:
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            assert "t\n" in run(kafka.sasl_address, login(mechanism), tmp_path, f"{TOOLS}.TopicCommand", "--list")
    finally:
        kafka.stop()


@pytest.mark.minibroker_only
def test_kafkas_scram_users_can_log_in_to_us(tmp_path: Path) -> None:
    kafka = KafkaWithSasl(tmp_path / "kafka", {}, logs=tmp_path / "data")
    kafka.start()
    kafka.stop()
    assignments = [f"{name}={text}" for name, text in SETTINGS.items()]
    with running_broker(tmp_path, "node.id=0", *assignments) as ours:
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            run(ours.bootstrap_servers, login(mechanism), tmp_path, f"{TOOLS}.TopicCommand", "--list")


@pytest.mark.minibroker_only
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_a_producer_reauthenticates_without_losing_records(mechanism: str, tmp_path: Path) -> None:
    """Sessions of two seconds, for five: each connection logs in anew twice or more, and none is closed."""
    assignments = [f"{name}={text}" for name, text in {**SETTINGS, "connections.max.reauth.ms": "2000"}.items()]
    options = tuple(word for user in USERS for word in ("--add-scram", user))
    with running_broker(tmp_path, *assignments, options=options) as ours:
        properties = tmp_path / "producer.properties"
        client = {
            "security.protocol": "SASL_PLAINTEXT",
            **login(mechanism),
            "retries": "0",
            "enable.idempotence": "false",
        }
        properties.write_text("".join(f"{key}={text}\n" for key, text in client.items()))
        command = kafka_command(f"{TOOLS}.ProducerPerformance")
        command += ["--topic", "t", "--num-records", "5000", "--record-size", "100", "--throughput", "1000"]
        command += ["--producer.config", str(properties), "--producer-props"]
        command += [f"bootstrap.servers={ours.bootstrap_servers}"]
        run(ours.bootstrap_servers, login(mechanism), tmp_path, f"{TOOLS}.TopicCommand", "--create", "--topic", "t")
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
        assert ended.returncode == 0 and "Exception" not in ended.stderr, ended.stderr[-3000:]
        ends = run(ours.bootstrap_servers, login(mechanism), tmp_path, f"{TOOLS}.GetOffsetShell", "--topic", "t")
        assert ends.strip() == "t:0:5000"
        assert "closing" not in ours.log, ours.log[-3000:]
