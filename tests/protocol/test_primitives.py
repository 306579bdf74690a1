"""Varints, UUID texts, the writer's target and the error of readers."""

from __future__ import annotations

import random
import uuid
from base64 import urlsafe_b64encode
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.primitives import (
    ZERO_UUID,
    MalformedMessage,
    Output,
    encode_unsigned_varint,
    format_uuid,
    make_uuid,
    parse_uuid,
    read_unsigned_varint,
)
from tests.cases import for_each


class Elsewhere(NamedTuple):
    size_bytes: int


@for_each(
    ("value", "spelling"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),  # the example of the protocol buffers' documentation, to which KIP-482 points
        (16383, "ff7f"),
        (16384, "808001"),
        (2**32 - 1, "ffffffff0f"),
    ],
)
def test_unsigned_varints_are_encoded_as_in_protocol_buffers(value: int, spelling: str) -> None:
    assert encode_unsigned_varint(value).hex() == spelling
    assert read_unsigned_varint(bytes.fromhex(spelling), 0) == (value, len(spelling) // 2)


@given(st.integers(0, 2**35 - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_an_unsigned_varint_is_decoded_at_its_position(value: int, before: bytes, after: bytes) -> None:
    spelled = encode_unsigned_varint(value)
    assert read_unsigned_varint(before + spelled + after, len(before)) == (value, len(before) + len(spelled))


def test_an_unsigned_varint_of_six_bytes_is_rejected() -> None:
    with pytest.raises(ValueError, match="more than five bytes"):
        read_unsigned_varint(b"\x80\x80\x80\x80\x80\x01", 0)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff"])
def test_an_unterminated_unsigned_varint_raises_an_index_error(data: bytes) -> None:
    with pytest.raises(IndexError):
        read_unsigned_varint(data, 0)


def test_the_zero_uuid_is_formatted_as_in_kafka() -> None:
    assert format_uuid(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"


@given(st.uuids())
def test_uuid_texts_are_url_safe_base64_without_padding(value: uuid.UUID) -> None:
    text = format_uuid(value.bytes)
    assert text == urlsafe_b64encode(value.bytes).decode().removesuffix("==")
    assert parse_uuid(text) == value.bytes


@for_each("text", ["", "AAAA", "AAAAAAAAAAAAAAAAAAAAAAAAAA", "A", "!AAAAAAAAAAAAAAAAAAAAA", "AA!AAAAAAAAAAAAAAAAAAAAA"])
def test_texts_that_are_not_base64_uuids_are_rejected(text: str) -> None:
    with pytest.raises(ValueError):
        parse_uuid(text)


def test_output_parts_are_bytes_and_file_regions_in_the_order_they_were_added() -> None:
    first, second = Elsewhere(10), Elsewhere(20)
    out = Output()
    out += b"head"
    out.put_region(first)
    out += b"mid"
    out.put_region(second)
    assert out.regions == [(4, first), (7, second)]
    assert out.list_bytes_and_regions() == [b"head", first, b"mid", second]


def test_empty_bytes_are_not_output_parts() -> None:
    first, second = Elsewhere(10), Elsewhere(20)
    out = Output()
    out.put_region(first)
    out.put_region(second)
    out += b"tail"
    assert out.list_bytes_and_regions() == [first, second, b"tail"]
    assert Output().list_bytes_and_regions() == []


def test_output_without_regions_is_one_part() -> None:
    out = Output()
    out += b"all"
    assert out.list_bytes_and_regions() == [b"all"]


def test_a_decoding_error_names_message_version_and_field() -> None:
    error = MalformedMessage("FetchRequest", 12, "topics.partitions", "too long")
    assert (error.message, error.version, error.field) == ("FetchRequest", 12, "topics.partitions")
    assert str(error) == "FetchRequest v12, field topics.partitions: too long"
    assert isinstance(error, ValueError)


def test_a_decoding_error_may_have_no_field() -> None:
    assert str(MalformedMessage("FetchRequest", 12, "", "too long")) == "FetchRequest v12: too long"


def test_generated_ids_are_seeded_and_never_reserved() -> None:
    class Source(random.Random):
        def __init__(self, *drawn: bytes) -> None:
            super().__init__()
            self.drawn = list(drawn)

        def randbytes(self, n: int) -> bytes:
            return self.drawn.pop(0)

    dash, reserved, good = b"\xfb" + bytes(15), bytes(15) + b"\x01", b"\x10" * 16
    assert make_uuid(Source(dash, bytes(16), reserved, good)) == good
    assert make_uuid(random.Random(5)) == make_uuid(random.Random(5)) != make_uuid(random.Random(6))
