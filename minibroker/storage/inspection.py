"""Reading a `.log` file for people: every batch as it lies there, every damage, and on with the next sound batch.

Nothing is changed, and little is believed: where `scanning.py` stops at the first byte that cannot be, this goes on to
the end of the file. What other files say of the log is compared in `verification.py`.

    batch, batch, ... damage? --- the next batch is where the length says -----------------> go on there
                        |
                        +------- search, byte by byte, for a header whose checksum is right -> go on there
                                 (no further than the next position that the index knows, if that one can be believed)
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from re import DOTALL
from re import compile as pattern
from struct import Struct
from typing import NamedTuple

from minibroker.protocol.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, BatchHeader, read_header
from minibroker.protocol.records.crc import crc32c
from minibroker.protocol.records.message import MAGIC_POSITION, message_header
from minibroker.storage.block_reader import BLOCK_BYTES, BlockReader
from minibroker.storage.checkpoints import LEADER_EPOCH_CHECKPOINT
from minibroker.storage.files import File
from minibroker.storage.leader_epochs import LeaderEpochs
from minibroker.storage.offset_index import MAX_RELATIVE_OFFSET
from minibroker.storage.scanning import CRC_START

# Checksums that a search may compute, as a multiple of the file and at least: bytes made to look like headers of large
# batches would otherwise cost the square of their number.
SEARCH_CRC_FACTOR = 4
SEARCH_CRC_LEAST_BYTES = 64 << 20
# Magic 2, and 5 bytes on the attributes, of which only the lower byte has ever had a meaning, and an offset delta that
# is not negative. It begins with one fixed byte, which `re` looks for at the speed of memchr.
HEADER_PATTERN = pattern(rb"\x02(?=.{4}\x00.[\x00-\x7f])", DOTALL)

# Formats 0 and 1: offset, size, CRC-32 of what follows it, magic.
OLD_HEAD = Struct(">qiIb")
OLD_LEAST_BYTES = 26  # of a message in format 0


class Damage(NamedTuple):
    """Bytes that cannot be right: where, what should be there and what is.

    `size_bytes` were passed over, 0 if what is broken could be read all the same; `offset` is that of the first record
    concerned, as far as it is known.
    """

    path: str
    position: int
    size_bytes: int
    offset: int | None
    expected: str
    found: str


class Note(NamedTuple):
    """Something to know that is no damage."""

    path: str
    position: int
    offset: int | None
    text: str


class FoundBatch(NamedTuple):
    """A batch, and the checksum that its bytes have; `is_credible` unless a damage of it comes next.

    A message of format 0 or 1 is a batch of one, or, if it is a wrapper, of no known number.
    """

    position: int
    header: BatchHeader
    computed_crc: int
    is_credible: bool = True

    @property
    def is_sound(self) -> bool:
        return self.computed_crc == self.header.crc


Finding = FoundBatch | Note | Damage


class LogInspection:
    """One `.log` file, from its start to `size_bytes`.

    `base_offset` is the segment's (None if the file's name does not say it), `end_offset` the next segment's (None if
    there is none), `known` the (last offset, position) of batches by the index, ascending; a wrong one does no harm.
    `epochs` says which leader epoch each batch should bear; without, they must only not fall.
    """

    def __init__(
        self,
        file: File,
        *,
        base_offset: int | None = None,
        end_offset: int | None = None,
        known: Iterable[tuple[int, int]] = (),
        epochs: LeaderEpochs | None = None,
    ) -> None:
        self._file = file
        self._size = file.size_bytes()
        self._reader = BlockReader(file, self._size)
        self._lookahead = BlockReader(file, self._size)
        self._next_offset = 0 if base_offset is None else base_offset  # no batch may begin before
        self._limit = (1 << 63) if base_offset is None else base_offset + MAX_RELATIVE_OFFSET + 1
        if end_offset is not None:
            self._limit = min(self._limit, end_offset)
        self._epochs = epochs or LeaderEpochs()
        self._epoch = -1
        self._is_certain = base_offset is not None  # the next offset is known, not only bounded from below
        self._known = iter(known)
        self._next_known: tuple[int, int] | None = next(self._known, None)
        self._crc_budget_bytes = max(SEARCH_CRC_FACTOR * self._size, SEARCH_CRC_LEAST_BYTES)

    def findings(self, position: int = 0) -> Iterator[Finding]:
        """All batches, in the order of their positions, and what is to be said of the bytes. Raises `OSError`.

        From another `position` than the start, `base_offset` is the smallest offset that may come there.
        """
        while position < self._size:
            head = self._reader.at(position, HEADER_BYTES)
            old_bytes = self._old_message_bytes(position, head)
            if old_bytes:
                yield from self._old_message(position, head)
                position += old_bytes
                continue
            header = self._header(position, head)
            if header is None:
                damage = self._passed_over(position, *self._complaint(position, head))
                yield damage
                position += damage.size_bytes
                continue
            found = FoundBatch(position, header, self._crc(position, header.size_bytes))
            if not found.is_sound and not self._may_begin(position + header.size_bytes):
                damage = self._passed_over(position, *_checksums(found))
                yield damage
                position += damage.size_bytes
                continue
            judged = list(self._judged(found))
            yield found._replace(is_credible=not any(isinstance(each, Damage) for each in judged))
            yield from judged
            position += header.size_bytes

    # --- one batch ------------------------------------------------------------------------------

    def _header(self, position: int, head: memoryview) -> BatchHeader | None:
        """The header at `position`, if it can be that of a whole batch of format 2."""
        if len(head) < HEADER_BYTES or head[MAGIC_POSITION] != MAGIC:
            return None
        header = read_header(head)
        return header if HEADER_BYTES <= header.size_bytes <= self._size - position else None

    def _judged(self, found: FoundBatch) -> Iterator[Note | Damage]:
        """Yield what is wrong with a batch whose extent is known, and note what is expected of the next one."""
        header = found.header
        if not found.is_sound:
            self._is_certain = False
            yield self._damage(found, self._next_offset, *_checksums(found))
            return
        following = self._following(found)
        expected = self._next_offset
        if self._is_misplaced(header, following):
            self._is_certain = False
            what = f"offsets {header.base_offset} to {header.last_offset}"
            yield self._damage(found, expected, self._offsets_expected(), what)
            return
        if self._is_certain and header.base_offset > expected:
            text = f"no offsets {expected} to {header.base_offset - 1}, as compaction leaves it"
            yield Note(self._file.path, found.position, expected, text)
        self._next_offset = header.next_offset
        self._is_certain = True
        yield from self._judged_epoch(found, following)

    def _is_misplaced(self, header: BatchHeader, following: BatchHeader | None) -> bool:
        """Whether the base offset, which no checksum covers, contradicts what is before or behind."""
        if header.last_offset_delta < 0 or not self._is_in_range(header):
            return True
        gap = header.base_offset > self._next_offset
        return gap and following is not None and self._next_offset <= following.base_offset <= header.last_offset

    def _judged_epoch(self, found: FoundBatch, following: BatchHeader | None) -> Iterator[Damage]:
        """No checksum covers the leader epoch either."""
        epoch, offset = found.header.partition_leader_epoch, found.header.base_offset
        expected = self._epoch_expected(offset, epoch, following)
        if expected:
            yield self._damage(found, offset, expected, f"{epoch}")
        else:
            self._epoch = epoch

    def _epoch_expected(self, offset: int, epoch: int, following: BatchHeader | None) -> str | None:
        """Return what the epoch should be, or None if it can be what it is."""
        known = self._epochs.epoch_at(offset)
        if known >= 0:
            return None if epoch == known else f"leader epoch {known}, which {LEADER_EPOCH_CHECKPOINT} says"
        if following is not None and self._epoch <= following.partition_leader_epoch < epoch:
            return f"a leader epoch from {self._epoch} to {following.partition_leader_epoch}"
        return f"a leader epoch of at least {self._epoch}" if epoch < self._epoch else None

    def _following(self, found: FoundBatch) -> BatchHeader | None:
        """The header behind the batch, if there is one that can be."""
        position = found.position + found.header.size_bytes
        return self._header(position, self._reader.at(position, HEADER_BYTES))

    def _damage(self, found: FoundBatch, offset: int, expected: str, what: str) -> Damage:
        return Damage(self._file.path, found.position, 0, offset, expected, what)

    def _offsets_expected(self) -> str:
        limit = "" if self._limit == 1 << 63 else f" and below {self._limit}"
        return f"offsets from {self._next_offset} on{limit}"

    def _crc(self, position: int, size_bytes: int) -> int:
        crc, at, end = 0, position + CRC_START, position + size_bytes
        while at < end:
            piece = self._reader.at(at, min(BLOCK_BYTES, end - at))
            if not piece:
                break  # the file has become shorter
            crc = crc32c(piece, crc)
            at += len(piece)
        return crc

    # --- formats 0 and 1 ------------------------------------------------------------------------

    def _old_message_bytes(self, position: int, head: memoryview) -> int:
        """The size of the sound message of format 0 or 1 that is at `position`, 0 if there is none."""
        if len(head) < OLD_LEAST_BYTES or head[MAGIC_POSITION] not in (0, 1):
            return 0
        end = self._announced_end(position)
        computed, at = 0, position + MAGIC_POSITION
        while at < end:
            piece = self._reader.at(at, min(BLOCK_BYTES, end - at))
            if not piece:
                return 0
            computed = zlib.crc32(piece, computed)
            at += len(piece)
        return end - position if end and computed == OLD_HEAD.unpack_from(head)[2] else 0

    def _old_message(self, position: int, head: memoryview) -> Iterator[FoundBatch | Damage]:
        header = message_header(head)
        found = FoundBatch(position, header, header.crc)
        if header.base_offset < self._next_offset or not self._is_in_range(header):
            yield found._replace(is_credible=False)
            yield self._damage(found, self._next_offset, self._offsets_expected(), f"offset {header.base_offset}")
            self._is_certain = False
            return
        yield found
        self._next_offset = header.next_offset
        self._is_certain = True

    # --- damage, and the way on -----------------------------------------------------------------

    def _complaint(self, position: int, head: memoryview) -> tuple[str, str]:
        """(what was expected, what was found) at bytes that are no header of a batch."""
        if len(head) < HEADER_BYTES:
            return f"the {HEADER_BYTES} bytes of a batch's header", f"the end of the file after {len(head)}"
        if not any(head):
            return "a record batch", "zeros"
        magic = int.from_bytes(head[MAGIC_POSITION : MAGIC_POSITION + 1], signed=True)
        if magic != MAGIC:
            return f"magic {MAGIC} at {position + MAGIC_POSITION}", f"{magic}"
        size_bytes, left = read_header(head).size_bytes, self._size - position
        if size_bytes < HEADER_BYTES:
            return f"a batch of at least {HEADER_BYTES} bytes", f"one of {size_bytes}"
        return f"a batch of {size_bytes} bytes", f"the end of the file after {left}"

    def _passed_over(self, position: int, expected: str, found: str) -> Damage:
        self._is_certain = False
        resume = self._resume(position)
        if self._crc_budget_bytes < 0 and resume == self._size:
            found += "; too much of what follows looks like a batch, so the search for the next one was given up"
        return Damage(self._file.path, position, resume - position, self._next_offset, expected, found)

    def _resume(self, position: int) -> int:
        """Where to go on after bytes that are no batch: at the next one that is sound, or that the index knows."""
        end = self._announced_end(position)
        if end and self._may_begin(end):
            return end
        bound, limit = self._known_after(position)
        found = self._search(position + 1, bound, limit)
        return bound if found is None else found

    def _announced_end(self, position: int) -> int:
        """Where the bytes at `position` say that they end, in the same field in all formats; 0 if that cannot be."""
        head = self._reader.at(position, LOG_OVERHEAD_BYTES)
        if len(head) < LOG_OVERHEAD_BYTES:
            return 0
        end = position + LOG_OVERHEAD_BYTES + int.from_bytes(head[8:], signed=True)
        return end if position + OLD_LEAST_BYTES <= end <= self._size else 0

    def _known_after(self, position: int) -> tuple[int, int]:
        """(position, offset) at which the next batch begins that the index knows and that is there; else the end."""
        while self._next_known is not None:
            last_offset, known = self._next_known
            if known > position:
                header = self._header(known, self._lookahead.at(known, HEADER_BYTES))
                if header is not None and header.last_offset == last_offset:
                    return known, header.base_offset
            self._next_known = next(self._known, None)
        return self._size, self._limit

    def _search(self, start: int, bound: int, limit: int) -> int | None:
        """The first position from `start` on of a batch with the right checksum that ends by `bound`, below `limit`."""
        reader = BlockReader(self._file, self._size)
        while start + HEADER_BYTES <= bound:
            block = reader.at(start, BLOCK_BYTES)
            for match in HEADER_PATTERN.finditer(block, MAGIC_POSITION, bound - start):
                position = start + match.start() - MAGIC_POSITION
                if self._is_sound_batch(position, bound, limit):
                    return position
            if len(block) < BLOCK_BYTES:
                break
            start += len(block) - HEADER_BYTES
        return None

    def _is_sound_batch(self, position: int, bound: int, limit: int) -> bool:
        header = self._header(position, self._lookahead.at(position, HEADER_BYTES))
        if header is None or position + header.size_bytes > bound:
            return False
        if not self._is_in_range(header) or header.last_offset >= limit:
            return False
        self._crc_budget_bytes -= header.size_bytes
        return self._crc_budget_bytes >= 0 and self._crc(position, header.size_bytes) == header.crc

    def _is_in_range(self, header: BatchHeader) -> bool:
        return self._next_offset <= header.base_offset and header.last_offset < self._limit

    def _may_begin(self, position: int) -> bool:
        """Whether the file ends here, or something begins that looks like a batch of this log."""
        if position == self._size:
            return True
        head = self._reader.at(position, HEADER_BYTES)
        header = self._header(position, head)
        return self._is_in_range(header) if header is not None else self._old_message_bytes(position, head) > 0


def _checksums(found: FoundBatch) -> tuple[str, str]:
    return f"checksum {found.computed_crc:#010x}, as computed", f"{found.header.crc:#010x}, as stored"
