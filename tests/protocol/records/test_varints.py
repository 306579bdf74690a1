"""Zigzag varints against kafka-python's, and where they end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.util import decode_varint, encode_varint

from minibroker.protocol.records.varints import (
    MAX_VARINT_BYTES,
    MalformedVarint,
    convert_from_zigzag,
    encode_zigzag,
    read_varint,
    read_varlong,
    read_zigzag_varint,
    wrap_to_64_bits,
)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


@given(INT64)
def test_varints_equal_those_of_kafka_python(value: int) -> None:
    theirs = bytearray()
    encode_varint(value, theirs.append)
    assert encode_zigzag(value) == theirs
    assert decode_varint(encode_zigzag(value)) == (value, len(theirs))


@given(INT32, st.binary(max_size=3), st.binary(max_size=12))
def test_varints_are_decoded_at_any_position(value: int, before: bytes, after: bytes) -> None:
    data = before + encode_zigzag(value)
    for bytes_like in (data + after, bytearray(data + after), memoryview(data + after)):
        assert read_varint(bytes_like, len(before)) == (value, len(data))


@given(INT64)
def test_varlongs_are_decoded(value: int) -> None:
    data = encode_zigzag(value)
    assert read_varlong(data, 0) == (value, len(data))


@given(INT32)
def test_signed_numbers_are_zigzag_encoded_and_decoded_back(value: int) -> None:
    raw, _ = read_zigzag_varint(encode_zigzag(value), 0, MAX_VARINT_BYTES)
    assert convert_from_zigzag(raw) == value
    assert raw % 2 == (value < 0)


def test_overlong_varints_are_accepted() -> None:
    assert read_varint(b"\x82\x80\x00", 0) == (1, 3)


@pytest.mark.parametrize("data", [b"\x80\x80\x80\x80\x80\x00", b"\xff" * 5, b"\xff" * 20])
def test_a_varint_has_at_most_five_bytes(data: bytes) -> None:
    with pytest.raises(MalformedVarint, match="more than 5 bytes"):
        read_varint(data, 0)


def test_a_varlong_has_at_most_ten_bytes() -> None:
    with pytest.raises(MalformedVarint, match="more than 10 bytes"):
        read_varlong(b"\x80" * 10 + b"\x00", 0)


def test_bits_of_a_varint_above_32_are_dropped_as_in_java() -> None:
    assert read_varint(b"\x80\x80\x80\x80\x70", 0) == (0, 5)


@given(INT64, INT64)
def test_a_sum_of_longs_wraps_to_64_bits_as_in_java(one: int, other: int) -> None:
    total = wrap_to_64_bits(one + other)
    assert -(1 << 63) <= total < 1 << 63
    assert (total - one - other) % (1 << 64) == 0


@given(INT64, st.data())
def test_a_truncated_varint_is_malformed(value: int, data: st.DataObject) -> None:
    whole = encode_zigzag(value)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(MalformedVarint, match="ends in a varint"):
        read_varlong(cut, 0)
