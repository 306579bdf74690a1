"""`minibroker show`: a message's fields and code, in the version that was asked for."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Run


def test_a_name_shows_request_and_response_of_that_version_with_their_code(run: Run) -> None:
    result = run("show", "Metadata", "12")
    assert result.exit_code == 0
    assert "MetadataRequest version 12 of 0 to 13, key 3, flexible" in result.stdout
    assert "MetadataResponse version 12 of 0 to 13, key 3, flexible" in result.stdout
    assert "allow_auto_topic_creation" in result.stdout
    assert result.stdout.count("\ndef read(") == 2


def test_without_a_version_it_is_the_newest(run: Run) -> None:
    (shown,) = json.loads(run("show", "heartbeatrequest", "--json").stdout)
    assert (shown["name"], shown["api_key"], shown["version"], shown["versions"]) == ("HeartbeatRequest", 12, 4, [0, 4])
    assert [field["name"] for field in shown["fields"]][:2] == ["group_id", "generation_id"]


def test_a_version_shows_only_its_own_fields(run: Run) -> None:
    (oldest,) = json.loads(run("show", "HeartbeatRequest", "0", "--json").stdout)
    assert "group_instance_id" not in {field["name"] for field in oldest["fields"]}
    assert not oldest["flexible"]


def test_the_code_that_writes_is_shown_when_asked_for(run: Run) -> None:
    assert "\ndef write(" not in run("show", "HeartbeatRequest").stdout
    assert "\ndef write(" in run("show", "HeartbeatRequest", "--write").stdout


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["Metdata"], "minibroker: there is no message Metdata, did you mean Metadata?\n"),
        (["zzzzzzzz"], "minibroker: there is no message zzzzzzzz\n"),
        (["MetadataRequest", "14"], "minibroker: MetadataRequest has no version 14, only 0 to 13\n"),
        (["Metadata", "x"], "minibroker: Invalid value for '[VERSION]': 'x' is not a valid integer.\n"),
    ],
)
def test_what_there_is_not_is_one_line_and_status_2(run: Run, arguments: list[str], line: str) -> None:
    result = run("show", *arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", line)
