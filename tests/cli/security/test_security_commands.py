"""`minibroker users`, `acls` and `quotas` against a broker with an authorizer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.configs.valid_values import STANDARD_AUTHORIZER
from minibroker.testing import Broker
from minibroker.testing.embedded.broker_security import MECHANISMS
from tests.cases import for_each
from tests.cli.conftest import Run
from tests.running import RunningBroker, running_broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    directory = tmp_path_factory.mktemp("secured")
    settings = (f"authorizer.class.name={STANDARD_AUTHORIZER}", "super.users=User:ANONYMOUS")
    with running_broker(directory, *settings) as running:
        yield running
        assert "wonderland" not in running.log


def test_users_are_added_listed_and_removed(run_client: Run) -> None:
    added = run_client("users", "add", "alice", stdin=b"wonderland\n")
    assert (added.exit_code, added.stdout) == (0, "added alice\n")
    run_client("users", "add", "bob", "--mechanism", "SCRAM-SHA-512", "--iterations", "8192", stdin=b"wonderland")
    assert json.loads(run_client("users", "list", "--json").stdout) == [
        {"user": "alice", "mechanism": "SCRAM-SHA-256", "iterations": 4096},
        {"user": "alice", "mechanism": "SCRAM-SHA-512", "iterations": 4096},
        {"user": "bob", "mechanism": "SCRAM-SHA-512", "iterations": 8192},
    ]
    assert "alice" in run_client("users", "list").stdout
    for name in ("alice", "bob"):
        assert run_client("users", "remove", name).stdout == f"removed {name}\n"
    gone = run_client("users", "remove", "bob")
    assert (gone.exit_code, gone.stderr.splitlines()[-1]) == (1, "minibroker: there is no user bob")


@for_each(
    ("arguments", "said"),
    [
        (("users", "add", "alice"), "the password is empty"),
        (("users", "add", "alice", "--iterations", "10"), "4096<=x<=16384"),
        (("acls", "add", "alice", "read"), "choose one of --topic, --group, --transactional-id, --cluster, "),
        (("acls", "add", "alice", "read", "--topic", "t", "--cluster"), "choose one of --topic"),
        (("acls", "add", "alice", "fly", "--topic", "t"), "'fly' is not one of"),
        (("acls", "add", "alice", "read", "--topic", "t-*"), "no topic is named t-*; for a prefix, give --topic t- "),
        (("quotas", "set", "producer_byte_rate=1"), "choose one of --user, --client-id, --ip, or the first two"),
        (("quotas", "set", "--user", "alice", "producer_byte_rate=many"), "is a number, and cannot be 'many'"),
    ],
)
def test_invalid_arguments_of_security_commands_are_reported_in_one_line(
    run_client: Run, arguments: tuple[str, ...], said: str
) -> None:
    refused = run_client(*arguments)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith("minibroker: ") and said in refused.stderr and refused.stderr.count("\n") == 1


def test_an_unknown_acl_cannot_be_removed(run_client: Run) -> None:
    refused = run_client("acls", "remove", "alice", "read", "--topic", "never")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == "minibroker: there is no such ACL; 'minibroker acls list' shows those that there are\n"


def test_acls_are_added_listed_and_removed(run_client: Run) -> None:
    of_topics = ("alice", "read", "--topic", "orders-", "--prefixed")
    assert run_client("acls", "add", *of_topics).stdout == "allowed alice to read\n"
    denied = run_client("acls", "add", "*", "alter-configs", "--cluster", "--deny", "--host", "10.0.0.0/8")
    assert denied.stdout == "denied * to alter-configs\n"
    expected = [
        ("cluster", "kafka-cluster", "literal", "User:*", "10.0.0.0/8", "alter_configs", "deny"),
        ("topic", "orders-", "prefixed", "User:alice", "*", "read", "allow"),
    ]
    listed = json.loads(run_client("acls", "list", "--json").stdout)
    assert [tuple(row.values()) for row in listed] == expected
    assert "orders-" in run_client("acls", "list").stdout
    of_tokens = [
        ("alice", "create-tokens", "--user-principal", "bob"),
        ("alice", "describe", "--delegation-token", "id"),
    ]
    for acl in of_tokens:
        run_client("acls", "add", *acl)
    listed = json.loads(run_client("acls", "list", "--json").stdout)
    told = {(row["resource"], row["name"], row["operation"]) for row in listed}
    assert {("delegation_token", "id", "describe"), ("user", "User:bob", "create_tokens")} <= told
    for acl in of_tokens:
        assert run_client("acls", "remove", *acl).stdout == "removed 1\n"
    assert run_client("acls", "remove", *of_topics).stdout == "removed 1\n"
    assert [row["resource"] for row in json.loads(run_client("acls", "list", "--json").stdout)] == ["cluster"]


def test_quotas_are_set_listed_and_removed(run_client: Run) -> None:
    limits = ("producer_byte_rate=1000", "request_percentage=12.5")
    changed = run_client("quotas", "set", "--user", "alice", "--client-id", "*", *limits)
    assert changed.stdout == "set producer_byte_rate, request_percentage\n"
    run_client("quotas", "set", "--ip", "10.0.0.1", "connection_creation_rate=5")
    listed = json.loads(run_client("quotas", "list", "--json").stdout)
    assert [tuple(row.values()) for row in listed] == [
        ("alice", "*", None, "producer_byte_rate", 1000.0),
        ("alice", "*", None, "request_percentage", 12.5),
        (None, None, "10.0.0.1", "connection_creation_rate", 5.0),
    ]
    assert "producer_byte_rate" in run_client("quotas", "list").stdout
    refused = run_client("quotas", "set", "--user", "alice", "speed=1")
    assert refused.exit_code == 1 and "Invalid configuration key speed" in refused.stderr
    assert run_client("quotas", "remove", "--ip", "10.0.0.1", "connection_creation_rate").exit_code == 0
    assert len(json.loads(run_client("quotas", "list", "--json").stdout)) == 2


def test_read_permission_on_a_topic_suffices_for_consume(run: Run, tmp_path: Path) -> None:
    with Broker({"allow.everyone.if.no.acl.found": "false"}, security="SASL_PLAINTEXT") as broker:
        broker.produce("orders", "tea")
        file = tmp_path / "alice.properties"
        file.write_text(broker.client_config("librdkafka.properties", user="alice"))
        consume = ("consume", "orders", "--bootstrap-server", broker.bootstrap_servers, "--command-config", str(file))
        broker.acls.allow("alice", "describe", topic="orders")
        refused = run(*consume)
        assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
        assert "reading orders-0 at 0: TOPIC_AUTHORIZATION_FAILED" in refused.stderr
        broker.acls.allow("alice", "read", topic="orders")
        assert run(*consume).stdout == "tea\n"


def properties(config: Any) -> str:
    """A client's settings as the text of a properties file."""
    if isinstance(config, str):
        return config
    escaped = {name: value.replace("\\", "\\\\").replace("\n", "\\n") for name, value in config.items()}
    return "".join(f"{name}={value}\n" for name, value in escaped.items())


@pytest.mark.parametrize("library", ["librdkafka.properties", "java"])
@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_commands_connect_with_a_client_config(run: Run, tmp_path: Path, library: str, protocol: str) -> None:
    with Broker(security=protocol, users={"alice": 'a"b c'}) as broker:
        for mechanism in MECHANISMS if protocol == "SASL_SSL" else (None,):
            file = tmp_path / "alice.properties"
            file.write_text(properties(broker.client_config(library, user="alice", mechanism=mechanism)))
            connected = ("--bootstrap-server", broker.bootstrap_servers, "--command-config", str(file))
            assert run("produce", "orders", *connected, stdin=b"tea\n").stderr == ""
            assert run("topics", "list", *connected).stdout.split()[0:1] != [], mechanism
        assert len(broker.records("orders")) == (4 if protocol == "SASL_SSL" else 1)
