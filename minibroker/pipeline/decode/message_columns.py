"""Messages of formats 0 and 1, also in wrappers: where each one is, and its fields as columns.

The layout is drawn in the protocol's `records/message.py`. The protocol's own code describes errors in a wrapper; here
they are only detected.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

from minibroker.pipeline.array_types import Bools, Int64s, UInt8s
from minibroker.pipeline.decode.arena import Arena
from minibroker.pipeline.decode.record_field_columns import Parts
from minibroker.protocol.errors import InvalidRecords
from minibroker.protocol.records.batch import COMPRESSION_MASK, LOG_OVERHEAD_BYTES
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.lz4_frames import set_standard_checksum
from minibroker.protocol.records.message import MAGIC_POSITION, MIN_MESSAGE_BYTES, read_message
from minibroker.protocol.records.message_set import check_codec, iterate_messages_in

_SIZE_AND_CRC: Final = Struct(">iI")
_SIZE_POSITION: Final = 8
_ATTRIBUTES_POSITION: Final = 17
_KEY_POSITIONS: Final = np.array((18, 26))  # by magic
_TIMESTAMP_POSITION: Final = 18


def decompress_wrapper_messages(batch: memoryview, arena: Arena) -> Int64s:
    """Append the messages of a wrapper with a right checksum to the arena, and return where each of them begins.

    Raises `KafkaError` if the wrapper or one of its messages is invalid; then nothing is appended.
    """
    wrapper, _ = read_message(bytes(batch), is_checked=True)
    if wrapper.value is None:
        raise InvalidRecords(f"Found invalid compressed record set with null value (magic = {wrapper.magic})")
    check_codec(wrapper.compression, wrapper.magic)
    value = memoryview(wrapper.value)
    if wrapper.compression == Compression.LZ4 and wrapper.magic == 0:
        value = memoryview(set_standard_checksum(value))
    start = arena.decompress(wrapper.compression, value)
    payload = arena.data[start : arena.used].tobytes()
    found = _find_inner_starts(payload, wrapper.magic)
    if found is None:
        arena.used = start
        for _ in iterate_messages_in(wrapper, payload):
            pass
        raise InvalidRecords("its messages do not fill it exactly")
    return found + start


def _find_inner_starts(payload: bytes, magic: int) -> Int64s | None:
    """Return where the messages of a wrapper begin, or None if one of them is invalid."""
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


def read_offsets(data: UInt8s, starts: Int64s) -> Int64s:
    """Return the stored offsets of the messages at `starts`."""
    return _read_big_endian(data, starts, 8)


def read_timestamps(data: UInt8s, starts: Int64s, magic: Int64s) -> Int64s:
    """Return the timestamps of the messages; -1 in format 0."""
    return np.where(magic == 1, _read_big_endian(data, starts + _TIMESTAMP_POSITION, 8), -1)


def read_key_and_value(data: UInt8s, starts: Int64s, magic: Int64s) -> tuple[Parts, Parts, Bools]:
    """Return keys, values, and which messages have another size than these two give."""
    end = starts + LOG_OVERHEAD_BYTES + _read_big_endian(data, starts + _SIZE_POSITION, 4)
    keys, at, bad_keys = _read_parts(data, starts + _KEY_POSITIONS[magic])
    values, at, bad_values = _read_parts(data, at)
    return keys, values, bad_keys | bad_values | (at != end)


def _read_parts(data: UInt8s, at: Int64s) -> tuple[Parts, Int64s, Bools]:
    """Return the bytes behind an int32 size (-1: null), the positions after them, and which sizes are impossible."""
    size = _read_big_endian(data, at, 4)
    is_null = size == -1
    length = np.where(is_null, 0, size)
    return Parts(at + 4, length, is_null if is_null.any() else None), at + 4 + length, size < -1


def _read_big_endian(data: UInt8s, at: Int64s, size: int) -> Int64s:
    """Return the signed numbers of `size` bytes at these positions. Behind the end of the data, read the last byte."""
    last = len(data) - size
    everywhere: npt.NDArray[np.void] = np.ndarray((last + 1,), f">i{size}", data, strides=(1,))
    return everywhere[np.clip(at, 0, last)].astype(np.int64)
