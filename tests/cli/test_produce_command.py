"""`minibroker produce`: how lines become records, and that a broker gets them."""

from __future__ import annotations

import io
import json
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.cli import produce_command
from minibroker.cli.produce_command import LineFormat, lines_of, record_of
from tests.cli.conftest import Run

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
def test_a_line_ends_with_a_newline_or_the_input(data: bytes, lines: list[bytes]) -> None:
    assert list(lines_of(io.BytesIO(data))) == list(enumerate(lines, start=1))


def test_a_line_no_broker_would_take_ends_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce_command, "LINE_MAX_BYTES", 3)
    lines = lines_of(io.BytesIO(b"abc\nabcd\n"))
    assert next(lines) == (1, b"abc")
    with pytest.raises(click.ClickException, match="line 2 is longer than 3 bytes"):
        next(lines)


@given(st.lists(st.binary().filter(lambda line: b"\n" not in line)))
def test_any_lines_are_read_as_they_are(lines: list[bytes]) -> None:
    source = io.BytesIO(b"".join(line + b"\n" for line in lines))
    assert [line for _, line in lines_of(source)] == lines


@pytest.mark.parametrize(
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
def test_a_line_becomes_a_key_and_a_value(
    line: bytes, form: LineFormat, record: tuple[bytes | None, bytes | None]
) -> None:
    assert record_of(line, form) == record


def consumed(run_client: Run, topic: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in run_client("consume", topic, "--json").stdout.splitlines()]


def test_lines_are_written_and_the_report_says_where(run_client: Run) -> None:
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
def test_each_codec_and_acks(run_client: Run, codec: str, acks: str) -> None:
    topic = f"codec-{codec}-{acks}"
    run_client("topics", "create", topic)
    options = ("--compression", codec, "--acks", acks, "--partition", "0")
    assert run_client("produce", topic, *options, stdin=b"value" * 1000).exit_code == 0
    follow = ("--follow", "--count", "1", "--timeout", "30", "--json")
    assert json.loads(run_client("consume", topic, *follow).stdout)["value"] == "value" * 1000


def test_a_file_is_read(run_client: Run, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"from a file\n")
    assert run_client("produce", "filed", "--file", str(file)).exit_code == 0
    assert [record["value"] for record in consumed(run_client, "filed")] == ["from a file"]


def test_no_lines_are_no_records(run_client: Run) -> None:
    assert run_client("produce", "nothing").stdout == "0 records written to nothing\n"


def test_a_record_that_is_not_written_is_said_with_status_1(run_client: Run) -> None:
    run_client("topics", "create", "refused", "--config", "max.message.bytes=1000")
    result = run_client("produce", "refused", stdin=b"x" * 2000)
    assert (result.exit_code, result.stdout) == (1, "0 records written to refused\n")
    assert result.stderr.startswith("minibroker: 1 record not written: ") and "too large" in result.stderr


def test_a_record_too_large_to_be_sent_is_said_with_its_line(run_client: Run) -> None:
    result = run_client("produce", "large", stdin=b"x" * 2_000_000)
    assert result.exit_code == 1
    assert result.stderr.startswith("minibroker: line 1: ") and "too large" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [["--key-separator", ""], ["--null-key", "NULL"], ["--acks", "2"], ["--compression", "rar"], ["--header", "x"]],
)
def test_bad_input_is_refused_before_a_connection_is_made(run: Run, arguments: list[str]) -> None:
    result = run("produce", "t", *arguments, "--bootstrap-server", "127.0.0.1:1")
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
