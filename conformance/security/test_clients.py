"""Clients of five languages come in by each way that they have, or are told why not.

Each client's program is started once, and does one case after the other (`programs/secured.py` says how).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from conformance.security.client_programs import CLIENTS, Program, running_program
from conformance.security.secured_broker import ALICES, BRIEF_MS, EVERYONES, SecuredBroker, rule, secured_broker

pytestmark = pytest.mark.minibroker_only


MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
WAYS: dict[str, dict[str, Any]] = {
    "TLS": {"listener": "TLS"},
    "mTLS": {"listener": "MUTUAL"},
    **{f"{each} in the clear": {"listener": "CLEAR", "mechanism": each} for each in MECHANISMS},
    **{f"{each} over TLS": {"listener": "SECURE", "mechanism": each} for each in MECHANISMS},
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as running:
        yield running


@pytest.fixture(scope="module", params=list(CLIENTS))
def program(request: pytest.FixtureRequest) -> Iterator[Program]:
    with running_program(request.param) as started:
        yield started


@pytest.mark.parametrize("way", WAYS)
def test_records_go_there_and_back(broker: SecuredBroker, program: Program, way: str) -> None:
    how = dict(WAYS[way])
    listener = how.pop("listener")
    topic = f"{EVERYONES if way == 'TLS' else ALICES}{program.name}-{way.replace(' ', '-')}"
    if listener == "MUTUAL":
        how["certificate"] = broker.certificate
    broker.create_topics(topic)
    assert program.ask(broker.case(listener, topic, **how)) == {"read": 20, "distinct": 20}


TOLD = {
    "PLAIN": "Authentication failed: Invalid username or password",
    "SCRAM-SHA-256": "invalid credentials with SASL mechanism SCRAM-SHA-256",
    "SCRAM-SHA-512": "invalid credentials with SASL mechanism SCRAM-SHA-512",
    "OAUTHBEARER": "invalid_token",
    "certificate": "certificate",
}
# What is left of this in some clients: they answer the error that a bad token gets in another way than Java's, or go on
# as if they had logged in, and kafka-python may notice the end of the connection before what came before it.
TOLD_INSTEAD = {
    ("franz-go", "OAUTHBEARER"): "unexpected data in oauth response",
    ("sarama", "OAUTHBEARER"): "invalid credentials with SASL mechanism OAUTHBEARER",
    ("kafkajs", "OAUTHBEARER"): "Closed connection",
    ("aiokafka", "OAUTHBEARER"): "Unable to update metadata from []",  # for ever
    ("aiokafka", "certificate"): "closed",
    **{("kafka-python", fault): "Unable to bootstrap" for fault in TOLD},
}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_wrong_credentials_are_refused(broker: SecuredBroker, program: Program, mechanism: str) -> None:
    topic = f"{ALICES}{program.name}-wrong-{mechanism}"
    wrong = {"token": broker.token(iat=-900, exp=-60)} if mechanism == "OAUTHBEARER" else {"password": "wr0ng"}
    answer = program.ask(broker.case("SECURE", topic, mechanism=mechanism, refused=True, **wrong))
    assert told(program, mechanism) in answer["error"]


def test_a_client_without_a_certificate_is_refused(broker: SecuredBroker, program: Program) -> None:
    answer = program.ask(broker.case("MUTUAL", f"{ALICES}{program.name}-nobody", refused=True))
    assert told(program, "certificate") in answer["error"]


def told(program: Program, fault: str) -> str:
    return TOLD_INSTEAD.get((program.name, fault), TOLD[fault])


def test_a_right_is_revoked_while_a_client_writes(broker: SecuredBroker, program: Program) -> None:
    topic = f"revoked-{program.name}"
    broker.create_topics(topic)
    right = rule(ResourceType.TOPIC, topic, "User:alice", AclOperation.WRITE)
    broker.allow(right)
    case = broker.case("SECURE", topic, mechanism="SCRAM-SHA-256", action="until-refused")
    assert program.ask(case) == {"event": "written"}
    broker.revoke(right)
    assert re.search("(?i)topic.?authoriz|not authorized", program.answer()["error"])


def test_no_record_is_lost_when_sessions_are_brief(broker: SecuredBroker, program: Program) -> None:
    topic = f"{ALICES}{program.name}-brief"
    broker.create_topics(topic)
    seconds = 1.4 * BRIEF_MS / 1000
    case = broker.case("BRIEF", topic, mechanism="SCRAM-SHA-512", records=500, seconds=seconds)
    assert program.ask(case) == {"read": 500, "distinct": 500}
