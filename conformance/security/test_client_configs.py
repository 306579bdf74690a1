"""Clients in Go, JavaScript and Java connect with what the test kit returns for them, as the user and as no other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from conformance.security.client_programs import Program, running_program
from minibroker.testing import Broker
from minibroker.testing.embedded.broker_security import MECHANISMS

pytestmark = pytest.mark.minibroker_only
LIBRARIES = {"franz-go": "franz-go", "kafkajs": "kafkajs", "java-4": "java"}  # of each program


@pytest.fixture(scope="module", params=LIBRARIES)
def program(request: pytest.FixtureRequest) -> Iterator[Program]:
    with running_program(request.param) as started:
        yield started


@pytest.fixture(scope="module", params=["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(security=request.param, users={"alice": 'a"b\\c d'}) as started:
        yield started


def round_trip(program: Program, topic: str, config: Any) -> dict[str, Any]:
    return program.ask({"action": "round-trip", "config": config, "topic": topic, "records": 20, "seconds": 0})


def test_a_client_connects_as_the_requested_user(program: Program, broker: Broker) -> None:
    protocol, prefix, library = broker.security.protocol, f"of-alice-{program.name}-", LIBRARIES[program.name]
    broker.acls.allow("ANONYMOUS" if protocol == "PLAINTEXT" else "alice", "all", topic=f"{prefix}*")
    for mechanism in MECHANISMS if protocol.startswith("SASL") else [None]:
        broker.create_topic(f"{prefix}{mechanism}")
        config = broker.client_config(library, user="alice", mechanism=mechanism)
        assert round_trip(program, f"{prefix}{mechanism}", config) == {"read": 20, "distinct": 20}
    if protocol != "PLAINTEXT":
        refused = round_trip(program, f"{prefix}{mechanism}", broker.client_config(library, user="bob"))
        assert "authoriz" in refused.get("error", "").lower()


def test_franz_go_logs_in_with_a_delegation_token() -> None:
    with running_program("franz-go") as program, Broker(security="SASL_SSL", users={"alice": "x"}) as broker:
        broker.create_topic("t")
        broker.acls.allow("alice", "all", topic="t")
        config = broker.client_config("franz-go", token=broker.tokens.create("alice"))
        assert round_trip(program, "t", config) == {"read": 20, "distinct": 20}
