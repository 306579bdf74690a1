"""Finds each record of a batch, and its key, without creating objects. Compaction uses it to keep or drop records.

It trusts a record's length if key and value begin within it, and does not check headers and the end of the value. The
strict reader is in `record.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from minibroker.protocol.errors import InvalidRecords
from minibroker.protocol.legible import format_bytes_left
from minibroker.protocol.records.varints import (
    MAX_VARINT_BYTES,
    MAX_VARLONG_BYTES,
    SECOND_BYTE,
    MalformedVarint,
    convert_from_zigzag,
    encode_zigzag,
    read_zigzag_varint,
    wrap_to_64_bits,
)

# (start, end, raw offset delta, raw timestamp delta, key, whether the value is null); raw is zigzag, as stored
RecordSlice = tuple[int, int, int, int, bytes | None, bool]


def iterate_record_slices(data: bytes, count: int) -> Iterator[RecordSlice]:
    """Yield the `count` records of `data`, which must contain nothing else. Raises `InvalidRecords`.

    Varints of up to two bytes are read inline, because calls would cost more than all else.
    `_slice_record_with_long_varints` reads records with longer ones, and reports malformed records.
    """
    end, limit, second = 0, len(data), SECOND_BYTE
    for _ in range(count):
        start = end
        try:
            length, position = data[start], start + 1
            if length > 0x7F:
                length, position = length + second[data[position]], position + 1
            end = position + (length >> 1)
            timestamp_delta, position = data[position + 1], position + 2  # skips the attributes, which are unused
            if timestamp_delta > 0x7F:
                timestamp_delta, position = timestamp_delta + second[data[position]], position + 1
            offset_delta, position = data[position], position + 1
            if offset_delta > 0x7F:
                offset_delta, position = offset_delta + second[data[position]], position + 1
            key_length, position = data[position], position + 1
            if key_length > 0x7F:
                key_length, position = key_length + second[data[position]], position + 1
            if key_length & 1:
                key = None
            else:
                value_at = position + (key_length >> 1)
                key, position = data[position:value_at], value_at
            if length & 1 or position >= end or end > limit:
                raise IndexError
            record_slice = start, end, offset_delta, timestamp_delta, key, data[position] & 1 != 0
        except IndexError:
            record_slice = _slice_record_with_long_varints(data, start)
            end = record_slice[1]
        yield record_slice
    if end != limit:
        raise InvalidRecords(f"{format_bytes_left(limit - end)} after the last record")


def _slice_record_with_long_varints(data: bytes, start: int) -> RecordSlice:
    """Return the record at `start`, with varints of any size. Raises `InvalidRecords`."""
    try:
        length, body = read_zigzag_varint(data, start, MAX_VARINT_BYTES)
        timestamp_delta, position = read_zigzag_varint(data, body + 1, MAX_VARLONG_BYTES)  # skips the attributes
        offset_delta, position = read_zigzag_varint(data, position, MAX_VARINT_BYTES)
        key_length, position = read_zigzag_varint(data, position, MAX_VARINT_BYTES)
    except MalformedVarint as error:
        raise InvalidRecords(f"the record at byte {start} is malformed: {error}") from error
    key = None if key_length & 1 else data[position : position + (key_length >> 1)]
    position += 0 if key is None else key_length >> 1
    end = body + (length >> 1)
    if length & 1 or position >= end or end > len(data):
        raise InvalidRecords(f"the record at byte {start} of {len(data)} is malformed: it contradicts its length")
    return start, end, offset_delta, timestamp_delta, key, data[position] & 1 != 0


def add_to_timestamp(data: bytes, record: RecordSlice, by_ms: int) -> bytes:
    """Return the record's bytes with `by_ms` added to its timestamp delta."""
    start, end, _, raw_delta, _, _ = record
    body = read_zigzag_varint(data, start, MAX_VARINT_BYTES)[1]
    rest = read_zigzag_varint(data, body + 1, MAX_VARLONG_BYTES)[1]
    moved = data[body : body + 1] + encode_zigzag(wrap_to_64_bits(convert_from_zigzag(raw_delta) + by_ms))
    return encode_zigzag(len(moved) + end - rest) + moved + data[rest:end]
