"""What is no .proto file is refused, and well-known files need no reference."""

from __future__ import annotations

import base64

import pytest

from minibroker.registry.formats.protobuf import parse
from minibroker.registry.formats.schema import InvalidSchema
from tests.cases import for_each

SYNTAX = 'syntax = "proto3";\n'


@for_each(
    "text",
    [
        "nothing",
        '{"type":"string"}',
        "message A { int32 a = 1; }",
        SYNTAX + "message A { required int32 a = 1; }",
        SYNTAX + "message A { int32 a = 1; string b = 1; }",
        SYNTAX + "message A { Unknown a = 1; }",
        SYNTAX + "message A { int32 1a = 1; }",
        SYNTAX + "message A { int32 a = 99999999999; }",
        SYNTAX + "message A { int32 a = 0; }",
        SYNTAX + "message A { repeated map<string, int32> a = 1; }",
        SYNTAX + "message A { } message A { }",
        SYNTAX + "message A { ",
        SYNTAX + "/* never closed",
        SYNTAX + "/",
        SYNTAX + 'option a = "never closed',
        SYNTAX + 'option a = "\\',
        SYNTAX + 'option java_package = "\\xzz";',
        SYNTAX + 'message A { reserved "a" b; }',
        SYNTAX + "message A { reserved 1 to min; }",
        SYNTAX + "enum E { }",
        SYNTAX + "option optimize_for = NOTHING;",
        SYNTAX + "option java_package = 5;",
        SYNTAX + 'import "unknown.proto"; message A { unknown.B b = 1; }',
        "message A {} " + SYNTAX,
        'syntax = "proto4";',
        'edition = "2023";',
        SYNTAX + "message A {" * 200 + "}" * 200,
        SYNTAX + "option (o) = " + "[" * 100_000,
        SYNTAX + "option (o) = " + "{a:" * 100_000,
        SYNTAX + " " * (1 << 20),
        base64.b64encode(b"\x0a\xff\xff").decode(),
    ],
)  # fmt: skip
def test_an_invalid_proto_file_is_rejected(text: str) -> None:
    with pytest.raises(InvalidSchema):
        parse(text, {})


def test_an_unknown_type_is_named_in_the_error() -> None:
    with pytest.raises(InvalidSchema, match="^Could not resolve type: Nope$"):
        parse('syntax = "proto3"; message A { int32 a = 1; Nope b = 2; }', {})


def test_a_syntax_error_has_its_position() -> None:
    with pytest.raises(InvalidSchema, match=r"Could not parse Protobuf - Syntax error in :3:15: expected '=' but"):
        parse(SYNTAX + "message A {\n   int32 some;\n}", {})


def test_files_that_import_each_other_are_invalid() -> None:
    text = SYNTAX + 'import "{}"; message {} {{ }}'
    with pytest.raises(InvalidSchema, match="imports itself"):
        parse(text.format("a", "C"), {"a": text.format("b", "A"), "b": text.format("a", "B")})


def test_well_known_files_need_no_reference() -> None:
    imports = {
        "google/protobuf/timestamp.proto": "google.protobuf.Timestamp",
        "google/protobuf/descriptor.proto": "google.protobuf.FileOptions",
        "google/type/date.proto": "google.type.Date",
        "confluent/meta.proto": "confluent.Meta",
        "confluent/type/decimal.proto": "confluent.type.Decimal",
    }
    lines = [f'import "{name}";\n' for name in imports]
    fields = [f"{type_name} f{number} = {number};\n" for number, type_name in enumerate(imports.values(), 1)]
    schema = parse(f"{SYNTAX}{''.join(lines)}message A {{\n{''.join(fields)}}}", {})
    assert ".confluent.type.Decimal f5 = 5;" in schema.get_normalized_text()
    assert [field.number for field in schema.descriptor.message_types_by_name["A"].fields] == [1, 2, 3, 4, 5]


def test_public_imports_make_types_visible() -> None:
    references = {
        "a.proto": SYNTAX + "package a; message A { }",
        "b.proto": SYNTAX + 'import public "a.proto"; message B { a.A a = 1; }',
    }
    schema = parse(SYNTAX + 'import "b.proto"; message C { a.A a = 1; B b = 2; }', references)
    assert ".a.A a = 1;" in schema.get_normalized_text()


def test_a_long_file_is_parsed_in_linear_time() -> None:
    messages = "".join(f"message M{number} {{ optional int32 a = 1; }}\n" for number in range(4000))
    values = "a: 1 " * 20_000
    schema = parse(f"{SYNTAX}option (o) = {{ {values} }};\n{messages}", {})
    assert len(schema.file.types) == 4000 and len(schema.file.options[0].value["a"]) == 20_000
