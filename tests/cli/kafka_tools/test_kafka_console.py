"""`kafka-console-producer` and `kafka-console-consumer`, whose lines were compared with those of Apache Kafka 4.3."""

from __future__ import annotations

import pytest

from tests.cli.conftest import FOR_EVER, Run

KEYS = ("--property", "parse.key=true", "--property", "key.separator=:")


def test_lines_are_produced_and_consumed(tool: Run) -> None:
    tool("kafka-topics", "--create", "--topic", "lines", "--partitions", "1")
    written = tool("kafka-console-producer", "--topic", "lines", *KEYS, stdin=b"a:1\nb:2\n")
    assert (written.exit_code, written.stdout) == (0, "")
    read = tool("kafka-console-consumer", "--topic", "lines", "--from-beginning", "--max-messages", "2")
    assert (read.exit_code, read.stdout, read.stderr) == (0, "1\n2\n", "Processed a total of 2 messages\n")
    options = ("--property", "print.key=true", "--property", "key.separator=|", "--timeout-ms", "100")
    place = ("--partition", "0", "--offset", "1")
    assert tool("kafka-console-consumer", "--topic", "lines", *place, *options).stdout == "b|2\n"


def test_all_parts_of_a_record_are_produced_and_consumed(tool: Run, run_client: Run) -> None:
    tool("kafka-topics", "--create", "--topic", "parts", "--partitions", "1", *FOR_EVER)
    run_client("produce", "parts", "--key", "k", "-H", "h=x", "-H", "i=y", "--timestamp", "@1001", stdin=b"v\n")
    run_client("produce", "parts", "--null-value", "-", "--timestamp", "@2", stdin=b"-\n")
    parts = [f"print.{part}=true" for part in ("timestamp", "partition", "offset", "headers", "key")]
    options = [text for part in parts for text in ("--formatter-property", part)]
    read = tool("kafka-console-consumer", "--topic", "parts", "--from-beginning", "--max-messages", "2", *options)
    assert read.stdout.splitlines() == [
        "CreateTime:1001\tPartition:0\tOffset:0\th:x,i:y\tk\tv",
        "CreateTime:2\tPartition:0\tOffset:1\tNO_HEADERS\tnull\tnull",
    ]


def test_a_group_continues_at_its_committed_offsets(tool: Run) -> None:
    tool("kafka-topics", "--create", "--topic", "grouped", "--partitions", "1")
    tool("kafka-console-producer", "--topic", "grouped", "--compression-codec", stdin=b"1\n2\n3\n")
    group = ("kafka-console-consumer", "--topic", "grouped", "--group", "readers", "--from-beginning")
    assert tool(*group, "--max-messages", "2").stdout == "1\n2\n"
    assert tool(*group, "--max-messages", "1").stdout == "3\n"


def test_topics_are_selected_by_a_regular_expression(tool: Run) -> None:
    for number in "12":
        tool("kafka-console-producer", "--topic", f"of-{number}", stdin=number.encode())
    options = ("--include", "of-.|other", "--from-beginning", "--max-messages", "2")
    assert sorted(tool("kafka-console-consumer", *options).stdout.split()) == ["1", "2"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("kafka-console-consumer",), "needs one of --topic, --include"),
        (("kafka-console-consumer", "--topic", "a", "--offset", "1"), "--offset needs --partition"),
        (
            ("kafka-console-consumer", "--topic", "a", "--property", "x=1"),
            "the property x is not one of print.timestamp",
        ),
        (("kafka-console-producer", "--topic", "a", "--property", "x=1"), "the property x is not one of parse.key"),
        (("kafka-console-producer", "--topic", "a", "--producer-property", "x=1"), "x is not known"),
    ],
)
def test_invalid_arguments_of_console_tools_are_rejected(tool: Run, arguments: tuple[str, ...], said: str) -> None:
    result = tool(*arguments)
    assert result.exit_code == 2 and said in result.stderr
