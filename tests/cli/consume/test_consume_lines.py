"""How `minibroker consume` prints a record."""

from __future__ import annotations

import json

import click
import pytest

from minibroker.cli.consume.consume_lines import make_formatter, make_json_formatter, make_line_formatter, parse_format
from minibroker.client.record_fetching import FetchedRecord
from minibroker.protocol.records.record import Header, Record
from tests.cases import for_each

HEADERS = (Header("h", b"1"), Header("empty", None))
FOUND = FetchedRecord(("orders", 2), Record(7, 1_769_857_200_500, b"k", b"v\xff\x1b", HEADERS))
NULLS = FetchedRecord(("orders", 2), Record(8, -1, None, None, ()))


@for_each(
    ("text", "line"),
    [
        ("%t [%p] at offset %o: key %k: %s\\n", b"orders [2] at offset 7: key k: v\xff\x1b\n"),
        ("%T %d %K %S", b"1769857200500 2026-01-31T11:00:00.500Z 1 3"),
        ("%h", b"h=1,empty=NULL"),
        ("%R%%%s", b"\0\0\0\x03%v\xff\x1b"),
        ("\\t\\r\\n\\\\\\x41\\0\\q", b"\t\r\n\\A\0q"),
        ("é", "é".encode()),
    ],
)
def test_a_format_supports_the_tokens_of_kcat(text: str, line: bytes) -> None:
    assert make_formatter(parse_format(text), b"", is_terminal=False)(FOUND) == line


def test_a_format_prints_null_as_nothing_or_a_given_text_and_its_size_as_minus_one() -> None:
    text = "%k,%s,%h,%K,%S,%T,%d,%R"
    assert make_formatter(text, b"", is_terminal=False)(NULLS) == b",,,-1,-1,-1,,\xff\xff\xff\xff"
    assert make_formatter("%k %s", b"NULL", is_terminal=False)(NULLS) == b"NULL NULL"
    assert make_formatter("%h", b"none", is_terminal=False)(FOUND) == b"h=1,empty=none"


def test_a_terminal_gets_no_control_characters() -> None:
    assert make_formatter("%s\\n", b"", is_terminal=True)(FOUND) == b"v\\xff\\x1b\n"


@pytest.mark.parametrize("text", ["%", "%x", "%s %", "100%"])
def test_unknown_format_tokens_are_rejected_with_a_list_of_the_known_ones(text: str) -> None:
    with pytest.raises(click.BadParameter, match="%d, %h, %K, %k, %o, %p, %R, %S, %s, %t, %T and %%"):
        parse_format(text)


def test_a_printed_line_has_the_requested_fields_before_the_value() -> None:
    plain = make_line_formatter(b"null", None, timestamps=False, headers=False)
    whole = make_line_formatter(b"null", ":", timestamps=True, headers=True)
    assert (plain(FOUND), plain(NULLS)) == (b"v\\xff\\x1b\n", b"null\n")
    assert whole(FOUND) == b"2026-01-31T11:00:00.500Z\th=1,empty=null\tk:v\\xff\\x1b\n"
    assert whole(NULLS) == b"\t\tnull:null\n"


def test_json_has_all_fields_of_a_record() -> None:
    assert json.loads(make_json_formatter({})(FOUND)) == {
        "topic": "orders",
        "partition": 2,
        "offset": 7,
        "timestamp": 1_769_857_200_500,
        "key": "k",
        "value_base64": "dv8b",
        "headers": [{"name": "h", "value": "1"}, {"name": "empty", "value": None}],
    }
