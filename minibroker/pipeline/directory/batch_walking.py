"""Walking over the batches of a `.log` file by their headers, past whatever is damaged.

Checksums are looked at only to find a way on behind damage. What the records say is `minibroker.pipeline.decode`'s.
"""

from __future__ import annotations

from collections.abc import Iterator

from minibroker.protocol.errors import CorruptBatch
from minibroker.protocol.records.batch import BatchHeader
from minibroker.protocol.records.walking import FoundBatch, checksums
from minibroker.storage.batch_scanning import headers, is_blank
from minibroker.storage.files import File
from minibroker.storage.inspection.file_walking import walker_of
from minibroker.storage.inspection.log_inspection import Damage
from minibroker.storage.segment_indexes import MAX_RELATIVE_OFFSET

Step = tuple[int, BatchHeader]


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
    limit = least_offset + MAX_RELATIVE_OFFSET + 1
    step = walker_of(file, end, next_offset=least_offset, limit=limit).step(position)
    if isinstance(step, FoundBatch):  # which whoever asks knows to be damaged
        return Damage(file.path, position, step.header.size_bytes, next_offset, *checksums(step))
    return Damage(file.path, position, step.size_bytes, next_offset, step.expected, step.found)
