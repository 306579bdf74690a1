"""Reads batches of any format, as a log may contain batches of old and new clients.

The formats have their own modules (`batch.py` and `record.py` for 2, `message.py` and `message_set.py` for 0 and 1).
The magic byte, which is at the same position in all of them, decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from minibroker.protocol.errors import CorruptBatch
from minibroker.protocol.records.batch import LOG_OVERHEAD_BYTES, MAGIC, MIN_BATCH_LENGTH, BatchHeader, check_batch
from minibroker.protocol.records.batch import read_header as read_batch_header
from minibroker.protocol.records.compression import MAX_UNCOMPRESSED_BYTES
from minibroker.protocol.records.message import MAGIC_POSITION, MIN_MESSAGE_BYTES, check_message, read_message_header
from minibroker.protocol.records.varints import Bytes

if TYPE_CHECKING:
    from minibroker.protocol.records.record import Record

# The smallest value of the length field in a batch or message, by magic.
MIN_LENGTHS = (*(size_bytes - LOG_OVERHEAD_BYTES for size_bytes in MIN_MESSAGE_BYTES), MIN_BATCH_LENGTH)


def is_old_format(data: Bytes, position: int = 0) -> bool:
    """Return whether the magic byte at `position` is that of a message of format 0 or 1."""
    at = position + MAGIC_POSITION
    return at < len(data) and data[at] < MAGIC


def read_header_at(data: Bytes, position: int = 0) -> BatchHeader:
    """Return the header of the batch or message at `position`, unchecked. Raises `CorruptBatch` if it is incomplete."""
    return read_message_header(data, position) if is_old_format(data, position) else read_batch_header(data, position)


def check_batch_or_message(data: Bytes, position: int = 0) -> BatchHeader:
    """Check that the batch or message at `position` is complete and sound, and return its header.

    Raises `CorruptBatch`.
    """
    return check_message(data, position) if is_old_format(data, position) else check_batch(data, position)


def iterate_records_in_any_format(
    batch: Bytes, position: int = 0, *, limit_bytes: int = MAX_UNCOMPRESSED_BYTES
) -> Iterator[Record]:
    """Return the records of the batch or message at `position`, with absolute offsets. Includes control records.

    It must have been checked, or come from the log. Raises what `iterate_records_of_batch` and
    `iterate_records_of_message` raise.
    """
    if is_old_format(batch, position):
        from minibroker.protocol.records.message_set import iterate_records_of_message  # no start needs it

        return iterate_records_of_message(batch, position, limit_bytes=limit_bytes)
    from minibroker.protocol.records.payload import iterate_records_of_batch  # as above

    return iterate_records_of_batch(batch, position, limit_bytes=limit_bytes)


def iterate_batches_in_any_format(data: Bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each complete batch or message in `data`. Checksums are not verified.

    An incomplete one at the end is left out. Raises `CorruptBatch` for an impossible magic or length.
    """
    position = 0
    while (left := len(data) - position) > MAGIC_POSITION:
        old = is_old_format(data, position)
        if not old and data[position + MAGIC_POSITION] != MAGIC:
            raise CorruptBatch(f"Invalid magic found in record: {data[position + MAGIC_POSITION]}", position)
        try:
            header = read_header_at(data, position)
        except CorruptBatch:  # too short
            return
        if header.batch_length < MIN_LENGTHS[header.magic]:
            raise CorruptBatch(f"a batch of format {header.magic} of {header.size_bytes} bytes", position)
        if header.size_bytes > left:
            return
        yield position, header
        position += header.size_bytes
