"""`kafka-consumer-groups` says what Kafka's own tool says: its output was compared with that of Apache Kafka 4.3."""

from __future__ import annotations

from tests.cli.conftest import Run


def test_a_group_is_listed_described_reset_and_deleted(tool: Run) -> None:
    tool("kafka-topics", "--create", "--topic", "plain", "--partitions", "1")
    tool("kafka-console-producer", "--topic", "plain", stdin=b"1\n2\n3\n4\n")
    tool("kafka-console-consumer", "--topic", "plain", "--group", "g1", "--from-beginning", "--max-messages", "4")
    assert tool("kafka-consumer-groups", "--list").stdout == "g1\n"
    told = tool("kafka-consumer-groups", "--describe", "--group", "g1")
    assert told.stdout == (
        "\nGROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG             CONSUMER-ID     "
        "HOST            CLIENT-ID\n"
        "g1              plain           0          4               4               0               -               "
        "-               -\n"
    )
    assert told.stderr == "\nConsumer group 'g1' has no active members.\n"
    members = tool("kafka-consumer-groups", "--describe", "--all-groups", "--members")
    assert members.stdout == "\nGROUP           CONSUMER-ID     HOST            CLIENT-ID       #PARTITIONS     \n"
    reset = ("kafka-consumer-groups", "--reset-offsets", "--group", "g1", "--topic", "plain:0", "--to-offset", "1")
    expected = "\nGROUP           TOPIC           PARTITION  NEW-OFFSET\ng1              plain           0          1\n"
    assert tool(*reset).stdout == tool(*reset, "--execute").stdout == expected
    assert " 1               4               3  " in tool("kafka-consumer-groups", "--describe", "--group", "g1").stdout
    deleted = tool("kafka-consumer-groups", "--delete", "--group", "g1")
    assert deleted.stdout == "Deletion of requested consumer groups ('g1') was successful.\n"
    assert tool("kafka-consumer-groups", "--list").stdout == ""


def test_an_unknown_group_is_an_error(tool: Run) -> None:
    for action in ("--describe", "--delete"):
        missing = tool("kafka-consumer-groups", action, "--group", "none")
        assert missing.exit_code == 1 and "there is no group none" in missing.stderr


def test_a_missing_group_argument_is_reported(tool: Run) -> None:
    result = tool("kafka-consumer-groups", "--describe")
    assert result.exit_code == 2 and "--describe needs --group or --all-groups" in result.stderr
