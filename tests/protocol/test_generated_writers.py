"""The Python that writes: its text, and what it makes of nulls, defaults and records that lie elsewhere."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import pytest

from minibroker.protocol.declare import Message, field
from minibroker.protocol.describing import generate_writer_text
from minibroker.protocol.messages.groups import LeaveGroupRequest
from minibroker.protocol.primitives import Output
from tests.protocol.samples import Answer, Fixed, Nothing, Order

LEAVE_GROUP_5 = """\
def write(message, out):
    raw = message.group_id.encode()
    n = len(raw) + 1
    out += ONE_BYTE[n] if n < 128 else string_length(n)
    out += raw
    members = message.members
    n = len(members) + 1
    out += ONE_BYTE[n] if n < 128 else varint(n)
    for member_identity in members:
        raw = member_identity.member_id.encode()
        n = len(raw) + 1
        out += ONE_BYTE[n] if n < 128 else string_length(n)
        out += raw
        if member_identity.group_instance_id is None:
            raw, n = b"", 0
        else:
            raw = member_identity.group_instance_id.encode()
            n = len(raw) + 1
        out += ONE_BYTE[n] if n < 128 else string_length(n)
        out += raw
        if member_identity.reason is None:
            raw, n = b"", 0
        else:
            raw = member_identity.reason.encode()
            n = len(raw) + 1
        out += ONE_BYTE[n] if n < 128 else string_length(n)
        out += raw
        out.append(0)
    out.append(0)"""


class Elsewhere(NamedTuple):
    size_bytes: int


def test_the_generated_writer_has_the_nesting_of_the_wire_format() -> None:
    assert generate_writer_text(LeaveGroupRequest, 5) == LEAVE_GROUP_5


def test_adjacent_fixed_size_fields_are_written_by_one_call() -> None:
    assert generate_writer_text(Fixed, 0).count("pack") == 1


def test_a_message_without_fields_is_encoded() -> None:
    assert Nothing().encode(0) == b""
    assert Nothing().encode(1) == b"\0"


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, b"\0\1n" + b"\0\0\0\0" + b"\xff\xff\xff\xff" + b"\xff\xff\xff\xff"),
        (1, b"\0\1n" + b"\xff\xff" + b"\0\0\0\0" + b"\xff\xff\xff\xff" + b"\xff\xff\xff\xff" + bytes(4) + bytes(4)),
        (2, b"\2n" + b"\0" + b"\1" + b"\0" + b"\1" + b"\1" + b"\0" + b"\0"),
        (3, b"\2n" + b"\0" + b"\1" + b"\0" + b"\1" + b"\1" + b"\0" + b"\xff" + b"\0"),
    ],
)
def test_nulls_are_encoded_as_each_version_represents_them(version: int, expected: bytes) -> None:
    payload = None if version > 1 else b""
    assert Order(name="n", numbers=None, payload=payload).encode(version) == expected


def test_a_null_in_a_non_nullable_field_is_an_error() -> None:
    with pytest.raises((TypeError, AttributeError)):
        Order(name=None).encode(3)


def test_fields_missing_in_a_version_are_omitted() -> None:
    assert Order(note="x", priority=9).encode(0) == Order().encode(0)


def test_tagged_fields_with_their_default_are_omitted() -> None:
    plain = Order().encode(3)
    assert Order(priority=5, labels=[], shop=None).encode(3) == plain
    assert Order(shop=Order.Shop()).encode(3) == plain


def test_tagged_fields_are_written_in_the_order_of_their_tags() -> None:
    order = Order(priority=7, labels=["abc"], shop=Order.Shop(id=1))
    assert order.encode(3).endswith(b"\3" + b"\0\5\2\4abc" + b"\1\2\0\7" + b"\3\5\0\0\0\1\0")


def test_a_null_struct_in_a_tagged_field_is_encoded_as_zero() -> None:
    """Unlike elsewhere, where it is -1: as Kafka's generated code does."""

    class Box(Message, versions="0", flexible="0+"):
        shop: Order.Shop | None = field(tag=0)

    assert Box(shop=None).encode(0) == b"\1" + b"\0\1\0"
    assert Box(shop=Order.Shop(id=7)).encode(0) == b"\1" + b"\0\6\1\0\0\0\7\0"
    assert Box(shop=Order.Shop()).encode(0) == b"\0"
    assert [Box.decode(Box(shop=shop).encode(0), 0).shop for shop in (None, Order.Shop(id=7))] == [
        None,
        Order.Shop(id=7),
    ]


def test_a_string_that_kafka_would_reject_is_an_error() -> None:
    with pytest.raises(ValueError, match="a string of 32768 bytes, and 32767 is the most"):
        Order(name="n" * 32768).encode(3)
    with pytest.raises(struct.error):
        Order(name="n" * 32768).encode(0)


@pytest.mark.parametrize("value", [b"batch", bytearray(b"batch"), memoryview(b"batch")])
def test_records_given_as_bytes_are_copied(value: Any) -> None:
    message = Answer(parts=[Answer.Part(records=value)])
    assert message.encode(0) == b"\0\0\0\1" + b"\0\0\0\5batch" + b"\0\0"
    assert message.encode(1) == b"\2" + b"\6batch\0" + b"\0\0" + b"\0"


@pytest.mark.parametrize(
    ("version", "length", "between", "end"), [(0, b"\0\0\1\x2c", b"", b"\0\7"), (1, b"\xad\2", b"\0", b"\0\0\7\0")]
)
def test_records_given_as_file_regions_follow_their_length(
    version: int, length: bytes, between: bytes, end: bytes
) -> None:
    first, second = Elsewhere(300), Elsewhere(300)
    parts = [Answer.Part(records=first), Answer.Part(records=second), Answer.Part(records=None)]
    out = Output()
    Answer(parts=parts, code=7).encode_into(out, version)
    head, one, middle, two, tail = out.list_bytes_and_regions()
    assert (one, two) == (first, second)
    assert isinstance(head, bytearray) and head.endswith(length)
    assert middle == between + length
    null = b"\0" if version else b"\xff\xff\xff\xff"
    assert tail == between + null + end


def test_a_message_is_appended_to_the_output() -> None:
    out = Output()
    out += b"header"
    Nothing().encode_into(out, 1)
    assert bytes(out) == b"header\0"
