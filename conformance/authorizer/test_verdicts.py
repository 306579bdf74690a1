"""The authorizer's verdicts against those of Kafka's own StandardAuthorizer: random ACLs, 100,000 questions a release.

Java answers all questions in one run, from the jars of Apache Kafka. From 4.4 on a host may be a range of addresses.
"""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from conformance import builds
from minibroker.broker.configs.valid_values import parse_super_users
from minibroker.broker.security.acls import Acl, Acls, PatternType, Permission
from minibroker.broker.security.authorizer import Authorizer
from minibroker.broker.security.operations import Operation, ResourceType, Right
from minibroker.broker.security.principals import Principal

PROGRAM = Path(__file__).parent / "Verdicts.java"
SETS, QUESTIONS, SOME = 500, 200, 20
NAMES = ["a", "ab", "abc", "abd", "b", "ba", "h", "hardcode", "hard", "A", "-", "a.b", "z" * 200]
CLIENTS = ["User:a", "User:b", "User:CN=c,O=d", "Group:a", "Group:*"]  # User:* would have Kafka fail
PRINCIPALS = [*CLIENTS, "User:*"]
ADDRESSES = ["10.1.2.3", "10.1.2.4", "10.200.0.1", "0:0:0:0:0:0:0:1", "fe80:0:0:0:0:0:0:1"]
HOSTS = ["*", "*", "*", "10.1.2.3", "10.1.2.4", "0:0:0:0:0:0:0:1", "::1", "fe80:0:0:0:0:0:0:1"]
RANGES = ["10.1.0.0/16", "10.1.2.3/32", "10.9.9.9/8", "0.0.0.0/0", "fe80::/10", "::/0", "10.1.2.4/31"]
TYPES = [ResourceType.TOPIC, ResourceType.GROUP]
OPERATIONS = [each for each in Operation if each is not Operation.ANY]


def random_acl(source: random.Random, hosts: list[str], all_operations: list[Operation]) -> Acl:
    return Acl(
        source.choice(TYPES),
        source.choice([*NAMES, "*", "*"]),
        source.choice([PatternType.LITERAL, PatternType.PREFIXED]),
        source.choice(PRINCIPALS),
        source.choice(hosts),
        source.choice(all_operations),
        source.choice([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
    )


def random_set(source: random.Random, hosts: list[str]) -> dict[str, Any]:
    operations = source.choice([OPERATIONS, OPERATIONS[:3], [Operation.WRITE, Operation.DESCRIBE, Operation.ALL]])
    acls = {random_acl(source, hosts, operations) for _ in range(source.choice([0, 1, 2, 5, 20, 100]))}
    return {
        "superUsers": source.choice(["", "User:a", " User:CN=c,O=d ; Group:a;"]),
        "withoutAcl": source.choice(["true", "false"]),
        "acls": sorted(acls),
        "questions": [
            (
                source.choice(CLIENTS),
                source.choice(ADDRESSES),
                source.choice(OPERATIONS[1:]),
                source.choice(TYPES),
                source.choice(NAMES),
            )
            for _ in range(QUESTIONS)
        ],
        "some": [
            (source.choice(CLIENTS), source.choice(ADDRESSES), source.choice(OPERATIONS[1:]), source.choice(TYPES))
            for _ in range(SOME)
        ],
    }


def ours(asked: dict[str, Any]) -> str:
    acls = Acls()
    for number, acl in enumerate(asked["acls"]):
        acls.add_acl(number.to_bytes(16, "big"), acl)
    without_acl = asked["withoutAcl"] == "true"
    authorizer = Authorizer(acls, parse_super_users(asked["superUsers"]), allow_without_acl=without_acl)
    verdicts = [
        authorizer.allows_operation(_principal(principal), host, Right(operation, kind), name)
        for principal, host, operation, kind, name in asked["questions"]
    ]
    verdicts += [
        authorizer.allows_on_any_resource(_principal(principal), host, Right(operation, kind))
        for principal, host, operation, kind in asked["some"]
    ]
    return "".join("1" if verdict else "0" for verdict in verdicts)


def _principal(text: str) -> Principal:
    kind, _, name = text.partition(":")
    return Principal(kind, name)


@pytest.mark.parametrize(("release", "hosts"), [("4.3.1", HOSTS), (builds.APACHE_KAFKA, HOSTS + RANGES)])
def test_verdicts_equal_those_of_kafkas_authorizer(release: str, hosts: list[str]) -> None:
    source = random.Random(7)
    asked = [random_set(source, hosts) for _ in range(SETS)]
    command = [*builds.JAVA, "-cp", f"{builds.authorizer(release)}/*", str(PROGRAM)]
    run = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    theirs = json.loads(run.stdout)
    differing = [
        (number, index, [*each["questions"], *each["some"]][index], expected[index])
        for number, (each, expected) in enumerate(zip(asked, theirs, strict=True))
        for index, verdict in enumerate(ours(each))
        if verdict != expected[index]
    ]
    assert differing == []
    verdicts = "".join(theirs)
    assert len(verdicts) == SETS * (QUESTIONS + SOME)
    assert min(verdicts.count("0"), verdicts.count("1")) > len(verdicts) / 5
