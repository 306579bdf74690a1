"""Walking through the batches of a `.log` file, header by header, a block at a time.

Nothing is cut or repaired here; a batch that cannot be is reported by file and position.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from struct import Struct

from minibroker.protocol.errors import CorruptBatch
from minibroker.protocol.records.batch import (
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
    check_batch,
)
from minibroker.protocol.records.crc import crc32c
from minibroker.storage.files import File

SCAN_BLOCK_BYTES = 8 << 10
RECOVERY_BLOCK_BYTES = 1 << 20

CRC_START = 21
MAGIC_POSITION = 16

# base_offset, batch_length, magic, last_offset_delta
_SPAN = Struct(">qi4xb6xi")
# formats 0 and 1: offset, size, crc, magic
_OLD_HEAD = Struct(">qiIb")


def headers(
    file: File, position: int, end: int, block_bytes: int = SCAN_BLOCK_BYTES
) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch from `position` to `end`, checksums left unread.

    Raises `CorruptBatch`, whose position is one in the file, at a batch that is not whole or has an impossible header.
    """
    block, start = b"", position
    while position < end:
        at = position - start
        if at + HEADER_BYTES > len(block):
            block, start, at = file.read(position, min(block_bytes, end - position)), position, 0
            _check_presence(file, len(block), position)
        header = BatchHeader._make(HEADER.unpack_from(block, at))
        _check(file, header.batch_length, header.magic, position, end)
        yield position, header
        position += header.batch_length + LOG_OVERHEAD_BYTES


def spans(file: File, position: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """(position, size, base offset, last offset) of each batch from `position` to `end`: a cheaper `headers`."""
    block, start = b"", position
    while position < end:
        at = position - start
        if at + HEADER_BYTES > len(block):
            block, start, at = file.read(position, min(SCAN_BLOCK_BYTES, end - position)), position, 0
            _check_presence(file, len(block), position)
        base_offset, length, magic, last_offset_delta = _SPAN.unpack_from(block, at)
        _check(file, length, magic, position, end)
        yield position, length + LOG_OVERHEAD_BYTES, base_offset, base_offset + last_offset_delta
        position += length + LOG_OVERHEAD_BYTES


def sound_batches(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch from `position` to `end`, each with its checksum verified.

    Raises `CorruptBatch`, whose position is one in the file, at the first batch that is torn or corrupt, and
    `OldMessageFormat` at one that is sound, but of format 0 or 1.
    """
    block, start = memoryview(b""), position
    while position < end:
        at = position - start
        if at + HEADER_BYTES > len(block):
            block, start, at = memoryview(file.read(position, min(RECOVERY_BLOCK_BYTES, end - position))), position, 0
            _check_presence(file, len(block), position)
        header = BatchHeader._make(HEADER.unpack_from(block, at))
        size = header.batch_length + LOG_OVERHEAD_BYTES
        if at and at + size > len(block):
            block = memoryview(b"")  # read on from this batch, so that it lies in the block if it is no larger
            continue
        body = block[at + CRC_START : max(at + size, at + CRC_START)]
        crc = crc32c(body)
        if crc != header.crc or header.magic != MAGIC or not HEADER_BYTES <= size == CRC_START + len(body):
            _check_closely(file, header, (block[at:], position, end), crc, len(body))
        yield position, header
        position += size


def _check_closely(
    file: File, header: BatchHeader, place: tuple[memoryview, int, int], crc: int, checked_bytes: int
) -> None:
    """What is wrong with a batch, or nothing if it is only larger than a block. `place` is block, position and end."""
    block, position, end = place
    try:
        _check(file, header.batch_length, header.magic, position, end)
    except CorruptBatch:
        _refuse_old_format(file, block, position, end)
        raise
    _check_crc(file, header, position, crc, position + CRC_START + checked_bytes)


def stored_batch(file: File, position: int, header: BatchHeader) -> bytes:
    """A batch that is about to be looked into, as it lies at `position`; its header was read there before.

    Raises `CorruptBatch`, which says where, if its checksum is not right.
    """
    data = file.read(position, header.size_bytes)
    try:
        check_batch(data)
    except CorruptBatch as error:
        raise CorruptBatch(
            f"{file.path}: the batch at {position}, offset {header.base_offset}, is damaged: {error.message}", position
        ) from None
    return data


def misplaced(file: File, position: int, header: BatchHeader, next_offset: int) -> CorruptBatch:
    """What is said of a batch whose offsets cannot be, where `next_offset` or a somewhat larger one must come."""
    return CorruptBatch(
        f"{file.path}: the batch at {position} has the offset {header.base_offset}, "
        f"the one before it ends at {next_offset}",
        position,
    )


class OldMessageFormat(ValueError):
    """Batches of message format 0 or 1, which nothing may mistake for a damage."""


def _check_crc(file: File, header: BatchHeader, position: int, crc: int, at: int) -> None:
    """`crc` is the checksum up to `at`: a batch larger than a block is read in pieces."""
    end = position + header.size_bytes
    while at < end:
        piece = file.read(at, min(RECOVERY_BLOCK_BYTES, end - at))
        if not piece:
            break
        crc = crc32c(piece, crc)
        at += len(piece)
    if crc != header.crc:
        raise CorruptBatch(f"{file.path}: the batch at {position} has the checksum {crc}, not {header.crc}", position)


def _refuse_old_format(file: File, block: memoryview, position: int, end: int) -> None:
    """Formats 0 and 1: offset, size, CRC-32 of what follows it, magic (the checksum tells them from a flipped bit)."""
    _, length, crc, magic = _OLD_HEAD.unpack_from(block)
    if magic not in (0, 1) or not 0 < length <= min(end - position - LOG_OVERHEAD_BYTES, RECOVERY_BLOCK_BYTES):
        return
    if zlib.crc32(file.read(position + MAGIC_POSITION, length - (MAGIC_POSITION - LOG_OVERHEAD_BYTES))) == crc:
        raise OldMessageFormat(f"{file.path} holds message format {magic} at {position}, and only format 2 is served")


def _check_presence(file: File, there: int, position: int) -> None:
    if there < HEADER_BYTES:
        raise CorruptBatch(f"{file.path}: {there} bytes at {position} are no batch", position)


def _check(file: File, length: int, magic: int, position: int, end: int) -> None:
    size = length + LOG_OVERHEAD_BYTES
    if magic != MAGIC or size < HEADER_BYTES or position + size > end:
        raise CorruptBatch(
            f"{file.path}: no batch at {position} (magic {magic}, {size} bytes announced, {end - position} there)",
            position,
        )
