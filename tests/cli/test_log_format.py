"""Log lines as JSON: an object a line, whatever is in them."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from minibroker.cli.log_format import formatter


def record(message: str = "hello", *arguments: object, **more: Any) -> logging.LogRecord:
    made = logging.getLogger("minibroker.test").makeRecord(
        "minibroker.test", logging.WARNING, "file.py", 7, message, arguments, **{"exc_info": None, **more}
    )
    made.created = 1_700_000_000.25
    return made


def written(made: logging.LogRecord) -> dict[str, Any]:
    text = formatter("json").format(made)
    assert "\n" not in text and text.isascii()
    line: dict[str, Any] = json.loads(text)
    return line


def test_a_line_has_time_level_logger_and_message() -> None:
    assert written(record("%s has %d", "orders", 3)) == {
        "time": "2023-11-14T22:13:20.250+00:00",
        "level": "WARNING",
        "logger": "minibroker.test",
        "message": "orders has 3",
    }


def test_fields_passed_as_extra_are_in_it() -> None:
    line = written(record(extra={"client": "librdkafka", "peer": "127.0.0.1:1", "partition": 3, "api": None}))
    assert (line["client"], line["peer"], line["partition"], line["api"]) == ("librdkafka", "127.0.0.1:1", 3, None)


def test_no_field_takes_the_place_of_the_lines_own() -> None:
    assert written(record(extra={"level": "x", "time": "y", "logger": "z"}))["level"] == "WARNING"


def test_what_is_no_json_is_told_as_text() -> None:
    line = written(record("line\nbreak \u2028 \udc80 é", extra={"error": ValueError("bad"), "where": {1: b"x"}}))
    assert line["message"] == "line\nbreak \u2028 \udc80 é"
    assert (line["error"], line["where"]) == ("bad", {"1": "b'x'"})


def test_an_exception_is_told_with_its_traceback() -> None:
    try:
        raise ZeroDivisionError("by nothing")
    except ZeroDivisionError:
        line = written(record(exc_info=sys.exc_info()))
    assert line["exception"].startswith("Traceback (most recent call last):")
    assert line["exception"].endswith("ZeroDivisionError: by nothing")


def test_a_stack_is_told() -> None:
    assert "test_log_format" in written(record(sinfo="Stack:\n test_log_format"))["stack"]


@pytest.mark.parametrize("name", ["text"])
def test_text_is_for_people(name: str) -> None:
    assert formatter(name).format(record()).endswith(" WARNING minibroker.test: hello")
