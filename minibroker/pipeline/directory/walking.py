"""Walking over the batches of a `.log` file by their headers, past whatever is damaged.

Checksums are looked at only to find a way on behind damage. What the records say is `minibroker.pipeline.decode`'s.
"""

from __future__ import annotations

from collections.abc import Iterator

from minibroker.protocol.errors import CorruptBatch
from minibroker.protocol.records.batch import BatchHeader
from minibroker.storage.files import File
from minibroker.storage.inspection import Damage, FoundBatch, LogInspection
from minibroker.storage.scanning import headers, is_blank

Step = tuple[int, BatchHeader]


def walk(file: File, position: int, end: int, next_offset: int, *, blank_ends: bool = False) -> Iterator[Step | Damage]:
    """(position, header) of each batch from `position` to `end`, and bytes in which none can be found.

    `next_offset` is the smallest offset that may come. With `blank_ends`, zeros are the end: of a file that was made
    longer than what is in it. Raises `OSError`.
    """
    while position < end:
        try:
            for at, header in headers(file, position, end):
                yield at, header
                position, next_offset = at + header.size_bytes, header.next_offset
            return
        except CorruptBatch:
            if blank_ends and is_blank(file, position):
                return
            damage = damage_at(file, position, end, next_offset)
            yield damage
            position += damage.size_bytes


def steps(file: File, position: int, end: int, next_offset: int, *, blank_ends: bool = False) -> Iterator[Step]:
    """As `walk`, without what is damaged."""
    for step in walk(file, position, end, next_offset, blank_ends=blank_ends):
        if not isinstance(step, Damage):
            yield step


def damage_at(file: File, position: int, end: int, next_offset: int) -> Damage:
    """What is wrong at `position`, where a batch should begin, and how far the next sound one is: `end` at most.

    Raises `OSError`.
    """
    expected, found, resume = "a whole batch", "the end of the file", end
    for finding in LogInspection(file, base_offset=next_offset).findings(position):
        if isinstance(finding, Damage):
            expected, found, resume = finding.expected, finding.found, finding.position + finding.size_bytes
        elif isinstance(finding, FoundBatch):
            resume = finding.position
        if resume > position:
            break
    resume = min(resume, end) if resume > position else end
    return Damage(file.path, position, resume - position, next_offset, expected, found)
