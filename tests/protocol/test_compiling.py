"""Functions made of written Python, and what is known when they fail."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

from minibroker.protocol.source import Source, compiled, malformed


def reader(*lines: tuple[str, str]) -> Any:
    """A compiled function of (field, line) pairs."""
    source = Source({})
    with source.block("def read(data, pos, end):"):
        for field, line in lines:
            with source.about(field):
                source.add(line)
    return compiled(source, "read Test v0")


def failure(function: Any, data: bytes) -> Exception:
    with pytest.raises((IndexError, ValueError)) as caught:
        function(data, 0, len(data))
    return caught.value


READ = reader(
    ("first", "a = data[0]"), ("second", "b = data[1]"), ("third", "c = int(str(data[2:], 'utf-8'))"), ("", "return c")
)


@pytest.mark.parametrize(
    ("data", "field", "reason"),
    [
        (b"", "first", "ends too early"),
        (b"1", "second", "ends too early"),
        (b"12x", "third", "invalid literal"),
        (b"12\xff", "third", "can't decode"),
    ],
)
def test_the_field_is_that_of_the_failing_line(data: bytes, field: str, reason: str) -> None:
    error = malformed("Test", 3, failure(READ, data))
    assert (error.message, error.version, error.field) == ("Test", 3, field)
    assert reason in str(error)


def test_a_failure_inside_a_called_function_belongs_to_the_calling_line() -> None:
    def inner(data: bytes) -> int:
        return data[5]

    source = Source({"inner": inner})
    with source.block("def read(data, pos, end):"), source.about("called"):
        source.add("return inner(data)")
    assert malformed("Test", 0, failure(compiled(source, "read Inner v0"), b"")).field == "called"


def test_a_failure_elsewhere_has_no_field() -> None:
    assert malformed("Test", 0, ValueError("odd")).field == ""


def test_tracebacks_show_the_written_line() -> None:
    shown = "".join(traceback.format_exception(failure(READ, b"")))
    assert 'File "<read Test v0>", line 2, in read' in shown
    assert "a = data[0]" in shown
