"""Reads a `.log` file in blocks of batches, as columns, past damage, and checks the order of offsets and leader epochs.

It reports impossible lengths and magic bytes, and wrong checksums, which the readers' own walk finds
(`directory/log_walking.py`). Other files check what the fields mean for the log; `partition_checks.py` checks what
spans segments, from the facts that are kept here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from struct import Struct

import numpy as np

from minibroker.pipeline.array_types import Bools, Int64s
from minibroker.pipeline.decode.batch_headers import BatchHeaders
from minibroker.pipeline.directory.log_walking import BLOCK_BYTES, Checksums, iterate_blocks_or_damage, read_exactly
from minibroker.pipeline.directory.reading_disk import DISK
from minibroker.pipeline.verifying.findings import Problem
from minibroker.protocol.records.batch import LOG_OVERHEAD_BYTES
from minibroker.protocol.records.walking import BatchProblem, FoundBatch, SkippedBytes
from minibroker.storage.inspection.file_walking import make_batch_walker

MAX_OFFSET = 1 << 48  # the largest plausible offset in a search behind damage

# A kind of fault: the rows that have it, its name, and what to say of one row.
RowFault = tuple[Bools, str, Callable[[int], str]]

_OFFSET_AND_LENGTH = Struct(">qi")


def iterate_first_fault_of_rows(faults: Sequence[RowFault]) -> Iterator[tuple[int, str, str]]:
    """Yield (row, kind, detail) of the first fault of each row that has one."""
    for row in np.flatnonzero(np.logical_or.reduce([rows for rows, _, _ in faults])).tolist():
        kind, detail = next((kind, detail) for rows, kind, detail in faults if rows[row])
        yield row, kind, detail(row)


@dataclass(frozen=True, slots=True)
class LogBlock:
    """Batches in `data`, with their `headers`; `positions` are in the file.

    A column has one number for each batch. A message of format 0 or 1 counts as a batch; `first_offset` of a wrapper is
    -1 until its messages are read. `sound` is whether the checksum is right, `damages` the number of damages in the
    file before the batch, its own included.
    """

    data: memoryview
    headers: BatchHeaders
    positions: Int64s
    sound: Bools
    damages: Int64s
    first_offset: Int64s

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def known_first_offset(self) -> Int64s:
        """The first offset of each batch; of a wrapper that was not read, its last."""
        return np.where(self.first_offset >= 0, self.first_offset, self.headers.base_offset)

    def get_batch_bytes(self, index: int) -> memoryview:
        """Return the bytes of one batch."""
        start = int(self.headers.position[index])
        return self.data[start : start + int(self.headers.size[index])]

    def make_problem(self, kind: str, index: int, detail: str) -> Problem:
        """Return a problem of one batch."""
        return Problem(kind, int(self.positions[index]), int(self.headers.base_offset[index]), detail)


def iterate_problems_by_fault(block: LogBlock, rows: Int64s, faults: Iterable[RowFault]) -> Iterator[Problem]:
    """Yield the problems of some batches of a block, fault by fault."""
    for wrong, kind, detail in faults:
        for place in np.flatnonzero(wrong).tolist():
            yield block.make_problem(kind, int(rows[place]), detail(place))


class LogFileReader:
    """A `.log` file that is read batch by batch. Methods raise `OSError`.

    `problems` has the wrong sizes, magic bytes and checksums found so far. `end_position` is where the last batch ends,
    once all blocks were read.
    """

    def __init__(
        self, path: str, *, check_crc: bool = True, is_last: bool = False, block_bytes: int = BLOCK_BYTES
    ) -> None:
        self.problems: list[Problem] = []
        self.end_position = 0
        self._checksums = Checksums.ALL if check_crc else Checksums.NONE
        self._is_last = is_last
        self._block_bytes = block_bytes
        self._file = DISK.open_to_read(path)
        self._size = self._file.size_bytes()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def iterate_blocks(self) -> Iterator[LogBlock]:
        """Yield all batches, in blocks of about `block_bytes`."""
        walker = make_batch_walker(self._file, self._size, limit=MAX_OFFSET)
        for step in iterate_blocks_or_damage(self._file, walker, 0, self._checksums, self._block_bytes):
            if isinstance(step, SkippedBytes):
                self._add_damage_problem(step)
                continue
            headers = step.headers
            damages = len(self.problems) + np.cumsum(~step.sound)
            for each in step.wrong:
                self._add_checksum_problem(each)
            self.end_position = step.origin + int(headers.position[-1] + headers.size[-1])
            first_offset = np.where(headers.record_count < 0, -1, headers.base_offset)
            yield LogBlock(step.data, headers, headers.position + step.origin, step.sound, damages, first_offset)

    def _add_checksum_problem(self, batch: FoundBatch) -> None:
        header = batch.header
        detail = f"stored {header.crc:08x}, computed {batch.computed_crc:08x} over {header.size_bytes} bytes"
        self.problems.append(Problem("crc", batch.position, header.base_offset, detail))

    def _add_damage_problem(self, damage: SkippedBytes) -> None:
        """Note what is wrong with bytes that are not a batch."""
        position, end = damage.position, damage.position + damage.size_bytes
        is_end = end == self._size
        if is_end and self._are_only_zeros_from(position):
            if not self._is_last:
                detail = f"the file ends in {damage.size_bytes} zeros"
                self.problems.append(Problem("torn-tail", position, -1, detail))
            return
        head = self._file.read(position, min(LOG_OVERHEAD_BYTES, self._size - position))
        offset, length = _OFFSET_AND_LENGTH.unpack(head.ljust(LOG_OVERHEAD_BYTES, b"\0"))
        size = length + LOG_OVERHEAD_BYTES
        if damage.wrong is BatchProblem.MAGIC:
            kind = "magic"
        elif damage.wrong is BatchProblem.CHECKSUM and size == damage.size_bytes:
            kind = "crc"
        elif is_end and (damage.wrong is BatchProblem.HEADER or size > damage.size_bytes):
            kind = "torn-tail"
        else:
            kind = "length"
        behind = "no sound batch follows" if is_end else f"the next batch is at {end}"
        detail = f"expected {damage.expected}, found {damage.found}; {behind}"
        self.problems.append(Problem(kind, position, offset, detail))

    def _are_only_zeros_from(self, position: int) -> bool:
        """Return whether only zeros follow, as at the end of a preallocated file."""
        starts = range(position, self._size, BLOCK_BYTES)
        pieces = (read_exactly(self._file, start, min(BLOCK_BYTES, self._size - start)) for start in starts)
        return all(piece.count(0) == len(piece) for piece in pieces)


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
