"""Requests whose answers and records were recorded from Confluent's registry 7.4.0 by the project robot-head/crabka.

Newer releases say more: answers have GUIDs, types, times and whether a version is deleted, and the error for a mode
names the context. The rest must be the same.
"""

from __future__ import annotations

import json
from typing import Any

from minibroker.testing import Broker
from tests.registry.asking import Asking, record

NEW = {"guid", "schemaType", "ts", "deleted"}  # in answers of version 8
A, B, C = (record(name) for name in "ABC")

ADMIN: list[tuple[str, str, Any, int, Any]] = [
    ("PUT", "/config/t", {"compatibility": "NONE"}, 200, {"compatibility": "NONE"}),
    ("POST", "/subjects/t/versions", {"schema": A}, 200, {"id": 1}),
    ("POST", "/subjects/t/versions", {"schema": B}, 200, {"id": 2}),
    ("DELETE", "/subjects/t/versions/1", None, 200, 1),
    ("GET", "/subjects/t/versions", None, 200, [2]),
    ("GET", "/subjects/t/versions?deleted=true", None, 200, [1, 2]),
    ("GET", "/subjects/t/versions/1", None, 404, {"error_code": 40402, "message": "Version 1 not found."}),
    ("GET", "/subjects/t/versions/1?deleted=true", None, 200, {"id": 1, "schema": A, "subject": "t", "version": 1}),
    (
        *("DELETE", "/subjects/t/versions/2?permanent=true", None, 404),
        {
            "error_code": 40407,
            "message": "Subject 't' Version 2 was not deleted first before being permanently deleted",
        },
    ),
    ("DELETE", "/subjects/t/versions/1?permanent=true", None, 200, 1),
    ("POST", "/subjects/d/versions", {"schema": A}, 200, {"id": 3}),
    (
        *("DELETE", "/subjects/d?permanent=true", None, 404),
        {"error_code": 40405, "message": "Subject 'd' was not deleted first before being permanently deleted"},
    ),
    ("DELETE", "/subjects/d", None, 200, [1]),
    (
        *("DELETE", "/subjects/d", None, 404),
        {"error_code": 40404, "message": "Subject 'd' was soft deleted.Set permanent=true to delete permanently"},
    ),
    ("DELETE", "/subjects/d?permanent=true", None, 200, [1]),
    ("PUT", "/mode/r", {"mode": "READONLY"}, 200, {"mode": "READONLY"}),
    (
        *("POST", "/subjects/r/versions", {"schema": A}, 422),
        {"error_code": 42205, "message": "Subject r in context  is in read-only mode"},
    ),
    ("GET", "/mode", None, 200, {"mode": "READWRITE"}),
    ("GET", "/mode/r", None, 200, {"mode": "READONLY"}),
    (
        *("GET", "/mode/nope", None, 404),
        {"error_code": 40409, "message": "Subject 'nope' does not have subject-level mode configured"},
    ),
    ("DELETE", "/mode/r", None, 200, {"mode": "READONLY"}),
    ("PUT", "/mode/i", {"mode": "IMPORT"}, 200, {"mode": "IMPORT"}),
    ("POST", "/subjects/i/versions", {"schema": C, "id": 42, "version": 5}, 200, {"id": 42}),
    (
        *("GET", "/schemas", None, 200),
        [
            {"id": 42, "schema": C, "subject": "i", "version": 5},
            {"id": 2, "schema": B, "subject": "t", "version": 2},
        ],
    ),
    ("GET", "/schemas/ids/1/versions", None, 404, {"error_code": 40403, "message": "Schema not found"}),
    ("GET", "/subjects/i/versions/5/referencedby", None, 200, []),
]


def stored(subject: str, version: int, id: int, schema: Any, deleted: bool = False) -> dict[str, Any]:
    """Return the value of the record of a schema."""
    text = json.dumps(schema, separators=(",", ":"))
    return {"subject": subject, "version": version, "id": id, "schema": text, "deleted": deleted}


def key(kind: str, subject: str, version: int | None = None) -> dict[str, Any]:
    """Return the key of a record."""
    named: dict[str, Any] = {"keytype": kind, "subject": subject}
    return named | ({"magic": 0} if version is None else {"version": version, "magic": 1})


# Confluent's begins with two records NOOP, which say that it runs.
ADMIN_RECORDS = [
    (key("CONFIG", "t"), {"subject": "t", "compatibilityLevel": "NONE"}),
    (key("SCHEMA", "t", 1), stored("t", 1, 1, A)),
    (key("SCHEMA", "t", 2), stored("t", 2, 2, B)),
    (key("SCHEMA", "t", 1), stored("t", 1, 1, A, deleted=True)),
    (key("SCHEMA", "t", 1), None),
    (key("SCHEMA", "d", 1), stored("d", 1, 3, A)),
    (key("DELETE_SUBJECT", "d"), {"subject": "d", "version": 1}),
    (key("SCHEMA", "d", 1), None),
    (key("MODE", "r"), {"subject": "r", "mode": "READONLY"}),
    (key("MODE", "r"), None),
    (key("CLEAR_SUBJECT", "i"), {"subject": "i"}),
    (key("MODE", "i"), {"subject": "i", "mode": "IMPORT"}),
    (key("SCHEMA", "i", 5), stored("i", 5, 42, C)),
]


def like_recorded(found: Any, wanted: Any) -> Any:
    """Return an answer without what newer releases add, and with its schemas parsed."""
    if isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        return [like_recorded(one, other) for one, other in zip(found, wanted, strict=True)]
    if not isinstance(found, dict) or not isinstance(wanted, dict):
        return found
    kept = {name: value for name, value in found.items() if name in wanted or name not in NEW | {"schema", "version"}}
    return kept | ({"schema": json.loads(kept["schema"])} if "schema" in kept else {})


def test_responses_and_records_of_administration_equal_recorded_ones_of_confluent(
    registry: Asking, broker: Broker
) -> None:
    for method, path, body, status, wanted in ADMIN:
        sent = body if body is None or "schema" not in body else {**body, "schema": json.dumps(body["schema"])}
        answer = registry.ask(method, path, sent)
        assert (answer.status, like_recorded(answer.body, wanted)) == (status, wanted), (method, path)
    found = [
        (each.key.decode(), None if each.value is None else each.value.decode()) for each in broker.records("_schemas")
    ]
    wanted = [
        (json.dumps(key, separators=(",", ":")), value and json.dumps(value, separators=(",", ":")))
        for key, value in ADMIN_RECORDS
    ]
    assert found == wanted


def test_responses_about_references_equal_recorded_ones_of_confluent(registry: Asking, broker: Broker) -> None:
    money, order = record("Money", ("cents", "long")), record("Order", ("price", "Money"))
    references = [{"name": "Money", "subject": "av_money", "version": 1}]
    assert registry.register("av_money", money).body["id"] == 1
    assert registry.register("av_order", order, references=references).body["id"] == 2
    found = registry.get("/schemas/ids/2").body
    assert found["references"] == references and json.loads(found["schema"]) == order
    assert registry.get("/subjects/av_money/versions/1/referencedby").body == [2]
    refused = registry.delete("/subjects/av_money/versions/1")
    assert (refused.status, refused.body) == (
        422,
        {
            "error_code": 42206,
            "message": "One or more references exist to the schema "
            "{magic=1,keytype=SCHEMA,subject=av_money,version=1}.",
        },
    )
    missing = registry.register(
        "av_bad", record("Bad", ("x", "Missing")), references=[{"name": "Missing", "subject": "nope", "version": 1}]
    )
    assert (missing.status, missing.code) == (422, 42201)
    assert missing.body["message"].endswith(
        'of type AVRO, details: No schema reference found for subject "nope" and version 1'
    )
    value = broker.records("_schemas")[1].value
    assert value is not None and value.decode() == (
        '{"subject":"av_order","version":1,"id":2,"references":[{"name":"Money","subject":"av_money","version":1}],'
        '"schema":"{\\"type\\":\\"record\\",\\"name\\":\\"Order\\",\\"fields\\":[{\\"name\\":\\"price\\",'
        '\\"type\\":\\"Money\\"}]}","deleted":false}'
    )
