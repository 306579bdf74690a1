"""Walking over batches of any format in bytes that may be damaged: behind damage, on with the next sound batch.

    batch, batch, ... damage? --- the next batch is where the length says -----------------> go on there
                        |
                        +------- search, byte by byte, for a header whose checksum is right -> go on there
                                 (no further than the next position that an index knows, if that can be believed)

This says where batches lie and which bytes are none. What the fields of their headers mean for a log is judged by
callers, and so is who reads the bytes: a walker is given functions that do.
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
from minibroker.protocol.records.formats import MIN_LENGTHS, header_at
from minibroker.protocol.records.message import MAGIC_POSITION, MIN_MESSAGE_BYTES
from minibroker.protocol.records.varints import Bytes

BLOCK_BYTES = 1 << 20  # the most that is asked for at once
NO_LIMIT = 1 << 63

# Checksums that searches may compute, as a multiple of the bytes and at least: bytes made to look like headers of large
# batches would otherwise cost the square of their number.
SEARCH_CRC_FACTOR = 4
SEARCH_CRC_LEAST_BYTES = 64 << 20
# Both patterns begin with one fixed byte, which `re` looks for at the speed of memchr.
# Magic 2, and 5 bytes on the attributes, of which only the lower byte has ever had a meaning, and an offset delta that
# is not negative.
_BATCH_PATTERN = pattern(rb"\x02(?=.{4}\x00.[\x00-\x7f])", DOTALL)
# Offset and size that begin with zeros, as those of all but very large ones, a checksum, magic 0 or 1, its attributes.
_MESSAGE_PATTERN = pattern(rb"\x00(?=.{7}\x00(?!\x00{3}).{7}[\x00\x01][\x00-\x0f])", DOTALL)

# `read(position, size)`: so many bytes, `BLOCK_BYTES` at most, from there on, fewer only where all ends.
Read = Callable[[int, int], memoryview]


class Wrong(Enum):
    """The part of a header by which bytes are no batch."""

    HEADER = "the bytes end within it"
    ZEROS = "it is nothing but zeros"
    MAGIC = "its magic is not 0, 1 or 2, or not that of its checksum"
    LENGTH = "its length cannot be"
    CHECKSUM = "its checksum is not that of its bytes"


class FoundBatch(NamedTuple):
    """A batch, and the checksum that its bytes have. `is_credible` may be unset by callers who know of a damage to it.

    A message of format 0 or 1 is a batch of one, or, if it is a wrapper, of no known number.
    """

    position: int
    header: BatchHeader
    computed_crc: int
    is_credible: bool = True

    @property
    def is_sound(self) -> bool:
        """Whether the checksum is right."""
        return self.computed_crc == self.header.crc


class PassedOver(NamedTuple):
    """Bytes in which no batch can be found: what should be at their beginning, and what is."""

    position: int
    size_bytes: int
    wrong: Wrong
    expected: str
    found: str


class BatchWalker:
    """A walk over the batches in `size_bytes` bytes.

    `readers()` gives a `Read`, several of which are used in turn at different places; what they raise passes through.
    `next_offset` is the smallest offset that may come, which callers move on as batches come; none reaches `limit`.
    `known` is the (last offset, position) of batches by an index, ascending; a wrong one does no harm.
    """

    def __init__(
        self,
        readers: Callable[[], Read],
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

    def step(self, position: int) -> FoundBatch | PassedOver:
        """Return what lies at `position`, which is not the end.

        A batch with a wrong checksum is one, if it is of format 2 and something that looks like a batch follows it.
        """
        header = self.header_at(position)
        if header is None:
            return self._passed_over(position, *self._complaint(position))
        found = FoundBatch(position, header, self._crc(position, header))
        if found.is_sound or (header.magic == MAGIC and self._may_begin(position + header.size_bytes)):
            return found
        if header.magic < MAGIC and self._is_format_2(position, header):
            return self._passed_over(position, Wrong.MAGIC, _magic_at(position), f"{header.magic}")
        return self._passed_over(position, Wrong.CHECKSUM, *checksums(found))

    def header_at(self, position: int) -> BatchHeader | None:
        """The header at `position`, if it can be that of a whole batch."""
        return self._header(self._read, position)

    def next_sound(self, start: int, bound: int, limit: int = NO_LIMIT) -> int | None:
        """The first position from `start` on of a batch with the right checksum that ends by `bound`, below `limit`."""
        read = self._readers()
        while start + MIN_MESSAGE_BYTES[0] <= bound:
            block = read(start, BLOCK_BYTES)
            for candidate in _candidates(block):
                if self._is_sound_batch(start + candidate, bound, limit):
                    return start + candidate
            if len(block) < BLOCK_BYTES:
                break
            start += len(block) - HEADER_BYTES
        return None

    def is_in_range(self, header: BatchHeader) -> bool:
        """Whether the batch has offsets that may come."""
        return self.next_offset <= header.base_offset and header.last_offset < self.limit

    def _header(self, read: Read, position: int) -> BatchHeader | None:
        head = read(position, HEADER_BYTES)
        if len(head) < MIN_MESSAGE_BYTES[0] or head[MAGIC_POSITION] > MAGIC:
            return None
        least_bytes = MIN_LENGTHS[head[MAGIC_POSITION]] + LOG_OVERHEAD_BYTES
        if len(head) < least_bytes:
            return None
        header = header_at(head)
        return header if least_bytes <= header.size_bytes <= self.size_bytes - position else None

    def _crc(self, position: int, header: BatchHeader) -> int:
        if header.magic == MAGIC:
            return self._pieces(crc32c, position + CRC_START, position + header.size_bytes)
        return self._pieces(crc32, position + MAGIC_POSITION, position + header.size_bytes)

    def _pieces(self, function: Callable[[memoryview, int], int], at: int, end: int) -> int:
        crc = 0
        while at < end:
            piece = self._read(at, min(BLOCK_BYTES, end - at))
            if not piece:
                break  # there are fewer bytes than there were
            crc = function(piece, crc)
            at += len(piece)
        return crc

    def _is_format_2(self, position: int, header: BatchHeader) -> bool:
        """Whether a batch of format 2 lies here, whose magic alone is wrong."""
        if header.size_bytes < HEADER_BYTES:
            return False
        stored = int.from_bytes(self._read(position + CRC_POSITION, CRC_START - CRC_POSITION))
        return self._pieces(crc32c, position + CRC_START, position + header.size_bytes) == stored

    def _complaint(self, position: int) -> tuple[Wrong, str, str]:
        """(what is wrong, what was expected, what was found) at bytes that are no header of a whole batch."""
        head, left = self._read(position, HEADER_BYTES), self.size_bytes - position
        if len(head) < HEADER_BYTES:
            found = f"the end of the file after {len(head)}"
            return Wrong.HEADER, f"the {HEADER_BYTES} bytes of a batch's header", found
        if not any(head):
            return Wrong.ZEROS, "a record batch", "zeros"
        magic = int.from_bytes(head[MAGIC_POSITION : MAGIC_POSITION + 1], signed=True)
        if not 0 <= magic <= MAGIC:
            return Wrong.MAGIC, _magic_at(position), f"{magic}"
        size_bytes, least_bytes = read_header(head).size_bytes, MIN_LENGTHS[magic] + LOG_OVERHEAD_BYTES
        what = "batch" if magic == MAGIC else "message"
        if size_bytes < least_bytes:
            return Wrong.LENGTH, f"a {what} of at least {least_bytes} bytes", f"one of {size_bytes}"
        return Wrong.LENGTH, f"a {what} of {size_bytes} bytes", f"the end of the file after {left}"

    def _passed_over(self, position: int, wrong: Wrong, expected: str, found: str) -> PassedOver:
        resume = self._resume(position)
        if self._crc_budget_bytes < 0 and resume == self.size_bytes:
            found += "; too much of what follows looks like a batch, so the search for the next one was given up"
        return PassedOver(position, resume - position, wrong, expected, found)

    def _resume(self, position: int) -> int:
        """Where to go on after bytes that are no batch: at the next one that is sound, or that the index knows."""
        end = self._announced_end(position)
        if end and self._may_begin(end):
            return end
        bound, limit = self._known_after(position)
        found = self.next_sound(position + 1, bound, limit)
        return bound if found is None else found

    def _announced_end(self, position: int) -> int:
        """Where the bytes at `position` say that they end, in the same field in all formats; 0 if that cannot be."""
        head = self._read(position, LOG_OVERHEAD_BYTES)
        if len(head) < LOG_OVERHEAD_BYTES:
            return 0
        end = position + LOG_OVERHEAD_BYTES + int.from_bytes(head[8:], signed=True)
        return end if position + MIN_MESSAGE_BYTES[0] <= end <= self.size_bytes else 0

    def _may_begin(self, position: int) -> bool:
        """Whether all ends here, or something begins that looks like a batch."""
        if position == self.size_bytes:
            return True
        header = self.header_at(position)
        if header is None or header.magic == MAGIC:
            return header is not None and self.is_in_range(header)
        return self._crc(position, header) == header.crc

    def _known_after(self, position: int) -> tuple[int, int]:
        """(position, offset) at which the next batch begins that the index knows and that is there; else the end."""
        while self._next_known is not None:
            last_offset, known = self._next_known
            if known > position:
                header = self._header(self._lookahead, known)
                if header is not None and header.last_offset == last_offset:
                    return known, header.base_offset
            self._next_known = next(self._known, None)
        return self.size_bytes, self.limit

    def _is_sound_batch(self, position: int, bound: int, limit: int) -> bool:
        header = self._header(self._lookahead, position)
        if header is None or position + header.size_bytes > bound:
            return False
        if not self.is_in_range(header) or header.last_offset >= limit:
            return False
        self._crc_budget_bytes -= header.size_bytes
        return self._crc_budget_bytes >= 0 and self._crc(position, header) == header.crc


def next_sound_batch(data: Bytes, position: int) -> int | None:
    """Where the first batch with a right checksum begins at or behind `position` of `data`; None if there is none."""
    view = memoryview(data)
    walker = BatchWalker(lambda: lambda at, size_bytes: view[at : at + size_bytes], len(view))
    return walker.next_sound(position, len(view))


def checksums(found: FoundBatch) -> tuple[str, str]:
    """(expected, found) of a batch with a wrong checksum, for people."""
    return f"checksum {found.computed_crc:#010x}, as computed", f"{found.header.crc:#010x}, as stored"


def _magic_at(position: int) -> str:
    return f"magic {MAGIC} at {position + MAGIC_POSITION}"


def _candidates(block: memoryview) -> Iterator[int]:
    """Where in the block batches or messages may begin, ascending."""
    if not bytes(block).strip(b"\0"):  # what a file is full of that was made large beforehand
        return iter(())
    batches = (match.start() - MAGIC_POSITION for match in _BATCH_PATTERN.finditer(block, MAGIC_POSITION))
    return merge(batches, (match.start() for match in _MESSAGE_PATTERN.finditer(block)))
