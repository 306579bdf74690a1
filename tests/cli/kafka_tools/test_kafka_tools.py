"""The tools that only tell about the cluster, and those that are not there."""

from __future__ import annotations

from minibroker.cli.kafka_tools.__main__ import main
from tests.cli.conftest import Run, runner
from tests.running import RunningBroker


def test_kafka_tools_without_arguments_lists_the_tools() -> None:
    result = runner().invoke(main, [])
    assert (result.exit_code, result.stderr) == (0, "")
    assert "\n  kafka-console-producer  " in result.stdout


def test_kafka_get_offsets_prints_the_offset_of_each_partition(tool: Run) -> None:
    tool("kafka-topics", "--create", "--topic", "filled")
    tool("kafka-console-producer", "--topic", "filled", "--property", "parse.key=true", stdin=b"a\t1\na\t2\n")
    ends = tool("kafka-get-offsets", "--topic", "filled").stdout.splitlines()
    assert sorted(ends) in (["filled:0:0", "filled:1:2"], ["filled:0:2", "filled:1:0"])
    assert tool("kafka-get-offsets", "--topic", "filled", "--time", "-2").stdout == "filled:0:0\nfilled:1:0\n"
    assert tool("kafka-get-offsets", "--topic", "filled", "--time", "earliest", "--partitions", "1").stdout == (
        "filled:1:0\n"
    )
    assert "filled:0:\n" in tool("kafka-get-offsets", "--topic", "filled", "--time", "99999999999999").stdout
    missing = tool("kafka-get-offsets", "--topic", "none")
    assert missing.exit_code == 1 and "Could not match any topic-partitions" in missing.stderr


def test_the_api_versions_of_each_broker_are_printed(tool: Run, broker: RunningBroker) -> None:
    lines = tool("kafka-broker-api-versions").stdout.splitlines()
    assert lines[0] == f"{broker.bootstrap_servers} (id: 1 rack: null isFenced: false) -> ("
    assert lines[1] == "\tProduce(0): 0 to 13 [usable: 13],"
    assert lines[-2].endswith("]") and lines[-1] == ")"


def test_the_cluster_id_is_printed(tool: Run) -> None:
    told = tool("kafka-cluster", "cluster-id").stdout
    assert told.startswith("Cluster ID: ") and len(told.split()[-1]) == 22


def test_an_unreachable_server_is_reported_in_one_line(tool: Run) -> None:
    away = tool("kafka-topics", "--list", "--bootstrap-server", "127.0.0.1:1")
    assert away.exit_code == 0  # the last option counts, which is the broker's
    unknown = tool("kafka-nothing")
    assert (unknown.exit_code, unknown.stderr.count("\n")) == (2, 1)
