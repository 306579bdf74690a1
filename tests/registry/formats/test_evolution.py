"""Schemas evolve at random: where the verdict is "compatible", the new one reads what was written with the old one.

And where it is not, something that was written is not read: for those changes whose verdict depends on nothing else.
"""

from __future__ import annotations

import io
import itertools
import json
from typing import Any

import fastavro
import jsonschema
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from hypothesis import assume, given
from hypothesis import strategies as some

from minibroker.registry.formats import avro, json_schema, protobuf
from minibroker.registry.formats.protobuf.protobuf_decoding import find_message
from tests.cases import for_each

# JSON Schema: all values of a small world are tried

SCALARS: list[Any] = [None, True, -1, 0, 1, 2, 3, 4, 0.5, 1.5, 3.5, -0.5, "", "a", "aa", "aaa", "ab", "aaaa"]
ARRAYS: list[Any] = [[], [1], ["a"], [1, "a"], ["a", "a"], [1, 2, 3]]
INNER: list[Any] = [None, 1, 3, "a", "aaa", [], {}]
OBJECTS: list[Any] = [
    {name: value for name, value in zip("abx", values, strict=True) if value != "missing"}
    for values in itertools.product([*INNER, "missing"], repeat=3)
]
WORLD = SCALARS + ARRAYS + OBJECTS

limits = some.integers(0, 4)


def keywords(**possible: some.SearchStrategy[Any]) -> some.SearchStrategy[dict[str, Any]]:
    """Return some of these keywords with values."""
    return some.fixed_dictionaries({}, optional=possible)


string = keywords(maxLength=limits, minLength=limits, pattern=some.sampled_from(["^a*$", "b"])).map(
    lambda each: each | {"type": "string"}
)
number = some.tuples(
    some.sampled_from(["number", "integer"]),
    keywords(maximum=limits, minimum=limits, exclusiveMaximum=limits, multipleOf=some.sampled_from([1, 2])),
).map(lambda parts: parts[1] | {"type": parts[0]})
enum = some.lists(some.sampled_from([None, 1, "a", "aa"]), min_size=1, max_size=3).map(lambda each: {"enum": each})
leaf = string | number | enum | some.sampled_from([{"type": "null"}, {"type": "boolean"}, True, False, {}])


def array(inner: some.SearchStrategy[Any]) -> some.SearchStrategy[dict[str, Any]]:
    """Return schemas of arrays. Confluent takes additionalItems to count without items, too, where it means nothing."""
    limited = keywords(maxItems=limits, minItems=limits, uniqueItems=some.booleans())
    first = some.fixed_dictionaries({"items": some.lists(inner, max_size=2)}, optional={"additionalItems": inner})
    return some.tuples(limited, keywords(items=inner) | first).map(
        lambda parts: parts[0] | parts[1] | {"type": "array"}
    )


def obj(inner: some.SearchStrategy[Any]) -> some.SearchStrategy[dict[str, Any]]:
    """Return schemas of objects.

    Confluent compares neither `required` for properties that have no schema, or one that allows all, nor
    `patternProperties`.
    """
    names = keywords(
        properties=some.dictionaries(some.sampled_from("ab"), inner),
        additionalProperties=inner,
        maxProperties=limits,
        minProperties=limits,
    )
    return some.tuples(names, some.booleans()).map(lambda parts: requiring(*parts))


def requiring(schema: dict[str, Any], requires: bool) -> dict[str, Any]:
    """Return the schema of an object that requires its properties, or none."""
    names = sorted(name for name, each in schema.get("properties", {}).items() if each not in (True, {}))
    return schema | {"type": "object", "required": names if requires else []}


def combined(inner: some.SearchStrategy[Any]) -> some.SearchStrategy[dict[str, Any]]:
    """Return schemas of several ones, all or any of which count."""
    parts = some.lists(inner, min_size=1, max_size=3)
    return some.tuples(some.sampled_from(["allOf", "anyOf"]), parts).map(lambda each: {each[0]: each[1]})


schemas = some.recursive(leaf, lambda inner: array(inner) | obj(inner) | combined(inner), max_leaves=5)


def accepts(schema: Any) -> list[bool]:
    """Return which values of the world a schema accepts."""
    validator = jsonschema.Draft7Validator(schema)
    return [validator.is_valid(value) for value in WORLD]


def verdict(old: Any, new: Any) -> list[str]:
    """Return why the new schema does not read what was written with the old one."""
    return json_schema.list_incompatibilities(
        json_schema.parse(json.dumps(new), {}), json_schema.parse(json.dumps(old), {})
    )


@given(schemas, schemas, some.data())
def test_a_compatible_json_schema_accepts_all_old_values(old: Any, new: Any, data: some.DataObject) -> None:
    if data.draw(some.booleans()):  # a small change is more often compatible than another schema
        new = data.draw(some.sampled_from([{"anyOf": [old, new]}, {"anyOf": [new, old]}, evolved(old, data)]))
    assume(verdict(old, new) == [])
    for value, before, after in zip(WORLD, accepts(old), accepts(new), strict=True):
        assert after or not before, value


def evolved(schema: Any, data: some.DataObject) -> Any:
    """Return a schema with one keyword changed or gone."""
    if not isinstance(schema, dict) or not schema:
        return {}
    name = data.draw(some.sampled_from(sorted(schema)))
    value = schema[name]
    rest = {key: each for key, each in schema.items() if key != name}
    if isinstance(value, int) and not isinstance(value, bool):
        return rest | {name: max(0, value + data.draw(some.sampled_from([-1, 1])))} if name != "multipleOf" else rest
    if isinstance(value, dict) and name in ("properties", "patternProperties") and value:
        inner = data.draw(some.sampled_from(sorted(value)))
        return rest | {name: value | {inner: evolved(value[inner], data)}}
    return rest | {name: evolved(value, data)} if isinstance(value, dict) else rest


@for_each(
    ("kind", "keyword"),
    [
        ("string", "maxLength"),
        ("string", "minLength"),
        ("number", "maximum"),
        ("integer", "minimum"),
        ("number", "exclusiveMaximum"),
        ("number", "exclusiveMinimum"),
    ],
)
def test_a_changed_limit_of_a_json_scalar_is_compatible_only_if_all_old_values_are_accepted(
    kind: str, keyword: str
) -> None:
    for before, after in itertools.product([None, 0, 1, 2], repeat=2):
        old, new = ({"type": kind} | ({} if limit is None else {keyword: limit}) for limit in (before, after))
        was, now = jsonschema.Draft7Validator(old), jsonschema.Draft7Validator(new)
        still_accepted = all(now.is_valid(value) for value in SCALARS if was.is_valid(value))
        idle = keyword == "minLength" and not before and not after  # a text has 0 characters anyway
        assert idle or still_accepted == (verdict(old, new) == []), (old, new)


# Protobuf: messages that the library writes are read by the library with the other schema

NUMBERS = ["int32", "int64", "uint32", "bool", "sint32", "sint64", "fixed32", "sfixed32", "fixed64", "double", "float"]
FIELD_TYPES = [*NUMBERS, "string", "bytes", "E", "In", "map<string, int32>", "map<int32, In>"]
field = some.tuples(some.sampled_from(["", "optional ", "repeated "]), some.sampled_from(FIELD_TYPES))
fields = some.dictionaries(some.integers(1, 4), field, min_size=1, max_size=4)


def proto(of_u: dict[int, tuple[str, str]], one_of: set[int], of_in: str) -> str:
    """Return a schema of a message U with these fields, some of them in a oneof, and a message In with one field."""
    lines = [
        f"{'' if type_name.startswith('map') else label}{type_name} f{number} = {number};"
        for number, (label, type_name) in of_u.items()
        if number not in one_of
    ]
    inside = [f"{of_u[number][1]} f{number} = {number};" for number in one_of]
    lines += [f"oneof o {{ {' '.join(inside)} }}"] if inside else []
    enum, inner = "enum E { A = 0; B = 1; }", f"message In {{ {of_in} i = 1; }}"
    return f'syntax = "proto3"; message U {{ {" ".join(lines)} }} {inner} {enum}'


def filled(descriptor: Descriptor, data: some.DataObject) -> Any:
    """Return a message with all fields set to something."""
    message = GetMessageClass(descriptor)()
    for each in descriptor.fields:
        if each.message_type is not None and each.message_type.GetOptions().map_entry:
            key: Any = "k" if each.message_type.fields_by_name["key"].type == each.TYPE_STRING else 5
            if each.message_type.fields_by_name["value"].message_type is None:
                getattr(message, each.name)[key] = 7
            else:
                getattr(message, each.name)[key].SetInParent()
        elif each.message_type is not None:
            (getattr(message, each.name).add() if each.is_repeated else getattr(message, each.name)).SetInParent()
        else:
            value = scalar(each, data)
            if each.is_repeated:
                getattr(message, each.name).extend([value, value])
            else:
                setattr(message, each.name, value)
    return message


def scalar(each: Any, data: some.DataObject) -> Any:
    """Return a value of a field."""
    if each.type == each.TYPE_STRING:
        return data.draw(some.text(max_size=4))
    if each.type == each.TYPE_BYTES:
        return data.draw(some.binary(max_size=4).filter(is_utf8))
    return data.draw(some.sampled_from([0, 1]))


def is_utf8(value: bytes) -> bool:
    """Return whether bytes are a text, as those must be that become a string."""
    return value.decode(errors="replace").encode() == value


@given(fields, fields, some.data())
def test_a_compatible_protobuf_schema_reads_old_data(
    old: dict[int, tuple[str, str]], new: dict[int, tuple[str, str]], data: some.DataObject
) -> None:
    new = old | {number: each for number, each in new.items() if data.draw(some.booleans())}
    single = [number for number, each in new.items() if each[0] == "" and not each[1].startswith("map")]
    one_of = set(data.draw(some.lists(some.sampled_from(single), unique=True))) if single else set()
    inner = data.draw(some.tuples(some.sampled_from(["int32", "string"]), some.sampled_from(["int64", "string"])))
    writer, reader = protobuf.parse(proto(old, set(), inner[0]), {}), protobuf.parse(proto(new, one_of, inner[1]), {})
    assume(protobuf.list_incompatibilities(reader, writer) == [])
    message = filled(find_message(writer, [0]), data)
    read = GetMessageClass(find_message(reader, [0])).FromString(message.SerializeToString())
    for each in find_message(writer, [0]).fields:
        after = read.DESCRIPTOR.fields_by_number[each.number]
        # Confluent compares labels only if both are given; "repeated" and none are different forms of a number.
        same_form = each.is_repeated == after.is_repeated or each.type in (each.TYPE_STRING, each.TYPE_BYTES)
        written, found = getattr(message, each.name), getattr(read, each.name)
        last = written[-1] if each.is_repeated and not after.is_repeated else written
        if same_form and last:
            assert found, each.name


@given(some.sampled_from(FIELD_TYPES), some.sampled_from(FIELD_TYPES))
def test_protobuf_field_types_are_incompatible_only_where_data_is_lost_or_changed(old: str, new: str) -> None:
    writer = protobuf.parse(proto({1: ("", old)}, set(), "int32"), {})
    reader = protobuf.parse(proto({1: ("", new)}, set(), "int32"), {})
    assume(protobuf.list_incompatibilities(reader, writer) != [])
    message = GetMessageClass(find_message(writer, [0]))()
    # 2 where a bool would equal 1.
    ones = {"string": "\x08\x7f", "bytes": b"\x08\x7f", "double": -1.0, "float": -1.0, "sint32": 2, "sint64": 2}
    each = message.DESCRIPTOR.fields[0]
    if old.startswith("map"):
        getattr(message, each.name).get_or_create(9) if "In" in old else message.f1.update({"\x08": 9})
    elif old == "In":
        message.f1.i = 9
    else:
        message.f1 = ones.get(old, 1)
    try:
        read = GetMessageClass(find_message(reader, [0])).FromString(message.SerializeToString())
    except DecodeError:
        return
    assert not read.ListFields() or read.ListFields()[0][1] != message.f1


# Avro: what fastavro wrote is read by fastavro with the other schema

AVRO_TYPES: list[Any] = [
    *("int", "long", "float", "double", "string", "bytes", "boolean"),
    ["null", "int"],
    ["null", "string"],
    {"type": "array", "items": "int"},
    {"type": "array", "items": "long"},
    {"type": "map", "values": "string"},
    {"type": "enum", "name": "e", "symbols": ["A"]},
    {"type": "enum", "name": "e", "symbols": ["A", "B"]},
    {"type": "fixed", "name": "x", "size": 2},
    {"type": "fixed", "name": "x", "size": 3},
]
AVRO_VALUES: list[Any] = [None, True, 1, -5, 0.5, "a", "A", "B", b"\0\1", b"\0\1\2", [], [1], {}, {"k": "v"}]
avro_field = some.tuples(some.sampled_from(AVRO_TYPES), some.booleans())


def record(of_fields: dict[str, tuple[Any, bool]]) -> dict[str, Any]:
    """Return a record with these fields; those that may have a default have one, which only some types can."""
    defaults = {"int": 0, "long": 0, "string": "", "boolean": False}
    return {
        "type": "record",
        "name": "r",
        "fields": [
            {"name": name, "type": kind | {"name": f"{kind['name']}_{name}"} if "name" in kind else kind}
            | ({"default": defaults[kind]} if default and isinstance(kind, str) and kind in defaults else {})
            for name, (kind, default) in of_fields.items()
        ],
    }


@given(some.dictionaries(some.sampled_from("abc"), avro_field), some.dictionaries(some.sampled_from("abc"), avro_field))
def test_an_avro_schema_reads_old_data_exactly_if_compatible(
    old: dict[str, tuple[Any, bool]], new: dict[str, tuple[Any, bool]]
) -> None:
    before, after = record(old), record(new)
    verdict = avro.list_incompatibilities(avro.parse(json.dumps(after), {}), avro.parse(json.dumps(before), {}))
    values = {name: [value for value in AVRO_VALUES if fits(kind, value)] for name, (kind, _) in old.items()}
    assert all(values.values())
    read = all(
        reads(before, after, dict(zip(values, chosen, strict=True)))
        for chosen in itertools.islice(itertools.product(*values.values()), 300)
    )
    assert read == (verdict == []), (before, after, verdict)


def fits(kind: Any, value: Any) -> bool:
    """Return whether fastavro takes a value for a type."""
    return bool(fastavro.validate(value, fastavro.parse_schema(json.loads(json.dumps(kind))), raise_errors=False))


def reads(before: Any, after: Any, value: Any) -> bool:
    """Return whether fastavro reads with one schema what it wrote with another one."""
    out = io.BytesIO()
    parsed = fastavro.parse_schema(json.loads(json.dumps(before)))
    fastavro.schemaless_writer(out, parsed, value)
    try:
        fastavro.schemaless_reader(
            io.BytesIO(out.getvalue()), parsed, fastavro.parse_schema(json.loads(json.dumps(after)))
        )
    except Exception:  # noqa: BLE001
        return False
    return True
