"""Whether messages of formats 0 and 1 are what they say: their sizes, and the messages in wrappers.

    17 attributes | 18 timestamp (format 1) | int32 size and key | int32 size and value, -1: null

A wrapper bears the offset of the last message in it. Those in it have absolute offsets in format 0, and in format 1
offsets that are relative to the first (KIP-31).
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

import numpy as np

from minibroker.pipeline.jobs.verify.kinds import Problem
from minibroker.pipeline.jobs.verify.record_reader import Unreadable
from minibroker.pipeline.jobs.verify.records import MAX_PAYLOAD_BYTES, Records
from minibroker.pipeline.jobs.verify.scanning import COMPRESSION, LOG_OVERHEAD, MIN_BYTES, TIMESTAMP_TYPE, Block
from minibroker.pipeline.jobs.verify.scanning import checksums as checksums_of
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.records.compression import Compression, decompress
from minibroker.protocol.records.lz4_frames import with_right_checksum

_INT32 = Struct(">i")
_OFFSET_SIZE = Struct(">qi")
_INT64 = Struct(">q")
KEY_AT = (18, 26)


class Message(NamedTuple):
    """A message; `key` and `value` are (start, size) in the data it was read from, size -1 being null."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: tuple[int, int]
    value: tuple[int, int]
    end: int


def check_messages(block: Block, *, compacted: bool) -> tuple[list[Problem], list[Records]]:
    """Read the sound messages of formats 0 and 1 in the block; their keys, and what is wrong with them.

    Of the wrappers, `block.first_offset` is filled in.
    """
    problems: list[Problem] = []
    found: list[Records] = []
    single: list[tuple[int, Message]] = []
    for index in np.flatnonzero(block.sound & (block.magic < 2)).tolist():
        try:
            message = read_message(block.data, int(block.starts[index]), int(block.sizes[index]))
            if message.attributes & COMPRESSION:
                found.append(_check_wrapper(block, index, message, compacted=compacted))
            else:
                single.append((index, message))
        except Unreadable as error:
            offset = int(block.base_offset[index])
            problems.append(Problem(error.kind, int(block.positions[index]), offset, str(error)))
    if single:
        found.append(_records(block.data, [index for index, _ in single], [message for _, message in single]))
    return problems, found


def read_message(data: bytes, at: int, size: int) -> Message:
    """The message of `size` bytes at a place, whose checksum has been looked at. Raises `Unreadable`."""
    end = at + size
    magic, attributes = data[at + 16], data[at + 17]
    timestamp = _INT64.unpack_from(data, at + 18)[0] if magic else -1
    key, place = _sized(data, at + KEY_AT[magic], end)
    value, place = _sized(data, place, end)
    if place != end:
        raise Unreadable("record", f"{end - place} bytes are left behind its value")
    return Message(_INT64.unpack_from(data, at)[0], magic, attributes, timestamp, key, value, end)


def _sized(data: bytes, at: int, end: int) -> tuple[tuple[int, int], int]:
    if end - at < _INT32.size:
        raise Unreadable("record", "it ends in the size of its key or value")
    (size,) = _INT32.unpack_from(data, at)
    at += _INT32.size
    if size < -1 or size > end - at:
        raise Unreadable("record", f"a key or value of {size} bytes, {end - at} are left")
    return (at, size), at + max(size, 0)


def _check_wrapper(block: Block, index: int, wrapper: Message, *, compacted: bool) -> Records:
    payload = _decompressed(block.data, wrapper)
    inner = _inner_messages(payload, wrapper.magic)
    if not inner:
        raise Unreadable("record-count", "a wrapper without messages")
    base = wrapper.offset - inner[-1].offset if wrapper.magic else 0
    if base + inner[-1].offset != wrapper.offset or base < 0:
        detail = f"its last message has offset {base + inner[-1].offset}, the wrapper {wrapper.offset}"
        raise Unreadable("record-offset", detail)
    for before, message in zip(inner, inner[1:], strict=False):
        step = message.offset - before.offset
        if step < 1 or step > 1 and not compacted:
            detail = f"offset {base + message.offset} follows {base + before.offset} within a wrapper"
            raise Unreadable("record-offset", detail)
    largest = max(message.timestamp for message in inner)
    if wrapper.magic and not wrapper.attributes & TIMESTAMP_TYPE and largest != wrapper.timestamp:
        raise Unreadable("max-timestamp", f"{wrapper.timestamp} in the wrapper, {largest} in its messages")
    block.first_offset[index] = base + inner[0].offset
    absolute = [message._replace(offset=base + message.offset) for message in inner]
    return _records(payload, [index] * len(inner), absolute)


def _decompressed(data: bytes, wrapper: Message) -> bytes:
    codec = wrapper.attributes & COMPRESSION
    start, size = wrapper.value
    if codec > Compression.LZ4:
        raise Unreadable("codec", f"codec {codec}, which format {wrapper.magic} does not have")
    if size < 0:
        raise Unreadable("codec", "a wrapper without a value")
    value: bytes | bytearray = data[start : start + size]
    try:
        if codec == Compression.LZ4 and wrapper.magic == 0:
            value = with_right_checksum(value)  # Kafka 0.8 and 0.9 hashed it wrongly (KIP-57)
        return bytes(decompress(codec, value, MAX_PAYLOAD_BYTES))
    except KafkaError as error:
        raise Unreadable("codec", str(error)) from error


def _inner_messages(payload: bytes, magic: int) -> list[Message]:
    found: list[Message] = []
    at = 0
    while at < len(payload):
        if len(payload) - at < MIN_BYTES[magic]:
            raise Unreadable("record", f"{len(payload) - at} bytes are left of a message in a wrapper")
        offset, length = _OFFSET_SIZE.unpack_from(payload, at)
        size = length + LOG_OVERHEAD
        if not MIN_BYTES[magic] <= size <= len(payload) - at or payload[at + 16] != magic:
            raise Unreadable("record", f"a message of {size} bytes and magic {payload[at + 16]} in a wrapper")
        stored, computed = checksums_of(payload, at, size)
        if stored != computed:
            raise Unreadable("crc", f"in a wrapper: stored {stored:08x}, computed {computed:08x}, offset {offset}")
        message = read_message(payload, at, size)
        if message.attributes & COMPRESSION:
            raise Unreadable("record", "a wrapper in a wrapper")
        found.append(message)
        at = message.end
    return found


def _records(data: bytes, batches: list[int], messages: list[Message]) -> Records:
    columns = np.array([(message.offset, *message.key, message.value[1]) for message in messages], np.int64).reshape(
        -1, 4
    )
    return Records(data, np.array(batches, np.int64), columns[:, 0], columns[:, 1], columns[:, 2], columns[:, 3] >= 0)
