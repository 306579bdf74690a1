"""Clients in five languages log in with each mechanism that they support, or report why they cannot.

Each client's program is started once, and runs one case after the other (see `programs/secured.py`). All clients run
a case at the same time, because they mostly wait.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
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


@pytest.fixture(scope="module")
def programs() -> Iterator[list[Program]]:
    with contextlib.ExitStack() as running:
        yield [running.enter_context(running_program(name)) for name in CLIENTS]


Cases = Callable[[str], dict[str, Any]]


def answers(programs: list[Program], case: Cases) -> dict[str, dict[str, Any]]:
    """What the clients answer or tell first, by their names. All do their cases at the same time."""
    for program in programs:
        program.tell(case(program.name))
    return {program.name: program.answer() for program in programs}


def of_all(answer: Any) -> dict[str, Any]:
    return dict.fromkeys(CLIENTS, answer)


@pytest.mark.parametrize("way", WAYS)
def test_records_are_produced_and_consumed_over_sasl(broker: SecuredBroker, programs: list[Program], way: str) -> None:
    how = dict(WAYS[way])
    listener = how.pop("listener")
    if listener == "MUTUAL":
        how["certificate"] = broker.certificate
    topics = {name: f"{EVERYONES if way == 'TLS' else ALICES}{name}-{way.replace(' ', '-')}" for name in CLIENTS}
    broker.create_topics(*topics.values())
    read = answers(programs, lambda name: broker.case(listener, topics[name], **how))
    assert read == of_all({"read": 20, "distinct": 20})


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
def test_wrong_credentials_are_rejected(broker: SecuredBroker, programs: list[Program], mechanism: str) -> None:
    wrong = {"token": broker.token(iat=-900, exp=-60)} if mechanism == "OAUTHBEARER" else {"password": "wr0ng"}
    how = {"mechanism": mechanism, "refused": True, **wrong}
    said = answers(programs, lambda name: broker.case("SECURE", f"{ALICES}{name}-wrong-{mechanism}", **how))
    assert untold(said, mechanism) == {}


def test_a_client_without_a_certificate_is_rejected(broker: SecuredBroker, programs: list[Program]) -> None:
    said = answers(programs, lambda name: broker.case("MUTUAL", f"{ALICES}{name}-nobody", refused=True))
    assert untold(said, "certificate") == {}


def untold(said: dict[str, dict[str, Any]], fault: str) -> dict[str, Any]:
    """The answers that do not tell of a fault as their client does."""
    return {
        name: answer
        for name, answer in said.items()
        if TOLD_INSTEAD.get((name, fault), TOLD[fault]) not in answer.get("error", "")
    }


Kinds = list[tuple[ResourceType, AclOperation]]
RIGHTS: dict[str, Kinds] = {  # the first of which is revoked
    "write": [(ResourceType.TOPIC, AclOperation.WRITE)],
    "read": [(ResourceType.TOPIC, AclOperation.READ), (ResourceType.GROUP, AclOperation.READ)],
    "commit": [
        (ResourceType.TRANSACTIONAL_ID, AclOperation.WRITE),
        (ResourceType.TRANSACTIONAL_ID, AclOperation.DESCRIBE),  # kafkajs looks for the coordinator each time
        (ResourceType.TOPIC, AclOperation.WRITE),
    ],
}


@pytest.mark.parametrize("act", RIGHTS)
def test_a_connected_client_is_rejected_once_its_permission_is_revoked(
    broker: SecuredBroker, programs: list[Program], act: str
) -> None:
    topics = {name: f"revoked-{act}-{name}" for name in CLIENTS}
    broker.create_topics(*topics.values())
    rights = [rule(kind, name, "User:alice", right) for name in topics.values() for kind, right in RIGHTS[act]]
    broker.allow(*rights)
    if act == "read":
        broker.produce(*topics.values())
    how = {"mechanism": "SCRAM-SHA-256", "action": f"{act}-until-refused"}
    assert answers(programs, lambda name: broker.case("SECURE", topics[name], **how)) == of_all({"event": "begun"})
    broker.revoke(*rights[:: len(RIGHTS[act])])
    refused = {program.name: program.answer().get("error", "") for program in programs}
    assert {name: error for name, error in refused.items() if not re.search("(?i)authoriz", error)} == {}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_clients_that_reauthenticate_often_lose_no_record(
    broker: SecuredBroker, programs: list[Program], mechanism: str
) -> None:
    topics = {name: f"{ALICES}{name}-brief-{mechanism}" for name in CLIENTS}
    broker.create_topics(*topics.values())
    how = {"mechanism": mechanism, "records": 500, "seconds": 1.4 * BRIEF_MS / 1000}
    read = answers(programs, lambda name: broker.case("BRIEF", topics[name], **how))
    assert read == of_all({"read": 500, "distinct": 500})
