"""Avro: canonical and normalized texts, invalid schemas, and verdicts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from minibroker.registry.formats.avro import AvroSchema, list_incompatibilities, parse
from minibroker.registry.formats.schema import InvalidSchema
from tests.cases import for_each
from tests.registry.asking import record

BYTES = {"type": "bytes"}
INT_ID = {"name": "id", "type": "int"}
E_AB, E_A = ({"type": "enum", "name": "E", "symbols": list(symbols)} for symbols in ("AB", "A"))
# Verdicts of Confluent's registry 7.4.0, as robot-head/crabka recorded them: new schema, old schema, and whether the
# levels BACKWARD and FORWARD allow it. FULL is both.
RECORDED = {
    "a field with a default is added": (
        {
            **record("U", ("id", "int")),
            "fields": [{"name": "id", "type": "int"}, {"name": "x", "type": "int", "default": 0}],
        },
        record("U", ("id", "int")),
        True,
        True,
    ),
    "a field is added": (record("U", ("id", "int"), ("x", "int")), record("U", ("id", "int")), False, True),
    "a field is removed": (record("U"), record("U", ("id", "int")), True, False),
    "an int becomes long": (record("U", ("id", "long")), record("U", ("id", "int")), True, False),
    "a long becomes int": (record("U", ("id", "int")), record("U", ("id", "long")), False, True),
    "a symbol is added": (record("U", ("e", E_AB)), record("U", ("e", E_A)), True, False),
    "a symbol is removed": (record("U", ("e", E_A)), record("U", ("e", E_AB)), False, True),
}


def schema(value: Any, **references: Any) -> AvroSchema:
    """Parse a schema."""
    return parse(json.dumps(value), {name: json.dumps(each) for name, each in references.items()})


@for_each("case", RECORDED.values())
def test_avro_verdicts_equal_recorded_ones_of_confluent(case: tuple[Any, Any, bool, bool]) -> None:
    new, old, backward, forward = case
    assert (not list_incompatibilities(schema(new), schema(old))) == backward
    assert (not list_incompatibilities(schema(old), schema(new))) == forward


CANONICAL = [
    # the order of names is Java's, whatever it was
    ({"fields": [], "name": "R", "type": "record"}, '{"type":"record","name":"R","fields":[]}'),
    # a name that is used again is not written again, and without the namespace that it is in
    (
        record("R", ("a", {"type": "fixed", "name": "F", "size": 2}), ("b", "F"), ("c?", "a.b.R"), namespace="a.b"),
        '{"type":"record","name":"R","namespace":"a.b","fields":[{"name":"a","type":{"type":"fixed","name":"F","size":2}}'
        ',{"name":"b","type":"F"},{"name":"c","type":["null","R"],"default":null}]}',
    ),
    # a full name is split
    ({"type": "enum", "name": "x.y.E", "symbols": []}, '{"type":"enum","name":"E","namespace":"x.y","symbols":[]}'),
    # a type without a namespace in one with it says so
    (
        record("a.R", ("f", {"type": "fixed", "name": "F", "namespace": "", "size": 1})),
        '{"type":"record","name":"R","namespace":"a","fields":[{"name":"f","type":{"type":"fixed","name":"F",'
        '"namespace":"","size":1}}]}',
    ),
    # a primitive type in an object is a text, unless it has properties
    ({"type": "string"}, '"string"'),
    ({"type": "string", "avro.java.string": "String"}, '{"type":"string","avro.java.string":"String"}'),
    # properties stay in their order, the doc of an array is none
    (
        {"type": "array", "z": 1, "doc": "d", "items": "int", "a": {"c": 1, "b": 2}},
        '{"type":"array","items":"int","z":1,"a":{"c":1,"b":2}}',
    ),
    # numbers and strings are written as Java does
    ({"type": "map", "values": "int", "p": [1.0, 1e10, 1e-7, 123456.5, 10**20]}, None),
    ({"type": "string", "p": 'é \x1f " / \\ \u2028 \t'}, '{"type":"string","p":"é \\u001F \\" / \\\\ \u2028 \\t"}'),
]


@for_each(("given", "wanted"), CANONICAL)
def test_the_canonical_avro_text_is_that_of_java(given: Any, wanted: str | None) -> None:
    wanted = wanted or '{"type":"map","values":"int","p":[1.0,1.0E10,1.0E-7,123456.5,100000000000000000000]}'
    assert schema(given).canonical == wanted
    assert parse(wanted, {}).canonical == wanted


def test_normalized_texts_have_sorted_properties_and_aliases() -> None:
    one = {
        "type": "record",
        "name": "R",
        "doc": "",
        "z": 1,
        "aliases": ["Q", "B"],
        "a": 2,
        "fields": [
            {"name": "d", "type": {"scale": 2, "x": 1, "precision": 4, "logicalType": "decimal", "type": "bytes"}}
        ],
    }
    assert schema(one).get_normalized_text() == (
        '{"type":"record","name":"R","fields":[{"name":"d","type":{"type":"bytes","logicalType":"decimal","precision":4,'
        '"scale":2,"x":1}}],"a":2,"z":1,"aliases":["B","Q"]}'
    )


def test_references_are_kept_unless_they_are_to_be_resolved() -> None:
    found = schema(record("Order", ("price", "m.Money")), Money=record("m.Money", ("cents", "long")))
    assert found.canonical == '{"type":"record","name":"Order","fields":[{"name":"price","type":"m.Money"}]}'
    assert json.loads(found.get_text_in_format("resolved"))["fields"][0]["type"]["fields"] == [
        {"name": "cents", "type": "long"}
    ]


INVALID = [
    ('"foo"', 'Undefined name: "foo"'),
    ("{", "Expecting property name"),
    ("1", "Schema not yet supported: 1"),
    ('{"type":"what"}', "Type not supported: what"),
    ('{"name":"R"}', 'No type: {"name":"R"}'),
    ('{"type":"record","fields":[]}', "No name in schema"),
    ('{"type":"record","name":"R"}', "Record has no fields"),
    ('{"type":"record","name":"1R","fields":[]}', "Illegal initial character: 1R"),
    ('{"type":"record","name":"R-","fields":[]}', "Illegal character in: R-"),
    ('{"type":"record","name":"R","fields":[{"name":"x"}]}', "No field type"),
    ('{"type":"record","name":"R","fields":[{"name":"x","type":"Y"}]}', '"Y" is not a defined name'),
    (
        '{"type":"record","name":"R","fields":[{"name":"x","type":"int","default":"q"}]}',
        'Invalid default for field x: "q" not a "int"',
    ),
    (
        '{"type":"record","name":"R","fields":[{"name":"x","type":"int"},{"name":"x","type":"int"}]}',
        "Duplicate field x",
    ),
    ('["int","int"]', "Duplicate in union:int"),
    ('["int",["null"]]', "Nested union"),
    ('{"type":"enum","name":"E","symbols":["A","A"]}', "Duplicate enum symbol: A"),
    (
        '{"type":"enum","name":"E","symbols":["A"],"default":"B"}',
        "The Enum Default: B is not in the enum symbol set: [A]",
    ),
    ('{"type":"fixed","name":"F"}', "Invalid or no size"),
    ('{"type":"fixed","name":"F","size":-1}', "Malformed data. Length is negative: -1"),
    ('{"type":"array"}', "No items type"),
    ('[{"type":"fixed","name":"F","size":1},{"type":"fixed","name":"F","size":1}]', "Can't redefine: F"),
    ('{"type":"array","items":' * 5000 + '"int"' + "}" * 5000, "nested"),
]


@for_each(("text", "reason"), INVALID)
def test_an_invalid_avro_schema_is_rejected_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidSchema, match="(?s).") as refused:
        parse(text, {}, check_defaults=True)
    assert reason in str(refused.value) or (reason == "nested" and "recursion" in str(refused.value))


DIFFERENCES = [
    ("int", "string", "TYPE_MISMATCH", "/", "reader type: INT not compatible with writer type: STRING"),
    (["int", "null"], "string", "MISSING_UNION_BRANCH", "/", "reader union lacking writer type: STRING"),
    (["int"], ["int", "string"], "MISSING_UNION_BRANCH", "/1", "reader union lacking writer type: STRING"),
    (
        {"type": "fixed", "name": "F", "size": 1},
        {"type": "fixed", "name": "F", "size": 2},
        *("FIXED_SIZE_MISMATCH", "/size", "expected: 2, found: 1"),
    ),
    (record("A"), record("x.B"), "NAME_MISMATCH", "/name", "expected: x.B"),
    (E_A, {**E_AB, "symbols": ["A", "C", "B"]}, "MISSING_ENUM_SYMBOLS", "/symbols", "[B, C]"),
    (record("R", ("x", "int")), record("R"), "READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/0", "x"),
    (
        record("R", ("x", {"type": "array", "items": {"type": "map", "values": "int"}})),
        record("R", ("x", {"type": "array", "items": {"type": "map", "values": "null"}})),
        *("TYPE_MISMATCH", "/fields/0/type/items/values", "reader type: INT not compatible with writer type: NULL"),
    ),
]


@for_each(("reader", "writer", "kind", "path", "detail"), DIFFERENCES)
def test_messages_of_avro_incompatibilities_equal_confluents(
    reader: Any, writer: Any, kind: str, path: str, detail: str
) -> None:
    (message,) = list_incompatibilities(schema(reader), schema(writer))
    assert message.startswith(f"{{errorType:'{kind}', description:'")
    assert f"'{path}'" in message and message.endswith(f"additionalInfo:'{detail}'}}")


def test_aliases_and_enum_defaults_make_a_reader_compatible() -> None:
    renamed = {**record("New", ("b", "int")), "aliases": ["Old"]}
    renamed["fields"][0]["aliases"] = ["a"]
    assert not list_incompatibilities(schema(renamed), schema(record("Old", ("a", "int"))))
    assert not list_incompatibilities(schema({**E_A, "default": "A"}), schema(E_AB))


def test_a_recursive_schema_is_compared_once() -> None:
    tree = record("Tree", ("left?", "Tree"), ("value", "int"))
    assert not list_incompatibilities(schema(tree), schema(tree))
    assert list_incompatibilities(schema(tree), schema(record("Tree", ("left?", "Tree"))))


@for_each(
    ("kind", "default", "normal"),
    [
        ("double", 0, "0.0"),
        ("double", 10**10, "1.0E10"),
        ("double", 10**30, None),  # which Java holds in another class
        ("float", 12.3, "12.3"),
        ("float", 16777217, "1.6777216E7"),
        ("float", 1e39, '"Infinity"'),
        ("float", "-1.5f", "-1.5"),
        ("double", "NaN", '"NaN"'),
        ("double", "-Infinity", '"-Infinity"'),
        ("long", 5, "5"),
        ("boolean", True, "true"),
        ("bytes", "\u00ff\u20ac", '"\u00ff?"'),
        ("string", "\u20ac", '"\u20ac"'),
        (["null", "double"], None, "null"),
        (["double", "null"], 3, "3.0"),
        (["null", "string"], "x", None),  # no value of the first branch
        ({"type": "array", "items": "double"}, [1, 2.5], "[1.0,2.5]"),
        ({"type": "array", "items": ["null", "string"]}, ["x"], '["x"]'),
        ({"type": "map", "values": "float"}, {"b": 1, "a": 0.1}, '{"a":0.1,"b":1.0}'),
        (record("I", ("d", "double"), ("c", "int")), {"d": 1, "c": 2}, '{"c":2,"d":1.0}'),
    ],
)
def test_an_avro_default_is_normalized_by_its_type(kind: Any, default: Any, normal: str | None) -> None:
    value = {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind, "default": default}]}
    _, has_default, found = schema(value).get_normalized_text().rpartition('"default":')
    assert (found[:-3] if has_default else None) == normal


def test_a_default_that_is_not_a_number_is_rejected() -> None:
    for text in ("one", "nan", "inf", "0x10", "1_0", ""):
        value = {"type": "record", "name": "R", "fields": [{"name": "x", "type": "double", "default": text}]}
        with pytest.raises(InvalidSchema, match="Can't parse number"):
            schema(value)
