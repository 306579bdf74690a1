"""Compares the sparse indexes of a segment, `.index` and `.timeindex`, with the batches in its `.log` file.

`storage/segment_indexes.py` describes their entries.

Zeros behind the entries are no finding, as in a file that is in use. The position of an `.index` entry may be before
the batch with its offset, as old brokers made one entry for several batches of an append.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from minibroker.pipeline.array_types import Bools, Int64s
from minibroker.pipeline.directory.reading_disk import DISK
from minibroker.pipeline.directory.segment_files import INDEX_ENTRY, TIME_INDEX_ENTRY
from minibroker.pipeline.verifying.findings import Problem
from minibroker.pipeline.verifying.log_blocks import LogBlock, RowFault, iterate_first_fault_of_rows

NONE = -1


class _IndexCheck:
    """The entries of an index file, and what is wrong with them. Raises `OSError`."""

    def __init__(self, path: str, base_offset: int, entry_type: np.dtype[np.void], kind: str) -> None:
        data = DISK.read_whole(path)
        used = len(data.rstrip(b"\0"))  # the last entry may end with zeros
        self._entries = np.frombuffer(
            data, entry_type, min(-(-used // entry_type.itemsize), len(data) // entry_type.itemsize)
        )
        self._offsets = self._entries["offset"].astype(np.int64) + base_offset
        self._base_offset = base_offset
        self._rest = len(data) % entry_type.itemsize
        self._order = kind

    def _iterate_entry_problems(self, faults: Sequence[RowFault], name: str, values: Int64s) -> Iterator[Problem]:
        """Yield a problem for each faulty entry; `name` is the format of its offset and its other field, `values`."""
        size = self._entries.itemsize
        if self._rest:
            yield Problem(self._order, len(self._offsets) * size, NONE, f"{self._rest} bytes behind the last entry")
        for place, kind, detail in iterate_first_fault_of_rows(faults):
            offset = int(self._offsets[place])
            yield Problem(kind, place * size, offset, f"entry {place} ({name.format(offset, values[place])}){detail}")


class OffsetIndexCheck(_IndexCheck):
    """Compares one `.index` file with the blocks of its segment. Raises `OSError`."""

    def __init__(self, path: str, base_offset: int) -> None:
        super().__init__(path, base_offset, INDEX_ENTRY, "index-order")
        count = len(self._entries)
        self._positions = self._entries["position"].astype(np.int64)
        self._last_at = np.full(count, NONE, np.int64)  # last offset of the batch at the position
        self._batch_at = np.full(count, NONE, np.int64)  # position of the batch with that last offset
        self._damaged_at = np.zeros(count, np.bool_)

    def compare_with_block(self, block: LogBlock) -> None:
        """Note which batches of a block the entries name. Call it with each block in order."""
        rows, found = _find_common_numbers(block.positions, self._positions)
        self._last_at[found] = block.headers.last_offset[rows]
        self._damaged_at[found] = ~block.sound[rows]
        rows, found = _find_common_numbers(block.headers.last_offset, self._offsets)
        self._batch_at[found] = block.positions[rows]

    def iterate_problems(self, end_position: int, *, damaged: bool) -> Iterator[Problem]:
        """Yield what is wrong with the entries, after all blocks; `damaged` if parts of the log could not be read."""
        count = len(self._offsets)
        behind = np.concatenate(([False], ~_find_rises(self._offsets) | ~_find_rises(self._positions)))[:count]
        behind |= (self._offsets < self._base_offset) | (self._positions < 0)
        after = np.concatenate((self._positions[1:], [np.iinfo(np.int64).max]))[:count]
        after = np.where(after > self._positions, after, np.iinfo(np.int64).max)
        is_at = (self._batch_at >= self._positions) & (self._batch_at < after)
        is_there = self._last_at != NONE
        faults: tuple[RowFault, ...] = (
            (behind, "index-order", lambda at: " is not larger than the one before"),
            (self._positions >= end_position, "index-beyond-log", lambda at: f"; the log ends at {end_position}"),
            (~is_there & (not damaged), "index-position", lambda at: "; no batch begins there"),
            (
                is_there & ~is_at & ~self._damaged_at,
                "index-offset",
                lambda at: f"; the batch there ends at offset {self._last_at[at]}",
            ),
        )
        yield from self._iterate_entry_problems(faults, "offset {0}, position {1}", self._positions)


class TimeIndexCheck(_IndexCheck):
    """Compares one `.timeindex` file with the blocks of its segment. Raises `OSError`."""

    def __init__(self, path: str, base_offset: int) -> None:
        super().__init__(path, base_offset, TIME_INDEX_ENTRY, "timeindex-order")
        count = len(self._entries)
        self._timestamps = self._entries["timestamp"].astype(np.int64)
        self._of_batch = np.full(count, NONE, np.int64)  # largest timestamp of the batch with the offset
        self._so_far = np.full(count, NONE, np.int64)  # and of all batches up to it
        self._found = np.zeros(count, np.bool_)
        self._max_timestamp = NONE

    def compare_with_block(self, block: LogBlock) -> None:
        """Note which batches of a block have the entries' offsets. Call it with each block in order."""
        rows = np.flatnonzero(block.sound)
        if not len(rows):
            return
        largest = np.maximum(np.maximum.accumulate(block.headers.max_timestamp[rows]), self._max_timestamp)
        self._max_timestamp = int(largest[-1])
        firsts, lasts = block.known_first_offset[rows], block.headers.last_offset[rows]
        order = np.argsort(lasts, kind="stable")
        at = np.minimum(np.searchsorted(lasts[order], self._offsets), len(order) - 1)
        batch = order[at]
        here = ~self._found & (firsts[batch] <= self._offsets) & (self._offsets <= lasts[batch])
        self._of_batch[here] = block.headers.max_timestamp[rows][batch[here]]
        self._so_far[here] = largest[batch[here]]
        self._found |= here

    def iterate_problems(self, last_offset: int, *, closed: bool, damaged: bool) -> Iterator[Problem]:
        """Yield what is wrong with the entries, after all blocks; `damaged` if parts of the log could not be read.

        `closed` means that the segment is complete, so that the last entry must be the largest.
        """
        count = len(self._offsets)
        falls = np.concatenate(([False], ~_find_rises(self._timestamps) | (np.diff(self._offsets) < 0)))[:count]
        falls |= (self._offsets < self._base_offset) | (self._timestamps < 0)
        nowhere = ~self._found & ((self._offsets > last_offset) | (not damaged))
        other, late = self._of_batch != self._timestamps, self._so_far > self._timestamps
        ends = f"; the segment has no batch with it, and ends at {last_offset}"
        faults: tuple[RowFault, ...] = (
            (falls, "timeindex-order", lambda at: " is not larger than the one before"),
            (nowhere, "timeindex-offset", lambda at: ends),
            (self._found & other, "timeindex-timestamp", lambda at: f"; the batch has {self._of_batch[at]}"),
            (self._found & late, "timeindex-late", lambda at: f"; the log has {self._so_far[at]} before it"),
        )
        yield from self._iterate_entry_problems(faults, "time {1}, offset {0}", self._timestamps)
        known = int(self._timestamps[-1]) if count else NONE
        if closed and not damaged and self._max_timestamp > max(known, NONE) and not falls[-1:].any():
            detail = f"its last entry has {known}, the log {self._max_timestamp}"
            yield Problem("timeindex-incomplete", max(count - 1, 0) * self._entries.itemsize, NONE, detail)


def _find_common_numbers(column: Int64s, numbers: Int64s) -> tuple[Int64s, Int64s]:
    """Return (rows of the column, indexes in `numbers`) with the same number."""
    order = np.argsort(column, kind="stable")
    at = np.searchsorted(column[order], numbers)
    at = np.minimum(at, len(order) - 1)
    places = np.flatnonzero(column[order][at] == numbers)
    return order[at[places]], places


def _find_rises(column: Int64s) -> Bools:
    """Return, for each value but the first, whether it is larger than the one before."""
    rises: Bools = np.diff(column) > 0
    return rises
