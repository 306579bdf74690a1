"""Schemas in `_schemas`, and values that name them, for the tests of decoding."""

from __future__ import annotations

from pathlib import Path

from minibroker.protocol.records.record import Record
from minibroker.registry.formats.schema import Reference
from minibroker.registry.state.schema_records import StoredSchema, make_schema_entry
from tests.pipeline.logs import NOW_MS, write_log

USER = StoredSchema("users-value", 1, 1, '{"type":"record","name":"User","fields":[{"name":"name","type":"string"}]}')
PAGE = StoredSchema("pages-value", 1, 2, '{"type":"object"}', "JSON")
MONEY = StoredSchema("money-value", 1, 3, 'syntax = "proto3"; message Money { int64 cents = 1; }', "PROTOBUF")
OWNED = StoredSchema(
    "owned-value",
    1,
    4,
    '{"type":"record","name":"Owned","fields":[{"name":"owner","type":"User"}]}',
    references=(Reference("User", "users-value", 1),),
)
BAD = StoredSchema("bad-value", 1, 5, '{"type":"no such type"}')

ANN = b"\0\0\0\0\1\6ann"


def write_schemas(root: Path, *schemas: StoredSchema, start: int = 0) -> None:
    """Append versions to the topic `_schemas` of a log directory."""
    entries = [make_schema_entry(schema) for schema in schemas]
    write_log(root, "_schemas", 0, [Record(start + each, NOW_MS, *entry) for each, entry in enumerate(entries)])
