"""A reader reads what a writer wrote exactly when the verdict says so: schemas evolve at random, fastavro reads."""

from __future__ import annotations

import copy
import json
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibroker.registry.formats.avro import list_incompatibilities, parse

fastavro = pytest.importorskip("fastavro")

PRIMITIVES = ("int", "long", "float", "double", "string", "bytes", "boolean", "null")
VALUES: dict[str, Any] = {
    **{"int": 7, "long": 7, "float": 0.5, "double": 0.5},
    **{"string": "a", "bytes": b"a", "boolean": True, "null": None},
}
DEFAULTS: dict[str, Any] = {**VALUES, "bytes": "a"}
KINDS = st.sampled_from(PRIMITIVES)
TYPES = st.one_of(
    KINDS,
    KINDS.map(lambda kind: {"type": "array", "items": kind}),
    KINDS.map(lambda kind: {"type": "map", "values": kind}),
    st.lists(KINDS, min_size=1, max_size=3, unique=True),
    st.sets(st.sampled_from("ABC"), min_size=1).map(
        lambda symbols: {"type": "enum", "name": "E", "symbols": sorted(symbols)}
    ),
)
FIELDS = st.dictionaries(st.sampled_from("abc"), st.tuples(TYPES, st.booleans()), max_size=3)


def schema_of(fields: dict[str, tuple[Any, bool]]) -> dict[str, Any]:
    """Return a record; an enum in it has a name of its own. Fields of primitive types may have defaults."""
    listed = []
    for name, (kind, with_default) in fields.items():
        own = {**kind, "name": f"E{name}"} if isinstance(kind, dict) and kind["type"] == "enum" else kind
        default = {"default": DEFAULTS[kind]} if with_default and isinstance(kind, str) else {}
        listed.append({"name": name, "type": own, **default})
    return {"type": "record", "name": "R", "fields": listed}


def values_of(kind: Any) -> list[Any]:
    """Return values that together use every branch and symbol of a type."""
    if isinstance(kind, str):
        return [VALUES[kind]]
    if isinstance(kind, list):
        return [VALUES[branch] for branch in kind]
    if kind["type"] == "enum":
        return list(kind["symbols"])
    return [[each] for each in values_of(kind["items"])] if kind["type"] == "array" else [
        {"k": each} for each in values_of(kind["values"])
    ]  # fmt: skip


def can_read(reader: dict[str, Any], writer: dict[str, Any]) -> bool:
    """Return whether fastavro reads with `reader` records that were written with `writer`."""
    columns = {field["name"]: values_of(field["type"]) for field in writer["fields"]}
    for row in range(max(map(len, columns.values()), default=1)):
        value = {name: column[row % len(column)] for name, column in columns.items()}
        out = BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(copy.deepcopy(writer)), value)
        try:
            parsed = [fastavro.parse_schema(copy.deepcopy(each)) for each in (writer, reader)]
            fastavro.schemaless_reader(BytesIO(out.getvalue()), *parsed)
        except (fastavro.read.SchemaResolutionError, ValueError, TypeError, KeyError, UnicodeDecodeError):
            return False
    return True


@settings(max_examples=150, deadline=None)
@given(FIELDS, FIELDS)
def test_avro_schemas_are_compatible_exactly_if_fastavro_can_read_the_data(new: Any, old: Any) -> None:
    reader, writer = schema_of(new), schema_of(old)
    verdict = not list_incompatibilities(parse(json.dumps(reader), {}), parse(json.dumps(writer), {}))
    assert can_read(reader, writer) == verdict


@settings(max_examples=100, deadline=None)
@given(FIELDS)
def test_parsing_a_canonical_or_normalized_avro_text_gives_it_again(fields: Any) -> None:
    schema = schema_of(fields)
    parsed = parse(json.dumps(schema), {})
    assert json.loads(parsed.canonical) == schema
    for text in (parsed.canonical, parsed.get_normalized_text()):
        again = parse(text, {})
        assert (again.canonical, again.get_normalized_text()) == (text, parsed.get_normalized_text())
