"""Apache Kafka's own command-line tools administer three nodes in one process: what they ask, they are answered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.kafka_tools import Tool
from tests.running import RunningBroker, running_broker

pytestmark = pytest.mark.minibroker_only
TOOLS = "org.apache.kafka.tools"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    directory = tmp_path_factory.mktemp("cluster")
    with running_broker(directory, f"log.dirs={directory}/one,{directory}/two", nodes=3) as running:
        yield running


@pytest.fixture
def tool(cluster: RunningBroker, kafka_tool: Tool) -> Tool:
    return tool_for(cluster, kafka_tool)


def tool_for(cluster: RunningBroker, kafka_tool: Tool) -> Tool:
    """Runs a tool that asks the cluster."""
    return lambda name, *arguments: kafka_tool(name, "--bootstrap-server", cluster.bootstrap_servers, *arguments)


@pytest.fixture
def topic(tool: Tool) -> str:
    """A topic whose two partitions lie on nodes 1 and 2."""
    tool(f"{TOOLS}.TopicCommand", "--create", "--topic", "moved", "--replica-assignment", "1:2,1:2")
    return "moved"


def test_partitions_move_and_leaders_are_elected(
    tool: Tool, topic: str, cluster: RunningBroker, tmp_path: Path
) -> None:
    wanted = tmp_path / "wanted.json"
    directories = [str(cluster.directory / "one"), "any"]
    partitions = [
        {"topic": topic, "partition": 0, "replicas": [3, 1], "log_dirs": directories},
        {"topic": topic, "partition": 1, "replicas": [2, 3]},
    ]
    wanted.write_text(json.dumps({"version": 1, "partitions": partitions}))
    command = f"{TOOLS}.reassign.ReassignPartitionsCommand", "--reassignment-json-file", str(wanted)
    assert "Successfully started partition reassignments for moved-0,moved-1" in tool(*command, "--execute")
    verified = tool(*command, "--verify")
    assert "Reassignment of partition moved-0 is completed." in verified
    assert "Reassignment of replica moved-0-3 completed successfully." in verified
    assert "No partition reassignments found." in tool(command[0], "--list")
    elected = tool(f"{TOOLS}.LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")
    assert "Successfully completed leader election (PREFERRED) for partitions moved-" in elected
    described = tool(f"{TOOLS}.TopicCommand", "--describe", "--topic", topic)
    assert "Partition: 0\tLeader: 3\tReplicas: 3,1" in described
    assert "Partition: 1\tLeader: 2\tReplicas: 2,3" in described
    told = json.loads(tool(f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", topic).splitlines()[-1])
    assert {one["broker"] for one in told["brokers"]} == {1, 2, 3}


def test_a_throttled_reassignment_moves_partitions_and_removes_its_limits(
    tool: Tool, cluster: RunningBroker, tmp_path: Path
) -> None:
    tool(f"{TOOLS}.TopicCommand", "--create", "--topic", "throttled", "--replica-assignment", "1:2")
    wanted = tmp_path / "wanted.json"
    wanted.write_text(json.dumps({"partitions": [{"topic": "throttled", "partition": 0, "replicas": [3, 2]}]}))
    command = f"{TOOLS}.reassign.ReassignPartitionsCommand", "--reassignment-json-file", str(wanted)
    assert "The inter-broker throttle limit was set to 5000000 B/s" in tool(
        *command, "--execute", "--throttle", "5000000"
    )
    configs = "org.apache.kafka.tools.ConfigCommand", "--entity-type", "brokers", "--entity-name"
    assert "leader.replication.throttled.rate=5000000" in tool(*configs, "2", "--describe")
    assert "Clearing broker-level throttles" in tool(*command, "--verify")
    assert "throttled.rate" not in tool(*configs, "2", "--describe")
    assert "Replicas: 3,2" in tool(f"{TOOLS}.TopicCommand", "--describe", "--topic", "throttled")


def test_each_node_has_its_own_settings(tool: Tool) -> None:
    configs = "org.apache.kafka.tools.ConfigCommand", "--entity-type", "brokers", "--entity-name"
    tool(*configs, "3", "--alter", "--add-config", "log.retention.ms=5000")
    assert "log.retention.ms=5000 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG" in tool(*configs, "3", "--describe")
    assert "log.retention.ms" not in tool(*configs, "2", "--describe")


def test_features_and_the_quorum_are_described(tool: Tool) -> None:
    features = tool(f"{TOOLS}.FeatureCommand", "describe")
    assert "metadata.version" in features and "FinalizedVersionLevel: 4.4-IV2" in features
    lines = [line.split() for line in features.splitlines()]
    for name, newest, level in (
        ("kraft.version", "1", "0"),
        ("share.version", "2", "2"),
        ("streams.version", "1", "1"),
    ):
        levels = ["SupportedMinVersion:", "0", "SupportedMaxVersion:", newest, "FinalizedVersionLevel:", level]
        assert ["Feature:", name, *levels] in [line[:8] for line in lines]
    told = tool(f"{TOOLS}.FeatureCommand", "downgrade", "--feature", "streams.version=0", "--dry-run")
    assert "streams.version can be downgraded to 0." in told
    status = tool(f"{TOOLS}.MetadataQuorumCommand", "describe", "--status")
    assert 'CurrentObservers:       [{"id": 2}, {"id": 3}]' in status
    assert "Leader" in tool(f"{TOOLS}.MetadataQuorumCommand", "describe", "--replication")


def test_configs_quotas_and_credentials_are_changed(tool: Tool) -> None:
    configs = "org.apache.kafka.tools.ConfigCommand"
    defaults = "--entity-type", "brokers", "--entity-default"
    tool(configs, *defaults, "--alter", "--add-config", "log.retention.ms=100000")
    assert "log.retention.ms=100000" in tool(configs, *defaults, "--describe")
    user = "--entity-type", "users", "--entity-name", "ann"
    tool(configs, *user, "--alter", "--add-config", "SCRAM-SHA-256=[password=secret]")
    tool(configs, *user, "--alter", "--add-config", "producer_byte_rate=1000")
    described = tool(configs, *user, "--describe")
    assert "producer_byte_rate=1000" in described and "SCRAM-SHA-256=iterations=4096" in described
    group = "--entity-type", "groups", "--entity-name", "g"
    tool(configs, *group, "--alter", "--add-config", "consumer.session.timeout.ms=50000")
    assert "consumer.session.timeout.ms=50000" in tool(configs, *group, "--describe")
    loggers = tool(configs, "--entity-type", "broker-loggers", "--entity-name", "1", "--describe")
    assert "root=INFO" in loggers
    tool(f"{TOOLS}.ClientMetricsCommand", "--alter", "--name", "m", "--interval", "1000")
    assert "interval.ms=1000" in tool(f"{TOOLS}.ClientMetricsCommand", "--describe")


def test_acls_are_added_listed_and_removed(tmp_path: Path, kafka_tool: Tool) -> None:
    authorizer = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    with running_broker(tmp_path, authorizer, "super.users=User:ANONYMOUS") as broker:
        tool = tool_for(broker, kafka_tool)

        def acls(*arguments: str) -> str:
            return tool(f"{TOOLS}.AclCommand", *arguments)

        producer = "--allow-principal", "User:alice", "--producer", "--topic", "orders-"
        acls("--add", *producer, "--resource-pattern-type", "prefixed")
        acls("--add", "--deny-principal", "User:bob", "--deny-host", "10.0.0.1", "--operation", "Read", "--group", "*")
        listed = acls("--list")
        assert "resourceType=TOPIC, name=orders-, patternType=PREFIXED" in listed
        assert "(principal=User:bob, host=10.0.0.1, operation=READ, permissionType=DENY)" in listed
        assert all(f"operation={word}, permissionType=ALLOW" in listed for word in ("WRITE", "DESCRIBE", "CREATE"))
        assert "alice" in acls("--list", "--topic", "orders-1", "--resource-pattern-type", "match")
        acls("--remove", "--force", *producer, "--resource-pattern-type", "prefixed")
        assert "alice" not in acls("--list")
