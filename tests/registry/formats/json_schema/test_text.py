"""Canonical texts are Jackson's, and texts that are none end in InvalidSchema."""

from __future__ import annotations

import pytest

from minibroker.registry.formats.json_schema import parse
from minibroker.registry.formats.json_schema.text import read_json, write_json
from minibroker.registry.formats.schema import InvalidSchema
from tests.cases import for_each


@for_each(
    ("text", "canonical"),
    [
        ('{"type":"object","properties":{"id":{"type":"integer"}}}',) * 2,  # recorded of Confluent's registry
        ('{ "not" : {\n "properties": {"a": {"$ref": "#"}} } }', '{"not":{"properties":{"a":{"$ref":"#"}}}}'),
        ('{"maximum":1.0,"minimum":1e3,"x":-0.0,"y":1E-10}', '{"maximum":1.0,"minimum":1E+3,"x":0.0,"y":1E-10}'),
        ('{"title":"é\\u00e9\\/\\u001f\\"\\\\u001f"}', '{"title":"éé/\\u001F\\"\\\\u001f"}'),
        ('{"a":1,"b":2,"a":3}', '{"a":3,"b":2}'),
        ('{"a":NaN,"b":-Infinity}', '{"a":"NaN","b":"-Infinity"}'),
        ('{"type":"string"} and more', '{"type":"string"}'),
        ("true", "true"),
    ],
)
def test_a_canonical_json_text_is_as_written_by_jackson(text: str, canonical: str) -> None:
    assert parse(text, {}).canonical == canonical
    assert parse(canonical, {}).canonical == canonical


def test_a_normalized_text_sorts_names_as_java_and_keeps_arrays() -> None:
    schema = parse('{"b":[{"z":1,"y":2}],"\\uD83D\\uDE00":1,"\\uFF5E":2,"B":[2,1],"a":null}', {})
    assert schema.get_normalized_text() == '{"B":[2,1],"a":null,"b":[{"y":2,"z":1}],"😀":1,"～":2}'
    assert schema.get_text_in_format("resolved") == schema.get_text_in_format("") == schema.canonical


@for_each(
    "text",
    [
        "",
        "{",
        "null",
        "3",
        '"string"',
        "[]",
        '{"a":"\\ud800"}',
        '{"a":' * 200 + "1" + "}" * 200,
        "[" * 100_000,
        '{"a":' + "9" * 5000 + "}",
        '{"maximum":1e99999999999999999999}',
        '{"title":"' + "x" * (1 << 20) + '"}',
    ],
)
def test_a_text_that_is_not_a_schema_is_invalid(text: str) -> None:
    with pytest.raises(InvalidSchema):
        parse(text, {})


def test_json_values_are_unchanged_by_parsing_and_writing() -> None:
    text = '[0,-1,123456789012345678901234567890,0.10,true,null,"",{"":[]}]'
    assert write_json(read_json(text)) == text
