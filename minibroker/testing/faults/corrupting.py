"""Batches damaged on their way to a consumer, each in one way; the log keeps them intact.

All but "crc" get a valid checksum, if the format's checksum covers the damaged field, so that the consumer fails at the
damage and not at the checksum.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final

from minibroker.protocol.records.batch import COMPRESSION_MASK, HEADER_BYTES, MAGIC, BatchHeader, set_checksum
from minibroker.protocol.records.formats import iterate_batches_in
from minibroker.testing.faults.rules import Corruption

_INT64 = Struct(">q")
_INT32 = Struct(">i")
_LENGTH_POSITION = 8
_CRC_POSITION = {0: 12, 1: 12, MAGIC: 17}
_ATTRIBUTES_POSITION = 22
_GZIP = 1
TOO_SHORT = 5  # bytes after the length field, fewer than any format's header
FAR = 1_000_000  # offsets


def corrupt_first_batch(data: bytes, corruption: Corruption) -> bytes:
    """Return `data`, batches of a Fetch answer, with the first batch damaged; unchanged without a whole batch."""
    found = list(iterate_batches_in(data))
    if not found:
        return data
    changed = bytearray(data)
    return bytes(_DAMAGES[corruption](changed, *found[0]))


def _corrupt_crc(data: bytearray, position: int, header: BatchHeader) -> bytearray:
    """Change the stored checksum."""
    data[position + _CRC_POSITION[header.magic]] ^= 0xFF
    return data


def _corrupt_length(data: bytearray, position: int, header: BatchHeader) -> bytearray:
    """Make the batch claim to be shorter than a header."""
    _INT32.pack_into(data, position + _LENGTH_POSITION, TOO_SHORT)
    return data


def _corrupt_codec(data: bytearray, position: int, header: BatchHeader) -> bytearray:
    """Make the records claim to be gzip, and overwrite their beginning, so that they are not."""
    if header.magic != MAGIC:
        return _corrupt_crc(data, position, header)
    attributes = data[position + _ATTRIBUTES_POSITION]
    data[position + _ATTRIBUTES_POSITION] = attributes & ~COMPRESSION_MASK | _GZIP
    for at in range(position + HEADER_BYTES, min(position + HEADER_BYTES + 8, position + header.size_bytes)):
        data[at] = 0xFF
    set_checksum(data, position, header.size_bytes)
    return data


def _truncate_batch(data: bytearray, position: int, header: BatchHeader) -> bytearray:
    """End the answer in the middle of the batch."""
    return data[: position + header.size_bytes // 2]


def _corrupt_offsets(data: bytearray, position: int, header: BatchHeader) -> bytearray:
    """Send the batch twice: first with offsets far ahead, then, below them, with its own."""
    ahead = bytearray(data[position : position + header.size_bytes])
    _INT64.pack_into(ahead, 0, header.base_offset + FAR)  # no checksum covers it
    return data[:position] + ahead + data[position:]


_DAMAGES: Final[dict[Corruption, Callable[[bytearray, int, BatchHeader], bytearray]]] = {
    "crc": _corrupt_crc,
    "length": _corrupt_length,
    "codec": _corrupt_codec,
    "truncated": _truncate_batch,
    "offsets": _corrupt_offsets,
}
