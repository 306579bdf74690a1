"""CRC-32C in Python, for the browser alone: elsewhere the package crc32c is there, which is a thousand times faster.

Two bytes are a step. The table says what a step does to the checksum's lower half; the upper half moves down.
"""

from __future__ import annotations

from array import array
from typing import Final

POLYNOMIAL: Final = 0x82F63B78  # Castagnoli's, the lowest bit first
ALL: Final = 0xFFFFFFFF


def _advance_crc(value: int, bits: int) -> int:
    """Return the checksum after `bits` more bits, which are zeros."""
    for _ in range(bits):
        value = value >> 1 ^ (POLYNOMIAL if value & 1 else 0)
    return value


_ONE: Final = array("I", (_advance_crc(value, 8) for value in range(256)))
_TWO: Final = array("I", (_ONE[(low := _ONE[value & 255] ^ value >> 8) & 255] ^ low >> 8 for value in range(1 << 16)))


def compute_crc32c(data: bytes | bytearray | memoryview, seed: int = 0) -> int:
    """Return the CRC-32C of bytes that follow others, whose checksum is `seed`."""
    table, crc = _TWO, seed ^ ALL
    view = memoryview(data).cast("B")
    pairs = len(view) & ~1
    for pair in view[:pairs].cast("H"):  # the lower byte first, as in WebAssembly
        crc = table[crc & 0xFFFF ^ pair] ^ crc >> 16
    if len(view) & 1:
        crc = _ONE[(crc ^ view[-1]) & 255] ^ crc >> 8
    return crc ^ ALL
