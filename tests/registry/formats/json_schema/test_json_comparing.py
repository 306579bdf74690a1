"""Verdicts that others recorded of Confluent's registry, and what no recording has: what is new in release 8.3."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from minibroker.registry.formats.comparing_budget import ChangesBelow, ComparingBudget
from minibroker.registry.formats.json_schema import list_incompatibilities, parse
from minibroker.registry.formats.json_schema.json_changes import STRICT, ChangePart, SchemaChange
from minibroker.registry.formats.json_schema.json_comparing import SchemaComparison
from tests.cases import for_each

RECORDED = Path(__file__).parents[1] / "recorded" / "json_schema_changes.jsonl"


def recorded() -> list[dict[str, Any]]:
    """Return the recorded cases."""
    return [json.loads(line) for line in RECORDED.read_text().splitlines()]


def changes(original: Any, update: Any) -> list[str]:
    """Return the changes between two schemas, as the recordings write them."""
    before, after = parse(json.dumps(original), {}), parse(json.dumps(update), {})
    found = SchemaComparison(STRICT, ComparingBudget()).compare_all(before.root, after.root)
    return [f"{change.kind} {change.place}" for change in flat([found])]


def flat(parts: Sequence[ChangePart], path: tuple[str, ...] = ()) -> Iterator[SchemaChange]:
    """Yield all changes, compatible ones too."""
    for part in parts:
        if isinstance(part, SchemaChange):
            yield SchemaChange(part.kind, path + part.path)
        else:
            yield from flat(part.parts, (*path, part.step) if isinstance(part, ChangesBelow) else path)


def verdict(original: Any, update: Any) -> list[str]:
    """Return why a reader with the update cannot read what was written with the original."""
    return list_incompatibilities(parse(json.dumps(update), {}), parse(json.dumps(original), {}))


def modern(schema: Any) -> Any:
    """Return a schema in the words of draft 2020-12."""
    if isinstance(schema, list):
        return [modern(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {name: modern(value) for name, value in schema.items()}
    if isinstance(schema.get("items"), list):
        result["prefixItems"] = result.pop("items")
        if "additionalItems" in result:
            result["items"] = result.pop("additionalItems")
    for name, value in result.pop("dependencies", {}).items():
        keyword = "dependentRequired" if isinstance(value, list) else "dependentSchemas"
        result.setdefault(keyword, {})[name] = value
    return result


def test_json_schema_changes_equal_recorded_ones_of_confluent() -> None:
    wrong = [
        (case, found)
        for case in recorded()
        if (found := changes(case["from"], case["to"])) != case["changes"]
        or (verdict(case["from"], case["to"]) == []) != case["compatible"]
    ]
    assert not wrong, wrong


def test_json_schema_2020_12_changes_equal_recorded_ones_of_confluent() -> None:
    url = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    for case in recorded():
        if case.get("modern", True):
            before, after = url | modern(case["from"]), url | modern(case["to"])
            if after != url:
                assert changes(before, after) == case["changes"], case


def test_an_object_without_properties_accepts_any_value_in_draft_2020_12() -> None:
    anything = {"$schema": "https://json-schema.org/draft/2020-12/schema", "properties": {}}
    assert changes(anything | {"additionalProperties": False}, anything) == []


KINDS = ["Asset", "Basket", "Bond", "Equity", "Forward", "Future", "Index", "Loan", "Option", "Repo", "Swap", "Trade"]


def trade(identity: str) -> dict[str, Any]:
    """Return a schema of twelve kinds of objects, each of which may contain any other; one has an id of this type."""
    any_kind = {"oneOf": [{"$ref": f"#/definitions/{kind}"} for kind in KINDS]}
    definitions: dict[str, Any] = {
        kind: {"type": "object", "properties": {"id": {"type": "string"}, "a": any_kind, "b": any_kind}}
        for kind in KINDS
    }
    definitions["Asset"]["properties"]["id"] = {"type": identity}
    return {"type": "object", "definitions": definitions, "properties": {"product": any_kind}}


def test_a_large_reference_cycle_is_compared_completely() -> None:
    assert verdict(trade("string"), trade("string")) == []
    assert verdict(trade("string"), trade("number"))


def test_a_change_behind_a_cycle_of_references_is_found() -> None:
    def circle(first: str, second: str) -> dict[str, Any]:
        def one(identity: str, next: str) -> dict[str, Any]:
            ref = {"oneOf": [{"$ref": f"#/definitions/{next}"}]}
            return {"type": "object", "properties": {"id": {"type": identity}, "ref": ref}}

        parts = {"A": one(first, "C"), "B": one(second, "C"), "C": one("integer", "A")}
        either = {"oneOf": [{"$ref": "#/definitions/A"}, {"$ref": "#/definitions/B"}]}
        return {"type": "object", "definitions": parts, "properties": {"root": either}}

    assert verdict(circle("integer", "boolean"), circle("boolean", "number"))


def test_a_lenient_reader_ignores_unnamed_properties() -> None:
    described: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}
    more = described | {"properties": {"a": {"type": "string"}, "b": {"type": "number"}}}
    only_texts = {"additionalProperties": {"type": "string"}}
    pairs = [
        (described, more),  # a property added to an open content model
        (described, described | {"additionalProperties": False}),
        (described, described | only_texts),
    ]
    for original, update in pairs:
        writer, reader = parse(json.dumps(original), {}), parse(json.dumps(update), {})
        assert list_incompatibilities(reader, writer) != [] == list_incompatibilities(reader, writer, lenient=True), (
            update
        )
    within = {"type": "object", "properties": {"o": {"oneOf": [described]}}}
    wider = {"type": "object", "properties": {"o": {"oneOf": [more]}}}
    writer, reader = parse(json.dumps(within), {}), parse(json.dumps(wider), {})
    assert list_incompatibilities(reader, writer) != [] == list_incompatibilities(reader, writer, lenient=True)
    reader, writer = (parse(json.dumps(each | only_texts), {}) for each in (more, described))
    assert list_incompatibilities(reader, writer, lenient=True)  # the new property is no text


OPEN, CLOSED = True, False
NEEDS, NEEDS_WITH_DEFAULT, MAY_HAVE = "required", "required with a default", "optional"


@for_each(
    ("model", "what", "added", "removed"),  # whether a strict and a lenient reader reads what was written before
    [
        (OPEN, NEEDS, (False, False), (True, True)),
        (OPEN, NEEDS_WITH_DEFAULT, (False, True), (True, True)),
        (OPEN, MAY_HAVE, (False, True), (True, True)),
        (CLOSED, NEEDS, (False, False), (False, True)),
        (CLOSED, NEEDS_WITH_DEFAULT, (True, True), (False, True)),
        (CLOSED, MAY_HAVE, (True, True), (False, True)),
    ],
)
def test_property_changes_depend_on_content_model_and_policy(
    model: bool, what: str, added: tuple[bool, bool], removed: tuple[bool, bool]
) -> None:
    kind = {"type": "string"} | ({"default": "x"} if what == NEEDS_WITH_DEFAULT else {})
    without = {"type": "object", "additionalProperties": model, "properties": {"a": {"type": "string"}}}
    having = without | {"properties": {"a": {"type": "string"}, "b": kind}, "required": ["b"] * (what != MAY_HAVE)}
    fewer, more = parse(json.dumps(without), {}), parse(json.dumps(having), {})
    for reader, writer, verdicts in ((more, fewer, added), (fewer, more, removed)):
        assert (list_incompatibilities(reader, writer) == []) is verdicts[0]
        assert (list_incompatibilities(reader, writer, lenient=True) == []) is verdicts[1]


NUMBER_AND_TEXT = [{"type": "number"}, {"type": "string"}]
TEXT = NUMBER_AND_TEXT[1:]


@for_each(
    ("before", "after", "found"),
    [
        ({"allOf": NUMBER_AND_TEXT}, {"anyOf": TEXT}, ["COMBINED_TYPE_EXTENDED #/", "PRODUCT_TYPE_NARROWED #/"]),
        ({"allOf": NUMBER_AND_TEXT}, {"oneOf": TEXT}, ["COMBINED_TYPE_EXTENDED #/", "PRODUCT_TYPE_NARROWED #/"]),
        ({"allOf": NUMBER_AND_TEXT}, {"oneOf": NUMBER_AND_TEXT}, ["COMBINED_TYPE_CHANGED #/"]),
        ({"anyOf": TEXT}, {"allOf": TEXT}, ["COMBINED_TYPE_EXTENDED #/"]),
        ({"anyOf": TEXT}, {"oneOf": NUMBER_AND_TEXT}, ["COMBINED_TYPE_EXTENDED #/", "SUM_TYPE_EXTENDED #/"]),
        ({"oneOf": NUMBER_AND_TEXT}, {"anyOf": TEXT}, ["COMBINED_TYPE_EXTENDED #/", "SUM_TYPE_NARROWED #/"]),
        ({"anyOf": NUMBER_AND_TEXT}, {"allOf": TEXT}, ["COMBINED_TYPE_CHANGED #/"]),
        ({"anyOf": NUMBER_AND_TEXT}, {"oneOf": TEXT}, ["COMBINED_TYPE_CHANGED #/"]),
    ],
)
def test_changes_between_all_of_any_of_and_one_of_are_compared(before: Any, after: Any, found: list[str]) -> None:
    assert changes(before, after) == found
    survived = {"COMBINED_TYPE_EXTENDED #/", "PRODUCT_TYPE_NARROWED #/", "SUM_TYPE_EXTENDED #/"}
    assert (verdict(before, after) == []) == (set(found) <= survived)
