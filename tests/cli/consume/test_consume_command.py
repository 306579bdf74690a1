"""`minibroker consume`: what it reads, when it ends, and what it prints."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence

import pytest

from minibroker.cli.consume import consume_sources
from minibroker.cli.places import RequestedTopic, list_partitions
from minibroker.client.blocking import Client
from tests.cases import for_each
from tests.cli.conftest import FOR_EVER, Run
from tests.running import RunningBroker


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


def test_consume_prints_all_records_and_ends(run_client: Run, topic: str) -> None:
    assert sorted(lines(run_client, topic)) == ["0", "1", "2", "other"]


def test_consume_reads_with_the_given_isolation_level(run_client: Run, topic: str) -> None:
    for level in ("read_committed", "read_uncommitted"):
        assert len(lines(run_client, topic, "--client", f"isolation.level={level}")) == 4
    result = run_client("consume", topic, "--client", "isolation.level=none")
    assert result.exit_code == 2 and "isolation.level must be read_committed or read_uncommitted" in result.stderr


def test_consume_prints_keys_on_request(run_client: Run, topic: str) -> None:
    assert sorted(lines(run_client, topic, "--key-separator", "=")) == ["k=0", "k=1", "k=2", "null=other"]


def test_consume_reads_the_given_partition_from_the_given_offset(run_client: Run, topic: str) -> None:
    assert lines(run_client, topic, "--partition", "0", "--from", "1") == ["1", "2"]


def test_consume_ends_after_a_count(run_client: Run, topic: str) -> None:
    assert lines(run_client, topic, "--partition", "0", "--count", "2") == ["0", "1"]


def test_consuming_from_the_end_prints_nothing(run_client: Run, topic: str) -> None:
    assert lines(run_client, topic, "--from", "latest") == []


def test_consume_can_start_at_a_timestamp(run_client: Run, topic: str) -> None:
    assert sorted(lines(run_client, topic, "--from", "2020-01-01")) == ["0", "1", "2", "other"]
    assert lines(run_client, topic, "--from", "2999-01-01") == []


def test_following_ends_after_an_idle_timeout(run_client: Run, topic: str) -> None:
    assert lines(run_client, topic, "--follow", "--timeout", "0.5", "--partition", "1") == ["other"]


def test_json_output_has_all_fields_of_a_record(run_client: Run, topic: str) -> None:
    (line,) = lines(run_client, topic, "--json", "--partition", "0", "--from", "2")
    record = json.loads(line)
    assert record.pop("timestamp") > 1_600_000_000_000
    assert record == {"topic": topic, "partition": 0, "offset": 2, "key": "k", "value": "2", "headers": []}


def test_binary_values_are_escaped_and_complete_in_json(run_client: Run) -> None:
    run_client("produce", "binary", "--key-separator", ":", "--partition", "0", stdin=b"\xff:\x1b[2J\xfe\n")
    assert lines(run_client, "binary", "--key-separator", ":") == ["\\xff:\\x1b[2J\\xfe"]
    record = json.loads(lines(run_client, "binary", "--json")[0])
    assert (record["key_base64"], record["value_base64"]) == ("/w==", "G1sySv4=")
    assert "key" not in record and "value" not in record


def test_an_unknown_partition_is_reported_in_one_line(run_client: Run, topic: str) -> None:
    result = run_client("consume", topic, "--partition", "7")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "has no partition 7, only 0 to 1" in result.stderr and result.stderr.count("\n") == 1


def test_an_offset_outside_of_the_log_is_moved_to_its_nearest_end(run_client: Run, topic: str) -> None:
    result = run_client("consume", topic, "--from", "99", "--partition", "0")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"minibroker: {topic}-0: 99 is past the last record, so it is 3\n"


def test_consuming_an_unknown_topic_does_not_create_it(run_client: Run) -> None:
    result = run_client("consume", "absent")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("minibroker: there is no topic absent")
    assert "absent" not in run_client("topics", "list").stdout


def test_a_closed_output_pipe_ends_consume_silently(run_client: Run, broker: RunningBroker) -> None:
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


@pytest.mark.parametrize(
    ("arguments", "offsets"),
    [
        (["--from", "1", "--to", "2"], [1]),
        (["--to", "-1"], [0, 1]),
        (["--from", "0=2"], [2]),
        (["--from", "-2"], [1, 2]),
        (["--from", "10 minutes ago", "--to", "0=1"], [0]),
        (["--to", "yesterday"], []),
        (["--to", "2999-01-01"], [0, 1, 2]),
        (["--last", "2"], [1, 2]),
        (["--last", "100"], [0, 1, 2]),
        (["--last", "1", "--to", "2"], [1]),
        (["--last", "2", "--from", "2"], [2]),
        (["--last", "2", "--count", "1"], [1]),
        (["--exit"], [0, 1, 2]),
    ],
)
def test_a_range_of_offsets_or_timestamps_is_consumed(
    run_client: Run, topic: str, arguments: list[str], offsets: list[int]
) -> None:
    assert lines(run_client, f"{topic}:0", *arguments, "--format", "%o\\n") == list(map(str, offsets))


def test_the_last_records_of_all_partitions_are_sorted_by_timestamp(run_client: Run) -> None:
    run_client("topics", "create", "ordered", *FOR_EVER)
    for number in range(6):
        options = ("--partition", str(number % 2), "--timestamp", f"@{1000 + number}")
        run_client("produce", "ordered", *options, stdin=b"%d" % number)
    assert lines(run_client, "ordered", "--last", "3") == ["3", "4", "5"]


def test_following_prints_new_records_after_the_last_existing_ones(run_client: Run, topic: str) -> None:
    follow = ("--last", "1", "--follow", "--timeout", "0.3")
    assert lines(run_client, f"{topic}:0", *follow) == ["2"]


def test_several_topics_and_patterns_are_consumed(run_client: Run) -> None:
    for name in ("many-a", "many-b", "other-c"):
        run_client("produce", name, "--partition", "0", stdin=name.encode())
    assert sorted(lines(run_client, "many-a", "other-c")) == ["many-a", "other-c"]
    assert sorted(lines(run_client, "many-*")) == ["many-a", "many-b"]
    assert sorted(lines(run_client, "^(many|other)-[bc]$", "--format", "%t\\n")) == ["many-b", "other-c"]


def test_headers_and_timestamps_are_printed_on_request(run_client: Run) -> None:
    run_client("topics", "create", "whole", *FOR_EVER)
    options = ("--header", "h=1", "--header", "i=", "--timestamp", "2026-01-31T12:00:00Z", "--key", "k")
    run_client("produce", "whole", *options, stdin=b"v")
    found = lines(run_client, "whole", "--timestamps", "--headers", "--key-separator", ":")
    assert found == ["2026-01-31T12:00:00.000Z\th=1,i=\tk:v"]


def test_a_format_prints_raw_bytes(run_client: Run) -> None:
    run_client("produce", "raw", "--input", "file", "--partition", "0", stdin=b"\xff\n\0")
    assert run_client("consume", "raw", "--format", "%s").stdout_bytes == b"\xff\n\0"


def test_a_group_continues_at_its_committed_offsets(run_client: Run, topic: str) -> None:
    group = ("--group", f"of-{topic}")
    assert len(lines(run_client, topic, *group, "--count", "2")) == 2
    assert len(lines(run_client, topic, *group)) == 2
    assert lines(run_client, topic, *group) == []
    run_client("produce", topic, "--partition", "1", stdin=b"new\n")
    assert lines(run_client, topic, *group) == ["new"]
    (described,) = json.loads(run_client("groups", "list", "--json", "--state", "Empty").stdout)
    assert described["group"] == f"of-{topic}"


def test_a_group_without_committed_offsets_starts_at_the_given_position(run_client: Run, topic: str) -> None:
    assert lines(run_client, topic, "--group", "late", "--from", "latest") == []
    run_client("produce", topic, "--partition", "1", stdin=b"new\n")
    assert lines(run_client, topic, "--group", "late", "--from", "latest") == ["new"]


def test_records_of_internal_topics_are_decoded(run_client: Run, topic: str) -> None:
    run_client("consume", topic, "--group", "decoded")
    found = lines(run_client, "__consumer_offsets", "--decode")
    committed = [line for line in found if line.startswith("OffsetCommitKey v0 ") and '"decoded"' in line]
    assert committed and "OffsetCommitValue v" in committed[0]
    documents = [json.loads(line) for line in lines(run_client, "__consumer_offsets", "--decode", "--json")]
    fields = {each["key_says"]["fields"]["group"] for each in documents}
    assert "decoded" in fields


@pytest.mark.parametrize("group", [(), ("--group", "growing")])
def test_following_finds_new_topics(run_client: Run, monkeypatch: pytest.MonkeyPatch, group: tuple[str, ...]) -> None:
    prefix = f"growing-{len(group)}"
    run_client("topics", "create", f"{prefix}-a")
    looks = []

    def look(client: Client, asked: Sequence[RequestedTopic]) -> list[tuple[str, int]]:
        if looks:
            run_client("produce", f"{prefix}-b", "--partition", "0", stdin=b"new\n")
        looks.append(asked)
        return list_partitions(client, asked)

    monkeypatch.setattr(consume_sources, "GROW_S", 0.0)
    monkeypatch.setattr(consume_sources, "list_partitions", look)
    assert lines(run_client, f"{prefix}-*", "--follow", "--count", "1", "--timeout", "60", *group) == ["new"]


def test_a_start_position_applies_to_a_group_without_an_offset(run_client: Run, topic: str) -> None:
    group = ("--group", f"placed-{topic}", "--from", "0=2", "--from", "1=latest")
    assert lines(run_client, topic, *group) == ["2"]
    assert lines(run_client, topic, *group) == []


def test_ctrl_c_ends_consume_with_status_130(run_client: Run, broker: RunningBroker) -> None:
    run_client("produce", "interrupted", "--partition", "0", stdin=b"first\n")
    command = [sys.executable, "-m", "minibroker", "consume", "interrupted", "--follow", "--group", "ctrl-c"]
    with subprocess.Popen(
        [*command, "--bootstrap-server", broker.bootstrap_servers], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"first\n"
        run_client("produce", "interrupted", "--partition", "0", stdin=b"second\n")
        assert process.stdout.readline() == b"second\n"  # so the first is surely printed
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read().strip() == b""
    assert lines(run_client, "interrupted", "--group", "ctrl-c") in ([], ["second"])


@for_each(
    ("arguments", "complaint"),
    [
        (["--json", "--key-separator", ":"], "--key-separator cannot be used with --json"),
        (["--json", "--format", "%s"], "--format cannot be used with --json"),
        (["--group", "g", "--last", "1"], "--last cannot be used with --group"),
        (["--follow", "--to", "1"], "--to cannot be used with --follow"),
        (["--decode"], "--decode is for __consumer_offsets, __transaction_state, __share_group_state, not t"),
        (["--from", "first"], "is not earliest, latest, an offset"),
        (["--format", "%q"], "'%q' has %q, which is none of"),
    ],
)
def test_contradictory_options_are_rejected(run: Run, arguments: list[str], complaint: str) -> None:
    result = run("consume", "t", *arguments, "--bootstrap-server", "127.0.0.1:1")
    assert result.exit_code == 2 and complaint in result.stderr and result.stderr.count("\n") == 1
