"""Canonical and normal texts of .proto files are Confluent's."""

from __future__ import annotations

import pytest

from minibroker.registry.formats.protobuf import parse

FILE = """// a file
syntax = "proto3"; package m;
import "google/protobuf/timestamp.proto"; import "confluent/meta.proto"; import 'google/protobuf/any.proto';
option java_package = "it's \\x41"; option (confluent.file_meta).doc = "d";
message A {
  reserved 7 to 9, 5, "x"; /* a
  comment */
  option deprecated = true;
  map<string, B> c = 2; B b = 1 [json_name = "q", deprecated = true];
  oneof o { string e = 4; int32 d = 3; }
  optional int32 f = 6 [(confluent.field_meta) = { tags: ["t"], params: { key: "k" value: "v" } }];
  message B { google.protobuf.Timestamp t = 1; enum E { Z = 0; } E z = 2; }
}
enum X { reserved 3; Q = 0; R = 0x1 [deprecated = true]; }
service S { rpc M (A) returns (stream A.B) { option deprecated = true; } }
"""
CANONICAL = """syntax = "proto3";
package m;

import "google/protobuf/timestamp.proto";
import "confluent/meta.proto";
import "google/protobuf/any.proto";

option java_package = "it\\'s A";
option (confluent.file_meta).doc = "d";

message A {
  reserved 7 to 9, 5, "x";

  option deprecated = true;

  map<string, B> c = 2;
  B b = 1 [
    deprecated = true,
    json_name = "q"
  ];
  optional int32 f = 6 [(confluent.field_meta) = {
    tags: [
      "t"
    ],
    params: {
      key: "k",
      value: "v"
    }
  }];

  oneof o {
    string e = 4;
    int32 d = 3;
  }

  message B {
    google.protobuf.Timestamp t = 1;
    E z = 2;
__
    enum E {
      Z = 0;
    }
  }
}
enum X {
  reserved 3;
  Q = 0;
  R = 1 [deprecated = true];
}

service S {
  rpc M (A) returns (stream A.B) {
    option deprecated = true;
  };
}
""".replace("__", "  ")  # Confluent indents empty lines
NORMAL = """syntax = "proto3";
package m;

import "confluent/meta.proto";
import "google/protobuf/any.proto";
import "google/protobuf/timestamp.proto";

option (confluent.file_meta) = {
  doc: "d"
};
option java_package = "it\\'s A";

message A {
  reserved 5;
  reserved 7 to 9;
  reserved "x";

  option deprecated = true;

  .m.A.B b = 1 [
    deprecated = true,
    json_name = "q"
  ];
  map<string, .m.A.B> c = 2;
  optional int32 f = 6 [(confluent.field_meta) = {
    params: {
      key: "k",
      value: "v"
    },
    tags: "t"
  }];

  oneof o {
    int32 d = 3;
    string e = 4;
  }

  message B {
    .google.protobuf.Timestamp t = 1;
    .m.A.B.E z = 2;
__
    enum E {
      Z = 0;
    }
  }
}
enum X {
  reserved 3;
  Q = 0;
  R = 1 [deprecated = true];
}

service S {
  rpc M (.m.A) returns (stream .m.A.B) {
    option deprecated = true;
  };
}
""".replace("__", "  ")


@pytest.mark.parametrize(
    ("text", "canonical"),
    [  # recorded of Confluent's registry
        (
            'syntax = "proto3";\nmessage User { int32 id = 1; }',
            'syntax = "proto3";\n\nmessage User {\n  int32 id = 1;\n}\n',
        ),
        (
            'syntax = "proto3"; package m; message Money { int64 cents = 1; }',
            'syntax = "proto3";\npackage m;\n\nmessage Money {\n  int64 cents = 1;\n}\n',
        ),
        ("message Empty {}", "\nmessage Empty {}\n"),
    ],
)  # fmt: skip
def test_a_canonical_text_is_the_recorded_one(text: str, canonical: str) -> None:
    assert parse(text, {}).canonical == canonical


def test_an_import_comes_after_the_syntax() -> None:
    money = 'syntax = "proto3"; package m; message Money { int64 cents = 1; }'
    order = parse(
        'syntax = "proto3"; import "money.proto"; message Order { m.Money price = 1; }', {"money.proto": money}
    )
    recorded = 'syntax = "proto3";\n\nimport "money.proto";\n\nmessage Order {\n  m.Money price = 1;\n}\n'
    assert order.canonical == recorded


def test_a_file_is_written_in_its_parts_and_normalized_in_order() -> None:
    schema = parse(FILE, {})
    assert schema.canonical == CANONICAL
    assert schema.normalized() == NORMAL
    for text in (CANONICAL, NORMAL):
        again = parse(text, {})
        assert again.canonical == text and again.normalized() == NORMAL


def test_a_descriptor_gives_the_same_normal_text() -> None:
    text = FILE.replace('option (confluent.file_meta).doc = "d";', "").replace(
        ' [(confluent.field_meta) = { tags: ["t"], params: { key: "k" value: "v" } }]', ""
    )
    schema = parse(text, {})
    described = parse(schema.formatted("serialized"), {})
    assert described.normalized() == schema.normalized()


def test_proto2_keeps_its_labels_defaults_groups_and_extensions() -> None:
    text = """syntax = "proto2";

message A {
  required int32 a = 1 [default = -5];
  optional string b = 2 [default = "x"];

  repeated group G = 3 {
    optional bool c = 4;
  }

  extensions 100 to 199, 1000 to max;
}

extend A {
  optional double d = 100 [(o) = 1.50];
}
"""
    schema = parse(text, {})
    assert schema.canonical == text
    assert schema.normalized() == (
        text.replace('syntax = "proto2";\n', "")
        .replace("extensions 100 to 199, 1000 to max;", "extensions 100 to 199;\n  extensions 1000 to max;")
        .replace("extend A", "extend .A")
        .replace("1.50", "1.5")
    )
    assert "ext" not in schema.formatted("ignore_extensions")
    assert schema.formatted("") == text


@pytest.mark.parametrize(
    ("number", "normal"),
    [("1.50", "1.5"), ("0x1F", "31"), ("-0", "0"), ("1e3", "1000"), ("0.0005", "0"), ("0.0015", "0.002"), ("-7", "-7"),
     ("010", "8"), ("-inf", "-inf")],
)  # fmt: skip
def test_a_number_is_normalized_as_java_formats_it(number: str, normal: str) -> None:
    text = f'syntax = "proto3"; message A {{ int32 a = 1 [(o) = {number}]; }}'
    assert f"[(o) = {normal}]" in parse(text, {}).normalized()
