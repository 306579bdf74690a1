"""Batches made wrong on their way to a consumer, each in one way; the log keeps them as they are.

Which answers this happens to is in `engine`. All but "crc" have a right checksum, where the format has one that holds
for the damaged field: so that it is not the checksum that the consumer stumbles over.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final

from minibroker.protocol.records.batch import COMPRESSION_MASK, HEADER_BYTES, MAGIC, BatchHeader, seal
from minibroker.protocol.records.formats import batches_in
from minibroker.testing.faults.rules import Corruption

_INT64 = Struct(">q")
_INT32 = Struct(">i")
_LENGTH_POSITION = 8
_CRC_POSITION = {0: 12, 1: 12, MAGIC: 17}
_ATTRIBUTES_POSITION = 22
_GZIP = 1
TOO_SHORT = 5  # bytes after the length field, fewer than any format's header
FAR = 1_000_000  # offsets


def corrupted(data: bytes, how: Corruption) -> bytes:
    """`data`, batches of a Fetch answer, with the first one of it made wrong; without a whole batch it stays."""
    found = list(batches_in(data))
    if not found:
        return data
    changed = bytearray(data)
    return bytes(_DAMAGES[how](changed, *found[0]))


def _crc(data: bytearray, position: int, header: BatchHeader) -> bytearray:
    """The stored checksum is another."""
    data[position + _CRC_POSITION[header.magic]] ^= 0xFF
    return data


def _length(data: bytearray, position: int, header: BatchHeader) -> bytearray:
    """The batch claims to be shorter than a header is."""
    _INT32.pack_into(data, position + _LENGTH_POSITION, TOO_SHORT)
    return data


def _codec(data: bytearray, position: int, header: BatchHeader) -> bytearray:
    """The records claim to be gzip, and are none. A batch that is compressed gets bytes that are no gzip either."""
    if header.magic != MAGIC:
        return _crc(data, position, header)
    attributes = data[position + _ATTRIBUTES_POSITION]
    data[position + _ATTRIBUTES_POSITION] = attributes & ~COMPRESSION_MASK | _GZIP
    for at in range(position + HEADER_BYTES, min(position + HEADER_BYTES + 8, position + header.size_bytes)):
        data[at] = 0xFF
    seal(data, position, header.size_bytes)
    return data


def _truncated(data: bytearray, position: int, header: BatchHeader) -> bytearray:
    """The answer ends in the middle of the batch."""
    return data[: position + header.size_bytes // 2]


def _offsets(data: bytearray, position: int, header: BatchHeader) -> bytearray:
    """The batch comes twice: with offsets that are far ahead at first, and then, below them, as it is."""
    ahead = bytearray(data[position : position + header.size_bytes])
    _INT64.pack_into(ahead, 0, header.base_offset + FAR)  # no checksum covers it
    return data[:position] + ahead + data[position:]


_DAMAGES: Final[dict[Corruption, Callable[[bytearray, int, BatchHeader], bytearray]]] = {
    "crc": _crc,
    "length": _length,
    "codec": _codec,
    "truncated": _truncated,
    "offsets": _offsets,
}
