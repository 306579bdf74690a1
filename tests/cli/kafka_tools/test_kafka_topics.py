"""`kafka-topics` says what Kafka's own tool says: its output was compared with that of Apache Kafka 4.3."""

from __future__ import annotations

import re

import pytest

from tests.cli.conftest import Run


def test_topics_are_created_listed_and_deleted(tool: Run) -> None:
    created = tool("kafka-topics", "--create", "--topic", "made", "--partitions", "3", "--config", "retention.ms=1000")
    assert (created.exit_code, created.stdout, created.stderr) == (0, "Created topic made.\n", "")
    assert tool("kafka-topics", "--create", "--topic=made", "--if-not-exists").stdout == ""
    again = tool("kafka-topics", "--create", "--topic", "made")
    assert (again.exit_code, again.stdout) == (1, "") and "already exists" in again.stderr
    assert "made\n" in tool("kafka-topics", "--list").stdout
    assert tool("kafka-topics", "--list", "--topic", "ma.*").stdout == "made\n"
    gone = tool("kafka-topics", "--delete", "--topic", "made")
    assert (gone.exit_code, gone.stdout, gone.stderr) == (0, "", "")
    assert tool("kafka-topics", "--list", "--topic", "made").stdout == ""


def test_an_invalid_pattern_is_an_error(tool: Run) -> None:
    wrong = tool("kafka-topics", "--list", "--topic", "good,(")
    assert (wrong.exit_code, wrong.stdout) == (2, "")
    assert wrong.stderr == "minibroker: 'good,(' is no regular expression: missing ), unterminated subpattern\n"


def test_names_that_collide_in_metrics_cause_a_warning(tool: Run) -> None:
    warning, created = tool("kafka-topics", "--create", "--topic", "a.b").stdout.splitlines()
    assert warning.startswith("WARNING: Due to limitations in metric names")
    assert created == "Created topic a.b."


def test_a_description_has_a_line_for_the_topic_and_each_partition(tool: Run) -> None:
    tool("kafka-topics", "--create", "--topic", "told", "--config", "cleanup.policy=compact")
    head, *partitions = tool("kafka-topics", "--describe", "--topic", "told").stdout.splitlines()
    assert re.match(
        r"Topic: told\tTopicId: [\w-]{22}\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: .*cleanup.policy=compact",
        head,
    )
    assert partitions == [
        f"\tTopic: told\tPartition: {index}\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: N/A\tLastKnownElr: N/A"
        for index in range(2)
    ]


def test_partitions_are_added_to_a_topic(tool: Run) -> None:
    tool("kafka-topics", "--create", "--topic", "grown")
    added = tool("kafka-topics", "--alter", "--topic", "grown", "--partitions", "3")
    assert (added.exit_code, added.stdout) == (0, "")
    assert "PartitionCount: 3" in tool("kafka-topics", "--describe", "--topic", "grown").stdout
    fewer = tool("kafka-topics", "--alter", "--topic", "grown", "--partitions", "2")
    assert fewer.exit_code == 1 and "3 partition(s)" in fewer.stderr


@pytest.mark.parametrize("action", ["--describe", "--delete"])
def test_describing_an_unknown_topic_fails_without_if_exists(tool: Run, action: str) -> None:
    missing = tool("kafka-topics", action, "--topic", "none")
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert missing.stderr == "minibroker: Topic 'none' does not exist as expected\n"
    assert tool("kafka-topics", action, "--topic", "none", "--if-exists").exit_code == 0


def test_kafka_topics_requires_exactly_one_supported_action(tool: Run) -> None:
    assert "needs one of --list, --create" in tool("kafka-topics", "--topic", "a").stderr
    assert "--create needs --topic" in tool("kafka-topics", "--create").stderr
    assert tool("kafka-topics", "--list", "--unavailable-partitions").exit_code == 2
