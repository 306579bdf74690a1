"""What serializers write is read again, by the ids in front of it or in headers, and what is damaged is refused."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pytest
from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as some

from minibroker.protocol.records.varints import encode_zigzag
from minibroker.registry.formats import avro, decoding_budget, format_decoding, json_schema, protobuf
from minibroker.registry.formats.avro.avro_reading import read_avro
from minibroker.registry.formats.format_decoding import (
    KEY_HEADER,
    MANY_VALUES,
    VALUE_HEADER,
    FramedData,
    decode_framed_data,
    read_schema_id,
)
from minibroker.registry.formats.protobuf import protobuf_decoding
from minibroker.registry.formats.protobuf.protobuf_decoding import (
    check_number_of_values,
    find_message,
    read_message_indexes,
)
from minibroker.registry.formats.schema import InvalidData
from tests.cases import for_each

GUID = UUID("89791762-2336-4186-9674-299b90a802e2")


def encode_message_indexes(indexes: Sequence[int]) -> bytes:
    """Return the form of indexes that choose a message."""
    return b"\0" if list(indexes) == [0] else b"".join(map(encode_zigzag, (len(indexes), *indexes)))


def test_an_id_or_guid_precedes_the_data_or_is_in_a_header() -> None:
    assert read_schema_id(b"\0\0\0\1\2data") == FramedData(258, b"data")
    assert read_schema_id(b"\1" + GUID.bytes + b"data") == FramedData(GUID, b"data")
    headers = [("other", None), (VALUE_HEADER, b"\1" + GUID.bytes), (KEY_HEADER, b"\0\0\0\0\7")]
    assert read_schema_id(b"data", headers) == FramedData(GUID, b"data", b"")
    assert read_schema_id(b"data", headers, is_key=True) == FramedData(7, b"data", b"")
    assert read_schema_id(b"\0\0\0\0\5data", [(VALUE_HEADER, None), (VALUE_HEADER, b"?")]) == FramedData(5, b"data")


@for_each("data", [None, b"", b"\0\0\0\1", b"{}", b"\1" + bytes(15), b"\2" + bytes(20)])
def test_data_without_a_schema_id_is_recognized(data: bytes | None) -> None:
    assert read_schema_id(data) is None


def test_json_data_is_decoded() -> None:
    schema = json_schema.parse('{"type":"object"}', {})
    assert decode_framed_data("JSON", schema, FramedData(1, '{"a":[1,2.5,"é"]}'.encode())) == {"a": [1, 2.5, "é"]}
    for data in (b"", b"{", b"\xff", b"[" * 100_000):
        with pytest.raises(InvalidData):
            decode_framed_data("JSON", schema, FramedData(1, data))


PROTO = """syntax = "proto3"; package p;
import "google/protobuf/timestamp.proto";
message First { int32 a = 1; }
message Second {
  map<string, Inner> inners = 1; repeated int64 numbers = 2; bytes raw = 3; E e = 4;
  oneof choice { string text = 5; int32 number = 6; } optional bool flag = 7;
  google.protobuf.Timestamp at = 8; double real = 9;
  message Other { } message Inner { string name = 1; }
  enum E { ZERO = 0; ONE = 1; }
}
"""


def written(schema: protobuf.ProtobufSchema, indexes: tuple[int, ...], fields: dict[str, Any]) -> bytes:
    """Return a message with these fields, by the library itself."""
    message = GetMessageClass(find_message(schema, indexes))()
    return bytes(ParseDict(fields, message).SerializeToString())


def test_protobuf_data_is_decoded_by_its_indexes() -> None:
    schema = protobuf.parse(PROTO, {})
    fields = {
        "inners": {"k": {"name": "n"}},
        "numbers": [1, -1 << 63],
        "raw": "AP8=",
        "e": "ONE",
        "number": 0,
        "at": "2026-01-31T12:00:00Z",
        "real": 0.5,
    }
    value = fields | {"raw": b"\0\xff"}
    data = written(schema, (1,), fields)
    assert decode_framed_data("PROTOBUF", schema, FramedData(1, encode_message_indexes([1]) + data)) == value
    assert decode_framed_data("PROTOBUF", schema, FramedData(1, data, encode_message_indexes([1]))) == value
    assert decode_framed_data("PROTOBUF", schema, FramedData(1, b"\0" + written(schema, (0,), {"a": 5}))) == {"a": 5}
    inner = written(schema, (1, 1), {"name": "x"})
    assert decode_framed_data("PROTOBUF", schema, FramedData(1, encode_message_indexes([1, 1]) + inner)) == {
        "name": "x"
    }
    described = protobuf.parse(schema.get_text_in_format("serialized"), {})  # where the entries of a map are a message
    assert decode_framed_data("PROTOBUF", described, FramedData(1, encode_message_indexes([1, 2]) + inner)) == {
        "name": "x"
    }


def test_unknown_enum_values_are_numbers_and_unset_fields_defaults() -> None:
    schema = protobuf.parse('syntax = "proto3"; message A { E e = 1; string s = 2; A a = 3; enum E { Z = 0; } }', {})
    assert decode_framed_data("PROTOBUF", schema, FramedData(1, b"\0\x08\x07")) == {"e": 7, "s": ""}


@for_each(
    "data",
    [b"", b"\2", b"\xff\xff\xff\xff\xff\xff", b"\2\4", b"\1", b"\xff\xff\xff\xff\x0f", b"\0\xff", b"\0\x0a\x05a"],
)
def test_corrupt_protobuf_data_is_rejected(data: bytes) -> None:
    with pytest.raises(InvalidData):
        decode_framed_data("PROTOBUF", protobuf.parse(PROTO, {}), FramedData(1, data))


@given(some.lists(some.integers(0, (1 << 31) - 1), min_size=1, max_size=20))
def test_encoded_message_indexes_are_decoded_unchanged(indexes: list[int]) -> None:
    assert read_message_indexes(encode_message_indexes(indexes) + b"rest") == (tuple(indexes), b"rest")


AVRO = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "i", "type": "int"},
        {"name": "l", "type": "long"},
        {"name": "f", "type": "float"},
        {"name": "d", "type": "double"},
        {"name": "b", "type": ["null", "boolean"]},
        {"name": "s", "type": "string"},
        {"name": "y", "type": "bytes"},
        {"name": "e", "type": {"type": "enum", "name": "e", "symbols": ["A", "B"]}},
        {"name": "x", "type": {"type": "fixed", "name": "x", "size": 3}},
        {"name": "a", "type": {"type": "array", "items": "string"}},
        {"name": "m", "type": {"type": "map", "values": ["null", "r"]}},
        {"name": "money", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}
LEAF = some.fixed_dictionaries(
    {
        "i": some.integers(-1 << 31, (1 << 31) - 1),
        "l": some.integers(-1 << 63, (1 << 63) - 1),
        "f": some.floats(width=32, allow_nan=False),
        "d": some.floats(allow_nan=False),
        "b": some.none() | some.booleans(),
        "s": some.text(max_size=5),
        "y": some.binary(max_size=5),
        "e": some.sampled_from("AB"),
        "x": some.binary(min_size=3, max_size=3),
        "a": some.lists(some.text(max_size=3), max_size=3),
        "m": some.just({}),
        "money": some.integers(-99999, 99999).map(lambda cents: Decimal(cents).scaleb(-2)),
        "day": some.dates(),
        "clock": some.times().map(lambda each: each.replace(microsecond=each.microsecond // 1000 * 1000)),
        "at": some.datetimes(min_value=datetime(1, 1, 2), timezones=some.just(UTC)),
        "id": some.uuids(),
    }
)


@given(LEAF, some.none() | LEAF)
def test_avro_data_is_decoded_as_by_fastavro(record: dict[str, Any], inner: dict[str, Any] | None) -> None:
    record = record | {"m": {"k": inner, "": None}}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(dict(AVRO)), record)
    read = fastavro.schemaless_reader(io.BytesIO(out.getvalue()), fastavro.parse_schema(dict(AVRO)), None)
    schema = avro.parse(json.dumps(AVRO), {})
    assert decode_framed_data("AVRO", schema, FramedData(1, out.getvalue())) == read == record


def test_a_logical_value_out_of_pythons_range_stays_a_number() -> None:
    schema = avro.parse('{"type":"long","logicalType":"timestamp-millis"}', {})
    assert read_avro(schema.type, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01") == -1 << 63
    assert read_avro(schema.type, b"\0") == datetime(1970, 1, 1, tzinfo=UTC)
    assert read_avro(avro.parse('{"type":"int","logicalType":"date"}', {}).type, b"\2") == date(1970, 1, 2)
    assert read_avro(avro.parse('{"type":"long","logicalType":"time-micros"}', {}).type, b"\2") == time(0, 0, 0, 1)


@for_each(
    ("schema", "data"),
    [
        ('"int"', b""),
        ('"int"', b"\xff" * 11),
        ('"int"', b"\2\0"),
        ('"string"', b"\6ab"),
        ('"string"', b"\2\xff"),
        ('"bytes"', b"\1"),
        ('["null"]', b"\2"),
        ('{"type":"array","items":"null"}', b"\xfe\xff\xff\xff\xff\x1f\0"),
        ('{"type":"record","name":"r","fields":[{"name":"r","type":["null","r"]}]}', b"\2" * 100_000),
        ('"float"', struct.pack("<h", 1)),
    ],
)
def test_corrupt_avro_data_is_rejected(schema: str, data: bytes) -> None:
    with pytest.raises(InvalidData):
        decode_framed_data("AVRO", avro.parse(schema, {}), FramedData(1, data))


def test_data_of_an_unknown_schema_format_is_rejected() -> None:
    with pytest.raises(InvalidData):
        decode_framed_data("THRIFT", json_schema.parse("{}", {}), FramedData(1, b""))


# --- what a few bytes may stand for -------------------------------------------------------------

MAXIMUM_VALUES = 200_000
TOO_MANY = f"more than {MAXIMUM_VALUES:,} values"


@pytest.fixture(autouse=True)
def fewer_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the limit be a fifth of what it is: a million values take a second to make."""
    for module in (decoding_budget, format_decoding):
        monkeypatch.setattr(module, "MAXIMUM_VALUES", MAXIMUM_VALUES)


def zigzag(number: int) -> bytes:
    """Return a positive integer as Avro writes it."""
    return length(number << 1)


def test_avro_records_that_take_no_bytes_count_towards_the_limit_of_values() -> None:
    kind: Any = {"type": "record", "name": "R0", "fields": []}
    for number in range(30):
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": f"R{number}"}]
        kind = {"type": "record", "name": f"R{number + 1}", "fields": fields}
    with pytest.raises(InvalidData, match=TOO_MANY):
        decode_framed_data("AVRO", avro.parse(json.dumps(kind), {}), FramedData(1, b""))
    wide = {"type": "record", "name": "R", "fields": [{"name": f"f{n}", "type": "null"} for n in range(1000)]}
    array = avro.parse(json.dumps({"type": "array", "items": wide}), {})
    assert len(decode_framed_data("AVRO", array, FramedData(1, zigzag(100) + b"\0"))) == 100
    with pytest.raises(InvalidData, match=TOO_MANY):
        decode_framed_data("AVRO", array, FramedData(1, zigzag(200) + b"\0"))


def test_a_number_that_is_slow_to_format_stays_bytes() -> None:
    schema = avro.parse('{"type":"bytes","logicalType":"decimal","precision":1000000}', {})
    for length, kind in ((1024, Decimal), (1025, bytes), (400_000, bytes)):
        assert isinstance(decode_framed_data("AVRO", schema, FramedData(1, zigzag(length) + b"\x7f" * length)), kind)


def test_json_values_are_counted_before_they_are_created() -> None:
    schema = json_schema.parse("{}", {})
    for data in (b"[" + b"[]," * MAXIMUM_VALUES + b"0]", b"[" + b"0," * MAXIMUM_VALUES + b"0]"):
        with pytest.raises(InvalidData, match=TOO_MANY):
            decode_framed_data("JSON", schema, FramedData(1, data))
    many = b"[" + b"[]," * (MANY_VALUES + 1) + b"0]"
    for encoded in (many, many.decode().encode("utf-16"), b"\xef\xbb\xbf" + many):
        assert decode_framed_data("JSON", schema, FramedData(1, encoded)) == [[]] * (MANY_VALUES + 1) + [0]
    with pytest.raises(InvalidData, match="no JSON"):
        decode_framed_data("JSON", schema, FramedData(1, many[:-1]))
    text = ',[{\\"' * MAXIMUM_VALUES
    assert decode_framed_data("JSON", schema, FramedData(1, f'["{text}", 1]'.encode())) == [text.replace("\\", ""), 1]


WIDE = 'syntax = "proto3"; message A { repeated A a = 1; repeated bool packed = 2; repeated double reals = 3; '
WIDE += "".join(f"int32 i{n} = {n};" for n in range(10, 1000)) + "}"
STRUCT = 'syntax = "proto3"; import "google/protobuf/struct.proto"; message A { google.protobuf.ListValue a = 1; }'


def length(count: int) -> bytes:
    """Return a length as Protobuf writes it."""
    written = bytearray()
    while count >= 0x80:
        written.append(count & 0x7F | 0x80)
        count >>= 7
    return bytes((*written, count))


@pytest.mark.parametrize(
    ("text", "data"),
    [
        (WIDE, b"\x0a\0" * 400),  # each of 1000 fields
        (WIDE, b"\x0a\0" * (MAXIMUM_VALUES + 1)),
        (WIDE, b"\x12" + length(MAXIMUM_VALUES + 1) + b"\1" * (MAXIMUM_VALUES + 1)),
        (STRUCT, b"\x0a" + length(5 * MAXIMUM_VALUES) + b"\x0a\3\x0a\1a" * MAXIMUM_VALUES),
    ],
)
def test_too_many_protobuf_values_are_rejected(text: str, data: bytes) -> None:
    with pytest.raises(InvalidData, match=TOO_MANY):
        decode_framed_data("PROTOBUF", protobuf.parse(text, {}), FramedData(1, b"\0" + data))


def test_large_protobuf_data_with_few_values_is_decoded() -> None:
    group = "repeated group G = 3 { optional A a = 4; }"
    text = f'syntax = "proto2"; message A {{ repeated double d = 1; optional bytes b = 2; {group} }}'
    schema = protobuf.parse(text, {})
    data = b"\x0a" + length(8 << 17) + bytes(8 << 17) + b"\x12" + length(1 << 20) + b"\x0a" * (1 << 20)
    check_number_of_values(find_message(schema, (0,)), data + b"\x1b\x22\2\x12\0\x1c" * 2)
    assert len(decode_framed_data("PROTOBUF", schema, FramedData(1, b"\0" + data))["d"]) == 1 << 17


@for_each("data", [b"\xff", b"\x0a\xff", b"\x1b", b"\x1c\x0a", b"\x07", b"\x0a\x7f\x01", b"\xff" * 20])
def test_counting_the_values_of_corrupt_protobuf_data_never_raises(data: bytes) -> None:
    check_number_of_values(find_message(protobuf.parse(WIDE, {}), (0,)), data * 3)


def test_large_protobuf_data_is_counted_before_the_library_decodes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(descriptor: object) -> None:
        raise AssertionError("the library was asked")

    monkeypatch.setattr(protobuf_decoding, "GetMessageClass", made)
    many = 2_000_000  # which is more than what the library may have without being asked first
    for data in (b"\x0a\0" * many, b"\x12" + length(many) + b"\1" * many):
        with pytest.raises(InvalidData, match=TOO_MANY):
            decode_framed_data("PROTOBUF", protobuf.parse(WIDE, {}), FramedData(1, b"\0" + data))
