"""Log lines as JSON: an object a line, whatever is in them."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from minibroker.cli.log_format import make_formatter


def record(message: str = "hello", *arguments: object, **more: Any) -> logging.LogRecord:
    made = logging.getLogger("minibroker.test").makeRecord(
        "minibroker.test", logging.WARNING, "file.py", 7, message, arguments, **{"exc_info": None, **more}
    )
    made.created = 1_700_000_000.25
    return made


def written(made: logging.LogRecord) -> dict[str, Any]:
    text = make_formatter("json").format(made)
    assert "\n" not in text and text.isascii()
    line: dict[str, Any] = json.loads(text)
    return line


def test_a_json_log_line_has_time_level_logger_and_message() -> None:
    assert written(record("%s has %d", "orders", 3)) == {
        "time": "2023-11-14T22:13:20.250+00:00",
        "level": "WARNING",
        "logger": "minibroker.test",
        "message": "orders has 3",
    }


def test_extra_fields_of_a_log_record_are_in_its_json_line() -> None:
    line = written(record(extra={"client": "librdkafka", "peer": "127.0.0.1:1", "partition": 3, "api": None}))
    assert (line["client"], line["peer"], line["partition"], line["api"]) == ("librdkafka", "127.0.0.1:1", 3, None)


def test_extra_fields_do_not_replace_the_standard_ones() -> None:
    assert written(record(extra={"level": "x", "time": "y", "logger": "z"}))["level"] == "WARNING"


def test_values_without_a_json_type_become_text() -> None:
    line = written(record(extra={"error": ValueError("bad\n"), "where": {1: b"x"}}))
    assert (line["error"], line["where"]) == ("bad\\n", {"1": "b'x'"})


def test_an_exception_is_logged_with_its_traceback() -> None:
    try:
        raise ZeroDivisionError("by nothing")
    except ZeroDivisionError:
        line = written(record(exc_info=sys.exc_info()))
    assert line["exception"].startswith("Traceback (most recent call last):")
    assert line["exception"].endswith("ZeroDivisionError: by nothing")


def test_the_json_log_line_has_the_stack_of_its_record() -> None:
    assert "test_log_format" in written(record(sinfo="Stack:\n test_log_format"))["stack"]


@pytest.mark.parametrize("name", ["text"])
def test_a_log_line_in_text_format_has_level_logger_and_message(name: str) -> None:
    assert make_formatter(name).format(record()).endswith(" WARNING minibroker.test: hello")


# --- what comes from outside ------------------------------------------------------------------------

HOSTILE = "x\n2026-01-01 CRITICAL minibroker: all is lost\r\x1b[2J\u2028\u202e\x85\udc80\0é"
SHOWN = "x\\n2026-01-01 CRITICAL minibroker: all is lost\\r\\x1b[2J\\u2028\\u202e\\x85\\udc80\\x00é"


def test_names_in_log_lines_cannot_start_a_line_or_control_a_terminal() -> None:
    text = make_formatter("text").format(record("closing %s: %s", HOSTILE, ValueError(HOSTILE)))
    assert text.endswith(f": closing {SHOWN}: {SHOWN}") and text.isprintable()
    line = written(record("closing %s", HOSTILE, extra={"client": HOSTILE}))
    assert (line["message"], line["client"]) == (f"closing {SHOWN}", SHOWN)


def test_a_long_name_is_shortened_and_the_rest_of_the_line_kept() -> None:
    made = record(
        "closing %s (%s): %s", 32_767 * "x", "librdkafka", "it sent a mistake", extra={"client": 32_767 * "y"}
    )
    text = make_formatter("text").format(made)
    assert "(librdkafka): it sent a mistake" in text and "xx…xx" in text and len(text) < 500
    line = written(made)
    assert "(librdkafka): it sent a mistake" in line["message"] and len(line["message"]) < 500
    assert len(line["client"]) == 300


@pytest.mark.parametrize("name", ["text", "json"])
def test_every_log_line_has_a_bounded_length(name: str) -> None:
    made = record("%s" + 100_000 * "y", [32_767 * "\0"], extra={"error": ValueError(1_000_000 * "z")})
    assert len(make_formatter(name).format(made)) < 20_000


@pytest.mark.parametrize("name", ["text", "json"])
def test_an_exception_text_is_shortened_and_escaped(name: str) -> None:
    try:
        raise ValueError(HOSTILE + 1_000_000 * "z\n")
    except ValueError:
        text = make_formatter(name).format(record(exc_info=sys.exc_info()))
    told = json.loads(text)["exception"] if name == "json" else text.partition("\n")[2]
    lines = told.split("\n")
    assert lines[0].strip() == "Traceback (most recent call last):"
    assert all(line.isprintable() and len(line) < 1000 for line in lines) and len(told) < 50_000
    if name == "text":
        assert all(line.startswith("  ") for line in lines if line)
