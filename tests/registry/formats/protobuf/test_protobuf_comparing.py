"""Verdicts that others recorded of Confluent's registry, and what no recording has: oneofs as release 8.3 has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minibroker.registry.formats.comparing_budget import ComparisonTooLarge
from minibroker.registry.formats.protobuf import list_incompatibilities, parse
from minibroker.registry.formats.protobuf.protobuf_comparing import compare_files
from tests.cases import for_each

RECORDED = Path(__file__).parents[1] / "recorded" / "protobuf_changes.jsonl"
SYNTAX = 'syntax = "proto3";\n'


def changes(original: str, update: str, imports: tuple[dict[str, str], dict[str, str]] = ({}, {})) -> list[str]:
    """Return the changes between two schemas, as the recordings write them."""
    before, after = parse(original, imports[0]), parse(update, imports[1])
    found = compare_files(before.file, before.names, after.file, after.names)
    return [f"{change.kind} {change.place}" for change in found]


def test_protobuf_changes_and_verdicts_equal_recorded_ones_of_confluent() -> None:
    for line in RECORDED.read_text().splitlines():
        case = json.loads(line)
        imports = case.get("from_imports", {}), case.get("to_imports", {})
        if case["changes"] is not None:
            assert changes(case["from"], case["to"], imports) == case["changes"], case
        reader, writer = parse(case["to"], imports[1]), parse(case["from"], imports[0])
        assert (list_incompatibilities(reader, writer) == []) == case["compatible"], case


@for_each(
    ("before", "after", "found", "compatible"),
    [
        # between two oneofs
        (
            "oneof x { int32 a = 1; int32 b = 2; } oneof y { int32 c = 3; }",
            "oneof x { int32 a = 1; } oneof y { int32 b = 2; int32 c = 3; }",
            ["FIELD_MOVED_TO_EXISTING_ONEOF y"],
            False,
        ),
        (  # all of one join the other
            "oneof x { int32 a = 1; } oneof y { int32 b = 2; }",
            "oneof y { int32 a = 1; int32 b = 2; }",
            ["FIELD_MOVED_TO_EXISTING_ONEOF y", "ONEOF_REMOVED x"],
            False,
        ),
        (  # two become a new one
            "oneof x { int32 a = 1; } oneof y { int32 b = 2; }",
            "oneof z { int32 a = 1; int32 b = 2; }",
            ["FIELD_MOVED_TO_EXISTING_ONEOF z", "ONEOF_REMOVED x", "ONEOF_REMOVED y", "ONEOF_ADDED z"],
            False,
        ),
        (  # one is split
            "oneof x { int32 a = 1; int32 b = 2; }",
            "oneof x { int32 a = 1; } oneof y { int32 b = 2; int32 c = 3; }",
            ["ONEOF_ADDED y", "ONEOF_FIELD_ADDED y/3"],
            True,
        ),
        # renamed
        ("oneof x { int32 a = 1; }", "oneof y { int32 a = 1; }", ["ONEOF_REMOVED x", "ONEOF_ADDED y"], True),
        (
            "oneof x { int32 a = 1; int32 b = 2; }",
            "oneof y { int32 a = 1; }",
            ["ONEOF_REMOVED x", "ONEOF_ADDED y", "ONEOF_FIELD_REMOVED x/2"],
            False,
        ),
        (
            "oneof x { int32 a = 1; }",
            "oneof y { string a = 1; }",
            ["ONEOF_REMOVED x", "ONEOF_ADDED y", "FIELD_SCALAR_KIND_CHANGED y/1"],
            False,
        ),
        # gone
        ("int32 c = 3; oneof x { int32 a = 1; int32 b = 2; }", "int32 c = 3;", ["ONEOF_REMOVED x"], True),
        ("oneof x { int32 a = 1; int32 b = 2; }", "oneof x { int32 a = 1; }", ["ONEOF_FIELD_REMOVED x/2"], False),
        # out of a oneof
        (
            "oneof x { int32 a = 1; int32 b = 2; }",
            "int32 a = 1; oneof x { int32 b = 2; }",
            ["ONEOF_FIELD_MOVED_TO_TOP_LEVEL 1"],
            True,
        ),
        (
            "oneof x { int32 a = 1; int32 b = 2; }",
            "string a = 1; int32 b = 2;",
            [
                "ONEOF_REMOVED x",
                "ONEOF_FIELD_MOVED_TO_TOP_LEVEL 1",
                "FIELD_SCALAR_KIND_CHANGED 1",
                "ONEOF_FIELD_MOVED_TO_TOP_LEVEL 2",
            ],
            False,
        ),
        (  # and the others are gone
            "oneof x { int32 a = 1; int32 b = 2; }",
            "int32 a = 1;",
            ["ONEOF_REMOVED x", "ONEOF_FIELD_MOVED_TO_TOP_LEVEL 1", "ONEOF_FIELD_REMOVED x/2"],
            False,
        ),
        # into a oneof
        ("int32 a = 1;", "oneof x { int32 a = 1; }", ["ONEOF_ADDED x"], True),
        (
            "int32 a = 1;",
            "oneof x { int32 a = 1; int32 b = 2; }",
            ["ONEOF_ADDED x", "ONEOF_FIELD_ADDED x/2"],
            True,
        ),
        (
            "int32 a = 1; oneof x { int32 b = 2; }",
            "oneof x { int32 a = 1; int32 b = 2; }",
            ["FIELD_MOVED_TO_EXISTING_ONEOF x"],
            False,
        ),
        (
            "int32 a = 1; oneof x { int32 b = 2; }",
            "oneof y { int32 a = 1; int32 b = 2; }",
            ["FIELD_MOVED_TO_EXISTING_ONEOF y", "ONEOF_REMOVED x", "ONEOF_ADDED y"],
            False,
        ),
        (
            "int32 a = 1; int32 b = 2;",
            "oneof x { int32 a = 1; int32 b = 2; }",
            ["MULTIPLE_FIELDS_MOVED_TO_ONEOF x", "ONEOF_ADDED x"],
            False,
        ),
        ("int32 a = 1;", "oneof x { string a = 1; }", ["ONEOF_ADDED x", "FIELD_SCALAR_KIND_CHANGED x/1"], False),
    ],
)
def test_changes_of_protobuf_fields_and_oneofs_are_compared(
    before: str, after: str, found: list[str], compatible: bool
) -> None:
    original, update = (f"{SYNTAX}message A {{ {each} }}" for each in (before, after))
    assert changes(original, update) == [each.replace(" ", " #/A/") for each in found]
    assert (list_incompatibilities(parse(update, {}), parse(original, {})) == []) is compatible


def test_a_changed_package_is_incompatible() -> None:
    before, after = (parse(f"{SYNTAX}package {name}; message A {{ }}", {}) for name in ("p", "q"))
    assert list_incompatibilities(after, before) == [
        '{errorType:"PACKAGE_CHANGED", description:"The package at \'#/\' in the %s schema does not match the package '
        'in the %s schema"}'
    ]
    assert list_incompatibilities(before, before) == []


def test_a_map_is_equal_in_a_text_and_in_a_descriptor() -> None:
    schema = parse(SYNTAX + "package p; message A { map<string, A> as = 1; map<int32, bytes> b = 2; }", {})
    described = parse(schema.get_text_in_format("serialized"), {})
    assert "AsEntry" in described.canonical
    assert list_incompatibilities(described, schema) == list_incompatibilities(schema, described) == []


def test_mutually_referring_messages_of_other_files_are_compared_once() -> None:
    use = SYNTAX + 'import "m.proto"; message U { m.A a = 1; }'
    other = SYNTAX + "package m; message A { B b = 1; } message B { A a = 1; int32 c = 2; }"
    before, after = parse(use, {"m.proto": other}), parse(use, {"m.proto": other.replace("int32", "string")})
    assert list_incompatibilities(before, before) == []
    assert any("FIELD_SCALAR_KIND_CHANGED" in sentence for sentence in list_incompatibilities(after, before))


def test_messages_of_protobuf_incompatibilities_equal_confluents() -> None:
    before, after = parse(SYNTAX + "message A { int32 a = 1; }", {}), parse(SYNTAX + "message B { string a = 1; }", {})
    assert list_incompatibilities(after, before) == [
        '{errorType:"MESSAGE_REMOVED", description:"The %s schema is missing a MESSAGE type at path '
        "'#/A' in the %s schema\"}"
    ]


def test_comparisons_of_too_large_protobuf_schemas_are_rejected() -> None:
    fields = " ".join(f"M{number} f{number} = {number + 1};" for number in range(100))
    messages = "\n".join(f"message M{number} {{ {fields} }}" for number in range(100))
    other = f"{SYNTAX}package m;\n{messages}"
    schema = parse(SYNTAX + 'import "m.proto"; message U { m.M0 a = 1; }', {"m.proto": other})
    with pytest.raises(ComparisonTooLarge, match="too large"):
        list_incompatibilities(schema, schema)
