"""Reads the headers of the batches in a `.log` file, of all formats, a block at a time.

A message of format 0 or 1 appears as a batch of one record (see `message.py`), a wrapper with its last offset only.
Nothing is truncated or repaired here. Errors name the file and the position of an invalid batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final
from zlib import crc32

from minibroker.protocol.errors import CorruptBatch
from minibroker.protocol.records.batch import (
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
    check_batch_in_steps,
)
from minibroker.protocol.records.crc import crc32c
from minibroker.protocol.records.formats import check_batch_or_message, is_old_format
from minibroker.protocol.records.message import MAGIC_POSITION, MIN_MESSAGE_BYTES, read_message_header
from minibroker.protocol.steps import Steps, run_all_steps
from minibroker.storage.files import File

SCAN_BLOCK_BYTES = 8 << 10
RECOVERY_BLOCK_BYTES = 1 << 20
HEADERS_AT_ONCE: Final = 512  # batches in one step

# base_offset, batch_length, magic, last_offset_delta
_SPAN = Struct(">qi4xb6xi")


def iterate_headers(
    file: File, position: int, end: int, block_bytes: int = SCAN_BLOCK_BYTES
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each batch from `position` to `end`. Checksums are not verified.

    Raises `CorruptBatch`, with its position in the file, at a batch that is incomplete or has an impossible header.
    """
    block, start, length = b"", position, 0
    while position < end:
        at = position - start
        if at + HEADER_BYTES > len(block):
            # If batches are larger than blocks, the next one probably is too: read only its header.
            size = block_bytes if length < block_bytes else HEADER_BYTES
            block, start, at = _read_block(file, position, end, size), position, 0
        header = BatchHeader._make(HEADER.unpack_from(block, at))
        length = header.batch_length
        _check_announced_size(file, length, header.magic, position, end)
        yield position, header if header.magic == MAGIC else read_message_header(block, at)
        position += length + LOG_OVERHEAD_BYTES


def iterate_batch_spans(file: File, position: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (position, size, base offset, last offset) of the batches there: a cheaper `iterate_headers`."""
    block, start, length = b"", position, 0
    while position < end:
        at = position - start
        if at + HEADER_BYTES > len(block):
            size = SCAN_BLOCK_BYTES if length < SCAN_BLOCK_BYTES else HEADER_BYTES
            block, start, at = _read_block(file, position, end, size), position, 0
        base_offset, length, magic, last_offset_delta = _SPAN.unpack_from(block, at)
        _check_announced_size(file, length, magic, position, end)
        if magic != MAGIC:
            last_offset_delta = 0
        yield position, length + LOG_OVERHEAD_BYTES, base_offset, base_offset + last_offset_delta
        position += length + LOG_OVERHEAD_BYTES


def iterate_sound_batches(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each batch from `position` to `end`, once its checksum is verified.

    Raises `CorruptBatch`, with its position in the file, at the first batch that is incomplete or corrupt.
    """
    block, start = memoryview(b""), position
    while position < end:
        at = position - start
        if at + HEADER_BYTES > len(block):
            block, start, at = memoryview(_read_block(file, position, end, RECOVERY_BLOCK_BYTES)), position, 0
        header = BatchHeader._make(HEADER.unpack_from(block, at))
        size = header.batch_length + LOG_OVERHEAD_BYTES
        if at and at + size > len(block):
            block = memoryview(b"")  # read the next block from this batch on, so that it contains all of it, if it can
            continue
        body = block[at + CRC_START : max(at + size, at + CRC_START)]
        crc = crc32c(body)
        if crc != header.crc or header.magic != MAGIC or not HEADER_BYTES <= size == CRC_START + len(body):
            header = _check_large_or_old_batch(file, header, (block[at:], position, end), crc, len(body))
        yield position, header
        position += size


def _check_large_or_old_batch(
    file: File, header: BatchHeader, block_position_and_end: tuple[memoryview, int, int], crc: int, checked_bytes: int
) -> BatchHeader:
    """Check a batch that is larger than a block, or of an old format, and return its header. Raises `CorruptBatch`.

    The block begins with the batch, which must end by `end`. `crc` is that of its first `checked_bytes` of content.
    """
    block, position, end = block_position_and_end
    _check_announced_size(file, header.batch_length, header.magic, position, end)
    if header.magic != MAGIC:
        header = read_message_header(block)
        body = block[MAGIC_POSITION : header.size_bytes]
        _check_crc_of_remaining_bytes(
            file, header, position, (crc32, crc32(body), position + MAGIC_POSITION + len(body))
        )
    else:
        _check_crc_of_remaining_bytes(file, header, position, (crc32c, crc, position + CRC_START + checked_bytes))
    return header


def read_stored_batch(file: File, position: int, header: BatchHeader) -> bytes | bytearray:
    """Return the bytes of the batch at `position`, whose header was read before.

    Raises `CorruptBatch`, which says where, if its checksum is wrong.
    """
    return run_all_steps(read_stored_batch_in_steps(file, position, header))


def read_stored_batch_in_steps(file: File, position: int, header: BatchHeader) -> Steps[bytes | bytearray]:
    """Return the batch as `read_stored_batch` does, in steps if it is large."""
    try:
        if header.size_bytes <= RECOVERY_BLOCK_BYTES:
            data: bytes | bytearray = file.read(position, header.size_bytes)
            check_batch_or_message(data)
            return data
        data = bytearray()
        for at in range(0, header.size_bytes, RECOVERY_BLOCK_BYTES):
            data += file.read(position + at, min(RECOVERY_BLOCK_BYTES, header.size_bytes - at))
            yield
        if header.magic == MAGIC:
            yield from check_batch_in_steps(data)
        else:
            check_batch_or_message(data)
        return data
    except CorruptBatch as error:
        raise CorruptBatch(
            f"{file.path}: the batch at {position}, offset {header.base_offset}, is damaged: {error.message}", position
        ) from None


def is_unwritten(file: File, position: int) -> bool:
    """Return whether there are only zeros in place of a batch's header: nothing was written there yet."""
    return not any(file.read(position, HEADER_BYTES))


def make_offset_error(file: File, position: int, header: BatchHeader, next_offset: int) -> CorruptBatch:
    """Return the error for a batch with invalid offsets: its base offset must be `next_offset` or larger."""
    return CorruptBatch(
        f"{file.path}: the batch at {position} has the offset {header.base_offset}, "
        f"the one before it ends at {next_offset}",
        position,
    )


def _check_crc_of_remaining_bytes(
    file: File, header: BatchHeader, position: int, crc_state: tuple[Callable[[bytes, int], int], int, int]
) -> None:
    """Raise `CorruptBatch` if a checksum is wrong. `crc_state` is (function, its value so far, the next position)."""
    function, crc, at = crc_state
    end = position + header.size_bytes
    while at < end:
        piece = file.read(at, min(RECOVERY_BLOCK_BYTES, end - at))
        if not piece:
            break
        crc = function(piece, crc)
        at += len(piece)
    if crc != header.crc:
        raise CorruptBatch(f"{file.path}: the batch at {position} has the checksum {crc}, not {header.crc}", position)


def _read_block(file: File, position: int, end: int, block_bytes: int) -> bytes:
    """Read a block that contains the header at `position`. A message shorter than a header is padded with zeros."""
    block = file.read(position, min(block_bytes, end - position))
    if len(block) < HEADER_BYTES:
        if len(block) < MIN_MESSAGE_BYTES[0] or not is_old_format(block):
            raise CorruptBatch(f"{file.path}: {len(block)} bytes at {position} are no batch", position)
        block = block.ljust(HEADER_BYTES, b"\0")
    return block


def _check_announced_size(file: File, length: int, magic: int, position: int, end: int) -> None:
    """Raise `CorruptBatch` if a batch of this length and magic cannot be between `position` and `end`."""
    size = length + LOG_OVERHEAD_BYTES
    if magic != MAGIC or size < HEADER_BYTES or position + size > end:
        if 0 <= magic < MAGIC and MIN_MESSAGE_BYTES[magic] <= size <= end - position:
            return
        raise CorruptBatch(
            f"{file.path}: no batch at {position} (magic {magic}, {size} bytes announced, {end - position} there)",
            position,
        )
