"""The .properties syntax as java.util.Properties reads it; conformance/settings/ asks Java itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.broker.configs.properties import MalformedProperties, parse_java_properties
from tests.cases import for_each


def pairs(text: str) -> list[tuple[str, str]]:
    return [(pair.key, pair.value) for pair in parse_java_properties(text)]


@for_each(
    ("text", "expected"),
    [
        ("a=b", [("a", "b")]),
        ("  a : b ", [("a", "b ")]),
        ("a b", [("a", "b")]),
        ("a = = b", [("a", "= b")]),
        ("a\t:\tb", [("a", "b")]),
        ("a", [("a", "")]),
        ("=b", [("", "b")]),
        ("# x=y\n! z\n\n \t\na=b", [("a", "b")]),
        ("a=b#c", [("a", "b#c")]),
        ("a=1\na=2", [("a", "1"), ("a", "2")]),
        ("a=1\r\nb=2\rc=3", [("a", "1"), ("b", "2"), ("c", "3")]),
        ("a=one,\\\n   two", [("a", "one,two")]),
        ("a=one\\\\\nb=2", [("a", "one\\"), ("b", "2")]),
        ("a=one\\", [("a", "one")]),
        ("a=one\\\n# no comment", [("a", "one# no comment")]),
        ("\\\n# x\na=b", [("a", "b")]),
        ("\\\n \na=b", [("a", "b")]),
        ("a\\ b\\==c\\:d", [("a b=", "c:d")]),
        ("a=\\t\\n\\r\\f\\q\\u00e9", [("a", "\t\n\r\fqé")]),
    ],
)
def test_properties_are_parsed_as_java_parses_them(text: str, expected: list[tuple[str, str]]) -> None:
    assert pairs(text) == expected


def test_a_parsed_property_has_the_number_of_its_first_line() -> None:
    assert [pair.line for pair in parse_java_properties("#\na=1\\\n2\\\n3\nb=4")] == [2, 5]


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\uxyzw", "\\u=1"])
def test_an_invalid_unicode_escape_is_rejected_with_its_line(text: str) -> None:
    with pytest.raises(MalformedProperties, match=r"^line 2: "):
        pairs(f"\n{text}")


def escaped(text: str) -> str:
    return "".join(f"\\u{ord(character):04x}" for character in text)


def test_a_surrogate_pair_is_one_character_and_a_lone_surrogate_is_rejected() -> None:
    assert pairs(r"a\uD83D\uDE00=\ud83d\ude00") == [("a\N{GRINNING FACE}", "\N{GRINNING FACE}")]
    for text in (r"a=\ud83d", r"a=\ude00\ud83d", r"a\ud83d=x"):
        with pytest.raises(MalformedProperties, match="line 1: .* half of a surrogate pair"):
            pairs(text)


BMP_TEXT = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]))


@given(st.lists(st.tuples(BMP_TEXT, BMP_TEXT)))
def test_escaped_text_is_parsed_back_unchanged(expected: list[tuple[str, str]]) -> None:
    assert pairs("\n".join(f"{escaped(key)}={escaped(value)}" for key, value in expected)) == expected


@given(st.text(st.sampled_from("ab=: \t\\\n\r#!u0\u00e9")))
def test_any_properties_text_is_parsed_or_rejected(text: str) -> None:
    try:
        pairs(text)
    except MalformedProperties as refusal:
        assert "\n" not in str(refusal)
