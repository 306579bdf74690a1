"""Walks over a `.log` file, past damage: in blocks of whole batches for rows and for `verify`, by headers for plans.

    | batch batch batch | batch batch |  ? ? ? ? ?  | batch batch ...
      a block             a block        passed over: it ends at the next sound batch, or at the end

The decoder finds the batches of a block (`decode/batch_headers.py`), the protocol the next one behind damage
(`records/walking.py`). A batch whose checksum is wrong is part of a block, unless its length leads nowhere: then it is
where the damage begins. `log_walking.py` reads headers alone, for plans.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

import numpy as np

from minibroker.pipeline.array_types import Bools
from minibroker.pipeline.decode.batch_headers import BatchHeaders, check_checksums, read_headers_at, scan_headers
from minibroker.protocol.errors import CorruptBatch
from minibroker.protocol.records.batch import HEADER_BYTES, BatchHeader
from minibroker.protocol.records.walking import BatchWalker, FoundBatch, SkippedBytes, format_checksums
from minibroker.storage.batch_scanning import is_unwritten, iterate_headers
from minibroker.storage.files import File
from minibroker.storage.inspection.file_walking import make_batch_walker
from minibroker.storage.inspection.log_inspection import DamagedBytes
from minibroker.storage.segment_indexes import MAX_RELATIVE_OFFSET

BLOCK_BYTES: Final = 4 << 20

HeaderAtPosition = tuple[int, BatchHeader]


class Checksums(Enum):
    """Which checksums the walk computes: for readers one, as their decoder computes those that it needs."""

    ALL = slice(None)
    LAST = slice(-1, None)  # of a block: damage behind it may be a wrong length
    NONE = slice(0)


class BatchBlock(NamedTuple):
    """Consecutive batches in `data`, which begins at `origin` in the file.

    `sound` is False for those with a wrong checksum; with `Checksums.ALL`, `wrong` has them in the same order.
    """

    data: memoryview
    origin: int
    headers: BatchHeaders
    sound: Bools
    wrong: list[FoundBatch]


class FileShortened(OSError):
    """The file has become shorter during the walk."""


def iterate_blocks_or_damage(
    file: File, walker: BatchWalker, position: int, checksums: Checksums, block_bytes: int = BLOCK_BYTES
) -> Iterator[BatchBlock | SkippedBytes]:
    """Yield the batches from `position` on in blocks of about `block_bytes`, and the damage between them.

    `walker` is one over the file, up to where the walk ends. Raises `FileShortened`, and other `OSError`s.
    """
    smallest = max(block_bytes, HEADER_BYTES)
    wanted, end = smallest, walker.size_bytes
    while position < end:
        data = memoryview(read_exactly(file, position, min(wanted, end - position)))
        wanted = smallest
        found = scan_headers(data)
        giant = None if found.positions else walker.read_header_at(position)
        if giant is not None:
            wanted = giant.size_bytes
            continue
        damage: FoundBatch | SkippedBytes | None = None
        if found.positions:
            block, damage = _make_block(data, position, read_headers_at(data, found.positions), walker, checksums)
            if len(block.sound):
                yield block
            position += found.end
        else:
            damage = walker.read_batch_or_damage_at(position)
        if isinstance(damage, SkippedBytes):
            yield damage
            position = damage.position + damage.size_bytes


def _make_block(
    data: memoryview, origin: int, headers: BatchHeaders, walker: BatchWalker, checksums: Checksums
) -> tuple[BatchBlock, SkippedBytes | None]:
    """Return the batches before the first one of wrong length, and the damage there, or None if there is none."""
    sound = np.ones(len(headers.size), np.bool_)
    sound[checksums.value] = check_checksums(data, headers.select_batches(checksums.value))
    wrong: list[FoundBatch] = []
    for index in np.flatnonzero(~sound).tolist():
        position = origin + int(headers.position[index])
        if checksums is Checksums.LAST and _may_batch_begin_at(walker, position + int(headers.size[index])):
            continue
        step = walker.read_batch_or_damage_at(position)
        if isinstance(step, SkippedBytes):
            return BatchBlock(data, origin, headers.select_batches(slice(index)), sound[:index], wrong), step
        wrong.append(step)
    return BatchBlock(data, origin, headers, sound, wrong), None


def _may_batch_begin_at(walker: BatchWalker, position: int) -> bool:
    """Return whether something that may be a batch begins here, or this is the end."""
    return position == walker.size_bytes or walker.read_header_at(position) is not None


def read_exactly(file: File, position: int, size: int) -> bytes:
    """Return `size` bytes. Raises `FileShortened`."""
    data = file.read(position, size)
    if len(data) < size:
        raise FileShortened(f"{file.path}: it now ends at {position + len(data)}")
    return data


def iterate_headers_or_damage(
    file: File, position: int, end: int, next_offset: int, *, blank_ends: bool = False
) -> Iterator[HeaderAtPosition | DamagedBytes]:
    """Yield (position, header) of each batch up to `end`, and damage between them; zeros are the end with `blank_ends`.

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
            if blank_ends and is_unwritten(file, position):
                return
            damage = _describe_damage_at(file, position, end, next_offset, least_offset)
            yield damage
            position += damage.size_bytes


def iterate_sound_headers(
    file: File, position: int, end: int, next_offset: int, *, blank_ends: bool = False
) -> Iterator[HeaderAtPosition]:
    """Walk as `iterate_headers_or_damage` does, without the damage."""
    for step in iterate_headers_or_damage(file, position, end, next_offset, blank_ends=blank_ends):
        if not isinstance(step, DamagedBytes):
            yield step


def _describe_damage_at(file: File, position: int, end: int, next_offset: int, min_offset: int) -> DamagedBytes:
    """Return the damage that begins at `position`: its reason, and its size up to the next sound batch or `end`.

    A sound batch with an offset below `min_offset` counts as damage. `next_offset` is the offset that should come
    next; it is only reported. Raises `OSError`.
    """
    limit = min_offset + MAX_RELATIVE_OFFSET + 1
    step = make_batch_walker(file, end, next_offset=min_offset, limit=limit).read_batch_or_damage_at(position)
    if isinstance(step, FoundBatch):  # the caller knows that it is damaged
        return DamagedBytes(file.path, position, step.header.size_bytes, next_offset, *format_checksums(step))
    return DamagedBytes(file.path, position, step.size_bytes, next_offset, step.expected, step.found)
