"""A comparison has a budget of steps, and its answer one of changes, whatever the format."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from minibroker.registry.formats import avro, json_schema, protobuf
from minibroker.registry.formats.comparing_budget import (
    CHANGES,
    CHARACTERS,
    ComparingBudget,
    ComparisonTooLarge,
    describe_changes,
)
from minibroker.registry.formats.schema import InvalidSchema

DEPTH = 40  # with everything in it twice: 10 to the power of 12 times


def avro_doubling(leaf: str) -> Any:
    """Return a schema in which each record has the one before twice."""
    kind: Any = {"type": "record", "name": "R0", "fields": [{"name": "a", "type": leaf}]}
    for number in range(DEPTH):
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": f"R{number}"}]
        kind = {"type": "record", "name": f"R{number + 1}", "fields": fields}
    return avro.parse(json.dumps(kind), {})


def json_doubling(leaf: str, depth: int = DEPTH) -> Any:
    """Return a schema in which each object has the one before twice."""
    definitions: dict[str, Any] = {"d0": {"properties": {"a": {"type": leaf}}}}
    for number in range(depth):
        before = {"$ref": f"#/definitions/d{number}"}
        definitions[f"d{number + 1}"] = {"properties": {"a": before, "b": before}}
    return json_schema.parse(json.dumps({"definitions": definitions, "$ref": f"#/definitions/d{depth}"}), {})


def protobuf_doubling(leaf: str) -> Any:
    """Return a schema that uses another file's messages, each of which has the one before twice."""
    before = [leaf, *(f"M{number}" for number in range(DEPTH - 1))]
    messages = "".join(f"message M{n} {{ {name} a = 1; {name} b = 2; }}" for n, name in enumerate(before))
    use = f'syntax = "proto3"; import "m.proto"; message U {{ m.M{DEPTH - 1} a = 1; }}'
    return protobuf.parse(use, {"m.proto": f'syntax = "proto3"; package m; {messages}'})


@pytest.mark.parametrize(
    ("of", "module"), [(avro_doubling, avro), (json_doubling, json_schema)], ids=["Avro", "JSON Schema"]
)
def test_a_schema_with_exponential_repetition_is_compared_once(of: Callable[[str], Any], module: Any) -> None:
    budget = ComparingBudget()
    named = module.list_incompatibilities(of("string"), of("boolean"), budget)
    assert 100 < len(named) <= CHANGES + 1 and named[-1] == "and more than 999,999,000 more"
    assert budget.spent_steps < 100 * CHANGES


def test_a_protobuf_schema_with_exponential_repetition_is_rejected() -> None:
    with pytest.raises(ComparisonTooLarge, match="more than 50,000 steps"):
        protobuf.list_incompatibilities(
            protobuf_doubling("string"), protobuf_doubling("int32"), ComparingBudget(50_000)
        )


def test_the_number_of_changes_that_are_not_listed_is_reported() -> None:
    named = json_schema.list_incompatibilities(json_doubling("string", 12), json_doubling("number", 12))
    assert named[-1] == f"and {(1 << 12) - len(named) + 1:,} more"
    assert len(describe_changes(map(str, range(CHANGES + 2)), CHANGES + 2)) == CHANGES + 1


def test_long_incompatibilities_are_listed_up_to_a_total_length() -> None:
    named = json_schema.list_incompatibilities(json_doubling("string", 2000), json_doubling("number", 2000))
    assert CHARACTERS < sum(map(len, named)) < 2 * CHARACTERS and named[-1].startswith("and more than")


def union_of(count: int, kind: str) -> Any:
    """Return an Avro union of records."""
    records = [
        {"type": "record", "name": f"R{number}", "fields": [{"name": "a", "type": kind}]} for number in range(count)
    ]
    return avro.parse(json.dumps(records), {})


def test_unions_of_many_avro_records_are_compared_by_name() -> None:
    budget = ComparingBudget()
    assert avro.list_incompatibilities(union_of(1000, "int"), union_of(1000, "int"), budget) == []
    assert len(avro.list_incompatibilities(union_of(1000, "int"), union_of(1000, "string"), budget)) == 1000
    assert budget.spent_steps < 50_000


def test_an_avro_union_branch_is_compatible_with_one_that_has_its_name_as_an_alias() -> None:
    fields: list[Any] = []
    writer = [{"type": "record", "name": "n.A", "fields": fields}, {"type": "fixed", "name": "F", "size": 2}]
    reader = [{"type": "record", "name": "m.A", "fields": fields}, {"type": "fixed", "name": "G", "size": 2}]
    wanted = avro.parse(json.dumps(writer), {})
    assert len(avro.list_incompatibilities(avro.parse(json.dumps(reader), {}), wanted)) == 1  # F
    reader[1]["aliases"] = ["F"]
    assert avro.list_incompatibilities(avro.parse(json.dumps(reader), {}), wanted) == []


def test_a_comparison_that_nobody_waits_for_any_more_ends_at_its_next_step() -> None:
    budget = ComparingBudget()
    budget.stop_at_next_step()
    with pytest.raises(ComparisonTooLarge, match="Nobody waits"):
        avro.list_incompatibilities(union_of(3, "int"), union_of(3, "int"), budget)
    assert budget.spent_steps == 1


def test_too_deeply_nested_record_references_are_rejected() -> None:
    chain: list[Any] = [{"type": "record", "name": "R0", "fields": []}]
    for number in range(300):
        field = {"name": "a", "type": f"R{number}"}
        chain.append({"type": "record", "name": f"R{number + 1}", "fields": [field]})
    schema = avro.parse(json.dumps(chain), {})
    backwards = avro.parse(json.dumps(chain), {})
    backwards.type.branches = backwards.type.branches[::-1]
    with pytest.raises(ComparisonTooLarge, match="nested more than 200 deep"):
        avro.list_incompatibilities(schema, backwards)


def test_a_chain_of_references_is_followed_once() -> None:
    count = 3000
    definitions: dict[str, Any] = {f"d{n}": {"$ref": f"#/definitions/d{n + 1}"} for n in range(count)}
    properties = {f"p{n}": {"$ref": f"#/definitions/d{n}"} for n in range(count)}
    text = json.dumps({"definitions": definitions | {f"d{count}": {}}, "properties": properties})
    schema = json_schema.parse(text, {})
    assert json_schema.list_incompatibilities(schema, json_schema.parse(text, {})) == []
    assert all(each.target is schema.root.properties["p0"].target for each in schema.root.properties.values())


# --- what else a small schema could take --------------------------------------------------------


def test_defaults_of_nested_avro_records_are_checked_once() -> None:
    kind: Any = {"type": "record", "name": "R0", "fields": [{"name": "a", "type": "int", "default": 1}]}
    for number in range(DEPTH):
        fields = [{"name": "a", "type": kind, "default": {}}, {"name": "b", "type": f"R{number}", "default": {}}]
        kind = {"type": "record", "name": f"R{number + 1}", "fields": fields}
    assert avro.parse(json.dumps(kind), {}, check_defaults=True).get_normalized_text()


def test_defaults_of_many_values_and_many_branches_are_rejected() -> None:
    records: list[Any] = [
        {"type": "record", "name": f"R{n}", "fields": [{"name": "a", "type": "int"}]} for n in range(1000)
    ]
    records[-1]["fields"] = []  # the only one that a default is of
    field = {"name": "a", "type": {"type": "array", "items": records}, "default": [{}] * 1000}
    with pytest.raises(InvalidSchema, match="more than 500,000 values to be checked"):
        avro.parse(json.dumps({"type": "record", "name": "R", "fields": [field]}), {}, check_defaults=True)


@pytest.mark.parametrize("place", ["default", "other"])
def test_too_deeply_nested_values_make_a_schema_invalid(place: str) -> None:
    depth = 900 if sys.version_info < (3, 12) else 200_000  # later ones nest C deeper than code
    nested = "[" * depth + "]" * depth
    text = f'{{"type":"record","name":"R","fields":[{{"name":"a","type":"int","{place}":{nested}}}]}}'
    with pytest.raises(InvalidSchema, match="nested too deep"):
        assert avro.parse(text, {}).canonical


def test_too_deeply_nested_references_are_an_error() -> None:
    kind: Any = "int"
    texts = {}
    for part in range(4):
        for number in range(150):
            kind = {"type": "record", "name": f"R{part}_{number}", "fields": [{"name": "a", "type": kind}]}
        texts[str(part)], kind = json.dumps(kind), f"R{part}_149"
    schema = avro.parse(texts.pop("3"), texts)
    assert schema.canonical
    with pytest.raises(InvalidSchema, match="nested too deep"):
        schema.get_text_in_format("resolved")


def test_a_json_schema_with_a_long_id_and_many_anchors_is_rejected() -> None:
    url = "https://json-schema.org/draft/2020-12/schema"
    many: dict[str, Any] = {f"d{number}": {"$anchor": f"a{number}"} for number in range(100)}
    document = {"$schema": url, "$id": "http://a/" + "x" * 400_000, "$defs": many}
    with pytest.raises(InvalidSchema, match="too many long identifiers"):
        json_schema.parse(json.dumps(document), {})


def test_a_protobuf_package_name_is_bounded() -> None:
    def text(parts: int) -> str:
        return f'syntax = "proto3"; package {".".join("a" * parts)}; message M {{}}'

    assert protobuf.parse(text(100), {})
    with pytest.raises(InvalidSchema, match="more than 100 parts"):
        protobuf.parse(text(101), {})


def test_the_names_of_imported_files_are_collected_once(monkeypatch: pytest.MonkeyPatch) -> None:
    collected: list[str | None] = []
    from minibroker.registry.formats.protobuf import proto_names

    collect = proto_names._collect_names_of_file

    def counted(file: Any, **more: Any) -> Any:
        collected.append(file.package)
        return collect(file, **more)

    monkeypatch.setattr(proto_names, "_collect_names_of_file", counted)
    files = {f"f{n}.proto": f'syntax = "proto3"; package f{n}; message M {{}}' for n in range(30)}
    protobuf.parse('syntax = "proto3";' + "".join(f'import "{name}";' for name in files), files)
    assert len(collected) < 4 * len(files)
