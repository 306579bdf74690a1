"""Reads a `.log` file in blocks of batches, as columns, past damage.

It reports impossible lengths and magic bytes, and wrong checksums, which the readers' own walk finds
(`directory/log_walking.py`). Other files check what the fields mean for the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
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
    """Yield row, kind and detail of the first fault of each row that has one."""
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
