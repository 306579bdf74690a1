"""Checks the order of offsets and of leader epochs in one segment.

`partition_checks.py` checks what spans segments, from the facts that are kept here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from minibroker.pipeline.array_types import Int64s
from minibroker.pipeline.verifying.findings import Problem
from minibroker.pipeline.verifying.log_blocks import LogBlock, RowFault, iterate_problems_by_fault

MAX_RUNS = 10_000  # of leader epochs in a segment: a log with more has another problem


@dataclass
class SegmentOffsets:
    """Facts about the offsets of a segment; -1 means none.

    `missing` counts the offsets between its batches, and the damages, as what they contained is unknown.
    """

    first: int = -1
    first_position: int = -1
    last_first: int = -1
    last: int = -1
    missing: int = 0
    damages: int = 0
    unknown_before: bool = False  # the segment begins with damage
    max_timestamp: int = -1


@dataclass
class EpochRun:
    """Consecutive batches with the same leader epoch."""

    epoch: int
    first_offset: int
    last_offset: int
    position: int


@dataclass
class OffsetCheck:
    """Takes the blocks of one segment in order. `compacted` logs may have gaps.

    `missing_before` is, for each batch of the last block, how many offsets and damages there were before it. Nothing is
    missing between two batches with the same number.
    """

    base_offset: int
    compacted: bool
    offsets: SegmentOffsets = field(default_factory=SegmentOffsets)
    runs: list[EpochRun] = field(default_factory=list)
    missing_before: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))

    def check_offsets_of_block(self, block: LogBlock) -> Iterator[Problem]:
        """Yield what is wrong with the order of the block's batches, except those with a wrong checksum."""
        rows = np.flatnonzero(block.sound)
        self.missing_before = np.zeros(len(block), np.int64)
        if not len(rows):
            return
        first, last = block.known_first_offset[rows], block.headers.last_offset[rows]
        before_first = np.concatenate(([self.offsets.last_first], first[:-1]))
        before_last = np.concatenate(([self.offsets.last], last[:-1]))
        has_before = before_last >= 0
        backwards = has_before & (first < before_first)
        missing = np.where(has_before, np.maximum(first - before_last - 1, 0), 0)
        counted = np.cumsum(missing) + self.offsets.missing if self.compacted else 0
        self.missing_before[rows] = block.damages[rows] + counted
        missing[block.first_offset[rows] < 0] = 0  # a wrapper that was not read may begin with them
        overlaps = has_before & ~backwards & (first <= before_last)
        is_gap = (missing > 0) & (np.diff(block.damages[rows], prepend=self.offsets.damages) == 0)
        below = block.headers.base_offset[rows] < self.base_offset
        faults: tuple[RowFault, ...] = (
            (below, "below-segment", lambda i: f"the file begins at {self.base_offset}"),
            (backwards, "offset-order", lambda i: f"the batch before it begins at {before_first[i]}"),
            (overlaps, "overlap", lambda i: f"the batch before it ends at {before_last[i]}"),
            (is_gap & (not self.compacted), "gap", lambda i: f"the batch before it ends at {before_last[i]}"),
        )
        yield from iterate_problems_by_fault(block, rows, faults)
        self._record_first_and_last_offset(block, rows, first, last, int(missing.sum()))
        yield from self._check_leader_epochs(block, rows, first, last)

    def _record_first_and_last_offset(
        self, block: LogBlock, rows: Int64s, first: Int64s, last: Int64s, missing: int
    ) -> None:
        known = self.offsets
        if known.first < 0:
            known.first = int(first[0])
            known.first_position = int(block.positions[rows[0]])
            known.unknown_before = bool(block.damages[rows[0]]) or bool(block.first_offset[rows[0]] < 0)
        known.last_first, known.last = int(first[-1]), int(last[-1])
        known.missing += missing
        known.damages = int(block.damages[rows[-1]])
        known.max_timestamp = max(known.max_timestamp, int(block.headers.max_timestamp[rows].max()))

    def _check_leader_epochs(self, block: LogBlock, rows: Int64s, first: Int64s, last: Int64s) -> Iterator[Problem]:
        epochs = block.headers.leader_epoch[rows]
        impossible = epochs
        fault: RowFault = (epochs < -1, "leader-epoch-regression", lambda i: f"leader epoch {impossible[i]}")
        yield from iterate_problems_by_fault(block, rows, [fault])
        with_epoch = np.flatnonzero(epochs >= 0)
        if not len(with_epoch):
            return
        epochs, rows, first, last = epochs[with_epoch], rows[with_epoch], first[with_epoch], last[with_epoch]
        changes = np.flatnonzero(np.concatenate(([True], epochs[1:] != epochs[:-1])))
        ends = np.concatenate((changes[1:] - 1, [len(epochs) - 1]))
        for begin, end in zip(changes.tolist(), ends.tolist(), strict=True):
            epoch, position = int(epochs[begin]), int(block.positions[rows[begin]])
            if self.runs and self.runs[-1].epoch == epoch:
                self.runs[-1].last_offset = int(last[end])
                continue
            if self.runs and self.runs[-1].epoch > epoch:
                detail = f"leader epoch {epoch}, {self.runs[-1].epoch} before it"
                yield Problem("leader-epoch-regression", position, int(first[begin]), detail)
            if len(self.runs) < MAX_RUNS:
                self.runs.append(EpochRun(epoch, int(first[begin]), int(last[end]), position))
