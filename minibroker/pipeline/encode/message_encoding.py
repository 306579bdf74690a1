"""Encodes columns as messages of formats 0 and 1, each with its checksum, one after another or in wrappers.

`minibroker.protocol.records` draws the layouts: messages in `message.py`, wrappers in `message_set.py`.

    |offset, size, crc, magic, attributes, (timestamp), key length|key|value length|value|

The fields of fixed width are a structured array with an item for each row. Joined with keys and values, it has all
messages; only the checksums are missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from zlib import crc32

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from minibroker.pipeline.array_types import Int64s, UInt8s
from minibroker.pipeline.encode.batch_settings import BatchSettings, EncodedBatch, EncodeError, Origin
from minibroker.pipeline.encode.cutting import iterate_chunks, iterate_facts
from minibroker.pipeline.encode.input_columns import Columns, get_value_offsets, join_columns, measure_lengths
from minibroker.protocol.records.batch import LOG_APPEND_TIME, LOG_OVERHEAD_BYTES, TIMESTAMP_TYPE_BIT
from minibroker.protocol.records.compression import Compression, compress
from minibroker.protocol.records.lz4_frames import with_old_checksum
from minibroker.protocol.records.message import (
    CRC_POSITION,
    MAGIC_POSITION,
    MIN_MESSAGE_BYTES,
    NO_TIMESTAMP,
    encode_message,
)

_BEFORE_KEY = [("offset", ">i8"), ("size", ">i4"), ("crc", ">u4"), ("magic", "i1"), ("attributes", "i1")]
_HEADS = (
    np.dtype([*_BEFORE_KEY, ("key_length", ">i4")]),
    np.dtype([*_BEFORE_KEY, ("timestamp", ">i8"), ("key_length", ">i4")]),
)
_MAX_MESSAGE_BYTES = 2**31 - 1 - LOG_OVERHEAD_BYTES


def encode_messages(columns: Columns, settings: BatchSettings, origins: Sequence[Origin]) -> Iterator[EncodedBatch]:
    """Yield the messages of at least one row. Raises `EncodeError`."""
    if columns.headers is not None and not settings.drop_headers:
        raise EncodeError(f"message format {settings.magic} has no headers, and there are rows with some")
    sizes = _measure_sizes(columns, settings.magic)
    if sizes.max() > _MAX_MESSAGE_BYTES:
        raise EncodeError(f"a message of {sizes.max()} bytes: it must be less than 2 GiB")
    for start, end, starts in iterate_chunks(columns, sizes, settings, origins, 0):
        part = columns.slice(start, end)
        inner = part.offsets
        if settings.magic and settings.codec:
            inner = inner - np.repeat(inner[starts], np.diff(starts, append=len(part)))
        data, positions = _encode_messages(part, sizes[start:end], inner, settings)
        yield from _make_sets(part, starts, data.data, positions[starts].tolist(), settings)


def _measure_sizes(columns: Columns, magic: int) -> Int64s:
    return (
        MIN_MESSAGE_BYTES[magic]
        + np.maximum(measure_lengths(columns.key), 0)
        + np.maximum(measure_lengths(columns.value), 0)
    )


def _encode_messages(
    columns: Columns, sizes: Int64s, offsets: Int64s, settings: BatchSettings
) -> tuple[UInt8s, Int64s]:
    """Return all messages, one after another, and where each begins."""
    heads = np.zeros(len(columns), _HEADS[settings.magic])
    heads["offset"] = offsets
    heads["size"] = sizes - LOG_OVERHEAD_BYTES
    heads["magic"] = settings.magic
    heads["attributes"] = _make_attributes(settings)
    if settings.magic:
        earliest = int(columns.timestamps_ms.min(initial=NO_TIMESTAMP))
        if earliest < NO_TIMESTAMP:  # readers refuse it
            raise EncodeError(f"message format {settings.magic} has no time {earliest}")
        heads["timestamp"] = columns.timestamps_ms
    heads["key_length"] = measure_lengths(columns.key)
    value_lengths = measure_lengths(columns.value).astype(">i4")
    joined = join_columns(
        _convert_to_fixed_size(heads), columns.key, _convert_to_fixed_size(value_lengths), columns.value
    )
    positions = get_value_offsets(joined).astype(np.int64)
    data = np.frombuffer(joined.buffers()[2], np.uint8)[positions[0] : positions[-1]].copy()
    _put_checksums(data, positions)
    return data, positions[:-1]


def _make_attributes(settings: BatchSettings) -> int:
    return TIMESTAMP_TYPE_BIT if settings.timestamp_type == LOG_APPEND_TIME else 0


def _convert_to_fixed_size(values: NDArray[np.generic]) -> pa.FixedSizeBinaryArray:
    """Return the bytes of each item of an array as a binary value."""
    offsets = np.arange(len(values) + 1, dtype=np.int32) * values.dtype.itemsize
    return pa.Array.from_buffers(
        pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(values.view(np.uint8))]
    )


def _put_checksums(data: UInt8s, positions: Int64s) -> None:
    """Set the checksum of each message: CRC-32 of the bytes that follow it."""
    view = data.data
    checksums = [crc32(view[start + MAGIC_POSITION : end]) for start, end in pairwise(positions.tolist())]
    octets = np.array(checksums, ">u4").view(np.uint8).reshape(-1, 4)
    data[positions[:-1, None] + np.arange(CRC_POSITION, MAGIC_POSITION)] = octets


def _make_sets(
    columns: Columns, starts: Int64s, data: memoryview, positions: list[int], settings: BatchSettings
) -> Iterator[EncodedBatch]:
    """Yield sets of messages. `positions` is where the first message of each set begins."""
    for (start, end), facts in zip(pairwise([*positions, len(data)]), iterate_facts(columns, starts), strict=True):
        time = max(facts.max_timestamp_ms, NO_TIMESTAMP) if settings.magic else NO_TIMESTAMP
        written = _wrap_messages(data[start:end], facts.last_offset, time, settings)
        yield EncodedBatch(written, facts.end - facts.start, facts.base_offset, facts.last_offset, time, -1)


def _wrap_messages(messages: memoryview, last_offset: int, timestamp_ms: int, settings: BatchSettings) -> bytes:
    """Return the messages as they are, or in a compressed wrapper."""
    if settings.codec == Compression.NONE:
        return bytes(messages)
    value = compress(settings.codec, messages, settings.level)
    if settings.codec == Compression.LZ4 and settings.magic == 0:
        value = with_old_checksum(value)
    attributes = _make_attributes(settings) | settings.codec
    return encode_message(settings.magic, last_offset, timestamp_ms, attributes, None, value)
