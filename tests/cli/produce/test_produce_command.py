"""`minibroker produce`: how lines become records, and that a broker gets them."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2

from minibroker.cli.produce import produce_input
from minibroker.cli.produce.produce_input import LineFormat, iterate_lines, split_key_and_value
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.control import make_transaction_marker
from minibroker.protocol.records.record import Header, Record
from minibroker.testing import Broker
from tests.cases import for_each
from tests.cli.conftest import FOR_EVER, Run
from tests.running import RunningBroker, running_broker


def truth(key: bytes) -> int:
    """Return the hash of a key by another client, not negative."""
    return int(murmur2(key) & 0x7FFFFFFF)


PLAIN = LineFormat(None, None, None)


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\nb", [b"a", b"b"]),
        (b"\n\r\n", [b"", b"\r"]),
    ],
)
def test_a_line_ends_with_a_newline_or_the_end_of_input(data: bytes, lines: list[bytes]) -> None:
    assert read(data) == lines


def read(data: bytes) -> list[bytes]:
    return [line for lines in iterate_lines(io.BytesIO(data)) for line in lines]


@pytest.mark.parametrize("read_bytes", [1, 3, 100])
def test_a_line_above_the_maximum_size_ends_the_input(monkeypatch: pytest.MonkeyPatch, read_bytes: int) -> None:
    monkeypatch.setattr(produce_input, "READ_BYTES", read_bytes)
    monkeypatch.setattr(produce_input, "LINE_MAX_BYTES", 3)
    assert read(b"abc\nabc") == [b"abc", b"abc"]
    for line in (b"abcd\n", b"abcd"):
        with pytest.raises(click.ClickException, match="line 2 is longer than 3 bytes"):
            read(b"abc\n" + line)


@given(st.lists(st.binary().filter(lambda line: b"\n" not in line)))
def test_all_bytes_of_input_lines_are_read_unchanged(lines: list[bytes]) -> None:
    source = io.BytesIO(b"".join(line + b"\n" for line in lines))
    assert [line for some in iterate_lines(source) for line in some] == lines


@for_each(
    ("line", "form", "record"),
    [
        (b"a:b", PLAIN, (None, b"a:b")),
        (b"", PLAIN, (None, b"")),
        (b"a:b:c", LineFormat(b":", None, None), (b"a", b"b:c")),
        (b"abc", LineFormat(b":", None, None), (None, b"abc")),
        (b":b", LineFormat(b":", None, None), (b"", b"b")),
        (b"-:b", LineFormat(b":", b"-", None), (None, b"b")),
        (b"a:-", LineFormat(b":", b"-", b"-"), (b"a", None)),
        (b"-", LineFormat(None, b"-", b"-"), (None, None)),
        (b"a => b", LineFormat(b" => ", None, None), (b"a", b"b")),
    ],
)
def test_a_line_is_split_into_a_key_and_a_value(
    line: bytes, form: LineFormat, record: tuple[bytes | None, bytes | None]
) -> None:
    assert split_key_and_value(line, form) == record


def consumed(run_client: Run, topic: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in run_client("consume", topic, "--json").stdout.splitlines()]


def test_an_unknown_partition_is_reported_in_one_line(run_client: Run) -> None:
    run_client("topics", "create", "pair", "--partitions", "2")
    result = run_client("produce", "pair", "--partition", "7", stdin=b"a\n")
    assert (result.exit_code, result.stdout) == (1, "0 records written to pair\n")
    assert result.stderr == "minibroker: pair has no partition 7, only 0 to 1\n"


def test_lines_are_produced_and_their_offsets_reported(run_client: Run) -> None:
    result = run_client("produce", "reported", "--partition", "1", stdin=b"a\nb\n")
    assert (result.exit_code, result.stdout) == (0, "2 records written to reported, partition 1 offsets 0 to 1\n")
    again = run_client("produce", "reported", "--partition", "1", "--json", stdin=b"c")
    assert json.loads(again.stdout) == {
        "topic": "reported",
        "records": 1,
        "partitions": [{"partition": 1, "records": 1, "first_offset": 2, "last_offset": 2}],
    }


def test_a_record_has_its_key_headers_and_nulls(run_client: Run) -> None:
    nulls = ("--null-key", "NONE", "--null-value", "NULL")
    options = ("--key-separator", ":", *nulls, "--header", "h=1", "--header", "h=", "--partition", "0")
    run_client("produce", "keyed", *options, stdin=b"a:1\nb:NULL\nNONE:c\n")
    headers = [{"name": "h", "value": "1"}, {"name": "h", "value": ""}]
    assert [(record["key"], record["value"], record["headers"]) for record in consumed(run_client, "keyed")] == [
        ("a", "1", headers),
        ("b", None, headers),
        (None, "c", headers),
    ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_each_codec_and_acks_is_supported(run_client: Run, codec: str, acks: str) -> None:
    topic = f"codec-{codec}-{acks}"
    run_client("topics", "create", topic)
    options = ("--compression", codec, "--acks", acks, "--partition", "0")
    assert run_client("produce", topic, *options, stdin=b"value" * 1000).exit_code == 0
    follow = ("--follow", "--count", "1", "--timeout", "30", "--json")
    assert json.loads(run_client("consume", topic, *follow).stdout)["value"] == "value" * 1000


def test_each_line_of_a_file_is_produced_as_a_record(run_client: Run, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"from a file\n")
    assert run_client("produce", "filed", "--file", str(file)).exit_code == 0
    assert [record["value"] for record in consumed(run_client, "filed")] == ["from a file"]


def test_empty_input_produces_no_records(run_client: Run) -> None:
    assert run_client("produce", "nothing").stdout == "0 records written to nothing\n"


def test_a_failed_record_is_reported_with_status_1(run_client: Run) -> None:
    run_client("topics", "create", "refused", "--config", "max.message.bytes=1000")
    result = run_client("produce", "refused", stdin=b"x" * 2000)
    assert (result.exit_code, result.stdout) == (1, "0 records written to refused\n")
    assert result.stderr.startswith("minibroker: 1 record not written: MESSAGE_TOO_LARGE (")


def test_a_too_large_record_does_not_prevent_the_others_of_its_batch(run_client: Run) -> None:
    run_client("topics", "create", "split", "--partitions", "1", "--config", "max.message.bytes=1000")
    result = run_client("produce", "split", stdin=b"".join(b"%0*d\n" % (2000 if n == 7 else 100, n) for n in range(40)))
    assert (result.exit_code, result.stdout) == (1, "39 records written to split, partition 0 offsets 0 to 38\n")
    assert result.stderr.startswith("minibroker: 1 record not written: MESSAGE_TOO_LARGE (")
    assert [int(str(record["value"])) for record in consumed(run_client, "split")] == [n for n in range(40) if n != 7]


def test_keys_are_partitioned_as_by_javas_producer(run_client: Run) -> None:
    run_client("topics", "create", "hashed", "--partitions", "10")
    run_client("produce", "hashed", "--key-separator", ":", stdin=b"a:1\nkafka:2\n21:3\n")
    found = {record["key"]: record["partition"] for record in consumed(run_client, "hashed")}
    assert found == {key: truth(str(key).encode()) % 10 for key in ("a", "kafka", "21")}


@pytest.mark.parametrize("release", ["0.10.0", "0.10.2", "0.11", "2.0"])
def test_brokers_of_any_release_get_a_supported_format(run: Run, tmp_path: Path, release: str) -> None:
    with running_broker(tmp_path, options=("--emulate", release)) as broker:
        address = ("--bootstrap-server", broker.bootstrap_servers)
        for codec in ("none", "gzip"):
            told = run("produce", "old", "--compression", codec, *address, stdin=b"a\nb\n")
            assert told.exit_code == 0, told.stderr
        refused = run("produce", "old", "--header", "h=1", *address, stdin=b"a\n")
        assert run("consume", "old", "--count", "4", *address).stdout == "a\nb\na\nb\n"
    assert (refused.exit_code == 1) == release.startswith("0.10")


def test_lines_of_slow_input_are_produced_immediately(broker: RunningBroker, run_client: Run) -> None:
    command = [sys.executable, "-m", "minibroker", "produce", "slow", "--bootstrap-server", broker.bootstrap_servers]
    run_client("topics", "create", "slow", "--partitions", "1")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"first\n")
        process.stdin.flush()
        followed = run_client("consume", "slow", "--follow", "--count", "1", "--timeout", "60")
        assert followed.stdout == "first\n"
        process.stdin.close()
        assert process.wait(60) == 0


@for_each(
    "arguments",
    [
        ["--key-separator", ""],
        ["--null-key", "NULL"],
        ["--acks", "2"],
        ["--compression", "rar"],
        ["--header", "x"],
        ["--timestamp", "noon"],
        ["--input", "json", "--key-separator", ":"],
        ["--input", "file", "--null-value", "x"],
        ["--transactional-id", "x", "--acks", "1"],
    ],
)
def test_invalid_arguments_are_rejected_before_connecting(run: Run, arguments: list[str]) -> None:
    result = run("produce", "t", *arguments, "--bootstrap-server", "127.0.0.1:1")
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1


def test_only_json_input_may_omit_the_topic(run: Run) -> None:
    result = run("produce", "--bootstrap-server", "127.0.0.1:1")
    assert result.exit_code == 2 and "TOPIC is missing" in result.stderr


def test_json_output_of_consume_can_be_produced(run_client: Run) -> None:
    for name in ("source", "target"):
        run_client("topics", "create", name, "--partitions", "3", *FOR_EVER)
    options = ("--header", "h=1", "--timestamp", "@1000", "--null-value", "NULL", "--key-separator", ":")
    run_client("produce", "source", *options, stdin=b"a:1\nb:NULL\nc:\xff\n\xfe:\n")
    run_client("produce", "source", "--partition", "2", stdin="ä\x01\n".encode())
    printed = run_client("consume", "source", "--json").stdout
    told = run_client("produce", "target", "--input", "json", stdin=printed.encode())
    assert told.stdout.startswith("5 records written to target, ")
    assert (run_client("consume", "target", "--json").stdout).replace('"target"', '"source"') == printed


def test_the_topic_is_read_from_json_input_if_no_argument_names_it(run_client: Run) -> None:
    stdin = b'{"topic": "said-a", "value": "1"}\n\n{"topic": "said-b", "value": {"x": [1, "\xc3\xa4"]}}\n'
    result = run_client("produce", "--input", "json", "--json", stdin=stdin)
    assert [(each["topic"], each["records"]) for each in json.loads(result.stdout)] == [("said-a", 1), ("said-b", 1)]
    assert [each["value"] for each in consumed(run_client, "said-b")] == ['{"x":[1,"ä"]}']
    lost = run_client("produce", "--input", "json", stdin=b'{"value": "1"}')
    assert lost.exit_code == 2 and "line 1: there is no topic" in lost.stderr


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"{", "this is not JSON: Expecting property name enclosed in double quotes at column 2"),
        (b"[1]", 'a record is a JSON object like {"value": "a"}, not [1]'),
        (b"1\xff", "this is not JSON, as byte 2 is not UTF-8"),
        (b"[" * 100_000, "this JSON is nested too deeply"),
        (b'{"value": "\\ud800"}', "value is no text that UTF-8 has"),
        (b'{"valu": 1}', "a record has no field 'valu'"),
        (b'{"value": "a", "value_base64": "YQ=="}', "value and value_base64 are both given"),
        (b'{"value_base64": "a"}', "value_base64 is not base64"),
        (b'{"value": "a", "partition": "1"}', 'partition is "1", and not a number'),
        (b'{"value": "a", "partition": 99}', "has no partition 99, only 0 to 1"),
        (b'{"value": "a", "timestamp": "noon"}', "timestamp 'noon' is no time"),
        (b'{"value": "a", "timestamp": -5}', "timestamp -5 is out of range"),
        (b'{"value": "a", "headers": [1]}', "headers are a list like"),
        (b'{"value": "a", "headers": [{"value": "b"}]}', "a header has no name"),
    ],
)
def test_an_invalid_line_is_reported_after_earlier_lines_are_written(
    run_client: Run, request: pytest.FixtureRequest, line: bytes, complaint: str
) -> None:
    topic = f"wrong-{abs(hash(request.node.name))}"
    stdin = b'{"value": "a", "partition": 0}\n{"value": "b", "partition": 0}\n' + line + b'\n{"value": "c"}\n'
    result = run_client("produce", topic, "--input", "json", stdin=stdin)
    assert (result.exit_code, result.stdout) == (2, f"2 records written to {topic}, partition 0 offsets 0 to 1\n")
    assert result.stderr.startswith("minibroker: line 3: ") and result.stderr.count("\n") == 1
    assert complaint in result.stderr


def test_an_invalid_line_in_one_of_several_files_names_the_file(run_client: Run, tmp_path: Path) -> None:
    for name, text in (("right", '{"value": "a"}\n'), ("wrong", "{}\nnonsense\n")):
        (tmp_path / name).write_text(text)
    files = ("--file", str(tmp_path / "right"), "--file", str(tmp_path / "wrong"))
    result = run_client("produce", "filed-json", "--input", "json", "--partition", "0", *files)
    assert result.exit_code == 2 and result.stdout.startswith("2 records written")
    assert f"minibroker: {tmp_path / 'wrong'}: line 2: this is not JSON" in result.stderr


def test_headers_and_timestamps_may_be_human_readable(run_client: Run) -> None:
    line = b'{"key": "k", "value": "v", "headers": {"a": "b"}, "timestamp": "2026-01-31T12:00:00Z"}'
    run_client("topics", "create", "people", *FOR_EVER)
    run_client("produce", "people", "--input", "json", "--header", "c=d", stdin=line)
    (record,) = consumed(run_client, "people")
    assert record["timestamp"] == 1_769_860_800_000
    assert record["headers"] == [{"name": "a", "value": "b"}, {"name": "c", "value": "d"}]


def test_each_file_can_be_one_record(run_client: Run, tmp_path: Path) -> None:
    run_client("topics", "create", "files", *FOR_EVER)
    for name, data in (("one", b"a\nb"), ("two", b"")):
        (tmp_path / name).write_bytes(data)
    files = ("--file", str(tmp_path / "one"), "--file", str(tmp_path / "two"))
    result = run_client("produce", "files", "--input", "file", "--key", "k", "--timestamp", "@7", *files)
    assert result.stdout.startswith("2 records written to files, partition ")
    found = [(each["key"], each["value"], each["timestamp"]) for each in consumed(run_client, "files")]
    assert found == [("k", "a\nb", 7), ("k", "", 7)]


def test_input_is_not_read_while_the_broker_accepts_no_more(run: Run, kafka: Broker) -> None:
    kafka.create_topic("stuck")
    kafka.faults.add(api="Produce", topic="stuck", error="NOT_ENOUGH_REPLICAS")
    options = ("--timeout", "0.3", "--bootstrap-server", kafka.bootstrap_servers)
    result = run("produce", "stuck", *options, stdin=b"a\n")
    assert (result.exit_code, result.stdout) == (1, "0 records written to stuck\n")
    assert result.stderr.startswith("minibroker: 1 record not written: ")
    assert result.stderr.endswith(", so the rest was not read\n")


def test_a_transaction_writes_all_records_or_none(run_client: Run) -> None:
    run_client("topics", "create", "atomic", "--config", "max.message.bytes=1000", "--partitions", "2")
    options = ("--transactional-id", "atomic", "--compression", "gzip", "--key-separator", ":")
    told = run_client("produce", "atomic", *options, stdin=b"a:1\nb:2\nc:3\n")
    assert told.exit_code == 0 and told.stdout.endswith("the transaction is committed\n")
    refused = run_client(
        "produce", "atomic", *options, "--json", stdin=b"a:1\nb:2\nc:" + os.urandom(2000).hex().encode()
    )
    assert refused.exit_code == 1 and json.loads(refused.stdout)["transaction"] == "aborted"
    wrong = run_client("produce", *options[:2], "--input", "json", stdin=b'{"topic": "atomic", "value": "a"}\n{')
    assert wrong.exit_code == 2 and wrong.stdout.endswith(
        "the transaction is aborted: consumers do not see these records\n"
    )
    assert sorted(str(each["value"]) for each in consumed(run_client, "atomic")) == ["1", "2", "3"]
    assert run_client("produce", "atomic", *options[:2]).stdout.endswith("the transaction is committed\n")


def test_ctrl_c_reports_what_was_written(run_client: Run, broker: RunningBroker) -> None:
    run_client("topics", "create", "stopped", "--partitions", "1")
    command = [sys.executable, "-m", "minibroker", "produce", "stopped", "--bootstrap-server", broker.bootstrap_servers]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        for offset in ("0", "1"):  # the second is sent when the first is known to be written
            process.stdin.write(b"a\n")
            process.stdin.flush()
            options = ("--from", offset, "--follow", "--count", "1", "--timeout", "60")
            assert run_client("consume", "stopped", *options).stdout == "a\n"
        process.send_signal(signal.SIGINT)
        assert re.fullmatch(rb"[12] records? written to stopped, partition 0 offsets? 0.*\n", process.stdout.read())
        assert process.wait(60) == 130


def test_json_output_of_dump_can_be_produced(run: Run, run_client: Run, tmp_path: Path) -> None:
    directory = tmp_path / "source-1"
    directory.mkdir()
    records = [Record(0, 5, b"k", b"\xff", (Header("h", b"1"),)), Record(1, -1, None, None)]
    marker = build_batch(
        [make_transaction_marker(committed=True, coordinator_epoch=0, timestamp=9)],
        base_offset=2,
        producer_id=1,
        producer_epoch=0,
        transactional=True,
        control=True,
    )
    (directory / f"{0:020d}.log").write_bytes(bytes(build_batch(records)) + bytes(marker))
    dumped = run("dump", "--json", str(directory))
    run_client("topics", "create", "from-files", "--partitions", "2", "--config", "retention.ms=-1")
    told = run_client("produce", "from-files", "--input", "json", stdin=dumped.stdout.encode())
    assert told.stdout == "2 records written to from-files, partition 1 offsets 0 to 1\n"
    first, second = map(json.loads, run_client("consume", "from-files", "--json").stdout.splitlines())
    assert {name: first[name] for name in ("key", "value_base64", "timestamp", "headers")} == {
        "key": "k",
        "value_base64": "/w==",
        "timestamp": 5,
        "headers": [{"name": "h", "value": "1"}],
    }
    assert (second["key"], second["value"], second["timestamp"] > 5) == (None, None, True)


@pytest.mark.parametrize(
    "arguments",
    [("consume", "./orders-0"), ("produce", "./orders-0"), ("topics", "describe", "./orders-0")],
)
def test_a_path_instead_of_a_topic_gets_a_hint(arguments: tuple[str, ...], run_client: Run) -> None:
    result = run_client(*arguments, stdin=b"a")
    assert result.stderr.endswith("; of files, 'minibroker dump ./orders-0' shows the records, without a broker\n")
    assert result.exit_code == (1 if "topics" in arguments else 2)


def test_a_path_instead_of_a_server_gets_a_hint(run: Run) -> None:
    result = run("consume", "orders", "-b", "./")
    told = "'./' is not HOST:PORT; of files, 'minibroker dump ./' shows the records, without a broker"
    assert (result.exit_code, told in result.stderr) == (2, True)


def test_an_invalid_topic_name_is_rejected_with_the_reason(run_client: Run) -> None:
    for command in (("consume", "a+b"), ("produce", "a+b")):
        result = run_client(*command, stdin=b"a")
        told = "INVALID_TOPIC_EXCEPTION (a topic's name has up to 249 letters, digits, dots, underscores and hyphens)"
        assert told in result.stderr
