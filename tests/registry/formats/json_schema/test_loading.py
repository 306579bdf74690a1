"""What a schema means, and what it refers to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from minibroker.registry.formats.comparing_budget import ComparisonTooLarge
from minibroker.registry.formats.json_schema import list_incompatibilities, parse
from minibroker.registry.formats.json_schema.json_model import Combined, Object, Reference, Schema, String
from minibroker.registry.formats.schema import InvalidSchema
from tests.cases import for_each


def target(schema: Schema) -> Schema:
    """Return what a reference refers to."""
    assert isinstance(schema, Reference)
    return schema.resolve()


def properties(text: dict[str, Any], references: dict[str, str] | None = None) -> dict[str, Schema]:
    """Return the properties of a schema."""
    root = parse(json.dumps(text), references or {}).root
    assert isinstance(root, Object)
    return root.properties


@for_each(
    "schema",
    [
        {"type": "foo"},
        {"type": [["string"]]},
        {"minLength": "3"},
        {"minLength": 3.0},
        {"maxItems": 1 << 31},
        {"title": 3},
        {"$id": 3},
        {"multipleOf": 0},
        {"exclusiveMaximum": True, "maximum": 3},
        {"properties": []},
        {"properties": {"a": None}},
        {"required": True},
        {"required": [1]},
        {"additionalProperties": "x"},
        {"uniqueItems": "yes"},
        {"allOf": {}},
        {"enum": 3},
        {"$ref": 3},
        {"$ref": "#/definitions/b"},
        {"$ref": "other.json"},
        {"$ref": "https://example.com/other.json"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "#/definitions/99999999999999999999", "definitions": []},
    ],
)
def test_an_invalid_json_schema_is_rejected(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidSchema):
        parse(json.dumps(schema), {})


def test_an_exclusive_limit_is_a_boolean_in_draft_4() -> None:
    parse('{"$schema":"http://json-schema.org/draft-04/schema#","exclusiveMaximum":true,"maximum":3}', {})


def test_a_reference_may_name_a_path_an_id_or_another_schema() -> None:
    found = properties(
        {
            "$id": "http://example.com/schemas/root.json",
            "definitions": {"a/b": {"type": "string", "maxLength": 1}, "named": {"$id": "#n", "maxLength": 2}},
            "properties": {
                "place": {"$ref": "#/definitions/a~1b"},
                "name": {"$ref": "#n"},
                "schema": {"$ref": "other.json"},
                "within": {"$ref": "other.json#/definitions/c"},
                "by id": {"$ref": "urn:third"},
                "metaschema": {"$ref": "http://json-schema.org/draft-07/schema#"},
            },
        },
        {
            "other.json": '{"maxLength":3,"definitions":{"c":{"$ref":"#/definitions/d"},"d":{"maxLength":4}}}',
            "third": '{"$id":"urn:third","$ref":"#/definitions/e","definitions":{"e":{"maxLength":5}}}',
        },
    )
    lengths = {name: getattr(target(schema), "max_length", None) for name, schema in found.items()}
    assert lengths == {"place": 1, "name": 2, "schema": 3, "within": 4, "by id": 5, "metaschema": None}


def test_keywords_beside_a_reference_apply_since_2019_09() -> None:
    schema = {"$ref": "#/$defs/a", "maxLength": 3, "$defs": {"a": {"type": "string"}}}
    old = parse(json.dumps(schema), {}).root
    assert isinstance(target(old), String)
    new = parse(json.dumps(schema | {"$schema": "https://json-schema.org/draft/2019-09/schema"}), {}).root
    assert isinstance(new, Combined) and {type(part) for part in new.parts} == {Reference, String}


def test_cyclic_references_are_compared_once() -> None:
    circle = {"properties": {"next": {"$ref": "#"}, "id": {"type": "string"}}, "additionalProperties": False}
    changed = json.loads(json.dumps(circle).replace('"string"', '"number"'))
    same, other = parse(json.dumps(circle), {}), parse(json.dumps(changed), {})
    assert list_incompatibilities(same, parse(json.dumps(circle), {})) == []
    assert [text[12:24] for text in list_incompatibilities(other, same)] == ["TYPE_CHANGED"]


def test_a_json_schema_that_only_refers_to_itself_accepts_any_value() -> None:
    itself = parse('{"$ref":"#"}', {})
    assert list_incompatibilities(itself, parse('{"type":"string"}', {})) == []


def test_a_change_after_a_cycle_is_found_in_each_part_of_a_union() -> None:
    """As Confluent's own test has it: a comparison that was cut short must not count as one that was made."""

    def schema(first: str, second: str) -> str:
        def part(kind: str, to: str) -> dict[str, Any]:
            reference = {"oneOf": [{"$ref": f"#/definitions/{to}"}]}
            return {"type": "object", "properties": {"id": {"type": kind}, "ref": reference}}

        definitions = {"T0": part(first, "T2"), "T1": part(second, "T2"), "T2": part("integer", "T0")}
        union = {"oneOf": [{"$ref": "#/definitions/T0"}, {"$ref": "#/definitions/T1"}]}
        return json.dumps({"type": "object", "definitions": definitions, "properties": {"root": union}})

    before, after = parse(schema("integer", "boolean"), {}), parse(schema("boolean", "number"), {})
    assert list_incompatibilities(after, before)


def test_a_union_of_many_mutually_referring_schemas_is_compared_in_time() -> None:
    names = [f"T{number}" for number in range(12)]
    union = {"oneOf": [{"$ref": f"#/definitions/{name}"} for name in names]}
    definitions = {name: {"type": "object", "properties": {"a": union, "b": union}} for name in names}
    text = json.dumps({"type": "object", "definitions": definitions, "properties": {"product": union}})
    assert list_incompatibilities(parse(text, {}), parse(text, {})) == []


def test_a_long_chain_of_references_is_followed() -> None:
    chain = {f"d{number}": {"properties": {"a": {"$ref": f"#/definitions/d{number + 1}"}}} for number in range(1500)}
    text = json.dumps({"$ref": "#/definitions/d0", "definitions": chain | {"d1500": {"type": "string"}}})
    changed = parse(text.replace("string", "number"), {})
    assert [sentence[12:24] for sentence in list_incompatibilities(changed, parse(text, {}))] == ["TYPE_CHANGED"]


def test_comparisons_of_too_large_json_schemas_are_rejected() -> None:
    wide = json.dumps({"anyOf": [{"maxLength": number} for number in range(800)]})
    with pytest.raises(ComparisonTooLarge, match="more than 500,000 steps"):
        list_incompatibilities(parse(wide, {}), parse(wide.replace("maxLength", "minLength"), {}))


def test_a_pattern_takes_no_exponential_time() -> None:
    reader = parse('{"additionalProperties":false,"patternProperties":{"^(a+)+$":{"type":"string"}}}', {})
    name = "a" * 40 + "!"
    writer = parse(json.dumps({"additionalProperties": False, "properties": {name: {"type": "string"}}}), {})
    assert [text[12:54] for text in list_incompatibilities(reader, writer)] == [
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"
    ]


def test_messages_of_json_schema_incompatibilities_equal_confluents() -> None:
    writer, reader = parse('{"properties":{}}', {}), parse('{"properties":{"a":{"type":"string"}}}', {})
    assert list_incompatibilities(reader, writer) == [
        '{errorType:"OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", description:"The %s schema has an open content '
        "model and has a property or item at path '#/properties/a' which is missing in the %s schema'}"
    ]


def test_patterns_that_take_too_long_are_rejected() -> None:
    patterns = {f"({'a?' * 100}){{5}}_{number}_": True for number in range(100)}
    names = {f"{'a' * 100}b_{number}_": {"type": "string"} for number in range(100)}
    reader = parse(json.dumps({"additionalProperties": False, "patternProperties": patterns}), {})
    writer = parse(json.dumps({"additionalProperties": False, "properties": names}), {})
    with pytest.raises(ComparisonTooLarge, match="more than 500,000 steps"):
        list_incompatibilities(reader, writer)


def test_a_pattern_may_be_searched_any_number_of_times() -> None:
    reader = parse('{"additionalProperties":false,"patternProperties":{"^(a|b)*c":true}}', {})
    for number in range(300):
        name = "ab" * (number % 50) + f"c{number}"
        writer = parse(json.dumps({"additionalProperties": False, "properties": {name: {"type": "string"}}}), {})
        assert list_incompatibilities(reader, writer) == []


def test_nested_combined_schemas_are_bounded() -> None:
    text = '{"allOf":[' * 45 + json.dumps({"description": "x" * 200_000}) + "]}" * 45
    with pytest.raises(InvalidSchema, match="combines too many"):
        parse(text, {})
