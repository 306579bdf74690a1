"""Clients get their tokens from an issuer that others have written, and our broker has its keys from there."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.builds import oauth_server
from conformance.clients import JAVA_OPTIONS, PATIENCE_S
from conformance.security.client_programs import Program, running_program
from conformance.security.secured_broker import ALICES, SecuredBroker, secured_broker
from tests.clients.ports import free_ports

pytestmark = pytest.mark.minibroker_only
LONG_AGO_S = 1_000_000_000
# By the scope that a client asks for, what its token says instead of what the broker wants.
SCOPES: dict[str, dict[str, Any]] = {
    "good": {},
    "wrong-audience": {"aud": ["elsewhere"]},
    "wrong-issuer": {"iss": "https://elsewhere.test"},
    "expired": {"exp": LONG_AGO_S + 60, "iat": LONG_AGO_S, "nbf": LONG_AGO_S},
}


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an issuer."""
    mappings = [
        {"requestParam": "scope", "match": scope, "claims": {"sub": "alice", "aud": ["kafka"], **claims}}
        for scope, claims in SCOPES.items()
    ]
    config = {"tokenCallbacks": [{"issuerId": "theirs", "tokenExpiry": 600, "requestMappings": mappings}]}
    address = f"127.0.0.1:{free_ports(1)}"
    host, port = address.split(":")
    environment = {**os.environ, "SERVER_HOSTNAME": host, "SERVER_PORT": port, "JSON_CONFIG": json.dumps(config)}
    command = ["java", *JAVA_OPTIONS, "-cp", f"{oauth_server()}/*"]
    command.append("no.nav.security.mock.oauth2.StandaloneMockOAuth2ServerKt")
    log = tmp_path_factory.mktemp("issuer") / "log"
    with log.open("wb") as out, subprocess.Popen(command, env=environment, stdout=out, stderr=out) as process:
        try:
            wait_for(f"http://{address}/isalive", log)
            yield f"http://{address}/theirs"
        finally:
            process.kill()


def wait_for(url: str, log: Path) -> None:
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            with urllib.request.urlopen(url):
                return
        except urllib.error.URLError:
            assert time.monotonic() < end, log.read_text()[-4000:]
            time.sleep(0.05)


@pytest.fixture(scope="module")
def broker(issuer: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    expected = {"sasl_oauthbearer_jwks_endpoint_url": f"{issuer}/jwks", "sasl_oauthbearer_expected_issuer": issuer}
    with secured_broker(tmp_path_factory.mktemp("broker"), **expected) as running:
        yield running


@pytest.fixture(scope="module", params=["java-3.9", "java-4", "confluent"])
def program(request: pytest.FixtureRequest) -> Iterator[Program]:
    with running_program(request.param) as started:
        yield started


def case(broker: SecuredBroker, issuer: str, topic: str, scope: str) -> dict[str, Any]:
    credentials = {"client_id": "kafka-client", "client_secret": "c-secret", "scope": scope}
    more = {"mechanism": "OAUTHBEARER", "token_url": f"{issuer}/token", **credentials}
    return broker.case("SECURE", topic, **more)


def test_clients_log_in_with_tokens_of_a_foreign_issuer(broker: SecuredBroker, issuer: str, program: Program) -> None:
    topic = f"{ALICES}{program.name}"
    broker.create_topics(topic)
    assert program.ask(case(broker, issuer, topic, "good")) == {"read": 20, "distinct": 20}


@pytest.mark.parametrize("scope", [scope for scope in SCOPES if scope != "good"])
def test_an_invalid_token_of_a_foreign_issuer_is_rejected(
    broker: SecuredBroker, issuer: str, program: Program, scope: str
) -> None:
    answer = program.ask(case(broker, issuer, f"{ALICES}{program.name}-{scope}", scope))
    # librdkafka does not even send a token that has expired
    told = "unexpired token" if (program.name, scope) == ("confluent", "expired") else "invalid_token"
    assert told in answer["error"]
