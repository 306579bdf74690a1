"""Reads a `.log` file in blocks of batches, as columns, past damage.

It reports impossible lengths and magic bytes, and wrong checksums. The decoder finds batches and reads headers
(`decode/batch_headers.py`); the protocol finds the next batch behind damage (`records/walking.py`). Other files check
what the fields mean for the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from struct import Struct

import numpy as np

from minibroker.pipeline.array_types import Bools, Int64s
from minibroker.pipeline.decode.batch_headers import Headers, check_checksums, read_headers_at, scan_headers
from minibroker.pipeline.directory.reading_disk import DISK
from minibroker.pipeline.verifying.findings import Problem
from minibroker.protocol.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES
from minibroker.protocol.records.walking import FoundBatch, PassedOver, Wrong
from minibroker.storage.inspection.file_walking import make_walker

BLOCK_BYTES = 4 << 20
MAX_OFFSET = 1 << 48  # the largest plausible offset in a search behind damage

# A kind of fault: the rows that have it, its name, and what to say of one row.
Fault = tuple[Bools, str, Callable[[int], str]]

_OFFSET_AND_LENGTH = Struct(">qi")


def iterate_first_faults(faults: Sequence[Fault]) -> Iterator[tuple[int, str, str]]:
    """Yield row, kind and detail of the first fault of each row that has one."""
    for row in np.flatnonzero(np.logical_or.reduce([rows for rows, _, _ in faults])).tolist():
        kind, detail = next((kind, detail) for rows, kind, detail in faults if rows[row])
        yield row, kind, detail(row)


@dataclass(frozen=True, slots=True)
class Block:
    """Batches in `data`, with their `headers`; `positions` are in the file.

    A column has one number for each batch. A message of format 0 or 1 counts as a batch; `first_offset` of a wrapper is
    -1 until its messages are read. `sound` is whether the checksum is right, `damages` the number of damages in the
    file before the batch, its own included.
    """

    data: memoryview
    headers: Headers
    positions: Int64s
    sound: Bools
    damages: Int64s
    first_offset: Int64s

    @classmethod
    def of(cls, data: memoryview, headers: Headers, origin: int, sound: Bools, damages: Int64s) -> Block:
        """Return the block of `data`, which begins at `origin` in the file."""
        first_offset = np.where(headers.record_count < 0, -1, headers.base_offset)
        return cls(data, headers, headers.position + origin, sound, damages, first_offset)

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def known_first_offset(self) -> Int64s:
        """The first offset of each batch; of a wrapper that was not read, its last."""
        return np.where(self.first_offset >= 0, self.first_offset, self.headers.base_offset)

    def batch(self, index: int) -> memoryview:
        """Return the bytes of one batch."""
        start = int(self.headers.position[index])
        return self.data[start : start + int(self.headers.size[index])]

    def problem(self, kind: str, index: int, detail: str) -> Problem:
        """Return a problem of one batch."""
        return Problem(kind, int(self.positions[index]), int(self.headers.base_offset[index]), detail)


def iterate_all_faults(block: Block, rows: Int64s, faults: Iterable[Fault]) -> Iterator[Problem]:
    """Yield the problems of some batches of a block, fault by fault."""
    for wrong, kind, detail in faults:
        for place in np.flatnonzero(wrong).tolist():
            yield block.problem(kind, int(rows[place]), detail(place))


class LogFile:
    """A `.log` file that is read batch by batch. Methods raise `OSError`.

    `problems` has the wrong sizes, magic bytes and checksums found so far. `end_position` is where the last batch ends,
    once all blocks were read.
    """

    def __init__(
        self, path: str, *, check_crc: bool = True, is_last: bool = False, block_bytes: int = BLOCK_BYTES
    ) -> None:
        self.problems: list[Problem] = []
        self.end_position = 0
        self._check_crc = check_crc
        self._is_last = is_last
        self._block_bytes = max(block_bytes, HEADER_BYTES)
        self._damages = 0
        self._file = DISK.open_to_read(path)
        self._size = self._file.size_bytes()
        self._walker = make_walker(self._file, self._size, limit=MAX_OFFSET)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def blocks(self) -> Iterator[Block]:
        """Yield all batches, in blocks of about `block_bytes`."""
        position, wanted = 0, self._block_bytes
        while position < self._size:
            data = memoryview(self._read_bytes(position, wanted))
            wanted = self._block_bytes
            found = scan_headers(data)
            if found.positions:
                block, damage = self._make_block(data, read_headers_at(data, found.positions), position)
                if len(block):
                    self.end_position = int(block.positions[-1] + block.headers.size[-1])
                    yield block
                position = position + found.end if damage is None else self._pass_damage(damage)
                continue
            giant = self._walker.header_at(position)
            if giant is not None:
                wanted = giant.size_bytes
                continue
            step = self._walker.step(position)
            assert isinstance(step, PassedOver)
            position = self._pass_damage(step)

    def _read_bytes(self, position: int, size: int) -> bytes:
        data = self._file.read(position, min(size, self._size - position))
        if not data:
            raise OSError(f"{self._file.path} has become shorter")
        return data

    def _make_block(self, data: memoryview, headers: Headers, origin: int) -> tuple[Block, PassedOver | None]:
        """Return the batches up to the first impossible length, and the damage there, or None."""
        sound = check_checksums(data, headers) if self._check_crc else np.ones(len(headers.size), np.bool_)
        damages = np.full(len(sound), self._damages, np.int64)
        end, damage = len(sound), None
        for index in np.flatnonzero(~sound).tolist():
            step = self._walker.step(origin + int(headers.position[index]))
            if isinstance(step, PassedOver):
                end, damage = index, step
                break
            self._note_wrong_checksum(step)
            damages[index:] = self._damages
        return Block.of(data, headers.select(slice(end)), origin, sound[:end], damages[:end]), damage

    def _note_wrong_checksum(self, found: FoundBatch) -> None:
        header = found.header
        self._note_problem(
            "crc",
            found.position,
            header.base_offset,
            f"stored {header.crc:08x}, computed {found.computed_crc:08x} over {header.size_bytes} bytes",
        )

    def _pass_damage(self, damage: PassedOver) -> int:
        """Note what is wrong with bytes that are not a batch. Return where to continue."""
        position, end = damage.position, damage.position + damage.size_bytes
        is_end = end == self._size
        if is_end and self._is_zero(position):
            if not self._is_last:
                self._note_problem("torn-tail", position, -1, f"the file ends in {damage.size_bytes} zeros")
            return end
        head = bytes(self._read_bytes(position, LOG_OVERHEAD_BYTES)).ljust(LOG_OVERHEAD_BYTES, b"\0")
        offset, length = _OFFSET_AND_LENGTH.unpack(head)
        size = length + LOG_OVERHEAD_BYTES
        if damage.wrong is Wrong.MAGIC:
            kind = "magic"
        elif damage.wrong is Wrong.CHECKSUM and size == damage.size_bytes:
            kind = "crc"
        elif is_end and (damage.wrong is Wrong.HEADER or size > damage.size_bytes):
            kind = "torn-tail"
        else:
            kind = "length"
        behind = "no sound batch follows" if is_end else f"the next batch is at {end}"
        self._note_problem(kind, position, offset, f"expected {damage.expected}, found {damage.found}; {behind}")
        return end

    def _note_problem(self, kind: str, position: int, offset: int, detail: str) -> None:
        self._damages += 1
        self.problems.append(Problem(kind, position, offset, detail))

    def _is_zero(self, position: int) -> bool:
        """Return whether only zeros follow, as at the end of a preallocated file."""
        while position < self._size:
            data = self._read_bytes(position, BLOCK_BYTES)
            if data.count(0) != len(data):
                return False
            position += len(data)
        return True
