"""Which version a schema is, as tests of Confluent's registry expect it: `confluent:version`, references, contexts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.registry.asking import Asking, record

KEY = {"mykey": "myvalue"}
TEXTS = {
    "AVRO": json.dumps(record("R", ("f", "string")), separators=(",", ":")),
    "JSON": '{"type":"object","properties":{"f":{"enum":["a","b"],"type":"string"}}}',
    "PROTOBUF": 'syntax = "proto3";\npackage p;\n\nmessage M {\n  string f = 1;\n}\n',
}

# a request, its version, the properties of its metadata (None: no metadata), and then the id, or the error;
# or for a look-up the version, and the properties of the metadata that are found
REQUESTS: list[tuple[str, int | None, dict[str, str] | None, Any]] = [
    ("register", None, None, 1),
    ("register", -1, None, 1),
    ("register", 2, None, 2),
    ("register", -1, None, 2),
    ("look up", None, None, (1, None)),
    ("look up", None, {"confluent:version": "1"}, (1, None)),
    ("look up", None, {"confluent:version": "2"}, (2, {"confluent:version": "2"})),
    ("delete", 1, None, 1),
    ("look up", None, None, (2, {"confluent:version": "2"})),
    ("register", None, None, 2),
    ("register", 3, None, 3),
    ("register", -1, None, 3),
    ("register", 3, None, 42201),
    ("register", 4, None, 4),
    ("look up", None, None, (4, {"confluent:version": "4"})),
    ("register", None, {"confluent:version": "-1"}, 5),
    ("look up", None, None, (5, {"confluent:version": "5"})),
    ("register", None, {"confluent:version": "2"}, 2),
    ("register", None, {"confluent:version": "3"}, 3),
    ("register", None, {"confluent:version": "0"}, 6),
    ("register", None, {}, 6),
    ("register", None, KEY, 7),
    ("look up", None, KEY, (7, KEY)),
    ("register", -1, None, 8),
    ("look up", -1, KEY, (7, KEY)),
    ("delete", 7, None, 7),
    ("look up", None, KEY, (8, KEY | {"confluent:version": "8"})),
    ("look up", None, {"other": "value"}, 40403),
]


def answered(registry: Asking, kind: str, request: str, version: int | None, properties: Any) -> Any:
    """Return what a request is answered, in the form of `REQUESTS`."""
    if request == "delete":
        return registry.delete(f"/subjects/s/versions/{version}").body
    body: dict[str, Any] = {"schema": TEXTS[kind], "schemaType": kind, "version": version}
    if properties is not None:
        body["metadata"] = {"properties": properties}
    answer = registry.ask("POST", "/subjects/s" + ("/versions" if request == "register" else ""), body)
    if answer.status != 200:
        return answer.code
    if request == "register":
        return answer.body["id"]
    return answer.body["version"], answer.body.get("metadata", {}).get("properties")


@pytest.mark.parametrize("kind", TEXTS)
def test_lookups_by_metadata_return_the_latest_matching_version(registry: Asking, kind: str) -> None:
    found = [(*each[:3], answered(registry, kind, *each[:3])) for each in REQUESTS]
    assert found == REQUESTS


def test_a_schema_that_differs_in_its_doc_is_not_found(registry: Asking) -> None:
    registry.register("s", record("R", ("f", "string")))
    assert registry.post("/subjects/s", record("R", ("f", "string"), doc="d"), version=-1).code == 40403


def test_a_schema_lookup_takes_missing_metadata_and_rules_from_the_latest_version(registry: Asking) -> None:
    rules = {"domainRules": [{"name": "r", "kind": "CONDITION", "type": "CEL", "mode": "WRITE", "expr": "true"}]}
    registry.register("s", record("R", ("f", "string")), metadata={"properties": {"a": "b"}}, ruleSet=rules)
    assert registry.post("/subjects/s", record("R", ("f", "string"))).body["version"] == 1
    assert registry.post("/subjects/s", record("R", ("f", "string")), ruleSet=rules).body["version"] == 1
    assert registry.post("/subjects/s", record("R", ("f", "string")), ruleSet={}).code == 40403


def test_the_schema_id_in_a_lookup_is_ignored(registry: Asking) -> None:
    registry.register("s", record("R", ("f", "string")))
    assert registry.post("/subjects/s", record("R", ("f", "string")), id=7).body["id"] == 1


def test_a_new_schema_cannot_refer_to_a_deleted_version(registry: Asking) -> None:
    base, references = record("Base", ("r", "Ref")), [{"name": "Ref", "subject": "ref", "version": 1}]
    registry.register("ref", record("Ref", ("id", "string")))
    assert registry.register("base", base, references=references).body["id"] == 2
    registry.delete("/subjects/base/versions/1")
    registry.delete("/subjects/ref/versions/1")
    assert registry.register("base", base, references=references).code == 42201
    assert registry.post("/compatibility/subjects/base/versions", base, references=references).code == 42201
    assert registry.post("/subjects/base?deleted=true", base, references=references).body["version"] == 1
    registry.delete("/subjects/ref/versions/1?permanent=true")
    assert registry.register("base", base, references=references).code == 42201


def test_an_imported_schema_may_have_deleted_references_and_invalid_defaults(registry: Asking) -> None:
    registry.register("ref", record("Ref", ("id", "string")))
    registry.delete("/subjects/ref/versions/1")
    registry.put("/mode/base", {"mode": "IMPORT"})
    base = record("Base", ("r", "Ref"))
    base["fields"].append({"name": "n", "type": "int", "default": "no number"})
    references = [{"name": "Ref", "subject": "ref", "version": 1}]
    assert registry.register("base", base, references=references, id=9, version=3).body["id"] == 9


def test_an_equal_schema_may_be_imported_as_several_versions(registry: Asking) -> None:
    registry.put("/mode", {"mode": "IMPORT"})
    for version in (1, 2, 1):
        assert registry.register("s", record("R", ("f", "string")), id=1, version=version).body["id"] == 1
    assert registry.get("/subjects/s/versions").body == [1, 2]
    assert registry.register("s", record("R", ("f", "string"))).body["id"] == 1
    assert registry.register("s", record("R", ("g", "string")), id=1, version=3).code == 42205


def test_a_schema_lookup_is_not_disturbed_by_schemas_of_other_contexts(registry: Asking) -> None:
    registry.register("a", record("A", ("f", "string")))
    registry.register(":.c:b", record("B", ("f", "string")))
    found = registry.post("/subjects/a", record("C"), references=[{"name": "A", "subject": "a", "version": 1}])
    assert found.code == 40403


def test_schemas_with_different_defaults_are_different(registry: Asking) -> None:
    def with_default(**default: Any) -> dict[str, Any]:
        return {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "string"], **default}]}

    for version, default in enumerate(({}, {"default": "x"}, {"default": None}), 1):
        assert registry.register("s", with_default(**default)).body["version"] == version
        found = registry.ask("POST", "/subjects/s", {"schema": json.dumps(with_default(**default))})
        assert found.body["version"] == version
