"""Confluent's HTTP API: subjects, versions, ids, GUIDs, levels, modes, contexts and errors."""

from __future__ import annotations

import json
import re
import threading
from hashlib import md5
from typing import Any
from uuid import UUID

import pytest

from minibroker.registry.api.registry_application import BODY_BYTES_MAX
from minibroker.registry.formats.comparing_budget import ComparingBudget
from minibroker.registry.formats.schema import ParsedSchema
from minibroker.registry.state.schema_formats import CACHED_CHARACTERS, SchemaFormats
from minibroker.registry.state.schema_state import SchemaState
from tests.cases import for_each
from tests.registry.asking import V1, Asking, record

R1 = record("R", ("a", "int"))
R2 = record("R", ("a", "int"), ("b?", "int"))
R3 = record("R", ("a", "int"), ("c", "int"))


# --- registering --------------------------------------------------------------------------------


def test_equal_schemas_have_one_id_in_all_subjects(registry: Asking) -> None:
    assert registry.register("x", R1).body["id"] == 1
    assert registry.register("x", R2).body["id"] == 2
    found = registry.register("y", R2).body
    assert (found["id"], found["version"]) == (2, 1)
    assert registry.get("/schemas/ids/2/subjects").body == ["x", "y"]
    assert registry.get("/schemas/ids/2/versions").body == [
        {"subject": "x", "version": 2},
        {"subject": "y", "version": 1},
    ]
    assert registry.register("x", R1).body["version"] == 1


def test_a_schema_is_found_whatever_its_formatting(registry: Asking) -> None:
    registry.register("x", R1)
    text = json.dumps(dict(reversed(R1.items())), indent=2)
    answer = registry.ask("POST", "/subjects/x", {"schema": text})
    assert (answer.status, answer.body["version"], json.loads(answer.body["schema"])) == (200, 1, R1)
    assert registry.post("/subjects/x", R2).code == 40403
    assert registry.post("/subjects/nope", R1).code == 40401


def test_normalize_removes_insignificant_differences(registry: Asking) -> None:
    one, other = {**R1, "z": 1, "y": 2}, {**R1, "y": 2, "z": 1}
    assert registry.post("/subjects/x/versions?normalize=true", one).body["id"] == 1
    assert registry.post("/subjects/x/versions?normalize=true", other).body["id"] == 1
    registry.put("/config/y", {"normalize": True})
    assert registry.register("y", other).body["id"] == 1


def test_schemas_that_differ_only_in_the_order_of_properties_are_equal(registry: Asking) -> None:
    registry.register("x", {**R1, "z": 1, "y": 2})
    assert registry.register("x", {**R1, "y": 2, "z": 1}).body["version"] == 1


def test_a_deleted_schema_is_registered_again_with_its_id(registry: Asking) -> None:
    registry.register("x", R1)
    registry.delete("/subjects/x/versions/1")
    assert registry.get("/subjects/x/versions?deletedOnly=true").body == [1]
    found = registry.register("x", R1).body
    assert (found["id"], found["version"]) == (1, 2)
    assert registry.get("/subjects/x/versions?deleted=true").body == [2]


def test_deleted_subjects_are_listed_only_on_request(registry: Asking) -> None:
    registry.register("x", R1)
    registry.register("y", R1)
    registry.delete("/subjects/x")
    assert registry.get("/subjects").body == ["y"]
    assert registry.get("/subjects?deleted=true").body == ["x", "y"]
    assert registry.get("/subjects?deletedOnly=true").body == ["x"]
    assert registry.get("/schemas/ids/1").status == 200
    assert registry.get("/subjects/x/versions/latest").code == 40401
    assert registry.ask("POST", "/subjects/x?deleted=true", {"schema": json.dumps(R1)}).body["version"] == 1


def test_lists_are_paged_and_filtered_by_prefix(registry: Asking) -> None:
    for name in ("a1", "a2", "a3", "b"):
        registry.register(name, R1)
    assert registry.get("/subjects?subjectPrefix=a&offset=1&limit=1").body == ["a2"]
    assert [each["subject"] for each in registry.get("/schemas?subjectPrefix=a&limit=2").body] == ["a1", "a2"]


def test_a_subject_may_contain_a_slash(registry: Asking) -> None:
    assert registry.register("a%2Fb%20c", R1).status == 200
    assert registry.get("/subjects").body == ["a/b c"]
    assert registry.get("/subjects/a%2Fb%20c/versions").body == [1]


def test_references_to_the_latest_version_are_resolved(registry: Asking) -> None:
    registry.register("money", record("Money", ("cents", "long")))
    named = [{"name": "Money", "subject": "money", "version": -1}]
    registry.register("order", record("Order", ("price", "Money")), references=named)
    found = registry.get("/subjects/order/versions/1?format=resolved").body
    assert found["references"][0]["version"] == 1
    assert json.loads(found["schema"])["fields"][0]["type"]["name"] == "Money"
    resolved = record("Order", ("price", record("Money", ("cents", "long"))))
    assert registry.register("order", resolved).body["version"] == 1
    assert registry.delete("/subjects/money").code == 42206


@for_each(
    "wrong",
    [
        {"metadata": {"tags": 5}},
        {"metadata": {"tags": {"f": [5]}}},
        {"metadata": {"properties": {"owner": 5}}},
        {"metadata": {"sensitive": [5]}},
        {"ruleSet": {"domainRules": ["a"]}},
        {"ruleSet": {"domainRules": [{"name": 5}]}},
        {"ruleSet": {"domainRules": [{"tags": 5}]}},
        {"ruleSet": {"domainRules": [{"params": {"a": 5}}]}},
    ],
)
def test_metadata_and_rules_of_wrong_types_are_rejected(registry: Asking, wrong: dict[str, Any]) -> None:
    assert registry.register("x", R1, **wrong).code == 422
    default = {f"default{name[0].upper()}{name[1:]}": value for name, value in wrong.items()}
    assert registry.put("/config/x", default).code == 422
    assert registry.register("x", R1).status == 200


def test_schema_metadata_is_inherited_by_the_next_version(registry: Asking) -> None:
    metadata = {"properties": {"owner": "me"}, "tags": {"f": ["PII"]}}
    first = registry.register("x", R1, metadata=metadata).body
    assert first["metadata"] == metadata
    assert registry.register("x", R2).body["metadata"] == metadata
    assert registry.get("/subjects/x/metadata?key=owner&value=me").body["version"] == 2
    assert registry.get("/subjects/x/metadata?key=owner&value=you").code == 40403


# --- ids and GUIDs ------------------------------------------------------------------------------


def test_a_schema_is_found_by_its_guid(registry: Asking) -> None:
    guid = registry.register("x", R1).body["guid"]
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", guid)
    assert json.loads(registry.get(f"/schemas/guids/{guid}").body["schema"]) == R1
    assert registry.get(f"/schemas/guids/{guid}/ids").body == [{"context": ".", "id": 1}]
    assert registry.get("/schemas/guids/00000000-0000-0000-0000-000000000000").code == 40403


def test_a_guid_is_the_md5_of_text_and_references(registry: Asking) -> None:
    assert registry.register("x", "string").body["guid"] == _md5_guid(b'"string"')
    found = registry.register(
        "y", record("O", ("s", "string")), references=[{"name": "n", "subject": "x", "version": 1}]
    ).body
    assert found["guid"] == _md5_guid(found["schema"].encode() + b"nx\0\0\0\1")


def _md5_guid(data: bytes) -> str:
    return str(UUID(md5(data).hexdigest()))


def test_schema_ids_are_never_reused(registry: Asking) -> None:
    registry.register("x", R1)
    registry.delete("/subjects/x")
    registry.delete("/subjects/x?permanent=true")
    assert registry.get("/schemas/ids/1").body == {"error_code": 40403, "message": "Schema 1 not found"}
    assert registry.register("x", R1).body["id"] == 2
    assert registry.get("/schemas/ids/2?fetchMaxId=true").body["maxId"] == 2


# --- compatibility ------------------------------------------------------------------------------

LEVELS = {  # whether a field without a default may be added
    **dict.fromkeys(("NONE", "FORWARD", "FORWARD_TRANSITIVE"), True),
    **dict.fromkeys(("BACKWARD", "BACKWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"), False),
}


@pytest.mark.parametrize("level", LEVELS)
def test_the_compatibility_level_determines_which_schema_may_follow(registry: Asking, level: str) -> None:
    registry.put("/config", {"compatibility": "none"})
    registry.register("x", R1)
    registry.register("x", record("R", ("a", "int"), ("c?", "int")))
    assert registry.put("/config/x", {"compatibility": level}).body == {"compatibility": level}
    check = "/compatibility/subjects/x/versions"
    optional = record("R", ("a", "int"), ("c?", "int"), ("d?", "int"))
    mandatory = record("R", ("a", "int"), ("c?", "int"), ("e", "int"))
    for schema, verdict in ((optional, True), (mandatory, LEVELS[level])):
        assert registry.post(check, schema).body == {"is_compatible": verdict}
        assert registry.post(f"{check}/latest", schema).body == {"is_compatible": verdict}
        assert (registry.register("x", schema).status == 200) == verdict


def test_transitive_levels_compare_with_all_versions(registry: Asking) -> None:
    registry.put("/config/x", {"compatibility": "NONE"})
    one, two = record("R", ("a", "int")), record("R", ("a", ["int", "string"]))
    three = record("R", ("a", "string"))
    registry.register("x", one)
    registry.register("x", two)
    for level, verdict in (("FORWARD", True), ("FORWARD_TRANSITIVE", False)):
        registry.put("/config/x", {"compatibility": level})
        assert registry.post("/compatibility/subjects/x/versions", three).body == {"is_compatible": verdict}


def test_an_incompatible_verdict_contains_the_reason(registry: Asking) -> None:
    registry.register("x", R1)
    found = registry.post("/compatibility/subjects/x/versions/1?verbose=true", R3).body
    canonical = json.dumps(R1, separators=(",", ":"))
    assert found == {
        "is_compatible": False,
        "messages": [
            "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'c' at path '/fields/1' in the "
            "new schema has no default value and is missing in the old schema', additionalInfo:'c'}",
            "{oldSchemaVersion: 1}",
            f"{{oldSchema: '{canonical}'}}",
            "{validateFields: 'false', compatibility: 'BACKWARD'}",
        ],
    }
    refused = registry.register("x", R3)
    assert (refused.status, refused.code) == (409, 40901)
    assert refused.body["message"] == (
        'Schema being registered is incompatible with an earlier schema for subject "x", details: '
        f"[{', '.join(found['messages'])}]"
    )
    assert (
        registry.post("/compatibility/subjects/x/versions/latest?verbose=true", "nope").body["is_compatible"] is False
    )
    assert registry.post("/compatibility/subjects/none/versions/latest", R1).body == {"is_compatible": True}
    assert registry.post("/compatibility/subjects/x/versions/7", R1).code == 40402


def test_only_versions_of_the_same_compatibility_group_are_compared(registry: Asking) -> None:
    registry.put("/config/x", {"compatibilityGroup": "major"})
    registry.register("x", R1, metadata={"properties": {"major": "1"}})
    assert registry.register("x", R3, metadata={"properties": {"major": "2"}}).status == 200


# --- configs and modes --------------------------------------------------------------------------


def test_a_subject_has_the_global_config_until_it_has_its_own(registry: Asking) -> None:
    assert registry.get("/config").body == {"compatibilityLevel": "BACKWARD"}
    assert registry.get("/config/x").code == 40408
    registry.put("/config", {"compatibility": "FULL"})
    assert registry.get("/config/x?defaultToGlobal=true").body == {"compatibilityLevel": "FULL"}
    registry.put("/config/x", {"compatibility": "NONE"})
    assert registry.get("/config/x").body == {"compatibilityLevel": "NONE"}
    assert registry.delete("/config/x").body == {"compatibilityLevel": "NONE"}
    assert registry.delete("/config").body == {"compatibilityLevel": "FULL"}
    assert registry.get("/config").body == {"compatibilityLevel": "BACKWARD"}


def test_a_subject_may_be_an_alias(registry: Asking) -> None:
    registry.register("x", R1)
    registry.put("/config/other", {"alias": "x"})
    assert registry.get("/subjects/other/versions/latest").body["subject"] == "x"


def test_defaults_of_a_config_are_added_to_schemas(registry: Asking) -> None:
    registry.put("/config/x", {"defaultMetadata": {"properties": {"owner": "me"}}})
    assert registry.register("x", R1).body["metadata"] == {"properties": {"owner": "me"}}


def test_unsupported_settings_are_rejected(registry: Asking) -> None:
    answer = registry.put("/config", {"validateRules": True})
    assert (answer.status, answer.code) == (422, 422) and "validateRules" in answer.body["message"]


@pytest.mark.parametrize("mode", ["READONLY", "READONLY_OVERRIDE"])
def test_a_read_only_subject_rejects_changes(registry: Asking, mode: str) -> None:
    registry.register("x", R1)
    registry.put("/mode", {"mode": mode})
    assert registry.get("/mode/x?defaultToGlobal=true").body == {"mode": mode}
    assert registry.register("x", R1).status == 200
    for refused in (registry.register("x", R2), registry.delete("/subjects/x"), registry.put("/config/x", {})):
        assert refused.code == 42205
    registry.put("/mode/x", {"mode": "READWRITE"})
    assert (registry.register("x", R2).status == 200) == (mode == "READONLY")


def test_import_mode_keeps_the_given_ids_and_versions(registry: Asking) -> None:
    assert registry.register("x", R1, id=7).code == 42205
    registry.put("/mode/x", {"mode": "import"})
    assert registry.register("x", R1).code == 42205
    assert registry.register("x", R1, id=7, version=3).body["id"] == 7
    assert registry.register("x", R3, id=9, version=1).status == 200
    assert registry.get("/subjects/x/versions").body == [1, 3]
    assert registry.register("x", R2, id=7, version=4).code == 42205
    registry.put("/mode/x", {"mode": "READWRITE"})
    assert registry.register("y", R2).body["id"] == 10


def test_import_mode_requires_an_empty_registry(registry: Asking) -> None:
    registry.register("x", R1)
    assert registry.put("/mode/x", {"mode": "IMPORT"}).body["message"] == "Cannot import since found existing subjects"
    assert registry.put("/mode/x?force=true", {"mode": "IMPORT"}).status == 200
    registry.delete("/mode/x")
    registry.delete("/subjects/x")
    assert registry.put("/mode", {"mode": "IMPORT"}).status == 200
    assert registry.get("/subjects?deleted=true").body == []


# --- contexts -----------------------------------------------------------------------------------


def test_each_registry_context_has_schema_ids_of_its_own(registry: Asking) -> None:
    registry.register("x", R1)
    assert registry.register(":.c:y", R2).body["id"] == 1
    assert registry.ask("POST", "/contexts/.c/subjects/z/versions", {"schema": json.dumps(R3)}).body["id"] == 2
    assert registry.get("/contexts").body == [".", ".c"]
    assert registry.get("/subjects").body == [":.c:y", ":.c:z", "x"]
    assert registry.get("/contexts/.c/subjects").body == [":.c:y", ":.c:z"]
    assert json.loads(registry.get("/schemas/ids/1").body["schema"]) == R1
    assert json.loads(registry.get("/contexts/.c/schemas/ids/1").body["schema"]) == R2
    assert json.loads(registry.get("/schemas/ids/1?subject=:.c:").body["schema"]) == R2
    assert json.loads(registry.get("/schemas/ids/1?subject=y").body["schema"]) == R2
    assert registry.get("/subjects/y/versions/1").body["subject"] == ":.c:y"


def test_config_and_mode_of_a_context_apply_only_to_its_subjects(registry: Asking) -> None:
    registry.put("/contexts/.c/config", {"compatibility": "NONE"})
    registry.put("/mode/:.d:", {"mode": "READONLY"})
    assert registry.get("/config/:.c:x?defaultToGlobal=true").body == {"compatibilityLevel": "NONE"}
    assert registry.get("/config/x?defaultToGlobal=true").body == {"compatibilityLevel": "BACKWARD"}
    assert registry.register(":.d:x", R1).code == 42205
    assert registry.register("x", R1).status == 200


def test_an_empty_context_is_deleted(registry: Asking) -> None:
    registry.register(":.c:x", R1)
    assert registry.delete("/contexts/.c").code == 42211
    registry.delete("/contexts/.c/subjects/x")
    registry.delete("/contexts/.c/subjects/x?permanent=true")
    assert registry.delete("/contexts/.c").status == 204
    assert registry.get("/contexts").body == ["."]


# --- the server ---------------------------------------------------------------------------------

ERRORS: list[tuple[str, str, Any, int]] = [
    ("GET", "/nope", None, 404),
    ("PUT", "/subjects", None, 405),
    ("GET", "/schemas/ids/x", None, 404),
    ("GET", "/subjects/x/versions/0", None, 42202),
    ("GET", "/subjects/x/versions/one", None, 42202),
    ("GET", "/subjects/x/versions/9", None, 40402),
    ("GET", "/subjects/nope/versions", None, 40401),
    ("DELETE", "/subjects/nope", None, 40401),
    ("DELETE", "/config/nope", None, 40401),
    ("POST", "/subjects/x/versions", {"schema": "{"}, 42201),
    ("POST", "/subjects/x/versions", {"schema": ""}, 200),  # the version before
    ("POST", "/subjects/new/versions", {"schema": ""}, 42201),
    ("POST", "/subjects/x/versions", {"schema": "{}", "schemaType": "XML"}, 42201),
    ("POST", "/subjects/x/versions", {"schema": "{}", "references": [{"name": 1}]}, 422),
    ("POST", "/subjects/__GLOBAL/versions", {"schema": '"int"'}, 42208),
    ("PUT", "/config", {"compatibility": "some"}, 42203),
    ("PUT", "/mode", {"mode": "some"}, 42204),
    ("PUT", "/mode", [], 422),
]


@for_each(("method", "path", "body", "code"), ERRORS)
def test_errors_have_confluents_codes(registry: Asking, method: str, path: str, body: Any, code: int) -> None:
    registry.register("x", R1)
    answer = registry.ask(method, path, body)
    assert answer.kind == V1
    if code == 200:
        assert answer.status == 200
    else:
        assert (answer.status, answer.code) == (code if code < 1000 else code // 100, code)


def test_content_types_are_negotiated(registry: Asking) -> None:
    assert registry.ask("GET", "/subjects", headers={"Accept": "application/json"}).kind == "application/json"
    assert registry.ask("GET", "/subjects", headers={"Accept": f"{V1}, application/json"}).kind == V1
    assert registry.ask("GET", "/subjects", headers={"Accept": "text/html"}).status == 406
    assert registry.ask("PUT", "/mode", {"mode": "IMPORT"}, {"Content-Type": "text/plain"}).status == 415
    assert registry.ask("PUT", "/mode", headers={"Content-Type": "application/json"}, raw=b"{").code == 400


def test_numbers_and_strings_out_of_range_are_not_server_errors(registry: Asking) -> None:
    registry.register("x", R1)
    assert registry.get(f"/schemas/ids/{'1' * 5000}").status == 404
    assert registry.get(f"/subjects/x/versions/{'0' * 10}1{'1' * 5000}").status == 422
    surrogate = b'{"schema":"\\"int\\"","schemaType":"\\ud800"}'
    assert registry.ask("POST", "/subjects/x/versions", raw=surrogate).status == 400
    assert registry.register("z", {**R1, "doc": "\ud800"}).code == 42201
    pair = b'{"schema":"{\\"type\\":\\"int\\",\\"doc\\":\\"\\ud83d\\ude00\\"}"}'
    assert registry.ask("POST", "/subjects/y/versions", raw=pair).status == 200


def test_a_schema_that_refers_to_a_large_one_by_many_names_is_rejected(registry: Asking) -> None:
    registry.register("x", {**R1, "doc": "x" * 500_000})
    references = [{"name": f"R{number}", "subject": "x", "version": 1} for number in range(20)]
    assert "characters" in registry.register("y", "int", references=references).body["message"]
    assert registry.register("y", "int", references=references[:1]).status == 200


async def test_schemas_are_compared_outside_of_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def compare(reader: ParsedSchema, writer: ParsedSchema, budget: ComparingBudget) -> list[str]:
        threads.append(threading.current_thread())
        return []

    monkeypatch.setattr("minibroker.registry.formats.json_schema.list_incompatibilities", compare)
    formats = SchemaFormats()
    parsed = await formats.parse_schema(SchemaState(), "JSON", '{"oneOf":[{"const":1},{"const":2}]}', (), "x")
    assert await formats.list_incompatibilities("JSON", parsed, parsed) == []
    assert len(threads) == 1 and threads[0] is not threading.current_thread()


async def test_the_cache_of_parsed_schemas_is_bounded_by_size() -> None:
    formats = SchemaFormats()
    for number in range(5):
        text = json.dumps({**R1, "name": f"R{number}", "doc": "x" * (CACHED_CHARACTERS // 3)})
        for _ in range(2):
            await formats.parse_schema(SchemaState(), "AVRO", text, (), "x")
    assert len(formats._parsed) == 2 and formats._characters <= CACHED_CHARACTERS
    assert formats._characters == sum(len(key[1]) for key in formats._parsed)


def test_a_too_large_registry_request_or_schema_is_rejected(registry: Asking) -> None:
    assert registry.ask("POST", "/subjects/x/versions", raw=b" " * (BODY_BYTES_MAX + 1)).code == 413
    assert registry.register("x", {**R1, "doc": "x" * (1 << 20)}).code == 42209


def test_requests_of_pages_of_other_sites_are_rejected(registry: Asking) -> None:
    assert registry.ask("GET", "/subjects", headers={"Origin": "http://evil.example"}).status == 403


@pytest.mark.parametrize("host", ["evil.example:8081", "evil.example", "127.0.0.1.evil.example", "[", ""])
def test_requests_by_rebound_dns_names_are_rejected(registry: Asking, host: str) -> None:
    for method in ("GET", "DELETE"):
        headers = {"Host": host, "Origin": f"http://{host}"}
        assert registry.ask(method, "/subjects/x/versions", headers=headers).status == 403


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:8081"])
def test_requests_by_any_name_of_this_machine_are_accepted(registry: Asking, host: str) -> None:
    assert registry.ask("GET", "/subjects", headers={"Host": host}).status == 200


def test_the_cluster_and_the_schema_types_are_returned(registry: Asking) -> None:
    clusters = registry.get("/v1/metadata/id").body["scope"]["clusters"]
    assert clusters["schema-registry-cluster"] == "schema-registry" and clusters["kafka-cluster"]
    assert set(registry.get("/v1/metadata/version").body) == {"version", "commitId"}
    assert registry.get("/").body == {}
    assert sorted(registry.get("/schemas/types").body) == ["AVRO", "JSON", "PROTOBUF"]
    assert registry.get("/schemas/ids/1/schema").status == 404
    registry.register("x", R1)
    assert registry.get("/schemas/ids/1/schema").body == registry.get("/subjects/x/versions/1/schema").body == R1
