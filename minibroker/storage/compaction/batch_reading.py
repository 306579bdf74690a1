"""Reads segments for the cleaner, in bounded memory: batch by batch, with verified checksums.

An error ends the cleaning, and is logged once, with file, position and offset.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from minibroker.protocol.errors import CorruptBatch
from minibroker.protocol.records.batch import LOG_OVERHEAD_BYTES, MAGIC, BatchHeader
from minibroker.protocol.records.formats import check_batch_or_message, read_header_at
from minibroker.protocol.records.message import MIN_MESSAGE_BYTES
from minibroker.storage.batch_scanning import iterate_sound_batches, make_offset_error
from minibroker.storage.files import File

MIN_BLOCK_BYTES = 4096


class UncleanableLog(Exception):
    """A log cannot be cleaned. The message says why, in one line with file, position and offset."""


class StoredBatch(NamedTuple):
    """A batch in a segment."""

    position: int
    header: BatchHeader
    data: bytes


def iterate_stored_batches(file: File, size_bytes: int, first_offset: int, block_bytes: int) -> Iterator[StoredBatch]:
    """Yield the batches in the first `size_bytes` of a segment whose base offset is `first_offset`.

    About `block_bytes` are read at once; a larger batch is read whole only after its checksum was verified in pieces.
    Raises `UncleanableLog`, `OSError`.
    """
    position, next_offset = 0, first_offset
    try:
        while position < size_bytes:
            for batch in _iterate_batches_of_block(file, position, size_bytes, max(block_bytes, MIN_BLOCK_BYTES)):
                header = batch.header
                if header.base_offset < next_offset or header.last_offset_delta < 0:
                    raise make_offset_error(file, position, header, next_offset)
                yield batch
                position, next_offset = position + len(batch.data), header.next_offset
    except CorruptBatch as error:
        raise make_unreadable_batch_error(file, position, next_offset, error) from error


def make_unreadable_batch_error(file: File, position: int, offset: int, reason: Exception) -> UncleanableLog:
    """Return the error for a batch that cannot be read."""
    return UncleanableLog(f"{file.path}: the batch at position {position}, offset {offset}, cannot be read: {reason}")


def _iterate_batches_of_block(file: File, position: int, end: int, block_bytes: int) -> Iterator[StoredBatch]:
    """Yield the batches from `position` on that lie in one block, or the first one if it is larger than a block."""
    block = file.read(position, min(block_bytes, end - position))
    at = 0
    while (header := _read_header_at(block, at)) is not None:
        size = header.batch_length + LOG_OVERHEAD_BYTES
        if header.magic <= MAGIC and at + size > len(block) and position + at + size <= end:
            break
        data = block[at : at + size] if size >= MIN_MESSAGE_BYTES[0] else block[at:]
        check_batch_or_message(data)
        yield StoredBatch(position + at, header, data)
        at += size
    if at == 0:
        for _, header in iterate_sound_batches(file, position, end):  # verifies the checksum in pieces
            yield StoredBatch(position, header, file.read(position, header.size_bytes))
            break


def _read_header_at(block: bytes, position: int) -> BatchHeader | None:
    """Return the header at `position`, None if it is incomplete."""
    try:
        return read_header_at(block, position)
    except CorruptBatch:
        return None
