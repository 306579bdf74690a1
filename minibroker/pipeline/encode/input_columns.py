"""The columns of the rows to encode, and what is read of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from minibroker.pipeline.array_types import Int64s
from minibroker.pipeline.encode.batch_settings import EncodeError

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
    """Return the columns of rows: `key`, `value`, `timestamp` (in ms), `headers`, and `offset` without a base offset.

    Raises `EncodeError` for offsets that do not rise.
    """
    if base_offset is None:
        offsets = rows.column("offset").to_numpy()
        if (np.diff(offsets) <= 0).any():
            raise EncodeError("the offsets of rows must rise")
    else:
        offsets = np.arange(base_offset, base_offset + rows.num_rows, dtype=np.int64)
    times, headers = rows.column("timestamp").to_numpy(), rows.column("headers")
    found = headers if count_headers(headers).any() else None
    return Columns(rows.column("key"), rows.column("value"), times, offsets, found)


def measure_lengths(column: pa.BinaryArray) -> Int64s:
    """Return the length of each value in bytes; -1 for null."""
    lengths: Int64s = pc.binary_length(column).fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def count_headers(headers: pa.ListArray) -> Int64s:
    """Return how many headers each row has; 0 for null."""
    counts: Int64s = pc.list_value_length(headers).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return counts


def join_columns(*parts: pa.BinaryArray | pa.BinaryScalar) -> pa.BinaryArray:
    """Join the columns' values in each row into one value; null is empty. The result's data buffer has all rows.

    The data must be smaller than 2 GiB.
    """
    return pc.binary_join_element_wise(*parts, _EMPTY, null_handling="replace", null_replacement=b"")


def get_value_offsets(column: pa.BinaryArray) -> NDArray[np.int32]:
    """Return where the values of a column begin in its data, and where the last one ends."""
    return np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
