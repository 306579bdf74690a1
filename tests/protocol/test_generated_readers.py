"""The Python that reads: its text, and what it refuses."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from minibroker.protocol.declare import Message
from minibroker.protocol.describing import generate_reader_text
from minibroker.protocol.messages.fetch import FetchResponse
from minibroker.protocol.messages.groups import LeaveGroupRequest
from minibroker.protocol.primitives import MalformedMessage, encode_unsigned_varint
from tests.cases import for_each
from tests.protocol.random_messages import in_all_versions, random_message
from tests.protocol.samples import Answer, Fixed, Nothing, Order

LEAVE_GROUP_5 = """\
def read(data, pos, end):
    leave_group_request = new(LeaveGroupRequest)
    leave_group_request.member_id = ''
    n = data[pos]
    pos += 1
    if n > 127:
        n, pos = read_string_length(data, pos - 1)
    n -= 1
    stop = pos + n
    if not pos <= stop <= end:
        raise bad_length(n, end - pos)
    leave_group_request.group_id = str(data[pos:stop], "utf-8")
    pos = stop
    n = data[pos]
    pos += 1
    if n > 127:
        n, pos = read_varint(data, pos - 1)
    n -= 1
    if not 0 <= n <= (end - pos) // 4:
        raise bad_length(n, end - pos)
    members = leave_group_request.members = []
    for _ in range(n):
        member_identity = new(MemberIdentity)
        n = data[pos]
        pos += 1
        if n > 127:
            n, pos = read_string_length(data, pos - 1)
        n -= 1
        stop = pos + n
        if not pos <= stop <= end:
            raise bad_length(n, end - pos)
        member_identity.member_id = str(data[pos:stop], "utf-8")
        pos = stop
        n = data[pos]
        pos += 1
        if n > 127:
            n, pos = read_string_length(data, pos - 1)
        n -= 1
        if n < 0:
            member_identity.group_instance_id = None
        else:
            stop = pos + n
            if stop > end:
                raise bad_length(n, end - pos)
            member_identity.group_instance_id = str(data[pos:stop], "utf-8")
            pos = stop
        n = data[pos]
        pos += 1
        if n > 127:
            n, pos = read_string_length(data, pos - 1)
        n -= 1
        if n < 0:
            member_identity.reason = None
        else:
            stop = pos + n
            if stop > end:
                raise bad_length(n, end - pos)
            member_identity.reason = str(data[pos:stop], "utf-8")
            pos = stop
        n = data[pos]
        pos += 1
        if n:
            if n > 127:
                n, pos = read_varint(data, pos - 1)
            pos = skip_unknown_tagged_fields(data, pos, end, n)
        members.append(member_identity)
    n = data[pos]
    pos += 1
    if n:
        if n > 127:
            n, pos = read_varint(data, pos - 1)
        pos = skip_unknown_tagged_fields(data, pos, end, n)
    return leave_group_request, pos"""


def test_the_generated_reader_has_the_nesting_of_the_wire_format() -> None:
    assert generate_reader_text(LeaveGroupRequest, 5) == LEAVE_GROUP_5


def test_adjacent_fixed_size_fields_are_read_by_one_call() -> None:
    lines = generate_reader_text(Fixed, 0).splitlines()
    assert len([line for line in lines if "unpack" in line]) == 1


def test_all_fixed_size_types_are_decoded() -> None:
    values = (True, -1, -2, 65535, -3, 4294967295, -4, 0.5, bytes(range(16)))
    message = Fixed.decode(struct.pack(">?bhHiIqd16s", *values), 0)
    assert tuple(getattr(message, name) for name in Fixed.__fields__) == values


@pytest.mark.parametrize("kind", [bytes, bytearray, lambda data: memoryview(bytearray(data))])
def test_records_are_slices_of_the_input(kind: Any) -> None:
    data = kind(Answer(parts=[Answer.Part(records=b"batch")]).encode(1))
    records = Answer.decode(data, 1).parts[0].records
    assert isinstance(records, memoryview)
    assert bytes(records) == b"batch"
    assert records.readonly == isinstance(data, bytes)
    if not records.readonly:
        records[0] = ord("B")
        assert b"Batch" in bytes(data)


def test_bytes_and_strings_do_not_reference_the_input() -> None:
    data = memoryview(bytearray(Order(name="n", payload=b"p").encode(3)))
    message = Order.decode(data, 3)
    assert type(message.payload) is bytes
    data.release()  # raises BufferError if anything still looks at it
    assert (message.name, message.payload) == ("n", b"p")


def test_fields_missing_in_a_version_have_their_default() -> None:
    order = Order.decode(Order(name="n", note="x", old=7).encode(0), 0)
    assert (order.note, order.old, order.priority, order.labels, order.shop) == (None, 7, 5, [], None)


def test_long_compact_lengths_are_decoded() -> None:
    order = Order(name="n" * 32767, words=["w" * 127] * 200, numbers=list(range(300)), payload=b"p" * 20000)
    assert Order.decode(order.encode(3), 3) == order


# --- What is refused. The fields of Order v0: name, lines, old, numbers; v2: name, note, lines, numbers, ids, ... ---


def refused(message: type[Message], version: int, data: bytes) -> MalformedMessage:
    with pytest.raises(MalformedMessage) as caught:
        message.decode(data, version)
    assert (caught.value.message, caught.value.version) == (message.__name__, version)
    return caught.value


@for_each(
    ("data", "field", "reason"),
    [
        (b"", "name", "ends too early"),
        (b"\0\5ab", "name", "length 5, but only 2 bytes are left"),
        (b"\xff\xff", "name", "length -1, but null is not allowed"),
        (b"\0\1\xff", "name", "can't decode"),
        (b"\0\0\0\0", "lines", "ends too early"),
        (b"\0\0\xff\xff\xff\xff", "lines", "length -1, but null is not allowed"),
        (b"\0\0\x7f\xff\xff\xff", "lines", "length 2147483647, but only 0 bytes are left"),
        (b"\0\0\0\0\0\2" + bytes(11), "lines", "length 2, but only 11 bytes are left"),
        (b"\0\0\0\0\0\2" + bytes(6) + b"\0\7" + bytes(4), "lines.article", "length 7, but only 4 bytes are left"),
        (b"\0\0\0\0\0\0\0\0\0", "old", "ends too early"),
        (b"\0\0\0\0\0\0\0\0\0\0\0\0", "numbers", "ends too early"),
        (b"\0\0\0\0\0\0\0\0\0\0\0\0\0\2\0\0\0\0", "numbers", "length 2, but only 4 bytes are left"),
    ],
)
def test_lengths_before_flexible_versions_are_decoded(data: bytes, field: str, reason: str) -> None:
    error = refused(Order, 0, data)
    assert error.field == field
    assert reason in str(error)


@for_each(
    ("data", "field", "reason"),
    [
        (b"\0", "name", "length -1, but null is not allowed"),
        (b"\6ab", "name", "length 5, but only 2 bytes are left"),
        (b"\xff\xff\xff\xff\xff\1", "name", "a varint of more than five bytes"),
        (b"\xff\xff\xff\xff\x0f", "name", "a string of 4294967294 bytes, and 32767 is the most"),
        (encode_unsigned_varint(32769) + bytes(40000), "name", "a string of 32768 bytes, and 32767 is the most"),
        (b"\1\0\0", "lines", "length -1, but null is not allowed"),
        (b"\1\0\xff\xff\xff\xff\x0f", "lines", "length 4294967294, but only 0 bytes are left"),
        (b"\1\0\1\1\1\5abc", "words", "length 4, but only 3 bytes are left"),
        (b"\1\0\1\1\3" + bytes(31), "ids", "length 2, but only 31 bytes are left"),
        (b"\1\0\1\1\1\1\x85\1a", "payload", "length 132, but only 1 bytes are left"),
        (b"\1\0\2\1\0\0\0\0\x09r\0\1", "lines.records", "length 8, but only 3 bytes are left"),
        (b"\1\0\2\1\0\0\0\0\0\1\5\7ab", "lines", "length 7, but only 2 bytes are left"),
    ],
)
def test_lengths_in_flexible_versions_are_decoded(data: bytes, field: str, reason: str) -> None:
    error = refused(Order, 2, data)
    assert error.field == field
    assert reason in str(error)


def test_the_first_truncated_field_of_a_combined_read_is_reported() -> None:
    sizes = {"flag": 1, "tiny": 1, "small": 2, "port": 2, "number": 4, "hash": 4, "offset": 8, "ratio": 8, "id": 16}
    start = 0
    for name, size in sizes.items():
        for cut in range(start, start + size):
            assert refused(Fixed, 0, bytes(cut)).field == name
        start += size


def test_an_array_of_zero_size_items_is_rejected() -> None:
    error = refused(Answer, 0, b"\x7f\xff\xff\xff\0\0")
    assert error.field == "parts"


def test_a_decoding_error_names_the_field_with_all_enclosing_structs() -> None:
    topic = FetchResponse.FetchableTopicResponse
    partition = topic.PartitionData(records=b"12345")
    whole = FetchResponse(responses=[topic(topic="t", partitions=[partition])]).encode(11)
    assert refused(FetchResponse, 11, whole[:-1]).field == "responses.partitions.records"


# --- Tagged fields: a count, then for each its tag, its size and its value ---

START = Order(name="n").encode(3)[:-1]  # all of the body; the count of tagged fields comes next


def tagged(*fields: tuple[int, bytes]) -> bytes:
    return (
        START
        + encode_unsigned_varint(len(fields))
        + b"".join(encode_unsigned_varint(tag) + encode_unsigned_varint(len(data)) + data for tag, data in fields)
    )


def test_known_and_unknown_tagged_fields_are_decoded() -> None:
    data = tagged((0, b"\2\4abc"), (1, b"\0\7"), (2, b"?"), (3, b"\0\0\0\1\0"), (1000, b""))
    order = Order.decode(data, 3)
    assert (order.labels, order.priority, order.shop) == (["abc"], 7, Order.Shop(id=1))


def test_unknown_tagged_fields_are_kept_on_request() -> None:
    data = tagged(
        (0, b"\2\4abc"), (2, b"?"), (3, b"\xff\xff\xff\xff" + b"\1\5\2xy"), *((1000 + n, b"") for n in range(200))
    )
    order, end = Order.decode_with_unknown_tags(data, 3, 0)
    assert order.encode_with_unknown_tags(3) == data and end == len(data)
    assert order != Order.decode(data, 3)
    order.priority = 7
    assert Order.decode(order.encode_with_unknown_tags(3), 3) == Order(
        name="n", labels=["abc"], priority=7, shop=Order.Shop()
    )
    assert Order.decode_with_unknown_tags(b"?" + START + b"\0", 3, 1)[0] == Order(name="n")


@in_all_versions
def test_messages_without_unknown_tags_are_decoded_and_encoded_as_usual(message: type[Message], version: int) -> None:
    made = random_message(message, version, 2)
    data = made.encode(version)
    read, _ = message.decode_with_unknown_tags(data, version, 0)
    assert read == message.decode(data, version) and read.encode_with_unknown_tags(version) == data


def test_a_struct_in_a_tagged_field_may_have_unknown_tags() -> None:
    order = Order.decode(tagged((3, b"\0\0\0\1" + b"\1\5\2xy")), 3)
    assert order.shop == Order.Shop(id=1)


@for_each(
    ("fields", "reason"),
    [
        ([(1, b"\0\7"), (1, b"\0\7")], "tag 1 after tag 1"),
        ([(1, b"\0\7"), (0, b"\1")], "tag 0 after tag 1"),
        ([(9, b""), (9, b"")], "tag 9 after tag 9"),
        ([(1, b"\0\7\0")], "tagged field 1 ends 1 bytes before its size"),
        ([(1, b"\0"), (7, b"abc")], "tagged field 1 ends 1 bytes after its size"),
        ([(0, b"")], "ends too early"),
    ],
)
def test_invalid_tagged_fields_are_rejected(fields: list[tuple[int, bytes]], reason: str) -> None:
    assert reason in str(refused(Order, 3, tagged(*fields)))


def test_the_decoding_error_names_the_tagged_field() -> None:
    assert refused(Order, 3, tagged((0, b"\2\x20ab"))).field == "labels"


@pytest.mark.parametrize("data", [b"\2\5\0\5\0", b"\2\6\0\5\0"])
def test_unknown_tags_must_be_ascending(data: bytes) -> None:
    assert "after tag" in str(refused(Nothing, 1, data))
    with pytest.raises(MalformedMessage, match="after tag"):
        Nothing.decode_with_unknown_tags(data, 1, 0)


def test_a_tagged_field_larger_than_the_data_is_rejected() -> None:
    assert "length 9, but only 1 bytes are left" in str(refused(Nothing, 1, b"\1\0\x09a"))


def test_too_many_tagged_fields_are_rejected_before_any_is_read() -> None:
    assert "10001 items, and 10000 are the most" in str(refused(Nothing, 1, b"\x91\x4e"))
    assert "ends too early" in str(refused(Nothing, 1, b"\x90\x4e"))
