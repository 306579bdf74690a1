"""What the commands share, without a broker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.cli.shared import assignment_of, readable


def test_an_assignment_is_split_at_its_first_equals_sign() -> None:
    assert assignment_of("a=b=c") == ("a", "b=c")
    assert assignment_of("a=") == ("a", "")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"plain\ttext", "plain\ttext"),
        ("größe €".encode(), "größe €"),
        (b"\xff\xfe", "\\xff\\xfe"),
        (b"a\nb\r", "a\\nb\\r"),
        (b"\x1b[31m", "\\x1b[31m"),
        ("\u202e".encode(), "\\u202e"),
    ],
)
def test_bytes_are_shown_and_not_obeyed(data: bytes, text: str) -> None:
    assert readable(data) == text


@given(st.binary())
def test_any_bytes_are_one_printable_line(data: bytes) -> None:
    shown = readable(data).replace("\t", "")
    assert shown.isprintable()
    assert shown.encode("utf-8").decode("utf-8") == shown
