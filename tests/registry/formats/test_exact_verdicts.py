"""A reader with the new schema reads what the old one wrote exactly when the verdict says so: JSON and Protobuf.

This holds for a family of schemas of each format, which evolve at random. Confluent's verdicts, which are ours, are not
exact for others; then one direction holds. `test_evolution` has JSON Schemas of all kinds: what is called compatible is
read, but some of what is refused would be read, too, such as what allows the same in other words. For Protobuf, a
number that becomes repeated is called compatible, but is not read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as some

from minibroker.registry.formats import json_schema, protobuf
from minibroker.registry.formats.protobuf.protobuf_decoding import find_message

# JSON Schema: types with limits, arrays of them, and objects, open or closed, whose properties have types

OTHERS: list[Any] = [None, True, 1, 0.5, "", [], {}]
limits = some.tuples(some.none() | some.integers(1, 3), some.none() | some.integers(3, 5))


def limited(kind: str, least: str, most: str) -> some.SearchStrategy[dict[str, Any]]:
    """Return schemas of a type with limits, between which there is always a value."""
    return limits.map(
        lambda both: {"type": kind} | {name: at for name, at in zip((least, most), both, strict=True) if at is not None}
    )


scalars = some.one_of(
    some.sampled_from([{"type": "null"}, {"type": "boolean"}]),
    limited("string", "minLength", "maxLength"),
    limited("number", "minimum", "maximum"),
    limited("integer", "minimum", "maximum"),
)


def containers(inner: some.SearchStrategy[dict[str, Any]]) -> some.SearchStrategy[dict[str, Any]]:
    """Return schemas of arrays and objects."""
    arrays = some.tuples(inner, limited("array", "minItems", "maxItems")).map(
        lambda each: {"items": each[0], **each[1]}
    )
    objects = some.tuples(some.dictionaries(some.sampled_from("abc"), inner), some.sets(some.sampled_from("abc")))
    return arrays | some.tuples(objects, some.booleans()).map(lambda each: object_of(*each[0], closed=each[1]))


def object_of(properties: dict[str, Any], required: set[str], *, closed: bool) -> dict[str, Any]:
    """Return the schema of an object, which requires only what it describes."""
    found: dict[str, Any] = {"type": "object", "properties": properties, "required": sorted(required & {*properties})}
    return found | {"additionalProperties": False} if closed else found


schemas = some.recursive(scalars, containers, max_leaves=5)


@some.composite
def evolved(draw: some.DrawFn, schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with a few changes, or another one."""
    choice = draw(some.integers(0, 5))
    if choice == 0:
        return draw(schemas)
    if schema["type"] == "object":
        properties = dict(schema["properties"])
        for name in draw(some.sets(some.sampled_from("abc"), max_size=2)):
            after = draw(some.none() | evolved(properties.pop(name)) if name in properties else scalars)
            properties |= {} if after is None else {name: after}
        required = {*schema["required"]} ^ draw(some.sets(some.sampled_from("abc"), max_size=1))
        return object_of(properties, required, closed=("additionalProperties" in schema) ^ (choice == 1))
    if schema["type"] == "array":
        return schema | {"items": draw(evolved(schema["items"]))}
    if schema["type"] == "integer" and choice == 1:
        return schema | {"type": "number"}
    return draw(scalars.filter(lambda each: each["type"] == schema["type"]))


def values_of(schema: dict[str, Any], other: dict[str, Any] | None) -> Iterator[Any]:
    """Yield values at the limits of two schemas, the first one a value of `schema`, and values of other types."""
    match schema["type"]:
        case "boolean":
            yield True
        case "string":
            yield from ("a" * size for size in dict.fromkeys([at("minLength", schema), *range(7)]))
        case "number" | "integer":
            yield from dict.fromkeys([at("minimum", schema), *range(7)])
            yield 3.5
        case "array":
            inner = of_type("array", other)
            items = list(values_of(schema["items"], None if inner is None else inner["items"]))
            yield [items[0]] * at("minItems", schema)
            yield from ([items[0]] * count for count in range(7))
            yield from ([items[0]] * (max(at("minItems", schema), 1) - 1) + [item] for item in items)
        case "object":
            yield from objects_of(schema, of_type("object", other))
    yield from OTHERS


def objects_of(schema: dict[str, Any], other: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Yield an object with all properties, and then such that differ from it in one: gone, or with another value."""
    before, after = schema["properties"], {} if other is None else other["properties"]
    columns = {name: list(values_of(before[name], after.get(name))) for name in before}
    whole = {name: values[0] for name, values in columns.items()}
    yield whole
    for name in {**before, **after, "x": None}:
        yield {each: value for each, value in whole.items() if each != name}
        values = columns[name] if name in columns else [*OTHERS, *range(7), *("a" * size for size in range(7))]
        yield from ({**whole, name: value} for value in values)


def at(name: str, schema: dict[str, Any]) -> int:
    """Return a least value."""
    return int(schema.get(name, 0))


def of_type(kind: str, schema: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the schema if it has this type."""
    return schema if schema is not None and schema["type"] == kind else None


@given(some.data())
def test_a_json_schema_accepts_old_values_exactly_if_compatible(data: some.DataObject) -> None:
    old = data.draw(schemas)
    new = data.draw(evolved(old))
    verdict = json_schema.list_incompatibilities(
        json_schema.parse(json.dumps(new), {}), json_schema.parse(json.dumps(old), {})
    )
    was, now = jsonschema.Draft7Validator(old), jsonschema.Draft7Validator(new)
    written = [value for value in values_of(old, new) if was.is_valid(value)]
    assert written
    unread = [value for value in written if not now.is_valid(value)]
    assert (unread == []) == (verdict == []), (old, new, unread[:1], verdict)


# Protobuf: fields come, go, change their types, and move into a oneof; labels stay

TYPES = ["int32", "int64", "uint32", "uint64", "bool", "sint32", "sint64", "fixed32", "sfixed32", "fixed64", "sfixed64"]
TYPES += ["double", "float", "string", "bytes", "E", "In", "map<string, int32>", "map<string, In>"]
LABELS = ["", "repeated "]
fields = some.dictionaries(some.integers(1, 5), some.sampled_from(TYPES), max_size=5)


def proto(of_u: dict[int, str], labels: list[str], one_of: set[int], of_in: str) -> str:
    """Return a schema of two messages: U with these fields, some of them in a oneof, and In with one field."""
    lines = [
        f"{'' if kind.startswith('map') else labels[number]}{kind} f{number} = {number};"
        for number, kind in of_u.items()
        if number not in one_of
    ]
    inside = [f"{of_u[number]} f{number} = {number};" for number in sorted(one_of)]
    lines += [f"oneof o {{ {' '.join(inside)} }}"] if inside else []
    others = f"message In {{ {of_in} i = 1; }} enum E {{ A = 0; B = 1; }}"
    return f'syntax = "proto3"; message U {{ {" ".join(lines)} }} {others}'


def value_of(field: FieldDescriptor) -> Any:
    """Return a value that is the same in all types of the same form on the wire, and another one in other types."""
    match field.type:
        case field.TYPE_STRING:
            return "\x08\x7f"
        case field.TYPE_BYTES:
            return b"\x08\x7f"
        case field.TYPE_SINT32 | field.TYPE_SINT64:
            return -1  # which is 1 in others
    return 1


def filled(descriptor: Any) -> Any:
    """Return a message with a value in each field."""
    message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            value = field.message_type.fields_by_name["value"]
            if value.message_type is None:
                getattr(message, field.name)["k"] = 1
            else:
                getattr(message, field.name)["k"].CopyFrom(filled(value.message_type))
        elif field.message_type is not None:
            inner = filled(field.message_type)
            if field.is_repeated:
                getattr(message, field.name).extend([inner, inner])
            else:
                getattr(message, field.name).CopyFrom(inner)
        elif field.is_repeated:
            getattr(message, field.name).extend([value_of(field)] * 2)
        else:
            setattr(message, field.name, value_of(field))
    return message


def plain(value: Any) -> Any:
    """Return a value as one that is equal for types of the same form: texts are bytes, messages are their fields."""
    if hasattr(value, "ListFields"):
        return {field.number: plain(each) for field, each in value.ListFields()}
    if hasattr(value, "items"):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, str | bytes):
        return value.encode() if isinstance(value, str) else value
    return [plain(each) for each in value] if hasattr(value, "__len__") else value


def is_read(written: Any, descriptor: Any) -> bool:
    """Return whether a reader finds what was written in each field that it still has."""
    try:
        found = plain(GetMessageClass(descriptor).FromString(written.SerializeToString()))
    except DecodeError:
        return False
    kept = {number: value for number, value in plain(written).items() if number in descriptor.fields_by_number}
    return bool(found == kept)


@given(fields, some.lists(some.sampled_from(LABELS), min_size=6, max_size=6), some.data())
def test_a_protobuf_schema_reads_old_data_exactly_if_compatible(
    old: dict[int, str], labels: list[str], data: some.DataObject
) -> None:
    changed = data.draw(some.dictionaries(some.integers(1, 5), some.sampled_from([None, *TYPES]), max_size=2))
    new = {number: kind for number, kind in (old | changed).items() if kind is not None}
    single = [number for number, kind in new.items() if labels[number] == "" and not kind.startswith("map")]
    one_of = set(data.draw(some.lists(some.sampled_from(single), unique=True, max_size=2))) if single else set()
    inner = data.draw(some.tuples(some.sampled_from(["int32", "string"]), some.sampled_from(["int64", "string"])))
    writer = protobuf.parse(proto(old, labels, set(), inner[0]), {})
    reader = protobuf.parse(proto(new, labels, one_of, inner[1]), {})
    verdict = protobuf.list_incompatibilities(reader, writer)
    all_read = all(is_read(filled(find_message(writer, [each])), find_message(reader, [each])) for each in (0, 1))
    assert all_read == (verdict == []), (writer.canonical, reader.canonical, verdict)
