"""One message of format 0 or 1: against bytes worked out by hand, and what is found wrong with others."""

from __future__ import annotations

from struct import pack
from zlib import crc32

import pytest

from minibroker.protocol.errors import CorruptBatch, ErrorCode, InvalidRecords
from minibroker.protocol.records.batch import CREATE_TIME, LOG_APPEND_TIME
from minibroker.protocol.records.message import (
    check_message,
    encode_message,
    read_message,
    read_message_header,
    set_message_offset,
    set_message_timestamp,
)
from tests.cases import for_each
from tests.protocol.records.samples import T

BODY_0 = b"\x00\x00" + pack(">i3si5s", 3, b"key", 5, b"value")
BODY_1 = b"\x01\x00" + pack(">qi3si5s", T, 3, b"key", 5, b"value")
BY_HAND = {magic: pack(">qiI", 7, len(body) + 4, crc32(body)) + body for magic, body in enumerate((BODY_0, BODY_1))}


def sealed(body: bytes, size: int | None = None) -> bytes:
    """A message with this body, whatever it says, and a right checksum."""
    return pack(">qiI", 7, len(body) + 4 if size is None else size, crc32(body)) + body


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_is_encoded_and_decoded_as_specified(magic: int) -> None:
    assert encode_message(magic, 7, T, 0, b"key", b"value") == BY_HAND[magic]
    message, end = read_message(BY_HAND[magic])
    assert message == (7, magic, 0, T if magic else -1, b"key", b"value")
    assert end == len(BY_HAND[magic])


@for_each("magic", [0, 1])
@for_each(("key", "value"), [(None, None), (b"", b""), (None, b"v"), (b"k", None)])
def test_null_and_empty_keys_and_values_are_different(magic: int, key: bytes | None, value: bytes | None) -> None:
    message, _ = read_message(encode_message(magic, 0, T, 0, key, value))
    assert (message.key, message.value) == (key, value)


def test_the_header_of_a_message_is_like_that_of_a_batch_with_one_record() -> None:
    header = check_message(BY_HAND[1])
    assert (header.base_offset, header.last_offset, header.next_offset, header.record_count) == (7, 7, 8, 1)
    assert header.size_bytes == len(BY_HAND[1])
    assert (header.base_timestamp, header.max_timestamp) == (T, T)
    assert (header.producer_id, header.producer_epoch, header.last_sequence) == (-1, -1, -1)
    assert not header.is_control
    assert not header.is_transactional
    assert check_message(BY_HAND[0]).max_timestamp == -1


def test_unknown_attribute_bits_do_not_become_those_of_a_batch() -> None:
    header = read_message_header(encode_message(1, 0, T, 0x70, None, None))
    assert header.attributes == 0
    assert read_message_header(encode_message(0, 0, -1, 0x7A, None, b"")).attributes == 2


@for_each("magic", [0, 1])
@for_each("size", range(27))
def test_a_truncated_message_is_corrupt(magic: int, size: int) -> None:
    with pytest.raises(CorruptBatch):
        check_message(BY_HAND[magic][: size + 1])


@pytest.mark.parametrize("magic", [0, 1])
def test_each_changed_byte_after_the_size_is_detected(magic: int) -> None:
    for position in range(12, len(BY_HAND[magic])):
        data = bytearray(BY_HAND[magic])
        data[position] ^= 0x10
        with pytest.raises(CorruptBatch):
            check_message(data)


@pytest.mark.parametrize("size", [-1, 0, 13, -(1 << 31), (1 << 31) - 1])
def test_an_invalid_message_size_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptBatch):
        check_message(sealed(BODY_0, size))


@pytest.mark.parametrize("magic", [2, 3, -1])
def test_a_message_with_another_magic_is_corrupt(magic: int) -> None:
    with pytest.raises(CorruptBatch, match="magic"):
        check_message(sealed(pack(">bb", magic, 0) + bytes(16)))


@for_each(
    "body",
    [
        b"\x00\x00" + pack(">ii", -2, 0),  # a key's size that is neither null nor a size
        b"\x00\x00" + pack(">ii", 5, 0),  # a key beyond the end
        b"\x00\x00" + pack(">ii", (1 << 31) - 1, 0),
        b"\x00\x00" + pack(">iib", 0, 0, 1),  # a byte after the value
        b"\x00\x00" + pack(">i4s", 4, b"keys"),  # no value's size
        b"\x01\x00" + pack(">qi5s", T, 4, b"key"),
    ],
)
def test_key_and_value_sizes_that_do_not_fill_the_message_are_rejected(body: bytes) -> None:
    with pytest.raises((InvalidRecords, CorruptBatch)):
        read_message(sealed(body))


def test_a_timestamp_below_minus_1_is_rejected() -> None:
    with pytest.raises(InvalidRecords) as raised:
        read_message(encode_message(1, 0, -2, 0, None, None))
    assert raised.value.code == ErrorCode.INVALID_TIMESTAMP


def test_log_append_time_in_format_0_is_rejected() -> None:
    with pytest.raises(InvalidRecords) as raised:
        read_message(encode_message(0, 0, -1, 0x08, None, None))
    assert raised.value.code == ErrorCode.INVALID_TIMESTAMP


def test_an_offset_is_set_without_a_new_checksum() -> None:
    data = bytearray(BY_HAND[0])
    set_message_offset(data, 0, 1 << 40)
    assert check_message(data).base_offset == 1 << 40
    assert data[8:] == BY_HAND[0][8:]


def test_a_timestamp_is_set_with_a_new_checksum() -> None:
    data = bytearray(BY_HAND[1])
    set_message_timestamp(data, 0, LOG_APPEND_TIME, T + 5)
    header = check_message(data)
    assert (header.timestamp_type, header.max_timestamp) == (LOG_APPEND_TIME, T + 5)
    set_message_timestamp(data, 0, CREATE_TIME, T)
    assert data == BY_HAND[1]


def test_setting_an_equal_timestamp_changes_nothing() -> None:
    data = bytearray(encode_message(1, 0, T, 0x40, None, None))
    before = bytes(data)
    set_message_timestamp(data, 0, CREATE_TIME, T)
    assert data == before
