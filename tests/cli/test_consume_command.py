"""`minibroker consume`: where it starts, when it ends, and how a record is printed."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime

import click
import pytest

from minibroker.cli.consume_command import Start, start_of
from tests.cli.conftest import Run
from tests.running import RunningBroker


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", Start("earliest")),
        ("latest", Start("latest")),
        ("42", Start("offset", 42)),
        ("1970-01-01T00:00:01Z", Start("timestamp", 1000)),
        ("2026-01-31T12:00:00.5+01:00", Start("timestamp", 1_769_857_200_500)),
        ("2026-01-31", Start("timestamp", int(datetime(2026, 1, 31).timestamp() * 1000))),
    ],
)
def test_a_start_is_a_word_an_offset_or_a_time(text: str, start: Start) -> None:
    assert start_of(text) == start


@pytest.mark.parametrize("text", ["", "first", "-1", "9" * 19, "9" * 1000, "2026-13-01", "1.5"])
def test_anything_else_is_no_start(text: str) -> None:
    with pytest.raises(click.BadParameter, match="not earliest, latest, an offset, or a time"):
        start_of(text)


@pytest.fixture
def topic(run_client: Run, request: pytest.FixtureRequest) -> str:
    """A topic with the records k:0, k:1, k:2 in partition 0, and one in partition 1."""
    name: str = request.node.name.replace("[", "-").replace("]", "")
    run_client("topics", "create", name, "--partitions", "2")
    run_client("produce", name, "--key-separator", ":", "--partition", "0", stdin=b"k:0\nk:1\nk:2\n")
    run_client("produce", name, "--partition", "1", stdin=b"other\n")
    return name


def lines(run_client: Run, *arguments: str) -> list[str]:
    result = run_client("consume", *arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout.splitlines()


def test_it_prints_all_there_is_and_ends(run_client: Run, topic: str) -> None:
    assert sorted(lines(run_client, topic)) == ["0", "1", "2", "other"]


def test_it_prints_keys_when_asked(run_client: Run, topic: str) -> None:
    assert sorted(lines(run_client, topic, "--key-separator", "=")) == ["k=0", "k=1", "k=2", "null=other"]


def test_a_partition_and_an_offset_can_be_chosen(run_client: Run, topic: str) -> None:
    assert lines(run_client, topic, "--partition", "0", "--from", "1") == ["1", "2"]


def test_it_ends_after_a_count(run_client: Run, topic: str) -> None:
    assert lines(run_client, topic, "--partition", "0", "--count", "2") == ["0", "1"]


def test_from_the_end_there_is_nothing(run_client: Run, topic: str) -> None:
    assert lines(run_client, topic, "--from", "latest") == []


def test_a_time_is_looked_up(run_client: Run, topic: str) -> None:
    assert sorted(lines(run_client, topic, "--from", "2020-01-01")) == ["0", "1", "2", "other"]
    assert lines(run_client, topic, "--from", "2999-01-01") == []


def test_following_ends_when_nothing_comes(run_client: Run, topic: str) -> None:
    assert lines(run_client, topic, "--follow", "--timeout", "0.5", "--partition", "1") == ["other"]


def test_a_program_gets_all_of_a_record(run_client: Run, topic: str) -> None:
    (line,) = lines(run_client, topic, "--json", "--partition", "0", "--from", "2")
    record = json.loads(line)
    assert record.pop("timestamp") > 1_600_000_000_000
    assert record == {"partition": 0, "offset": 2, "key": "k", "value": "2", "headers": []}


def test_bytes_that_are_no_text_are_printed_safely_and_lose_nothing_as_json(run_client: Run) -> None:
    run_client("produce", "binary", "--key-separator", ":", "--partition", "0", stdin=b"\xff:\x1b[2J\xfe\n")
    assert lines(run_client, "binary", "--key-separator", ":") == ["\\xff:\\x1b[2J\\xfe"]
    record = json.loads(lines(run_client, "binary", "--json")[0])
    assert (record["key_base64"], record["value_base64"]) == ("/w==", "G1sySv4=")
    assert "key" not in record and "value" not in record


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--partition", "7"], "has no partition 7, only 2, from 0"),
        (["--from", "99", "--partition", "0"], "Offset out of range"),
    ],
)
def test_what_is_not_there_is_one_line_and_status_1(
    run_client: Run, topic: str, arguments: list[str], complaint: str
) -> None:
    result = run_client("consume", topic, *arguments)
    assert result.exit_code == 1
    assert complaint in result.stderr and result.stderr.count("\n") == 1


def test_reading_a_topic_that_is_not_there_does_not_create_it(run_client: Run) -> None:
    result = run_client("consume", "absent")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("minibroker: cannot read absent: ")
    assert "absent" not in run_client("topics", "list").stdout


def test_a_reader_that_goes_away_ends_it_quietly(run_client: Run, broker: RunningBroker) -> None:
    run_client("produce", "piped", "--partition", "0", stdin=b"first\nsecond\n")
    command = [sys.executable, "-m", "minibroker", "consume", "piped", "--follow"]
    with subprocess.Popen(
        [*command, "--bootstrap-server", broker.bootstrap_servers], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"first\n"
        process.stdout.close()
        run_client("produce", "piped", "--partition", "0", stdin=b"third\n")
        assert process.wait(60) == 1
        assert process.stderr.read() == b""


def test_a_separator_is_refused_where_keys_have_names(run_client: Run) -> None:
    result = run_client("consume", "t", "--json", "--key-separator", ":")
    assert result.exit_code == 2 and "--key-separator cannot be used with --json" in result.stderr
