"""Zigzag varints of records of format 2 (KIP-98): `varint` of 32 bits and `varlong` of 64.

The unsigned varints of messages (KIP-482) are in `primitives.py`.

A byte has seven bits, the lowest first; its top bit says that more follow. Zigzag makes small negative numbers short:
0, -1, 1, -2, 2 are 0, 1, 2, 3, 4. A varint takes at most 5 bytes and a varlong 10.
"""

from __future__ import annotations

from typing import Final

# The number that the second byte of a varint adds to the first. If a third byte follows, the lookup raises IndexError.
SECOND_BYTE: Final = [(byte << 7) - 0x80 for byte in range(0x80)]

MAX_VARINT_BYTES: Final = 5
MAX_VARLONG_BYTES: Final = 10

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1

Bytes = bytes | bytearray | memoryview

_MASKS = {MAX_VARINT_BYTES: 0xFFFFFFFF, MAX_VARLONG_BYTES: 0xFFFFFFFFFFFFFFFF}


class MalformedVarint(ValueError):
    """A varint that is too long for its type, or incomplete."""


def encode_zigzag(value: int) -> bytes:
    """Encode `value` (any int64) as a varint or varlong, which are the same for the same value."""
    rest = (value << 1) ^ (value >> 63)
    if rest < 0x80:
        return _ONE_BYTE[rest]
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def convert_to_zigzag(value: int) -> int:
    """Return the zigzag encoding of `value` (any int64)."""
    return (value << 1) ^ (value >> 63)


def convert_from_zigzag(raw: int) -> int:
    """Return the signed number of `raw`, which `read_zigzag_varint` has returned."""
    return (raw >> 1) ^ -(raw & 1)


def wrap_to_64_bits(value: int) -> int:
    """Return a sum or difference as Java computes it, which keeps the lowest 64 bits."""
    if INT64_MIN <= value <= INT64_MAX:
        return value
    return (value - INT64_MIN & _MASKS[MAX_VARLONG_BYTES]) + INT64_MIN


def read_varint(data: Bytes, position: int) -> tuple[int, int]:
    """Return the int32 at `position` and the position after it. Raises `MalformedVarint`."""
    raw, position = read_zigzag_varint(data, position, MAX_VARINT_BYTES)
    return (raw >> 1) ^ -(raw & 1), position


def read_varlong(data: Bytes, position: int) -> tuple[int, int]:
    """Return the int64 at `position` and the position after it. Raises `MalformedVarint`."""
    raw, position = read_zigzag_varint(data, position, MAX_VARLONG_BYTES)
    return (raw >> 1) ^ -(raw & 1), position


def read_zigzag_varint(data: Bytes, position: int, max_bytes: int) -> tuple[int, int]:
    """Return the number at `position` in zigzag encoding (odd is negative), and the position after it.

    `max_bytes` is `MAX_VARINT_BYTES` or `MAX_VARLONG_BYTES`. Raises `MalformedVarint`.
    """
    if position < len(data) and data[position] < 0x80:
        return data[position], position + 1
    value = shift = 0
    for byte in data[position : position + max_bytes]:
        position += 1
        if byte < 0x80:
            # Like Java's readers, drop surplus bits of the last byte.
            return (value | byte << shift) & _MASKS[max_bytes], position
        value |= (byte & 0x7F) << shift
        shift += 7
    if shift == 7 * max_bytes:
        raise MalformedVarint(f"a varint of more than {max_bytes} bytes")
    raise MalformedVarint("the data ends in a varint")


_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))
