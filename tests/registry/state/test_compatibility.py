"""What a config adds to the levels: names that are reserved, groups, and a lenient policy."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.registry.asking import Asking, record

OPEN: dict[str, Any] = {"type": "object", "properties": {"f": {"type": "string"}, "o": {"properties": {"inner": True}}}}
PROTO = 'syntax = "proto3"; message M { string f = 1; oneof o { string g = 2; } } message N { string h = 1; }'
AVRO = json.dumps(record("R", ("f", "string"), ("g", record("Inner", ("inner", "string")))))


def reserving(names: str) -> dict[str, Any]:
    """Return metadata that reserve names."""
    return {"properties": {"confluent:reserved": names}}


def conflict(name: str) -> str:
    """Return what is said of a field with a reserved name."""
    return f"The new schema has field that conflicts with the reserved field {name}."


@pytest.mark.parametrize(
    ("kind", "text", "taken"),
    [("AVRO", AVRO, "fg"), ("AVRO", '["int"]', ""), ("JSON", json.dumps(OPEN), "fo"), ("PROTOBUF", PROTO, "fgh")],
)
def test_a_field_with_a_reserved_name_is_rejected_if_fields_are_validated(
    registry: Asking, kind: str, text: str, taken: str
) -> None:
    body = {"schema": text, "schemaType": kind, "metadata": reserving(" o, f,, g,h ,inner")}
    path = "/compatibility/subjects/s/versions?verbose=true"
    assert registry.ask("POST", path, body).body == {"is_compatible": True, "messages": []}
    registry.put("/config", {"compatibility": "NONE", "validateFields": True})
    wanted = [*map(conflict, taken), "{validateFields: 'true', compatibility: 'NONE'}"] if taken else []
    assert registry.ask("POST", path, body).body == {"is_compatible": not taken, "messages": wanted}
    assert registry.ask("POST", "/subjects/s/versions", body).status == (409 if taken else 200)


def test_property_names_with_two_dollar_signs_are_rejected_if_fields_are_validated(registry: Asking) -> None:
    fine = {"type": "object", "properties": {"$id": {}, "in": {"properties": {"$$inner": {}}}}}
    refused = {"type": "object", "properties": {**fine["properties"], "$$title": {}}}
    assert registry.register("a", refused, schemaType="JSON").status == 200
    registry.put("/config", {"validateFields": True})
    answer = registry.register("b", refused, schemaType="JSON")
    assert (answer.code, answer.body["message"].endswith("#: Field names cannot start with $$ prefix")) == (42201, True)
    assert registry.register("b", fine, schemaType="JSON").status == 200


def test_a_new_schema_must_keep_the_reserved_names_of_the_old_one(registry: Asking) -> None:
    registry.put("/config/s", {"validateFields": True})
    registry.register("s", record("R", ("a", "string")), metadata=reserving("x,y"))
    refused = registry.register("s", record("R", ("a", "string"), ("z?", "string")), metadata=reserving("y,z"))
    assert (refused.status, refused.body["message"].partition("details: ")[2]) == (
        409,
        "[The new schema has reserved field x removed from its metadata which is present in the old schema's metadata."
        f", {conflict('z')}, {{validateFields: 'true', compatibility: 'BACKWARD'}}]",
    )
    registry.put("/config/s", {"validateFields": False})
    assert registry.register("s", record("R", ("a", "string")), metadata=reserving("y")).status == 200


def test_a_lenient_policy_applies_only_to_json_schemas(registry: Asking) -> None:
    more = {**OPEN, "properties": {**OPEN["properties"], "n": {"type": "number"}}}
    registry.register("j", OPEN, schemaType="JSON")
    registry.register("a", record("R"))
    assert registry.register("j", more, schemaType="JSON").code == 40901
    assert registry.put("/config", {"compatibilityPolicy": "lenient"}).status == 200
    assert registry.get("/config").body == {"compatibilityPolicy": "LENIENT", "compatibilityLevel": "BACKWARD"}
    assert registry.register("j", more, schemaType="JSON").status == 200
    assert registry.register("a", record("R", ("n", "int"))).code == 40901
    assert registry.put("/config", {"compatibilityPolicy": "LOGICAL"}).code == 42203


def test_only_versions_of_the_same_compatibility_group_are_compared(registry: Asking) -> None:
    registry.put("/config", {"compatibilityGroup": "major"})
    one, two = record("R", ("f", "string")), record("R", ("f", "string"), ("g", "string"))
    registry.register("s", one, metadata={"properties": {"major": "1"}})
    assert registry.register("s", two).code == 40901  # it takes the group of the version before
    assert registry.register("s", two, metadata={"properties": {"major": "2"}}).status == 200
    assert registry.register("s", record("R", ("h", "int")), metadata={"properties": {}}).status == 200
