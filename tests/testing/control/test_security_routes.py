"""Security over HTTP, as a process serves it to tests in other languages, and that it keeps its secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from tests.running import RunningBroker, running_broker
from tests.testing.control.test_control import Control

OPTIONS = ("--control", "0", "--security", "SASL_SSL", "--user", "alice:won:derland", "--log-level", "debug")


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningBroker, Control]]:
    with running_broker(tmp_path_factory.mktemp("security"), options=OPTIONS) as broker:
        yield broker, Control(broker)


@pytest.fixture
def control(process: tuple[RunningBroker, Control]) -> Control:
    process[1].post("/v1/reset", status=204)
    return process[1]


def config(control: Control, **asked: str) -> Any:
    return control.post("/v1/client-config", {"library": "confluent", "user": "alice", **asked})


def outcome(config: dict[str, Any]) -> str | None:
    """The error of a record that a client sends, or why it cannot log in, or None."""
    found: list[str | None] = []

    def failed(error: KafkaError) -> None:
        if error.name() not in ("_TRANSPORT", "_ALL_BROKERS_DOWN"):  # of which the cause comes later
            found.append(error.name())

    producer = Producer({**config, "log_level": 0, "error_cb": failed})
    producer.produce("t", b"x", on_delivery=lambda error, _: found.append(error and error.name()))
    while not found:
        producer.poll(0.1)
    producer.purge()
    return found[0]


def test_the_control_api_returns_the_security_of_clients(control: Control) -> None:
    told = control.get("/v1/security")
    assert (told["protocol"], told["users"], told["issuer"]) == ("SASL_SSL", ["alice"], control.get("/v1/issuer"))
    assert config(control)["ssl.ca.pem"] == told["authority"]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_a_returned_client_config_lets_a_client_connect(control: Control, mechanism: str) -> None:
    assert outcome(config(control, mechanism=mechanism)) is None


def test_users_acls_and_quotas_are_changed(control: Control) -> None:
    control.post("/v1/users", {"name": "bob"}, 204)
    bob = config(control, user="bob")
    assert outcome(bob) is None
    control.post("/v1/users", {"name": "bob", "password": "another"}, 204)
    assert outcome(bob) == "_AUTHENTICATION"
    assert config(control, user="bob")["sasl.password"] == "another"
    assert control.ask("DELETE", "/v1/users/bob")[0] == 204
    assert control.ask("DELETE", "/v1/users/bob")[0] == 404
    control.post("/v1/acls/deny", {"user": "alice", "operation": "write", "topic": "t"}, 204)
    assert outcome(config(control)) == "TOPIC_AUTHORIZATION_FAILED"
    assert control.ask("DELETE", "/v1/acls")[0] == 204
    assert outcome(config(control)) is None
    control.post("/v1/acls/allow", {"user": "bob", "operation": "all", "topic": "*"}, 204)
    assert outcome(config(control)) == "TOPIC_AUTHORIZATION_FAILED"
    control.post("/v1/quotas", {"user": "alice", "producer_byte_rate": 1000}, 204)
    control.post("/v1/quotas/remove", {"user": "alice"}, 204)
    assert control.ask("POST", "/v1/quotas", {"user": "alice", "producer_byte_rate": -1})[0] == 409


def test_the_broker_presents_another_certificate(control: Control) -> None:
    control.post("/v1/certificate", {"kind": "expired"}, 204)
    assert outcome(config(control)) == "_SSL"
    control.post("/v1/certificate", {"kind": "good"}, 204)
    assert outcome(config(control)) is None
    assert control.ask("POST", "/v1/certificate", {"kind": "odd"})[0] == 422


def test_invalid_tokens_are_issued_until_valid_ones_are_restored(control: Control) -> None:
    alice = config(control, mechanism="OAUTHBEARER")
    control.post("/v1/issuer/use-tokens", {"audience": "other"}, 204)
    assert outcome(alice) == "_AUTHENTICATION"
    control.post("/v1/issuer/use-tokens", status=204)
    control.post("/v1/issuer/rotate-keys", {"keep_old": True}, 204)
    assert outcome(alice) is None
    token = control.post("/v1/issuer/token", {"user": "alice", "expires_in": "5 min", "trusted": False})["token"]
    assert token.count(".") == 2
    assert control.post("/v1/issuer/assertion", {"user": "alice"})["assertion"].count(".") == 2
    assert "PRIVATE KEY" in control.post("/v1/issuer/client-key", {"user": "alice"})["key"]


def test_security_routes_of_a_broker_without_security_return_an_error(tmp_path: Path) -> None:
    with running_broker(tmp_path, options=("--control", "0")) as broker:
        control = Control(broker)
        assert control.get("/v1/security")["protocol"] is None
        assert control.ask("POST", "/v1/users", {"name": "bob"})[0] == 409
        assert control.ask("POST", "/v1/acls/deny", {"user": "bob", "operation": "read"})[0] == 409
        assert control.post("/v1/client-config", {"library": "java"})["security.protocol"] == "PLAINTEXT"
        text = control.post("/v1/client-config", {"library": "librdkafka.properties"})["text"]
        assert "bootstrap.servers=" in text.splitlines()[0]


def test_a_settings_file_secures_a_process(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("test.security=SASL_SSL\ntest.users=alice:wonder,bob:b\ntest.issuer=127.0.0.2:0\n")
    with running_broker(tmp_path, options=(str(file), "--control", "0", "--user", "alice:land")) as broker:
        control = Control(broker)
        assert control.get("/v1/security")["users"] == ["alice", "bob"]
        assert config(control)["sasl.password"] == "land"
        assert control.get("/v1/issuer")["url"].startswith("https://127.0.0.2:")
        assert [outcome(config(control, mechanism=each)) for each in ("PLAIN", "OAUTHBEARER")] == [None, None]


def test_sasl_and_tls_are_enabled_over_http(tmp_path: Path) -> None:
    with running_broker(tmp_path, options=("--control", "0")) as broker:
        control = Control(broker)
        control.post("/v1/security", {"protocol": "SASL_SSL", "users": {"alice": "wonderland"}}, 204)
        found = config(control)
        assert (found["bootstrap.servers"], outcome(found)) == (broker.bootstrap_servers, None)
        refused = control.ask("POST", "/v1/security", {"protocol": "SSL", "users": {"alice": 1234567}})
        assert refused[0] == 422 and "1234567" not in str(refused)


def test_users_of_an_older_directory_get_their_passwords(tmp_path: Path) -> None:
    for password in ("first", "second"):
        options = ("--control", "0", "--security", "SASL_PLAINTEXT", "--user", f"alice:{password}")
        with running_broker(tmp_path, options=options) as broker:
            found = config(Control(broker))
            assert (found["sasl.password"], outcome(found)) == (password, None)


def test_invalid_security_options_are_rejected(tmp_path: Path) -> None:
    import subprocess

    from tests.running import environment_for_broker, serve_command

    said = {
        ("--user", "alice:a"): "users and an issuer need security",
        ("--user", "alice", "--security", "SSL"): "--user is NAME:PASSWORD",
        ("--set", "test.users=alice:top,secret", "--set", "test.security=SSL"): "test.users is NAME:PASSWORD,...",
        ("--security", "SSL", "--set", "listeners=A://:0", "--set", "listener.security.protocol.map=A:PLAINTEXT"): (
            "security makes the listener PLAINTEXT a SSL one, and there is none"
        ),
    }
    for options, line in said.items():
        done = subprocess.run(
            [*serve_command(tmp_path), *options],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment_for_broker({}),
        )
        assert done.returncode == 2 and line in done.stderr.splitlines()[-1]


def test_secrets_are_returned_only_on_request(process: tuple[RunningBroker, Control]) -> None:
    broker, control = process
    control.post("/v1/reset", status=204)
    control.post("/v1/users", {"name": "carl", "password": "top-secret"}, 204)
    found = [
        config(control, user=user, mechanism=each) for user in ("alice", "carl") for each in ("PLAIN", "OAUTHBEARER")
    ]
    assert [outcome(each) for each in found] == [None] * 4
    refused = [
        control.ask("POST", "/v1/users", {"name": "carl", "password": ["top-secret"]}),
        control.ask("POST", "/v1/users", ["top-secret"]),
        control.ask("POST", "/v1/users", {"name": "carl", "passwords": {"a": "top-secret"}}),
        control.ask("POST", "/v1/users", {"name": "carl", "password2": "top-secret"}),
    ]
    assert {status for status, _ in refused} == {422}
    paths = ("broker", "security", "issuer", "requests?raw=true", "faults", "journal", "clock")
    told = json.dumps([refused, *(control.get(f"/v1/{path}") for path in paths)])
    key = control.post("/v1/issuer/client-key", {"user": "carl"})["key"].splitlines()[1]
    written = told + broker.log
    tokens = [control.post("/v1/issuer/token", {"user": "carl"})["token"].split(".")[0]]  # the header of all tokens
    for secret in ("won:derland", "top-secret", key, *tokens):
        for text in (secret, secret.encode().hex(), json.dumps(secret)[1:-1]):
            assert text not in written
