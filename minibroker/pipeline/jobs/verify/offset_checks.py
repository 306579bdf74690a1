"""Checks the order of offsets and of leader epochs in one segment.

`partition_checks.py` checks what spans segments, from the facts that are kept here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from minibroker.pipeline.array_types import Bools, Int64s
from minibroker.pipeline.jobs.verify.findings import Problem
from minibroker.pipeline.jobs.verify.log_blocks import Block

MAX_RUNS = 10_000  # of leader epochs in a segment: a log with more has another problem


@dataclass
class Offsets:
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
    """Takes the blocks of one segment in order. `compacted` logs may have gaps."""

    base_offset: int
    compacted: bool
    offsets: Offsets = field(default_factory=Offsets)
    runs: list[EpochRun] = field(default_factory=list)

    def take(self, block: Block) -> Iterator[Problem]:
        """Yield what is wrong with the order of the block's batches, except those with a wrong checksum."""
        rows = np.flatnonzero(block.sound)
        if not len(rows):
            return
        first, last = block.known_first_offset[rows], block.headers.last_offset[rows]
        known, damages = block.first_offset[rows] >= 0, block.damages[rows]
        before_first, before_last, before_damages = self._before(first, last, damages)
        has_before = before_last >= 0
        same = damages == before_damages
        below = block.headers.base_offset[rows] < self.base_offset
        backwards = has_before & (first < before_first)
        overlaps = has_before & ~backwards & (first <= before_last)
        gaps = has_before & known & (first > before_last + 1)
        yield from self._wrong("below-segment", block, rows, below, lambda i: f"the file begins at {self.base_offset}")
        yield from self._wrong(
            "offset-order", block, rows, backwards, lambda i: f"the batch before it begins at {before_first[i]}"
        )
        yield from self._wrong(
            "overlap", block, rows, overlaps, lambda i: f"the batch before it ends at {before_last[i]}"
        )
        if not self.compacted:
            yield from self._wrong(
                "gap", block, rows, gaps & same, lambda i: f"the batch before it ends at {before_last[i]}"
            )
        self._remember(block, rows, first, last, np.where(gaps, first - before_last - 1, 0))
        yield from self._take_epochs(block, rows, first, last)

    def missing_before(self, block: Block) -> Int64s:
        """Return, for each batch of a block before `take`, how many offsets and damages there were before it.

        Nothing is missing between two batches with the same number.
        """
        rows = np.flatnonzero(block.sound)
        found = np.zeros(len(block), np.int64)
        if not len(rows):
            return found
        first, last = block.known_first_offset[rows], block.headers.last_offset[rows]
        _, before_last, _ = self._before(first, last, block.damages[rows])
        gaps = np.where((before_last >= 0) & (first > before_last + 1), first - before_last - 1, 0)
        counted = np.cumsum(gaps) if self.compacted else np.zeros(len(rows), np.int64)
        found[rows] = counted + block.damages[rows] + (self.offsets.missing if self.compacted else 0)
        return found

    def _before(self, first: Int64s, last: Int64s, damages: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """Return first offset, last offset and damages of the batch before each."""
        known = self.offsets
        return (
            np.concatenate(([known.last_first], first[:-1])),
            np.concatenate(([known.last], last[:-1])),
            np.concatenate(([known.damages], damages[:-1])),
        )

    def _wrong(
        self, kind: str, block: Block, rows: Int64s, wrong: Bools, detail: Callable[[int], str]
    ) -> Iterator[Problem]:
        for place in np.flatnonzero(wrong).tolist():
            yield block.problem(kind, int(rows[place]), detail(place))

    def _remember(self, block: Block, rows: Int64s, first: Int64s, last: Int64s, missing: Int64s) -> None:
        known = self.offsets
        if known.first < 0:
            known.first = int(first[0])
            known.first_position = int(block.positions[rows[0]])
            known.unknown_before = bool(block.damages[rows[0]]) or bool(block.first_offset[rows[0]] < 0)
        known.last_first, known.last = int(first[-1]), int(last[-1])
        known.missing += int(missing.sum())
        known.damages = int(block.damages[rows[-1]])
        known.max_timestamp = max(known.max_timestamp, int(block.headers.max_timestamp[rows].max()))

    def _take_epochs(self, block: Block, rows: Int64s, first: Int64s, last: Int64s) -> Iterator[Problem]:
        epochs = block.headers.leader_epoch[rows]
        yield from self._wrong(
            "leader-epoch-regression", block, rows, epochs < -1, lambda i: f"leader epoch {epochs[i]}"
        )
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
