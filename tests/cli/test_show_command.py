"""`minibroker show`: a message's fields and code, in the version that was asked for."""

from __future__ import annotations

import json

import pytest

from minibroker.cli.show_command import iterate_field_lines
from minibroker.protocol.describing import describe_fields
from minibroker.protocol.messages.metadata import MetadataResponse
from tests.cli.conftest import Run


def test_show_prints_request_and_response_of_an_api_with_the_code_that_reads_them(run: Run) -> None:
    result = run("show", "Metadata", "12")
    assert result.exit_code == 0
    assert "MetadataRequest version 12 of 0 to 13, key 3, flexible" in result.stdout
    assert "MetadataResponse version 12 of 0 to 13, key 3, flexible" in result.stdout
    assert "allow_auto_topic_creation" in result.stdout
    assert result.stdout.count("\ndef read(") == 2


def test_the_newest_version_is_shown_by_default(run: Run) -> None:
    (shown,) = json.loads(run("show", "heartbeatrequest", "--json").stdout)
    assert (shown["name"], shown["api_key"], shown["version"], shown["versions"]) == ("HeartbeatRequest", 12, 4, [0, 4])
    assert [field["name"] for field in shown["fields"]][:2] == ["group_id", "generation_id"]


def test_show_prints_only_the_fields_of_the_given_version(run: Run) -> None:
    (oldest,) = json.loads(run("show", "HeartbeatRequest", "0", "--json").stdout)
    assert "group_instance_id" not in {field["name"] for field in oldest["fields"]}
    assert not oldest["flexible"]


def test_each_field_has_its_description_version_and_kip(run: Run) -> None:
    lines = run("show", "MetadataRequest").stdout.splitlines()
    (place,) = (place for place, line in enumerate(lines) if line.startswith("allow_auto_topic_creation"))
    assert lines[place].split(maxsplit=2)[1:] == ["bool", "versions 4+, default True, KIP-4"]
    assert lines[place + 1] == "    Whether the broker may create unknown topics, if its own config allows it, too."


def test_json_output_has_descriptions_and_kips(run: Run) -> None:
    (shown,) = json.loads(run("show", "MetadataRequest", "--json").stdout)
    (field,) = (each for each in shown["fields"] if each["name"] == "allow_auto_topic_creation")
    assert (field["kip"], field["versions"], field["about"][:18]) == (4, "4+", "Whether the broker")
    assert (shown["kips"]["8"], shown["about"][:20]) == (430, "Asks for brokers and")


def test_a_narrow_terminal_gets_narrow_lines() -> None:
    lines = list(iterate_field_lines(describe_fields(MetadataResponse, 13), "0+", 60))
    assert max(map(len, lines)) <= 60
    assert "  is_internal  bool  versions 1+, default False, KIP-4" in lines


def test_all_messages_are_listed_without_a_name(run: Run) -> None:
    lines = run("show").stdout.splitlines()
    assert [line.split()[:5] for line in lines if line.startswith("12 ")] == [["12", "Heartbeat", "0", "to", "4"]]
    (batch,) = (line for line in lines if line.split()[:1] == ["RecordBatch"])
    assert batch.rstrip().split(maxsplit=2)[1:] == ["2", "Records as Kafka sends and stores them since 0.11."]
    listed = json.loads(run("show", "--json").stdout)
    assert {"RecordBatch", "ResponseHeader", "HeartbeatResponse", "TopicRecord"} <= {each["name"] for each in listed}
    assert [each for each in listed if not each["about"]] == []


@pytest.mark.parametrize(
    ("name", "first", "has"),
    [
        ("recordbatch", "RecordBatch of format 2", "    key "),
        ("Record", "Record of format 2", "offset_delta "),
        ("MessageSet", "Message of format 0 and 1", "timestamp "),
        ("RequestHeader", "RequestHeader version 2 of 0 to 2, flexible", "correlation_id "),
    ],
)
def test_record_batches_message_sets_and_headers_are_shown_like_messages(
    run: Run, name: str, first: str, has: str
) -> None:
    lines = run("show", name).stdout.splitlines()
    assert lines[0] == first
    assert any(line.startswith(has) for line in lines)
    (shown,) = json.loads(run("show", name, "--json").stdout)
    assert all(field["about"] for field in shown["fields"])


def test_the_code_that_writes_a_message_is_shown_on_request(run: Run) -> None:
    assert "\ndef write(" not in run("show", "HeartbeatRequest").stdout
    assert "\ndef write(" in run("show", "HeartbeatRequest", "--write").stdout


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["Metdata"], "minibroker: there is no message Metdata; did you mean Metadata?\n"),
        (["zzzzzzzz"], "minibroker: there is no message zzzzzzzz\n"),
        (["MetadataRequest", "14"], "minibroker: MetadataRequest has no version 14, only 0 to 13\n"),
        (["RecordBatch", "2"], "minibroker: RecordBatch has no versions of its own: its formats are 2\n"),
        (["Metadata", "x"], "minibroker: VERSION: 'x' is not a whole number\n"),
    ],
)
def test_an_unknown_message_is_reported_in_one_line_with_status_2(run: Run, arguments: list[str], line: str) -> None:
    result = run("show", *arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", line)
