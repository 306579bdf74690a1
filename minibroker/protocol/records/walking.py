"""Walks over batches of any format in bytes that may be damaged, and resumes at the next sound batch.

    batch, batch, ... damage? --- the next batch is where the length says -----------------> resume there
                        |
                        +------- search, byte by byte, for a header whose checksum is right -> resume there
                                 (no further than the next plausible position in an index)

It finds batches, and bytes that are not batches. Callers check the headers against a log, and pass functions that read
the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from heapq import merge
from re import DOTALL
from re import compile as pattern
from typing import NamedTuple
from zlib import crc32

from minibroker.protocol.records.batch import (
    CRC_POSITION,
    CRC_START,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
    read_header,
)
from minibroker.protocol.records.crc import crc32c
from minibroker.protocol.records.formats import MIN_LENGTHS, read_header_at
from minibroker.protocol.records.message import MAGIC_POSITION, MIN_MESSAGE_BYTES
from minibroker.protocol.records.varints import Bytes

BLOCK_BYTES = 1 << 20  # the most to read at once
NO_LIMIT = 1 << 63

# The limit on bytes for which searches compute checksums: a multiple of the data, and a minimum. Without it, data that
# looks like many headers of large batches would take quadratic time.
SEARCH_CRC_FACTOR = 4
SEARCH_CRC_LEAST_BYTES = 64 << 20
# Both patterns begin with one fixed byte, for which `re` searches at the speed of memchr.
# Magic 2, and 5 bytes later the attributes, of which only the lower byte is in use, and an offset delta that is not
# negative.
_BATCH_PATTERN = pattern(rb"\x02(?=.{4}\x00.[\x00-\x7f])", DOTALL)
# Offset and size that begin with a zero, as all but very large ones do, a checksum, magic 0 or 1, and attributes.
_MESSAGE_PATTERN = pattern(rb"\x00(?=.{7}\x00(?!\x00{3}).{7}[\x00\x01][\x00-\x0f])", DOTALL)

# `read(position, size)`: returns `size` bytes, `BLOCK_BYTES` at most, from there on, fewer only at the end.
ReadBytes = Callable[[int, int], memoryview]


class BatchProblem(Enum):
    """Why bytes are not a batch."""

    HEADER = "the bytes end within it"
    ZEROS = "it is nothing but zeros"
    MAGIC = "its magic is not 0, 1 or 2, or not that of its checksum"
    LENGTH = "its length cannot be"
    CHECKSUM = "its checksum is not that of its bytes"


class FoundBatch(NamedTuple):
    """A batch, and its computed checksum. Callers set `is_credible` to False if they find other damage.

    A message of format 0 or 1 is a batch of one record, or of an unknown number if it is a wrapper.
    """

    position: int
    header: BatchHeader
    computed_crc: int
    is_credible: bool = True

    @property
    def is_sound(self) -> bool:
        """Whether the checksum is right."""
        return self.computed_crc == self.header.crc


class SkippedBytes(NamedTuple):
    """Skipped bytes without a batch: what was expected at their beginning, and what was found."""

    position: int
    size_bytes: int
    wrong: BatchProblem
    expected: str
    found: str


class BatchWalker:
    """A walk over the batches in `size_bytes` bytes.

    `readers()` returns a `ReadBytes`. Several of them are used at different positions; their errors are raised.
    `next_offset` is the smallest valid offset, which callers update after each batch; all offsets are below `limit`.
    `known` is the (last offset, position) of batches in an index, ascending; wrong entries do no harm.
    """

    def __init__(
        self,
        readers: Callable[[], ReadBytes],
        size_bytes: int,
        *,
        next_offset: int = 0,
        limit: int = NO_LIMIT,
        known: Iterable[tuple[int, int]] = (),
    ) -> None:
        self.size_bytes = size_bytes
        self.next_offset = next_offset
        self.limit = limit
        self._readers = readers
        self._read = readers()
        self._lookahead = readers()
        self._known = iter(known)
        self._next_known: tuple[int, int] | None = next(self._known, None)
        self._crc_budget_bytes = max(SEARCH_CRC_FACTOR * size_bytes, SEARCH_CRC_LEAST_BYTES)

    def read_batch_or_damage_at(self, position: int) -> FoundBatch | SkippedBytes:
        """Return the batch at `position`, or the bytes to skip there. It must be before the end.

        A batch of format 2 with a wrong checksum is returned as a batch if another seems to follow it.
        """
        header = self.read_header_at(position)
        if header is None:
            return self._make_skipped_range(position, *self._describe_damage(position))
        batch = FoundBatch(position, header, self._compute_crc(position, header))
        if batch.is_sound or (header.magic == MAGIC and self._may_begin_batch(position + header.size_bytes)):
            return batch
        if header.magic < MAGIC and self._is_format_2(position, header):
            return self._make_skipped_range(
                position, BatchProblem.MAGIC, _describe_magic_at(position), f"{header.magic}"
            )
        return self._make_skipped_range(position, BatchProblem.CHECKSUM, *format_checksums(batch))

    def read_header_at(self, position: int) -> BatchHeader | None:
        """Return the header at `position`, None unless a complete batch could begin there."""
        return self._find_plausible_header(self._read, position)

    def find_next_sound_batch(self, start: int, end_position: int, end_offset: int = NO_LIMIT) -> int | None:
        """Return the first position from `start` of a sound batch that ends by `end_position`, below `end_offset`."""
        read = self._readers()
        while start + MIN_MESSAGE_BYTES[0] <= end_position:
            block = read(start, BLOCK_BYTES)
            for candidate in _iterate_possible_batches(block):
                if self._is_sound_batch(start + candidate, end_position, end_offset):
                    return start + candidate
            if len(block) < BLOCK_BYTES:
                break
            start += len(block) - HEADER_BYTES
        return None

    def has_valid_offsets(self, header: BatchHeader) -> bool:
        """Return whether the batch's offsets are at or after the expected one, and below the limit."""
        return self.next_offset <= header.base_offset and header.last_offset < self.limit

    def _find_plausible_header(self, read_bytes: ReadBytes, position: int) -> BatchHeader | None:
        """Return the header at `position`, None if its magic or its size is impossible."""
        head = read_bytes(position, HEADER_BYTES)
        if len(head) < MIN_MESSAGE_BYTES[0] or head[MAGIC_POSITION] > MAGIC:
            return None
        least_bytes = MIN_LENGTHS[head[MAGIC_POSITION]] + LOG_OVERHEAD_BYTES
        if len(head) < least_bytes:
            return None
        header = read_header_at(head)
        return header if least_bytes <= header.size_bytes <= self.size_bytes - position else None

    def _compute_crc(self, position: int, header: BatchHeader) -> int:
        """Return the checksum of the bytes that a batch or message has."""
        if header.magic == MAGIC:
            return self._compute_crc_in_pieces(crc32c, position + CRC_START, position + header.size_bytes)
        return self._compute_crc_in_pieces(crc32, position + MAGIC_POSITION, position + header.size_bytes)

    def _compute_crc_in_pieces(self, function: Callable[[memoryview, int], int], start: int, end: int) -> int:
        """Return the checksum of the bytes from `start` to `end`, by `function`, a piece at a time."""
        crc = 0
        while start < end:
            piece = self._read(start, min(BLOCK_BYTES, end - start))
            if not piece:
                break  # the file has become shorter
            crc = function(piece, crc)
            start += len(piece)
        return crc

    def _is_format_2(self, position: int, header: BatchHeader) -> bool:
        """Return whether this is a batch of format 2 in which only the magic is wrong."""
        if header.size_bytes < HEADER_BYTES:
            return False
        stored = int.from_bytes(self._read(position + CRC_POSITION, CRC_START - CRC_POSITION))
        return self._compute_crc_in_pieces(crc32c, position + CRC_START, position + header.size_bytes) == stored

    def _describe_damage(self, position: int) -> tuple[BatchProblem, str, str]:
        """Return (what is wrong, what was expected, what was found) for bytes that are not the header of a batch."""
        head, left = self._read(position, HEADER_BYTES), self.size_bytes - position
        if len(head) < HEADER_BYTES:
            found = f"the end of the file after {len(head)}"
            return BatchProblem.HEADER, f"the {HEADER_BYTES} bytes of a batch's header", found
        if not any(head):
            return BatchProblem.ZEROS, "a record batch", "zeros"
        magic = int.from_bytes(head[MAGIC_POSITION : MAGIC_POSITION + 1], signed=True)
        if not 0 <= magic <= MAGIC:
            return BatchProblem.MAGIC, _describe_magic_at(position), f"{magic}"
        size_bytes, least_bytes = read_header(head).size_bytes, MIN_LENGTHS[magic] + LOG_OVERHEAD_BYTES
        what = "batch" if magic == MAGIC else "message"
        if size_bytes < least_bytes:
            return BatchProblem.LENGTH, f"a {what} of at least {least_bytes} bytes", f"one of {size_bytes}"
        return BatchProblem.LENGTH, f"a {what} of {size_bytes} bytes", f"the end of the file after {left}"

    def _make_skipped_range(self, position: int, problem: BatchProblem, expected: str, found: str) -> SkippedBytes:
        """Return the bytes from `position` to where reading resumes, and what is wrong with them."""
        resume = self._find_resume_position(position)
        if self._crc_budget_bytes < 0 and resume == self.size_bytes:
            found += "; too much of what follows looks like a batch, so the search for the next one was given up"
        return SkippedBytes(position, resume - position, problem, expected, found)

    def _find_resume_position(self, position: int) -> int:
        """Return where to resume after bytes that are not a batch: at the next one that is sound, or in the index."""
        end = self._find_end_by_length_field(position)
        if end and self._may_begin_batch(end):
            return end
        bound, limit = self._find_next_indexed_batch(position)
        found = self.find_next_sound_batch(position + 1, bound, limit)
        return bound if found is None else found

    def _find_end_by_length_field(self, position: int) -> int:
        """Return the end of the bytes at `position` by the length field of all formats; 0 if it is impossible."""
        head = self._read(position, LOG_OVERHEAD_BYTES)
        if len(head) < LOG_OVERHEAD_BYTES:
            return 0
        end = position + LOG_OVERHEAD_BYTES + int.from_bytes(head[8:], signed=True)
        return end if position + MIN_MESSAGE_BYTES[0] <= end <= self.size_bytes else 0

    def _may_begin_batch(self, position: int) -> bool:
        """Return whether this is the end, or something begins that looks like a batch."""
        if position == self.size_bytes:
            return True
        header = self.read_header_at(position)
        if header is None or header.magic == MAGIC:
            return header is not None and self.has_valid_offsets(header)
        return self._compute_crc(position, header) == header.crc

    def _find_next_indexed_batch(self, position: int) -> tuple[int, int]:
        """Return (position, offset) of the next batch in the index that exists, or the end."""
        while self._next_known is not None:
            last_offset, known = self._next_known
            if known > position:
                header = self._find_plausible_header(self._lookahead, known)
                if header is not None and header.last_offset == last_offset:
                    return known, header.base_offset
            self._next_known = next(self._known, None)
        return self.size_bytes, self.limit

    def _is_sound_batch(self, position: int, end_position: int, end_offset: int) -> bool:
        """Return whether a sound batch begins here that ends by `end_position` and below `end_offset`."""
        header = self._find_plausible_header(self._lookahead, position)
        if header is None or position + header.size_bytes > end_position:
            return False
        if not self.has_valid_offsets(header) or header.last_offset >= end_offset:
            return False
        self._crc_budget_bytes -= header.size_bytes
        return self._crc_budget_bytes >= 0 and self._compute_crc(position, header) == header.crc


def find_next_sound_batch(data: Bytes, position: int) -> int | None:
    """Return the position of the first sound batch at or behind `position` of `data`, or None."""
    view = memoryview(data)
    walker = BatchWalker(lambda: lambda at, size_bytes: view[at : at + size_bytes], len(view))
    return walker.find_next_sound_batch(position, len(view))


def format_checksums(batch: FoundBatch) -> tuple[str, str]:
    """Return (expected, found) for a batch with a wrong checksum, for people."""
    return f"checksum {batch.computed_crc:#010x}, as computed", f"{batch.header.crc:#010x}, as stored"


def _describe_magic_at(position: int) -> str:
    return f"magic {MAGIC} at {position + MAGIC_POSITION}"


def _iterate_possible_batches(block: memoryview) -> Iterator[int]:
    """Yield the positions in the block where batches or messages may begin, ascending."""
    if not bytes(block).strip(b"\0"):  # a preallocated file is full of zeros
        return iter(())
    batches = (match.start() - MAGIC_POSITION for match in _BATCH_PATTERN.finditer(block, MAGIC_POSITION))
    return merge(batches, (match.start() for match in _MESSAGE_PATTERN.finditer(block)))
