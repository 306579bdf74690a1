"""Walking over the batches of a `.log` file by their headers, past whatever is damaged.

Checksums are looked at only to find a way on behind damage. What the records say is `minibroker.pipeline.decode`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from re import DOTALL
from re import compile as pattern
from struct import Struct

from minibroker.protocol.errors import CorruptBatch
from minibroker.protocol.records.batch import LOG_OVERHEAD_BYTES, BatchHeader
from minibroker.protocol.records.message import MIN_MESSAGE_BYTES, check_message
from minibroker.storage.block_reader import BLOCK_BYTES, BlockReader
from minibroker.storage.files import File
from minibroker.storage.inspection import SEARCH_CRC_LEAST_BYTES, Damage, FoundBatch, LogInspection
from minibroker.storage.offset_index import MAX_RELATIVE_OFFSET
from minibroker.storage.scanning import headers, is_blank

Step = tuple[int, BatchHeader]

SEARCHED_BYTES = 64 << 20
_OFFSET_AND_LENGTH = Struct(">qi")
# Offset and size that begin with zeros, as those of all but very large ones, a checksum, magic 0 or 1, its attributes.
_MESSAGE_PATTERN = pattern(rb"\x00(?=.{7}\x00(?!\x00{3}).{7}[\x00\x01][\x00-\x0f])", DOTALL)


def walk(file: File, position: int, end: int, next_offset: int, *, blank_ends: bool = False) -> Iterator[Step | Damage]:
    """(position, header) of each batch from `position` to `end`, and bytes in which none can be found.

    `next_offset` is the smallest offset that may come. With `blank_ends`, zeros are the end: of a file that was made
    longer than what is in it. Raises `OSError`.
    """
    least_offset = next_offset  # what damaged headers say of offsets must not hide sound ones behind them
    while position < end:
        try:
            for at, header in headers(file, position, end):
                yield at, header
                position, next_offset = at + header.size_bytes, header.next_offset
            return
        except CorruptBatch:
            if blank_ends and is_blank(file, position):
                return
            damage = damage_at(file, position, end, next_offset, least_offset)
            yield damage
            position += damage.size_bytes


def steps(file: File, position: int, end: int, next_offset: int, *, blank_ends: bool = False) -> Iterator[Step]:
    """Walk as `walk` does, without what is damaged."""
    for step in walk(file, position, end, next_offset, blank_ends=blank_ends):
        if not isinstance(step, Damage):
            yield step


def damage_at(file: File, position: int, end: int, next_offset: int, least_offset: int) -> Damage:
    """Return what is wrong at `position`, where a batch should begin, and how far the next sound one is: `end` at most.

    `next_offset` is the offset that is expected, `least_offset` that below which none can follow. Raises `OSError`.
    """
    expected, found, resume = "a whole batch", "the end of the file", end
    for finding in LogInspection(file, base_offset=least_offset).findings(position):
        if isinstance(finding, Damage):
            expected, found, resume = finding.expected, finding.found, finding.position + finding.size_bytes
        elif isinstance(finding, FoundBatch):
            resume = finding.position
        if resume > position:
            break
    resume = min(resume, end) if resume > position else end
    resume = _sound_message(file, position + 1, resume, least_offset)
    return Damage(file.path, position, resume - position, next_offset, expected, found)


def _sound_message(file: File, start: int, end: int, least_offset: int) -> int:
    """Where the first message of format 0 or 1 begins that is sound, lies before `end`, and may come; else `end`.

    It is given up after `SEARCHED_BYTES`: a damage that large has left little to be read.
    """
    reader, budget_bytes = BlockReader(file, end), SEARCH_CRC_LEAST_BYTES
    at = start
    while at + MIN_MESSAGE_BYTES[0] <= min(end, start + SEARCHED_BYTES):
        block = reader.at(at, BLOCK_BYTES)
        for match in _MESSAGE_PATTERN.finditer(block):
            position = at + match.start()
            offset, length = _OFFSET_AND_LENGTH.unpack_from(block, match.start())
            size = length + LOG_OVERHEAD_BYTES
            if not least_offset <= offset <= least_offset + MAX_RELATIVE_OFFSET or size > end - position:
                continue
            budget_bytes -= size
            if budget_bytes < 0:  # bytes made to look like large messages would cost the square of their number
                return end
            if _is_sound(file.read(position, size)):
                return position
        at += max(len(block) - MIN_MESSAGE_BYTES[0], 1)
    return end


def _is_sound(data: bytes) -> bool:
    try:
        check_message(data)
    except CorruptBatch:
        return False
    return True
