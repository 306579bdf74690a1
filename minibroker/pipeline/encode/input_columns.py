"""The columns of the rows to encode, converted to one form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from minibroker.pipeline.array_types import Int64s
from minibroker.pipeline.encode.batch_settings import EncodeError

NO_TIMESTAMP = -1

_EMPTY = pa.scalar(b"", pa.binary())


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows by column: key and value binary, times in ms (-1: none), rising offsets.

    `headers` is None if no row has any.
    """

    key: pa.BinaryArray
    value: pa.BinaryArray
    timestamps_ms: Int64s
    offsets: Int64s
    headers: pa.ListArray | None

    def __len__(self) -> int:
        return len(self.offsets)

    def slice(self, start: int, end: int) -> Columns:
        """Return the rows from `start` to before `end`, without a copy."""
        headers = None if self.headers is None else self.headers.slice(start, end - start)
        return Columns(
            self.key.slice(start, end - start),
            self.value.slice(start, end - start),
            self.timestamps_ms[start:end],
            self.offsets[start:end],
            headers,
        )


def make_columns(rows: pa.RecordBatch, base_offset: int | None) -> Columns:
    """Return the columns of rows: `value`, and if they exist `key`, `timestamp`, `headers` and `offset`.

    Offsets are consecutive from `base_offset` on, or those of the column. Raises `EncodeError` for a column of another
    type, offsets that do not rise, and headers without a key.
    """
    if base_offset is None:
        offsets = _get_offsets(rows)
    else:
        offsets = np.arange(base_offset, base_offset + rows.num_rows, dtype=np.int64)
    return Columns(
        _get_bytes(rows, "key"), _get_bytes(rows, "value"), _get_timestamps(rows), offsets, _get_headers(rows)
    )


def measure_lengths(column: pa.BinaryArray) -> Int64s:
    """Return the length of each value in bytes; -1 for null."""
    lengths: Int64s = pc.binary_length(column).fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def count_headers(headers: pa.ListArray) -> Int64s:
    """Return how many headers each row has; 0 for null."""
    counts: Int64s = pc.list_value_length(headers).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return counts


def _get_bytes(rows: pa.RecordBatch, name: str) -> pa.BinaryArray:
    column = _get_column(rows, name)
    if column is None or pa.types.is_null(column.type):
        return pa.nulls(rows.num_rows, pa.binary())
    if column.type == pa.binary():
        return column
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type) or _is_other_binary(column.type)):
        raise EncodeError(f"the column {name} is {column.type}: a record's {name} is binary or string")
    return column.cast(pa.binary())


def _is_other_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_binary_view(kind))


def _get_timestamps(rows: pa.RecordBatch) -> Int64s:
    """Return times in ms; -1 for null, or without the column."""
    column = _get_column(rows, "timestamp")
    if column is None or pa.types.is_null(column.type):
        return np.full(rows.num_rows, NO_TIMESTAMP, np.int64)
    if pa.types.is_integer(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_timestamp(column.type):
        return _convert_to_ms(column)
    else:
        raise EncodeError(
            f"the column timestamp is {column.type}: it must be a timestamp, or an integer of ms since 1970"
        )
    times: Int64s = column.fill_null(NO_TIMESTAMP).to_numpy(zero_copy_only=False)
    return times


def _convert_to_ms(column: pa.TimestampArray) -> Int64s:
    """Return times in ms, rounded down, also before 1970."""
    per_second = {"s": 1, "ms": 1000, "us": 1000_000, "ns": 1000_000_000}[column.type.unit]
    numbers: Int64s = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    times = numbers * (1000 // per_second) if per_second <= 1000 else numbers // (per_second // 1000)
    if column.null_count:
        times = np.where(column.is_null().to_numpy(zero_copy_only=False), NO_TIMESTAMP, times)
    return times


def _get_offsets(rows: pa.RecordBatch) -> Int64s:
    column = _get_column(rows, "offset")
    if column is None or column.null_count:
        raise EncodeError("rows that keep their offsets need a column offset without nulls")
    offsets: Int64s = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    if len(offsets) and (offsets[0] < 0 or (np.diff(offsets) <= 0).any()):
        raise EncodeError("the offsets of rows must rise, from 0 or above")
    return offsets


def _get_headers(rows: pa.RecordBatch) -> pa.ListArray | None:
    column = _get_column(rows, "headers")
    if column is None or pa.types.is_null(column.type):
        return None
    if not pa.types.is_list(column.type) or not pa.types.is_struct(column.type.value_type):
        raise EncodeError(f"the column headers is {column.type}: it must be a list of (key string, value binary)")
    return column if count_headers(column).any() else None


def _get_column(rows: pa.RecordBatch, name: str) -> pa.Array | None:
    index = rows.schema.get_field_index(name)
    return None if index < 0 else rows.column(index)


def join_columns(*parts: pa.BinaryArray | pa.BinaryScalar) -> pa.BinaryArray:
    """Join the columns' values in each row into one value; null is empty. The result's data buffer has all rows.

    The data must be smaller than 2 GiB.
    """
    return pc.binary_join_element_wise(*parts, _EMPTY, null_handling="replace", null_replacement=b"")


def get_value_offsets(column: pa.BinaryArray) -> NDArray[np.int32]:
    """Return where the values of a column begin in its data, and where the last one ends."""
    return np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
