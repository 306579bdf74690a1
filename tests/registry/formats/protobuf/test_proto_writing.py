"""Canonical and normal texts of .proto files are Confluent's."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from minibroker.registry.formats.protobuf import parse
from minibroker.registry.formats.protobuf.confluent_meta import read_meta_options
from tests.cases import for_each

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
def test_a_canonical_protobuf_text_equals_a_recorded_one_of_confluent(text: str, canonical: str) -> None:
    assert parse(text, {}).canonical == canonical


def test_imports_follow_the_syntax_in_a_canonical_protobuf_text() -> None:
    money = 'syntax = "proto3"; package m; message Money { int64 cents = 1; }'
    order = parse(
        'syntax = "proto3"; import "money.proto"; message Order { m.Money price = 1; }', {"money.proto": money}
    )
    recorded = 'syntax = "proto3";\n\nimport "money.proto";\n\nmessage Order {\n  m.Money price = 1;\n}\n'
    assert order.canonical == recorded


def test_a_proto_file_keeps_its_canonical_and_its_normalized_text_when_parsed_again() -> None:
    schema = parse(FILE, {})
    assert schema.canonical == CANONICAL
    assert schema.get_normalized_text() == NORMAL
    for text in (CANONICAL, NORMAL):
        again = parse(text, {})
        assert again.canonical == text and again.get_normalized_text() == NORMAL


def test_a_schema_and_its_descriptor_have_the_same_normalized_text() -> None:
    schema = parse(FILE, {})
    described = parse(schema.get_text_in_format("serialized"), {})
    assert described.get_normalized_text() == schema.get_normalized_text()


def test_a_descriptor_has_only_confluents_options() -> None:
    text = """syntax = "proto3";
import "confluent/meta.proto";
message A {
  option (confluent.message_meta).doc = "d";
  int32 a = 1 [(confluent.field_meta).tags = "t", (.confluent.field_meta).tags = ["u"], (mine) = 1, deprecated = true];
  int32 b = 2 [(confluent.field_meta) = { params: [{ key: "z", value: 1 }, { key: "a" }], doc: { no: "text" } }];
  int32 c = 3 [(confluent.field_meta) = 5];
  enum E { option (confluent.enum_meta).doc = "e"; Z = 0 [(confluent.enum_value_meta).tags = "v"]; }
}
"""
    described = parse(parse(text, {}).get_text_in_format("serialized"), {})
    assert described.canonical == (
        """syntax = "proto3";

import "confluent/meta.proto";

message A {
  option (confluent.message_meta) = {
    doc: "d"
  };

  int32 a = 1 [
    deprecated = true,
    (confluent.field_meta) = {
      tags: [
        "t",
        "u"
      ]
    }
  ];
  int32 b = 2 [(confluent.field_meta) = {
    params: [
      {
        key: "z",
        value: "1"
      },
      {
        key: "a",
        value: ""
      }
    ]
  }];
  int32 c = 3;

  enum E {
    option (confluent.enum_meta) = {
      doc: "e"
    };
    Z = 0 [(confluent.enum_value_meta) = {
      tags: [
        "v"
      ]
    }];
  }
}
"""
    )


def test_a_foreign_option_with_the_number_of_confluents_meta_option_is_ignored() -> None:
    file = FileDescriptorProto(name="options", syntax="proto3")
    field = file.message_type.add(name="FieldOptions").field.add(name="mine", number=1088, label=1)
    field.type = Field.TYPE_BYTES
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    options = GetMessageClass(pool.FindMessageTypeByName("FieldOptions"))
    assert read_meta_options(options(mine=b"\xff")) == []


def test_names_are_looked_up_in_every_enclosing_package() -> None:
    text = """syntax = "proto3"; package confluent.events;
import "confluent/type/decimal.proto";
message A { type.Decimal a = 1; events.A b = 2; B c = 3; message B { A.B d = 1; } }
"""
    normal = parse(text, {}).get_normalized_text()
    types = [line.split()[0] for line in normal.splitlines() if "=" in line and "syntax" not in line]
    assert types == [".confluent.type.Decimal", ".confluent.events.A", *2 * [".confluent.events.A.B"]]


def test_nested_field_options_are_maps_in_normalized_form() -> None:
    text = """syntax = "proto3"; package m;
import "google/protobuf/descriptor.proto";
message O { P p = 1; P q = 2; } message P { string v = 1; int32 w = 2; }
extend google.protobuf.FieldOptions { O o = 10000; }
message A { int32 a = 1 [(o).q.v = "x", (o).p.w = 2]; }
"""
    schema = parse(text, {})
    assert '(o).q.v = "x",' in schema.canonical
    expected = """[(m.o) = {
    p: {
      w: 2
    },
    q: {
      v: "x"
    }
  }];"""
    assert expected in schema.get_normalized_text()


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
    assert schema.get_normalized_text() == (
        text.replace('syntax = "proto2";\n', "")
        .replace("extensions 100 to 199, 1000 to max;", "extensions 100 to 199;\n  extensions 1000 to max;")
        .replace("extend A", "extend .A")
        .replace("1.50", "1.5")
    )
    assert "ext" not in schema.get_text_in_format("ignore_extensions")
    assert schema.get_text_in_format("") == text


@for_each(
    ("number", "normal"),
    [("1.50", "1.5"), ("0x1F", "31"), ("-0", "0"), ("1e3", "1000"), ("0.0005", "0.001"), ("0.0015", "0.002"),
     ("-7", "-7"), ("010", "8"), ("-inf", "-inf"), ("10f", "10"), ("1.5d", "1.5"), ("1.2355", "1.235"),
     ("16777217.0", "16777216"), ("16777217.00000000", "16777217"), ("1e23", "99999997781963080000000"),
     ("1e39", "1" + 39 * "0"), ("0.12345678901234567", "0.123"), ("1_0", "1_0")],
)  # fmt: skip
def test_a_number_is_normalized_as_java_formats_it(number: str, normal: str) -> None:
    text = f'syntax = "proto3"; message A {{ int32 a = 1 [(o) = {number}]; }}'
    assert f"[(o) = {normal}]" in parse(text, {}).get_normalized_text()
