"""`minibroker handover`: what each format has of a broker, and that hostile names stay names."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from minibroker.broker.configs.valid_values import STANDARD_AUTHORIZER
from minibroker.cli.handover.handover_strimzi import make_resource_name
from minibroker.cli.handover.handover_terraform import make_label, quote_text
from minibroker.testing import Broker
from tests.cases import for_each
from tests.cli.conftest import Run

HOSTILE = 'it\'s "a" $(touch owned) `touch owned`;\n\\ ${HOME} %{x} # -x, [y]=ü\x85'
SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS",
    "group.initial.rebalance.delay.ms": "0",
}
# A tool of Kafka's that appends its name, its arguments, and the file that they name to a file.
TOOL = f"""#!{sys.executable}
import json, os, sys
named = [each.partition("=")[2] for each in sys.argv if each.startswith(("--add-config-file=", "--from-file="))]
content = [open(each).read() for each in named]
with open(os.environ["CALLS"], "a") as calls:
    print(json.dumps([os.path.basename(sys.argv[0]), sys.argv[2:], *content]), file=calls)
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(SETTINGS) as started:
        yield started


@pytest.fixture
def filled(broker: Broker, run_client: Run) -> Broker:
    """A broker with something of each kind."""
    broker.reset()
    broker.create_topic("Orders", partitions=2, retention_ms=1000, cleanup_policy="")
    for name in ("alice", HOSTILE):
        assert run_client("users", "add", name, stdin=b"wonderland").exit_code == 0
    acls = [
        ("alice", "read", "--topic", "or", "--prefixed"),
        ("alice", "describe-configs", "--topic", "or", "--prefixed"),
        (HOSTILE, "all", "--group", HOSTILE, "--deny", "--host", "10.0.0.1"),
        ("CN=bob", "alter", "--cluster"),
        ("*", "write", "--topic", "*"),
        ("alice", "read", "--group", " blanks "),
    ]
    for acl in acls:
        assert run_client("acls", "add", *acl).exit_code == 0
    quotas = [
        ("--user", HOSTILE, "producer_byte_rate=1000", "controller_mutation_rate=1.5"),
        ("--user", HOSTILE, "--client-id", "*", "consumer_byte_rate=7"),
    ]
    for quota in quotas:
        assert run_client("quotas", "set", *quota).exit_code == 0
    broker.produce("Orders", "a", "b", "c", partition=1)
    for group in ("billing", HOSTILE):
        reset = ("groups", "reset-offsets", group, "--topic", "Orders", "--to-latest", "--execute")
        assert run_client(*reset).exit_code == 0
    return broker


def calls_of(script: str, directory: Path) -> list[Any]:
    """Run a script with tools that only note how they are called; what they noted."""
    for name in ("kafka-topics", "kafka-configs", "kafka-acls", "kafka-consumer-groups"):
        (directory / f"{name}.sh").write_text(TOOL)
        (directory / f"{name}.sh").chmod(0o755)
    environment = {
        "CALLS": str(directory / "calls"),
        "KAFKA_BIN": str(directory),
        "BOOTSTRAP_SERVER": "there:9092",
        "COMMAND_CONFIG": "my login",
        "PATH": "/usr/bin:/bin",
        "LC_ALL": "C.UTF-8",
    }
    parts = ("topics", "users", "acls", "quotas", "offsets")
    (directory / "script").write_text(script)
    subprocess.run(
        ["sh", "script", *parts],
        cwd=directory,
        env=environment,
        input="one\\,[x]=\ntwo\n",
        text=True,
        check=True,
        timeout=60,
    )
    found = [json.loads(line) for line in (directory / "calls").read_text().splitlines()]
    assert all(arguments[0] == "--command-config=my login" for _, arguments, *_ in found)
    return [[name.removesuffix(".sh"), arguments[1:], *content] for name, arguments, *content in found]


def test_the_handover_script_calls_kafkas_tools_for_all_resources(
    filled: Broker, run_client: Run, tmp_path: Path
) -> None:
    script = run_client("handover", "--to", "sh").stdout
    assert "wonderland" not in script
    calls = calls_of(script, tmp_path)
    assert not (tmp_path / "owned").exists()
    topic = ["--create", "--if-not-exists", "--partitions=2", "--replication-factor=1", "--config=retention.ms=1000"]
    assert calls[0] == ["kafka-topics", [*topic, "--topic=Orders"]]
    assert calls[1][2] == "cleanup.policy=\n"
    credentials = [(call[1][1], call[2]) for call in calls[2:6]]
    assert credentials == [
        ("--user=alice", "SCRAM-SHA-256=iterations=4096,password=one\\\\,[x]=\n"),
        ("--user=alice", "SCRAM-SHA-512=iterations=4096,password=one\\\\,[x]=\n"),
        (f"--user={HOSTILE}", "SCRAM-SHA-256=iterations=4096,password=two\n"),
        (f"--user={HOSTILE}", "SCRAM-SHA-512=iterations=4096,password=two\n"),
    ]
    acls = [call[1] for call in calls if call[0] == "kafka-acls"]
    denied = ["--operation=All", f"--deny-principal=User:{HOSTILE}", "--deny-host=10.0.0.1"]
    assert ["--add", f"--group={HOSTILE}", "--resource-pattern-type=literal", *denied] in acls
    both = ["--operation=DescribeConfigs", "--operation=Read", "--allow-principal=User:alice", "--allow-host=*"]
    assert ["--add", "--topic=or", "--resource-pattern-type=prefixed", *both] in acls
    assert "# Left out: the ACL of 'User:alice' on the group ' blanks ': kafka-acls cuts off blanks" in script
    quotas = [call[1] for call in calls if call[0] == "kafka-configs" and len(call) == 2]
    assert quotas == [
        ["--alter", f"--user={HOSTILE}", "--client-defaults", "--add-config=consumer_byte_rate=7.0"],
        ["--alter", f"--user={HOSTILE}", "--add-config=controller_mutation_rate=1.5,producer_byte_rate=1000.0"],
    ]
    offsets = [call for call in calls if call[0] == "kafka-consumer-groups"]
    assert [call[1][-1] for call in offsets] == ["--group=billing", f"--group={HOSTILE}"]
    assert {call[2] for call in offsets} == {"Orders,0,0\nOrders,1,3\n"}


def test_the_handover_script_rejects_a_password_it_cannot_pass_on_unchanged(
    filled: Broker, run_client: Run, tmp_path: Path
) -> None:
    (tmp_path / "script").write_text(run_client("handover", "--to", "sh").stdout)
    for password in ("", "ü", "a\tb"):
        command = ["sh", "script", "users"]
        environment = {"BOOTSTRAP_SERVER": "there:9092", "PATH": "/usr/bin:/bin"}
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, input=f"{password}\n", text=True, capture_output=True
        )
        assert (done.returncode, done.stderr.splitlines()[-1][:26]) == (1, "Password of alice: this sc")


TEXT, WHOLE, NUMBER = str, int, (int, float)
OPERATIONS = [
    *("Read", "Write", "Create", "Delete", "Alter", "Describe", "ClusterAction", "AlterConfigs", "DescribeConfigs"),
    *("IdempotentWrite", "All"),
]
# The fields of Strimzi's CustomResourceDefinitions that can be set, with their types or values.
FIELDS: dict[str, Any] = {
    "KafkaTopic": {"topicName": TEXT, "partitions": WHOLE, "replicas": WHOLE, "config": dict},
    "KafkaUser": {
        "userName": TEXT,
        "authentication": {"type": ["tls", "tls-external", "scram-sha-512"]},
        "authorization": {
            "type": ["simple"],
            "acls": [
                {
                    "type": ["allow", "deny"],
                    "resource": {
                        "type": ["topic", "group", "cluster", "transactionalId"],
                        "name": TEXT,
                        "patternType": ["literal", "prefix"],
                    },
                    "host": TEXT,
                    "operations": (OPERATIONS,),
                }
            ],
        },
        "quotas": {
            "producerByteRate": WHOLE,
            "consumerByteRate": WHOLE,
            "requestPercentage": WHOLE,
            "controllerMutationRate": NUMBER,
        },
    },
}


def check_fields(value: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        for name, each in value.items():
            check_fields(each, expected[name])
    elif isinstance(expected, list) and isinstance(expected[0], dict):
        for each in value:
            check_fields(each, expected[0])
    elif isinstance(expected, list):
        assert value in expected
    elif isinstance(expected, tuple) and isinstance(expected[0], list):
        assert set(value) <= set(expected[0])
    else:
        assert isinstance(value, expected)


def test_handover_writes_strimzi_resources_with_valid_fields(filled: Broker, run_client: Run) -> None:
    written = run_client("handover", "--to", "strimzi", "--cluster", "production").stdout
    assert "wonderland" not in written
    documents = list(yaml.safe_load_all(written))
    for each in documents:
        assert each["apiVersion"] == "kafka.strimzi.io/v1"
        assert each["metadata"]["labels"] == {"strimzi.io/cluster": "production"}
        check_fields(each["spec"], FIELDS[each["kind"]])
    topic, bob, alice, hostile = documents
    assert topic["metadata"]["name"].startswith("orders-")
    config = {"cleanup.policy": "", "retention.ms": "1000"}
    assert topic["spec"] == {"topicName": "Orders", "partitions": 2, "replicas": 1, "config": config}
    assert (bob["metadata"]["name"], bob["spec"]["authentication"]) == ("bob", {"type": "tls-external"})
    assert alice["spec"]["authorization"]["acls"][-1] == {
        "type": "allow",
        "resource": {"type": "topic", "name": "or", "patternType": "prefix"},
        "operations": ["DescribeConfigs", "Read"],
        "host": "*",
    }
    assert hostile["spec"]["userName"] == HOSTILE
    assert hostile["spec"]["quotas"] == {"controllerMutationRate": 1.5, "producerByteRate": 1000}
    assert "# Left out: an ACL that no KafkaUser has: allow 'User:*' Write on the topic '*'\n" in written
    assert "# Left out: the offsets of the group 'billing'\n" in written


@for_each("name", ["Orders", "a_b", "-", "ü", "a" * 300, "a..b", HOSTILE])
def test_kubernetes_names_are_derived_from_topic_and_user_names(name: str) -> None:
    made = make_resource_name(name)
    assert make_resource_name(made) == made != name and made != make_resource_name(name + "x")
    assert make_resource_name("orders.eu-1") == "orders.eu-1"


def test_the_terraform_configuration_has_a_resource_for_each_topic_user_acl_and_quota(
    filled: Broker, run_client: Run
) -> None:
    written = run_client("handover", "--to", "terraform").stdout
    assert "wonderland" not in written
    kinds = [line.split('"')[1] for line in written.splitlines() if line.startswith("resource ")]
    counts = {kind: kinds.count(kind) for kind in kinds}
    assert counts == {
        "kafka_topic": 1,
        "kafka_user_scram_credential": 4,
        "kafka_acl": 6,
        "kafka_quota": 1,
        "kafka_quota_composite": 1,
    }
    labels = [line.split('"')[3] for line in written.splitlines() if line.startswith("resource ")]
    assert len(set(zip(kinds, labels, strict=True))) == len(kinds)
    assert 'resource "kafka_topic" "Orders" {\n  name               = "Orders"\n' in written
    assert 'password_wo         = var.passwords["alice"]' in written


def test_terraform_strings_are_escaped() -> None:
    assert quote_text('a"b\\c\n${x} %{y} \x85\x08') == '"a\\"b\\\\c\\n$${x} %%{y} \\u0085\\u0008"'
    assert make_label("orders-eu") == "orders-eu"
    assert make_label("1") != make_label("1_") and make_label("1").startswith("_1_")


def test_the_report_lists_settings_that_differ_from_kafkas_defaults(filled: Broker, run_client: Run) -> None:
    said = run_client("handover").stdout
    assert "all brokers" not in run_client("handover", "--to", "terraform").stdout  # the default of a new cluster
    assert "has 1 topic, 2 users, 6 ACLs, 3 quotas, 2 groups with offsets" in said
    assert "topics with one replica, which the loss of a broker takes away: Orders" in said
    found = {row["setting"]: row for row in json.loads(run_client("handover", "--json").stdout)["settings"]}
    delay = found["group.initial.rebalance.delay.ms"]
    assert delay == {"setting": delay["setting"], "here": "0", "default": "3000", "production": None}
    assert found["min.insync.replicas"]["production"] == "2"
    assert "log.segment.bytes" not in found and "authorizer.class.name" not in found


def test_handover_finds_the_same_resources_in_a_data_directory_as_at_its_broker(
    filled: Broker, run: Run, run_client: Run, tmp_path: Path
) -> None:
    asked = json.loads(run_client("handover", "--json").stdout)
    snapshot = filled.snapshot().directory
    before = {path: path.stat().st_mtime_ns for path in snapshot.rglob("*")}
    read = json.loads(run("handover", "--json", "--path", str(snapshot)).stdout)
    kinds = ("topics", "users", "acls", "quotas", "offsets")
    assert {kind: read[kind] for kind in kinds} == {kind: asked[kind] for kind in kinds}
    assert {path: path.stat().st_mtime_ns for path in snapshot.rglob("*")} == before
    assert "log.dirs" in {row["setting"] for row in asked["settings"]}
    assert {row["setting"] for row in read["settings"]} == {"min.insync.replicas"}  # not those of this process
    assert "the settings of its broker's file" in run("handover", "--path", str(snapshot)).stdout
    refused = run("handover", "--path", str(tmp_path))
    assert (refused.exit_code, "is no data directory" in refused.stderr) == (2, True)
