"""Cuts rows into batches, and batches into chunks that are encoded together."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from minibroker.pipeline.array_types import Int64s
from minibroker.pipeline.encode.batch_settings import BatchSettings, EncodeError, RowsOrigin
from minibroker.protocol.records.batch import HEADER_BYTES, LOG_APPEND_TIME

_EMPTY = pa.scalar(b"", pa.binary())


@dataclass(frozen=True, slots=True)
class RowColumns:
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

    def select_rows(self, start: int, end: int) -> RowColumns:
        """Return the rows from `start` to before `end`, without a copy."""
        headers = None if self.headers is None else self.headers.slice(start, end - start)
        return RowColumns(
            self.key.slice(start, end - start),
            self.value.slice(start, end - start),
            self.timestamps_ms[start:end],
            self.offsets[start:end],
            headers,
        )


def make_row_columns(rows: pa.RecordBatch, base_offset: int | None) -> RowColumns:
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
    return RowColumns(rows.column("key"), rows.column("value"), times, offsets, found)


def measure_value_lengths(column: pa.BinaryArray) -> Int64s:
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


MAX_OFFSET_DELTA = 2**31 - 1

_CHUNK_BYTES = 4 << 20  # fits into the processor's caches, and limits the memory


class RowChunk(NamedTuple):
    """The rows from `start` to before `end`, and the first row of each batch, counted from `start`."""

    start: int
    end: int
    starts: Int64s


class BatchFacts(NamedTuple):
    """The first row of a batch, the row after its last one, and what its header needs of those between them."""

    start: int
    end: int
    base_offset: int
    last_offset: int
    base_timestamp_ms: int
    max_timestamp_ms: int


def iterate_chunks(
    columns: RowColumns, sizes: Int64s, settings: BatchSettings, origins: Sequence[RowsOrigin]
) -> Iterator[RowChunk]:
    """Yield all rows in batches, some batches at a time. `sizes` are the rows' largest sizes in bytes."""
    ends = np.cumsum(sizes)
    starts: list[int] = []
    done = 0
    for start, end in _iterate_batch_ranges(columns, ends, settings.batch_bytes - HEADER_BYTES, settings, origins):
        if starts and ends[end - 1] - ends[starts[0]] + sizes[starts[0]] > _CHUNK_BYTES:
            yield _make_chunk(starts, start)
            starts = []
        starts.append(start)
        done = end
    yield _make_chunk(starts, done)


def iterate_batch_facts(columns: RowColumns, starts: Int64s) -> Iterator[BatchFacts]:
    """Yield the facts of the batches that begin at the rows `starts`, of which the first is 0."""
    ends = np.append(starts[1:], len(columns))
    times = columns.timestamps_ms
    offsets = columns.offsets[starts], columns.offsets[ends - 1]
    found = starts, ends, *offsets, times[starts], np.maximum.reduceat(times, starts)
    return map(BatchFacts, *(column.tolist() for column in found))


def _make_chunk(starts: list[int], end: int) -> RowChunk:
    return RowChunk(starts[0], end, np.array(starts, np.int64) - starts[0])


def _iterate_batch_ranges(
    columns: RowColumns, ends: Int64s, limit_bytes: int, settings: BatchSettings, origins: Sequence[RowsOrigin]
) -> Iterator[tuple[int, int]]:
    """Yield (first row, row after the last) of each batch: as many rows as fit, but at least one."""
    most = len(columns) if settings.batch_records is None else settings.batch_records
    start = 0
    for stop in _find_batch_ends(columns, settings, origins):
        while start < stop:
            before = int(ends[start - 1]) if start else 0
            end = bisect_right(ends, before + limit_bytes, start, min(start + most, stop))
            end = max(end, start + 1)
            largest = int(columns.offsets[start]) + MAX_OFFSET_DELTA
            if columns.offsets[end - 1] > largest:
                end = bisect_right(columns.offsets, largest, start, end)
            yield start, end
            start = end


def _find_batch_ends(columns: RowColumns, settings: BatchSettings, origins: Sequence[RowsOrigin]) -> list[int]:
    """Return the rows before which a batch must end, and the end of all rows."""
    starts = [origin.start for origin in origins[1:]]
    if settings.timestamp_type != LOG_APPEND_TIME:
        return [*starts, len(columns)]
    changes = np.flatnonzero(np.diff(columns.timestamps_ms)) + 1
    return sorted({*starts, *changes.tolist(), len(columns)})
