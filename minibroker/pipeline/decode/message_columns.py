"""Messages of formats 0 and 1: where each lies, in a wrapper or not, and its fields as columns.

The layout is drawn in the protocol's `records/message.py`. What is wrong in a wrapper is said by the
protocol's own code; here it is only noticed.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

from minibroker.pipeline.decode.arena import Arena
from minibroker.pipeline.decode.decoded_fields import Parts
from minibroker.protocol.errors import InvalidRecords
from minibroker.protocol.records.batch import COMPRESSION_MASK, LOG_OVERHEAD_BYTES
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.lz4_frames import with_right_checksum
from minibroker.protocol.records.message import MAGIC_POSITION, MIN_MESSAGE_BYTES, read_message
from minibroker.protocol.records.message_set import check_codec, messages_in

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

_SIZE_AND_CRC: Final = Struct(">iI")
_SIZE_POSITION: Final = 8
_ATTRIBUTES_POSITION: Final = 17
_KEY_POSITIONS: Final = np.array((18, 26))  # by magic
_TIMESTAMP_POSITION: Final = 18


def unwrap(batch: memoryview, arena: Arena) -> I64:
    """Append the messages in a wrapper, whose checksum is right, to the arena; where each of them begins there.

    Raises `KafkaError` for what is wrong with the wrapper or one of them, which are not appended then.
    """
    wrapper, _ = read_message(bytes(batch), is_checked=True)
    if wrapper.value is None:
        raise InvalidRecords(f"Found invalid compressed record set with null value (magic = {wrapper.magic})")
    check_codec(wrapper.compression, wrapper.magic)
    value = memoryview(wrapper.value)
    if wrapper.compression == Compression.LZ4 and wrapper.magic == 0:
        value = memoryview(with_right_checksum(value))
    start = arena.decompress(wrapper.compression, value)
    payload = arena.data[start : arena.used].tobytes()
    found = _inner_starts(payload, wrapper.magic)
    if found is None:
        arena.used = start
        for _ in messages_in(wrapper, payload):
            pass
        raise InvalidRecords("the messages in it do not fill it")
    return found + start


def _inner_starts(payload: bytes, magic: int) -> I64 | None:
    """Where the messages in a wrapper begin; None if one of them is not whole, sound and as the wrapper wants it."""
    found = array("q")
    position, size, smallest = 0, len(payload), MIN_MESSAGE_BYTES[magic]
    view = memoryview(payload)
    while size - position >= smallest:
        length, crc = _SIZE_AND_CRC.unpack_from(payload, position + _SIZE_POSITION)
        end = position + length + LOG_OVERHEAD_BYTES
        if (
            not smallest <= end - position <= size - position
            or payload[position + MAGIC_POSITION] != magic
            or payload[position + _ATTRIBUTES_POSITION] & COMPRESSION_MASK
            or crc32(view[position + MAGIC_POSITION : end]) != crc
        ):
            return None
        found.append(position)
        position = end
    return np.frombuffer(found, np.int64) if found and position == size else None


def read_offsets(data: U8, starts: I64) -> I64:
    """The offsets that the messages at `starts` bear."""
    return _big_endian(data, starts, 8)


def read_timestamps(data: U8, starts: I64, magic: I64) -> I64:
    """The timestamps of the messages, -1 for those of format 0."""
    return np.where(magic == 1, _big_endian(data, starts + _TIMESTAMP_POSITION, 8), -1)


def read_key_and_value(data: U8, starts: I64, magic: I64) -> tuple[Parts, Parts, Bool]:
    """Keys, values, and which messages are not filled by the two exactly."""
    end = starts + LOG_OVERHEAD_BYTES + _big_endian(data, starts + _SIZE_POSITION, 4)
    keys, at, bad_keys = _read_parts(data, starts + _KEY_POSITIONS[magic])
    values, at, bad_values = _read_parts(data, at)
    return keys, values, bad_keys | bad_values | (at != end)


def _read_parts(data: U8, at: I64) -> tuple[Parts, I64, Bool]:
    """Bytes with their int32 size before them, the positions after, and whether the size cannot be; -1: null."""
    size = _big_endian(data, at, 4)
    is_null = size == -1
    length = np.where(is_null, 0, size)
    return Parts(at + 4, length, is_null if is_null.any() else None), at + 4 + length, size < -1


def _big_endian(data: U8, at: I64, size: int) -> I64:
    """The signed numbers of `size` bytes at these positions; behind the end of the data the last byte is read."""
    last = len(data) - size
    everywhere: npt.NDArray[np.void] = np.ndarray((last + 1,), f">i{size}", data, strides=(1,))
    return everywhere[np.clip(at, 0, last)].astype(np.int64)
