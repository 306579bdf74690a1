"""Compares the sparse indexes of a segment, `.index` and `.timeindex`, with the batches in its `.log` file.

    .index       int32 offset, relative to the segment's base, of a batch's last record   int32 position of the batch
    .timeindex   int64 largest timestamp so far     int32 last offset, relative, of the batch that holds it

Zeros behind the entries are no finding, as in a file that is in use. The position of an `.index` entry may be before
the batch with its offset, as old brokers made one entry for several batches of an append.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from minibroker.pipeline.jobs.verify.findings import Problem
from minibroker.pipeline.jobs.verify.log_blocks import Block, Flags, Ints

INDEX_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])
TIME_INDEX_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
NONE = -1


class OffsetIndexCheck:
    """Compares one `.index` file with the blocks of its segment. Raises `OSError`."""

    def __init__(self, path: Path, base_offset: int) -> None:
        entries, self._rest = _entries(path, INDEX_ENTRY)
        self._base_offset = base_offset
        self._offsets = entries["offset"].astype(np.int64) + base_offset
        self._positions = entries["position"].astype(np.int64)
        self._last_at = np.full(len(entries), NONE, np.int64)  # last offset of the batch at the position
        self._batch_at = np.full(len(entries), NONE, np.int64)  # position of the batch with that last offset
        self._damaged_at = np.zeros(len(entries), np.bool_)

    def take(self, block: Block) -> None:
        """Look up the entries in a block."""
        rows, found = _looked_up(block.positions, self._positions)
        self._last_at[found] = block.headers.last_offset[rows]
        self._damaged_at[found] = ~block.sound[rows]
        rows, found = _looked_up(block.headers.last_offset, self._offsets)
        self._batch_at[found] = block.positions[rows]

    def problems(self, end_position: int, *, damaged: bool) -> Iterator[Problem]:
        """Yield what is wrong with the entries. `damaged` means that parts of the log could not be read."""
        size = INDEX_ENTRY.itemsize
        if self._rest:
            yield Problem("index-order", len(self._offsets) * size, NONE, f"{self._rest} bytes behind the last entry")
        behind = np.concatenate(([False], ~_rises(self._offsets) | ~_rises(self._positions)))[: len(self._offsets)]
        behind |= (self._offsets < self._base_offset) | (self._positions < 0)
        beyond = ~behind & (self._positions >= end_position)
        nowhere = ~behind & ~beyond & (self._last_at == NONE) & (not damaged)
        after = np.concatenate((self._positions[1:], [np.iinfo(np.int64).max]))[: len(self._positions)]
        after = np.where(after > self._positions, after, np.iinfo(np.int64).max)
        is_at = (self._batch_at >= self._positions) & (self._batch_at < after)
        other = ~behind & (self._last_at != NONE) & ~is_at & ~self._damaged_at
        for place in np.flatnonzero(behind | beyond | nowhere | other).tolist():
            offset, position = int(self._offsets[place]), int(self._positions[place])
            entry = f"entry {place} (offset {offset}, position {position})"
            if behind[place]:
                yield Problem("index-order", place * size, offset, f"{entry} is not larger than the one before")
            elif beyond[place]:
                yield Problem("index-beyond-log", place * size, offset, f"{entry}; the log ends at {end_position}")
            elif nowhere[place]:
                yield Problem("index-position", place * size, offset, f"{entry}; no batch begins there")
            else:
                detail = f"{entry}; the batch there ends at offset {int(self._last_at[place])}"
                yield Problem("index-offset", place * size, offset, detail)


class TimeIndexCheck:
    """Compares one `.timeindex` file with the blocks of its segment. Raises `OSError`."""

    def __init__(self, path: Path, base_offset: int) -> None:
        entries, self._rest = _entries(path, TIME_INDEX_ENTRY)
        self._base_offset = base_offset
        self._offsets = entries["offset"].astype(np.int64) + base_offset
        self._timestamps = entries["timestamp"].astype(np.int64)
        self._of_batch = np.full(len(entries), NONE, np.int64)  # largest timestamp of the batch with the offset
        self._so_far = np.full(len(entries), NONE, np.int64)  # and of all batches up to it
        self._found = np.zeros(len(entries), np.bool_)
        self._max_timestamp = NONE

    def take(self, block: Block) -> None:
        """Look up the entries in a block."""
        rows = np.flatnonzero(block.sound)
        if not len(rows):
            return
        largest = np.maximum(np.maximum.accumulate(block.headers.max_timestamp[rows]), self._max_timestamp)
        self._max_timestamp = int(largest[-1])
        firsts = np.where(block.first_offset >= 0, block.first_offset, block.headers.base_offset)[rows]
        lasts = block.headers.last_offset[rows]
        order = np.argsort(lasts, kind="stable")
        at = np.minimum(np.searchsorted(lasts[order], self._offsets), len(order) - 1)
        batch = order[at]
        here = ~self._found & (firsts[batch] <= self._offsets) & (self._offsets <= lasts[batch])
        self._of_batch[here] = block.headers.max_timestamp[rows][batch[here]]
        self._so_far[here] = largest[batch[here]]
        self._found |= here

    def problems(self, last_offset: int, *, closed: bool, damaged: bool) -> Iterator[Problem]:
        """Yield what is wrong.

        `closed` means that the segment is complete, so that the last entry must be the largest.
        """
        size = TIME_INDEX_ENTRY.itemsize
        count = len(self._offsets)
        if self._rest:
            yield Problem("timeindex-order", count * size, NONE, f"{self._rest} bytes behind the last entry")
        falls = np.concatenate(([False], ~_rises(self._timestamps) | (np.diff(self._offsets) < 0)))[:count]
        falls |= (self._offsets < self._base_offset) | (self._timestamps < 0)
        nowhere = ~falls & ~self._found & ((self._offsets > last_offset) | (not damaged))
        other = ~falls & self._found & (self._of_batch != self._timestamps)
        late = ~falls & ~other & self._found & (self._so_far > self._timestamps)
        for place in np.flatnonzero(falls | nowhere | other | late).tolist():
            offset, timestamp = int(self._offsets[place]), int(self._timestamps[place])
            entry = f"entry {place} (time {timestamp}, offset {offset})"
            if falls[place]:
                yield Problem("timeindex-order", place * size, offset, f"{entry} is not larger than the one before")
            elif nowhere[place]:
                detail = f"{entry}; the segment has no batch with it, and ends at {last_offset}"
                yield Problem("timeindex-offset", place * size, offset, detail)
            elif other[place]:
                detail = f"{entry}; the batch has {int(self._of_batch[place])}"
                yield Problem("timeindex-timestamp", place * size, offset, detail)
            else:
                detail = f"{entry}; the log has {int(self._so_far[place])} before it"
                yield Problem("timeindex-late", place * size, offset, detail)
        known = int(self._timestamps[-1]) if count else NONE
        if closed and not damaged and self._max_timestamp > max(known, NONE) and not falls[-1:].any():
            detail = f"its last entry has {known}, the log {self._max_timestamp}"
            yield Problem("timeindex-incomplete", max(count - 1, 0) * size, NONE, detail)


def _entries(path: Path, entry: np.dtype[np.void]) -> tuple[np.ndarray[tuple[int], np.dtype[np.void]], int]:
    """Return the entries of an index without the zeros behind them, and how many bytes remain."""
    data = path.read_bytes()
    used = len(data.rstrip(b"\0"))
    count = -(-used // entry.itemsize)
    if count * entry.itemsize > len(data):
        count -= 1
    rest = len(data) % entry.itemsize
    return np.frombuffer(data, entry, count), rest


def _looked_up(column: Ints, wanted: Ints) -> tuple[Ints, Ints]:
    """Return (rows of the column, indexes in `wanted`) with the same number."""
    order = np.argsort(column, kind="stable")
    at = np.searchsorted(column[order], wanted)
    at = np.minimum(at, len(order) - 1)
    places = np.flatnonzero(column[order][at] == wanted)
    return order[at[places]], places


def _rises(column: Ints) -> Flags:
    rises: Flags = np.diff(column) > 0
    return rises
