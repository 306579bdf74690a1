"""The fields of records of format 2 as columns. Only the wanted fields are read.

All records are walked at once, field by field. Positions only grow, so a record is well formed if its walk arrives
exactly at its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from minibroker.pipeline.array_types import Bools, Int64s, UInt8s
from minibroker.pipeline.decode.record_starts import BEYOND, decode_zigzag, read_varints, read_varlongs

PARTS: Final = ("timestamp", "offset", "key", "value", "headers")  # of a record, in their order in it


def list_record_parts_of_columns(columns: Sequence[str]) -> set[str]:
    """Return the parts of records that these columns of the records table need."""
    return {"timestamp" if name == "timestampMs" else name for name in columns} & {*PARTS}


class RecordParts(NamedTuple):
    """A key, a value or the like of each record: its start, its length, and whether it is null (None: no one is)."""

    start: Int64s
    length: Int64s
    is_null: Bools | None


class HeaderParts(NamedTuple):
    """The headers of each record: their number, and the keys and values of all headers, one after the other."""

    per_record: Int64s
    keys: RecordParts
    values: RecordParts


@dataclass(slots=True)
class FieldColumns:
    """Columns of equal length. None means not wanted, or not in the format. Keys and values may be arrays of Arrow."""

    count: int
    offsets: Int64s | None = None
    timestamps_ms: Int64s | None = None  # -1: none
    timestamp_types: Int64s | int = 0
    keys: RecordParts | pa.Array | None = None
    values: RecordParts | pa.Array | None = None
    headers: HeaderParts | None = None


_MIN_HEADER_BYTES: Final = 2  # the lengths of key and value
_MAX_HEADERS: Final = 1 << 16  # of one record: more count as damage, as each takes a step


class RecordFields(NamedTuple):
    """Columns of the records. None means deeper than was asked for."""

    malformed: Bools  # of the part of the record that was read
    timestamp_deltas: Int64s
    offset_deltas: Int64s | None = None
    keys: RecordParts | None = None
    values: RecordParts | None = None
    headers: HeaderParts | None = None


def read_record_fields(data: UInt8s, starts: Int64s, has_attributes: Int64s | int, depth: int) -> RecordFields:
    """Return the first `depth` fields (1 to 5) of the records at `starts`.

    `has_attributes` is 1 for records with an attributes byte, 0 without. The lengths of the records must have been
    checked (`find_record_starts`).
    """
    length, at = read_varints(data, starts)
    end = at + (length >> 1)
    timestamp_deltas, at = read_varlongs(data, at + has_attributes)
    if depth == 1:
        return RecordFields(at > end, timestamp_deltas)
    raw, at = read_varints(data, at)
    offset_deltas = decode_zigzag(raw)
    if depth == 2:
        return RecordFields(at > end, timestamp_deltas, offset_deltas)
    keys, at = _read_parts(data, at)
    if depth == 3:
        return RecordFields(at > end, timestamp_deltas, offset_deltas, keys)
    values, at = _read_parts(data, at)
    if depth == 4:
        return RecordFields(at > end, timestamp_deltas, offset_deltas, keys, values)
    headers, at = _read_headers(data, at, end)
    return RecordFields(at != end, timestamp_deltas, offset_deltas, keys, values, headers)


def _read_parts(data: UInt8s, positions: Int64s) -> tuple[RecordParts, Int64s]:
    """Return the bytes behind a length (negative: null), and the positions after them."""
    raw, start = read_varints(data, positions)
    length = raw >> 1
    is_null = raw & 1 != 0
    if not is_null.any():
        return RecordParts(start, length, None), start + length
    length[is_null] = 0
    return RecordParts(start, length, is_null), start + length


def _read_headers(data: UInt8s, positions: Int64s, end: Int64s) -> tuple[HeaderParts, Int64s]:
    """Return the headers, and the positions after them; `BEYOND` if they are malformed."""
    raw, positions = read_varints(data, positions)
    count = raw >> 1
    impossible = (raw & 1 != 0) | (count > (end - positions) // _MIN_HEADER_BYTES) | (count > _MAX_HEADERS)
    if impossible.any():
        count[impossible], positions[impossible] = 0, BEYOND
    return _HeadersReader(data, count).read_headers(positions)


class _HeadersReader:
    """The columns of headers while they are read: the first header of all records, then the second, and so on."""

    def __init__(self, data: UInt8s, count: Int64s) -> None:
        self._data = data
        self._count = count
        self._first = np.cumsum(count) - count
        total = int(count.sum())
        self._keys = np.zeros((2, total), np.int64)
        self._values = np.zeros((2, total), np.int64)
        self._null_values = np.zeros(total, np.bool_)

    def read_headers(self, positions: Int64s) -> tuple[HeaderParts, Int64s]:
        active = np.flatnonzero(self._count)
        index = 0
        while len(active):
            positions[active] = self._read_next_header(positions[active], self._first[active] + index)
            index += 1
            active = active[self._count[active] > index]
        null_values = self._null_values if self._null_values.any() else None
        return HeaderParts(
            self._count,
            RecordParts(self._keys[0], self._keys[1], None),
            RecordParts(self._values[0], self._values[1], null_values),
        ), positions

    def _read_next_header(self, positions: Int64s, slots: Int64s) -> Int64s:
        """Read one header of many records into these slots. Return the positions after it."""
        keys, positions = _read_parts(self._data, positions)
        if keys.is_null is not None:
            positions[keys.is_null] = BEYOND
        values, positions = _read_parts(self._data, positions)
        self._keys[:, slots] = keys.start, keys.length
        self._values[:, slots] = values.start, values.length
        if values.is_null is not None:
            self._null_values[slots] = values.is_null
        return positions
