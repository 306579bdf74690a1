"""Cuts rows into batches, and batches into chunks that are encoded together."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from minibroker.pipeline.array_types import Int64s
from minibroker.pipeline.encode.batch_settings import BatchSettings, Origin
from minibroker.pipeline.encode.input_columns import Columns
from minibroker.protocol.records.batch import HEADER_BYTES, LOG_APPEND_TIME

MAX_OFFSET_DELTA = 2**31 - 1

_CHUNK_BYTES = 4 << 20  # fits into the processor's caches, and limits the memory


class Chunk(NamedTuple):
    """The rows from `start` to before `end`, and the first row of each batch, counted from `start`."""

    start: int
    end: int
    starts: Int64s


class Facts(NamedTuple):
    """The first row of a batch, the row after its last one, and what its header needs of those between them."""

    start: int
    end: int
    base_offset: int
    last_offset: int
    base_timestamp_ms: int
    max_timestamp_ms: int


def iterate_chunks(
    columns: Columns, sizes: Int64s, settings: BatchSettings, origins: Sequence[Origin]
) -> Iterator[Chunk]:
    """Yield all rows in batches, some batches at a time. `sizes` are the rows' largest sizes in bytes."""
    ends = np.cumsum(sizes)
    starts: list[int] = []
    done = 0
    for start, end in _iterate_cuts(columns, ends, settings.batch_bytes - HEADER_BYTES, settings, origins):
        if starts and ends[end - 1] - ends[starts[0]] + sizes[starts[0]] > _CHUNK_BYTES:
            yield _make_chunk(starts, start)
            starts = []
        starts.append(start)
        done = end
    yield _make_chunk(starts, done)


def iterate_facts(columns: Columns, starts: Int64s) -> Iterator[Facts]:
    """Yield the facts of the batches that begin at the rows `starts`, of which the first is 0."""
    ends = np.append(starts[1:], len(columns))
    times = columns.timestamps_ms
    offsets = columns.offsets[starts], columns.offsets[ends - 1]
    found = starts, ends, *offsets, times[starts], np.maximum.reduceat(times, starts)
    return map(Facts, *(column.tolist() for column in found))


def _make_chunk(starts: list[int], end: int) -> Chunk:
    return Chunk(starts[0], end, np.array(starts, np.int64) - starts[0])


def _iterate_cuts(
    columns: Columns, ends: Int64s, limit_bytes: int, settings: BatchSettings, origins: Sequence[Origin]
) -> Iterator[tuple[int, int]]:
    """Yield (first row, row after the last) of each batch: as many rows as fit, but at least one."""
    most = len(columns) if settings.batch_records is None else settings.batch_records
    start = 0
    for stop in _find_breaks(columns, settings, origins):
        while start < stop:
            before = int(ends[start - 1]) if start else 0
            end = bisect_right(ends, before + limit_bytes, start, min(start + most, stop))
            end = max(end, start + 1)
            largest = int(columns.offsets[start]) + MAX_OFFSET_DELTA
            if columns.offsets[end - 1] > largest:
                end = bisect_right(columns.offsets, largest, start, end)
            yield start, end
            start = end


def _find_breaks(columns: Columns, settings: BatchSettings, origins: Sequence[Origin]) -> list[int]:
    """Return the rows before which a batch must end, and the end of all rows."""
    starts = [origin.start for origin in origins[1:]]
    if settings.timestamp_type != LOG_APPEND_TIME:
        return [*starts, len(columns)]
    changes = np.flatnonzero(np.diff(columns.timestamps_ms)) + 1
    return sorted({*starts, *changes.tolist(), len(columns)})
