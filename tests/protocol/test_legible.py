"""Text from outside: short, in one line, and harmless to a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.legible import (
    escape_unprintable,
    format_first_names,
    format_readable,
    make_legible,
    shorten_text,
)
from tests.cases import for_each


def test_a_short_text_is_unchanged() -> None:
    assert shorten_text("orders", 6) == "orders"


def test_a_shortened_text_keeps_its_start_and_its_end() -> None:
    assert shorten_text("begin" + 1000 * "x" + "end", 12) == "beginxx…xend"
    assert len(shorten_text(1000 * "x", 200)) == 200


@for_each(
    ("text", "shown"),
    [
        ("line\nbreak\r", "line\\nbreak\\r"),
        ("\x1b[2J\x9b", "\\x1b[2J\\x9b"),
        ("a\u2028b\u2029c\x85d", "a\\u2028b\\u2029c\\x85d"),
        ("\u202eright to left", "\\u202eright to left"),
        ("\x00\t", "\\x00\\t"),
        ("\udc80", "\\udc80"),
        ("Größe 大 \U0001f600", "Größe 大 \U0001f600"),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str) -> None:
    assert escape_unprintable(text) == shown
    assert shown.isprintable()


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b", "c"], "a, b, c"),
        (["a", "b", "c", "d"], "a, b, c and 1 more"),
        ([1000 * "x"] * 10_000, ", ".join(3 * [shorten_text(1000 * "x", 300)]) + " and 9997 more"),
    ],
)
def test_only_a_few_of_many_names_are_shown(names: list[str], told: str) -> None:
    assert format_first_names(names) == told


def test_a_text_is_shortened_before_it_is_escaped() -> None:
    assert make_legible(100 * "\n", 4) == "\\n\\n…\\n"


@for_each(
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
def test_control_bytes_are_escaped(data: bytes, text: str) -> None:
    assert format_readable(data) == text


@given(st.binary())
def test_arbitrary_bytes_are_shown_in_one_printable_line(data: bytes) -> None:
    shown = format_readable(data).replace("\t", "")
    assert shown.isprintable()
    assert shown.encode("utf-8").decode("utf-8") == shown
