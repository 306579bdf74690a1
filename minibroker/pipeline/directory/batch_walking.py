"""Walks over the batches of a `.log` file by their headers, past damage.

Checksums are only used to find the next batch behind damage. `minibroker.pipeline.decode` reads the records.
"""

from __future__ import annotations

from collections.abc import Iterator

from minibroker.protocol.errors import CorruptBatch
from minibroker.protocol.records.batch import BatchHeader
from minibroker.protocol.records.walking import FoundBatch, format_checksums
from minibroker.storage.batch_scanning import is_blank, iterate_headers
from minibroker.storage.files import File
from minibroker.storage.inspection.file_walking import make_walker
from minibroker.storage.inspection.log_inspection import Damage
from minibroker.storage.segment_indexes import MAX_RELATIVE_OFFSET

Step = tuple[int, BatchHeader]


def walk_batches(
    file: File, position: int, end: int, next_offset: int, *, blank_ends: bool = False
) -> Iterator[Step | Damage]:
    """Yield (position, header) of each batch from `position` to `end`, and the damage between them.

    `next_offset` is the smallest possible offset of the next batch. With `blank_ends`, zeros are the end, as in a file
    that was preallocated. Raises `OSError`.
    """
    least_offset = next_offset  # offsets in damaged headers must not hide sound batches behind them
    while position < end:
        try:
            for at, header in iterate_headers(file, position, end):
                yield at, header
                position, next_offset = at + header.size_bytes, header.next_offset
            return
        except CorruptBatch:
            if blank_ends and is_blank(file, position):
                return
            damage = describe_damage_at(file, position, end, next_offset, least_offset)
            yield damage
            position += damage.size_bytes


def iterate_batch_steps(
    file: File, position: int, end: int, next_offset: int, *, blank_ends: bool = False
) -> Iterator[Step]:
    """Walk as `walk_batches` does, without the damage."""
    for step in walk_batches(file, position, end, next_offset, blank_ends=blank_ends):
        if not isinstance(step, Damage):
            yield step


def describe_damage_at(file: File, position: int, end: int, next_offset: int, least_offset: int) -> Damage:
    """Return what is wrong at `position`, where a batch should begin, and where the next sound one is: at most `end`.

    `next_offset` is the expected offset. No later batch can have an offset below `least_offset`. Raises `OSError`.
    """
    limit = least_offset + MAX_RELATIVE_OFFSET + 1
    step = make_walker(file, end, next_offset=least_offset, limit=limit).step(position)
    if isinstance(step, FoundBatch):  # the caller knows that it is damaged
        return Damage(file.path, position, step.header.size_bytes, next_offset, *format_checksums(step))
    return Damage(file.path, position, step.size_bytes, next_offset, step.expected, step.found)
