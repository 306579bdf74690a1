"""Lists: a part of them, of one context or of all, with aliases, by the type of their rules."""

from __future__ import annotations

from typing import Any

import pytest

from tests.registry.asking import Asking, record

A, B = record("A", ("f", "string")), record("B", ("f", "string"))


def names(registry: Asking, query: str) -> list[Any]:
    """Return the subjects of listed schemas, with their aliases."""
    return [(each["subject"], each.get("aliases")) for each in registry.get(f"/schemas?{query}").body]


def test_registry_lists_are_paged_by_offset_and_limit(registry: Asking) -> None:
    registry.register("a", A)
    registry.register("b", A)
    registry.register(":.c:a", A)
    registry.register("d", record("D", ("a", "A")), references=[{"name": "A", "subject": "a", "version": 1}])
    for path, whole in (
        ("/contexts", [".", ".c"]),
        ("/subjects", [":.c:a", "a", "b", "d"]),
        ("/schemas/ids/1/subjects", ["a", "b"]),
        ("/schemas/ids/1/versions", [{"subject": "a", "version": 1}, {"subject": "b", "version": 1}]),
        ("/subjects/a/versions", [1]),
        ("/subjects/a/versions/1/referencedby", [2]),
    ):
        assert registry.get(path).body == whole
        assert registry.get(f"{path}?limit=1").body == whole[:1]
        assert registry.get(f"{path}?offset=1&limit=-1").body == whole[1:]


def test_deleted_subjects_of_an_id_can_be_listed(registry: Asking) -> None:
    registry.register("a", A)
    registry.register("b", A)
    registry.delete("/subjects/b/versions/1")
    assert registry.get("/schemas/ids/1/subjects").body == ["a"]
    assert registry.get("/schemas/ids/1/versions?deleted=true&offset=1").body == [{"subject": "b", "version": 1}]


def test_a_subject_prefix_selects_one_context_unless_it_is_the_wildcard(registry: Asking) -> None:
    for subject in ("t1", ":.c:t1", ":.d:t2", ":.c:x"):
        registry.register(subject, A)
    for prefix, wanted in (
        ("", ["t1"]),
        (":.:", ["t1"]),
        (":.c:", [":.c:t1", ":.c:x"]),
        (":.c:t", [":.c:t1"]),
        (":*:", [":.c:t1", ":.c:x", ":.d:t2", "t1"]),
        (":*:t", [":.c:t1", ":.d:t2", "t1"]),
    ):
        assert registry.get(f"/subjects?subjectPrefix={prefix}").body == wanted, prefix
        assert names(registry, f"subjectPrefix={prefix}") == [(name, None) for name in wanted], prefix
    assert names(registry, "") == [("t1", None)]
    assert len(registry.get("/subjects").body) == 4


def test_schemas_are_listed_by_an_alias(registry: Asking) -> None:
    registry.register("testSubject", A)
    registry.register("other", B)
    registry.register(":.c:testSubject", B)
    for alias in ("testAlias", "testAlias2", ":.c:testAlias3"):
        registry.put(f"/config/{alias}", {"alias": "testSubject"})
    assert names(registry, "subjectPrefix=testAl") == []
    both = ("testSubject", ["testAlias", "testAlias2"])
    assert names(registry, "subjectPrefix=testAl&aliases=true") == [both]
    assert names(registry, "subjectPrefix=test&aliases=true") == [both]
    assert names(registry, "subjectPrefix=:*:&aliases=true") == [
        (":.c:testSubject", [":.c:testAlias3"]),
        ("other", None),
        both,
    ]


def test_an_alias_refers_to_a_subject_of_its_context(registry: Asking) -> None:
    registry.register("real", A)
    registry.register(":.c:real", B)
    registry.put("/config/al", {"alias": "real"})
    registry.put("/config/:.c:al", {"alias": "real"})
    registry.put("/config/:.d:al", {"alias": ":.c:real"})
    registry.put("/config", {"alias": "other"})
    assert registry.get("/schemas/ids/1?subject=al").body["subject"] == "real"
    assert registry.get("/subjects/:.c:al/versions/1").body["subject"] == ":.c:real"
    assert registry.get("/contexts/.d/subjects/al/versions/1").body["subject"] == ":.c:real"
    assert registry.get("/subjects/real/versions/1").body["subject"] == "real"


def test_schemas_are_listed_by_the_type_of_their_rules(registry: Asking) -> None:
    for field, kind in (("a", "CEL"), ("b", "CEL"), ("c", "JSONATA")):
        rules = [{"name": "r", "mode": "UPGRADE", "type": kind}]
        registry.register("s", record("R", (f"{field}?", "string")), ruleSet={"migrationRules": rules})
    versions = [each["version"] for each in registry.get("/schemas?ruleType=CEL").body]
    assert versions == [1, 2]
    assert registry.get("/schemas?ruleType=CEL&latestOnly=true").body == []
    assert [each["version"] for each in registry.get("/schemas?ruleType=JSONATA&latestOnly=true").body] == [3]


def test_references_are_returned_with_their_context_on_request(registry: Asking) -> None:
    registry.register(":.c:a", A)
    references = [{"name": "A", "subject": "a", "version": 1}]
    registry.register(":.c:d", record("D", ("a", "A")), references=references)
    for path in ("/schemas/ids/2?subject=:.c:d", "/subjects/:.c:d/versions/1?x="):
        assert registry.get(path).body["references"] == references
        shown = registry.get(f"{path}&referenceFormat=qualified").body["references"]
        assert shown == [{"name": "A", "subject": ":.c:a", "version": 1}]


@pytest.mark.parametrize("name", ["schemaTagsToAdd", "schemaTagsToRemove", "propagateSchemaTags"])
def test_requests_that_add_or_find_schema_tags_are_rejected(registry: Asking, name: str) -> None:
    assert registry.register("s", A, **{name: True})[:2] == (
        422,
        {"error_code": 422, "message": f"{name} is not supported here"},
    )
    assert registry.get("/schemas/ids/1?findTags=PII").code == 422


def test_the_deployment_metadata_has_no_attributes(registry: Asking) -> None:
    assert registry.get("/v1/metadata/deployment").body == {"attributes": []}
