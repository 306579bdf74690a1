"""Text from outside: short, in one line, and harmless to a terminal."""

from __future__ import annotations

import pytest

from minibroker.protocol.legible import cut, escaped, few, legible


def test_a_short_text_stays_as_it_is() -> None:
    assert cut("orders", 6) == "orders"


def test_a_long_text_keeps_its_begin_and_its_end() -> None:
    assert cut("begin" + 1000 * "x" + "end", 12) == "beginxx…xend"
    assert len(cut(1000 * "x", 200)) == 200


@pytest.mark.parametrize(
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
def test_what_a_terminal_would_act_on_is_written_out(text: str, shown: str) -> None:
    assert escaped(text) == shown
    assert shown.isprintable()


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b", "c"], "a, b, c"),
        (["a", "b", "c", "d"], "a, b, c and 1 more"),
        ([1000 * "x"] * 10_000, ", ".join(3 * [cut(1000 * "x", 300)]) + " and 9997 more"),
    ],
)
def test_of_many_names_a_few_are_shown(names: list[str], told: str) -> None:
    assert few(names) == told


def test_a_text_is_cut_before_it_is_escaped_so_that_no_escape_is_torn() -> None:
    assert legible(100 * "\n", 4) == "\\n\\n…\\n"
