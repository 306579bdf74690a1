"""`minibroker users`, `acls`, `quotas` and `tokens` with any Kafka, Apache Kafka's among them."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner

from conformance.wire.requests import repeated
from conformance.wire.test_delegation_tokens import address
from minibroker.cli.main import main

__all__ = ["address"]  # the listener of a broker with SASL, an authorizer and delegation tokens

ACL = ("alice", "read", "--topic", "orders-", "--prefixed", "--host", "10.0.0.1")
LIMITS = ("--user", "alice", "--client-id", "*", "producer_byte_rate=1000", "request_percentage=12.5")


def run(address: str, *arguments: str, user: str = "admin", stdin: str | None = None) -> str:
    """What a command of this user prints, AssertionError if it fails."""
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": f"{user}-secret",
    }
    options = [word for name, value in login.items() for word in ("--client", f"{name}={value}")]
    done = CliRunner().invoke(main, [*arguments, "--bootstrap-server", address, *options], input=stdin)
    assert done.exit_code == 0, done.output
    return done.stdout


def listed(address: str, kind: str, count: int, verb: str = "list", user: str = "admin") -> list[tuple[Any, ...]]:
    """The rows of a list, once there are so many: Kafka's brokers learn of changes from the controller."""
    rows = repeated(lambda: json.loads(run(address, kind, verb, "--json", user=user)), lambda seen: len(seen) == count)
    return [tuple(row.values()) for row in rows]


def test_a_user_is_added_and_removed(address: str) -> None:
    assert run(address, "users", "add", "dora", "--iterations", "5000", stdin="wonderland\n") == "added dora\n"
    assert listed(address, "users", 2) == [("dora", "SCRAM-SHA-256", 5000), ("dora", "SCRAM-SHA-512", 5000)]
    assert run(address, "users", "remove", "dora") == "removed dora\n"
    assert listed(address, "users", 0) == []


def test_an_acl_is_added_and_removed(address: str) -> None:
    before = len(json.loads(run(address, "acls", "list", "--json")))
    assert run(address, "acls", "add", *ACL) == "allowed alice to read\n"
    added = ("topic", "orders-", "prefixed", "User:alice", "10.0.0.1", "read", "allow")
    assert added in listed(address, "acls", before + 1)
    assert run(address, "acls", "remove", *ACL) == "removed 1\n"
    assert added not in listed(address, "acls", before)


def test_a_quota_is_set_and_removed(address: str) -> None:
    assert run(address, "quotas", "set", *LIMITS) == "set producer_byte_rate, request_percentage\n"
    assert sorted(listed(address, "quotas", 2)) == [
        ("alice", "*", None, "producer_byte_rate", 1000.0),
        ("alice", "*", None, "request_percentage", 12.5),
    ]
    names = [limit.partition("=")[0] for limit in LIMITS[-2:]]
    run(address, "quotas", "remove", *LIMITS[:-2], *names)
    assert listed(address, "quotas", 0) == []


def test_a_token_is_created_and_expired(address: str) -> None:
    token = json.loads(run(address, "tokens", "create", "--json", user="alice"))
    assert listed(address, "tokens", 1, "describe", "alice")[0][0] == token["id"]
    run(address, "tokens", "renew", token["id"], user="alice")
    run(address, "tokens", "expire", token["id"], user="alice")
    assert listed(address, "tokens", 0, "describe", "alice") == []
