"""The hash of Kafka's Java client, by which keys choose partitions, for a whole column at once."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minibroker.client.murmur2 import MULTIPLIER, SEED, murmur2
from minibroker.pipeline.array_types import Int64s, UInt8s

# Longer keys are hashed one by one: the vectorized way takes a step for each four bytes of the longest key.
_COLUMN_KEY_BYTES_MAX: Final = 256

UInt32s = npt.NDArray[np.uint32]


def murmur2_of(keys: pa.BinaryArray) -> UInt32s:
    """Return the hashes of a column of keys, unsigned 32-bit numbers. Null has the hash of an empty key."""
    offsets, data = _buffers(keys)
    starts, lengths = offsets[:-1], np.diff(offsets)
    hashes = np.empty(len(keys), np.uint32)
    short = np.flatnonzero(lengths <= _COLUMN_KEY_BYTES_MAX)
    hashes[short] = _murmur2_of_short(data, starts[short], lengths[short])
    for row in np.flatnonzero(lengths > _COLUMN_KEY_BYTES_MAX):
        hashes[row] = murmur2(data[starts[row] : starts[row] + lengths[row]].tobytes())
    return hashes


def _murmur2_of_short(data: UInt8s, starts: Int64s, lengths: Int64s) -> UInt32s:
    words = lengths >> 2
    order = np.argsort(-words, kind="stable")  # the keys with a word i are always a prefix
    starts, lengths, words = starts[order], lengths[order], words[order]
    values = (SEED ^ lengths).astype(np.uint32)
    little_endian: Any = np.ndarray((max(len(data) - 3, 0),), "<u4", data, strides=(1,))  # a word begins at every byte
    for index in range(int(words[0]) if len(words) else 0):
        active = int(np.searchsorted(-words, -index, side="left"))  # the number of keys with more than `index` words
        word = little_endian[starts[:active] + 4 * index] * np.uint32(MULTIPLIER)
        word = (word ^ word >> np.uint32(24)) * np.uint32(MULTIPLIER)
        values[:active] = values[:active] * np.uint32(MULTIPLIER) ^ word
    _mix_tails(values, data, starts + 4 * words, lengths & 3)
    values = (values ^ values >> np.uint32(13)) * np.uint32(MULTIPLIER)
    values ^= values >> np.uint32(15)
    hashes = np.empty_like(values)
    hashes[order] = values
    return hashes


def _mix_tails(values: UInt32s, data: UInt8s, starts: Int64s, lengths: Int64s) -> None:
    """Mix in the one to three bytes after the last whole word."""
    for byte in (2, 1, 0):
        has = np.flatnonzero(lengths > byte)
        values[has] ^= data[starts[has] + byte].astype(np.uint32) << np.uint32(8 * byte)
    has = np.flatnonzero(lengths)
    values[has] *= np.uint32(MULTIPLIER)


def _buffers(keys: pa.BinaryArray) -> tuple[Int64s, UInt8s]:
    """Return the offsets of the keys, one more than there are keys, and their bytes."""
    _, offsets, data = keys.buffers()
    if offsets is None:
        return np.zeros(len(keys) + 1, np.int64), np.empty(0, np.uint8)
    width = np.int64 if pa.types.is_large_binary(keys.type) else np.int32
    positions = np.frombuffer(offsets, width)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    return positions, np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
