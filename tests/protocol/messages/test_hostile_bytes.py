"""Bytes that no well-meaning peer sends, to the reader of every version: a message or MalformedMessage, never more."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from minibroker.protocol.declare import Message
from minibroker.protocol.describing import list_messages
from minibroker.protocol.primitives import MalformedMessage, encode_unsigned_varint
from tests.protocol.random_messages import in_all_versions, random_message

PATTERNS = [bytes([value]) * 64 for value in (0x00, 0x01, 0x02, 0x7F, 0x80, 0xFE, 0xFF)]
HUGE_COUNTS = [b"\x7f\xff\xff\xff" * 16, b"\xff\xff\xff\xff\x07" * 16, b"\x00\x00\x01\x00" * 16]
MEMORY_BYTES = 200_000  # what reading 64 bytes may take at the most, error and all


def decoded(message: type[Message], version: int, data: bytes) -> Message | None:
    """The message, or None if the data is none; any other outcome is an error of the test."""
    try:
        return message.decode(data, version)
    except MalformedMessage as error:
        assert (error.message, error.version) == (message.__name__, version)
        return None


@in_all_versions
def test_every_truncated_message_is_malformed(message: type[Message], version: int) -> None:
    whole = random_message(message, version, 1).encode(version)
    for size in range(len(whole)):
        with pytest.raises(MalformedMessage):
            message.decode(whole[:size], version)


@in_all_versions
def test_trailing_bytes_are_malformed(message: type[Message], version: int) -> None:
    whole = random_message(message, version, 2).encode(version)
    with pytest.raises(MalformedMessage, match="1 bytes follow its end") as caught:
        message.decode(whole + b"\0", version)
    assert caught.value.field == ""


@in_all_versions
def test_arbitrary_bytes_are_decoded_or_malformed(message: type[Message], version: int) -> None:
    pick = random.Random(f"{message.__name__} {version}")
    for size in range(40):
        decoded(message, version, pick.randbytes(size))
        decoded(message, version, bytes(pick.choices((0, 1, 2, 3, 255), k=size)))


@in_all_versions
def test_a_corrupt_message_is_malformed_or_can_be_encoded_again(message: type[Message], version: int) -> None:
    pick = random.Random(f"{message.__name__} {version}")
    whole = random_message(message, version, 3).encode(version)
    for _ in range(30 if whole else 0):
        damaged = bytearray(whole)
        damaged[pick.randrange(len(damaged))] = pick.choice((0, 1, 0x7F, 0x80, 0xFF, pick.randrange(256)))
        found = decoded(message, version, bytes(damaged))
        if found is not None:
            written = found.encode(version)
            assert message.decode(written, version).encode(version) == written


def test_no_length_field_allocates_memory_beyond_the_data() -> None:
    versions = [(message, version) for message in list_messages() for version in message.versions]
    for message, version in versions:
        decoded(message, version, b"")  # compiled now, so that only reading is measured
    tracemalloc.start()
    try:
        for message, version in versions:
            for data in [*PATTERNS, *HUGE_COUNTS]:
                tracemalloc.reset_peak()
                before, _ = tracemalloc.get_traced_memory()
                decoded(message, version, data)
                assert tracemalloc.get_traced_memory()[1] - before < MEMORY_BYTES, (message.__name__, version, data)
    finally:
        tracemalloc.stop()


@in_all_versions
def test_unknown_tagged_fields_are_skipped(message: type[Message], version: int) -> None:
    """In flexible versions whose outermost tagged section is empty; test_generated_readers.py has known tags."""
    if version not in message.flexible or any(version in field.tagged for field in message.__fields__.values()):
        return
    whole = random_message(message, version, 4).encode(version)
    assert whole[-1] == 0
    unknown = (
        whole[:-1]
        + encode_unsigned_varint(2)
        + encode_unsigned_varint(7)
        + encode_unsigned_varint(3)
        + b"abc"
        + encode_unsigned_varint(9000)
        + encode_unsigned_varint(0)
    )
    assert message.decode(unknown, version) == message.decode(whole, version)
