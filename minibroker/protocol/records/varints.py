"""Zigzag varints, as records of format 2 use them (KIP-98): `varint` of 32 bits and `varlong` of 64.

The unsigned varints of messages (KIP-482) are not here: they belong to the primitives of the message codec.

Seven bits a byte, lowest first, the top bit of a byte says that more follow; zigzag makes small negative numbers short:
0, -1, 1, -2, 2 are 0, 1, 2, 3, 4. A varint takes at most 5 bytes and a varlong 10.
"""

from __future__ import annotations

# What the second byte of a varint adds to the first. A byte that says that a third follows is not in the list: looking
# it up raises IndexError.
SECOND_BYTE = [(byte << 7) - 0x80 for byte in range(0x80)]

MAX_VARINT_BYTES = 5
MAX_VARLONG_BYTES = 10

INT64_MIN = -(1 << 63)
INT64_MAX = (1 << 63) - 1

Bytes = bytes | bytearray | memoryview

_MASKS = {MAX_VARINT_BYTES: 0xFFFFFFFF, MAX_VARLONG_BYTES: 0xFFFFFFFFFFFFFFFF}


class MalformedVarint(ValueError):
    """A varint with more bytes than its type can need, or that the data ends in."""


def zigzag_bytes(value: int) -> bytes:
    """`value` (any int64) as a varint or varlong: the two look the same for the same value."""
    rest = (value << 1) ^ (value >> 63)
    if rest < 0x80:
        return _ONE_BYTE[rest]
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def to_zigzag(value: int) -> int:
    """The number that stands for `value` (any int64) in a varint or varlong."""
    return (value << 1) ^ (value >> 63)


def from_zigzag(raw: int) -> int:
    """The signed number that `raw`, from `read_raw`, stands for."""
    return (raw >> 1) ^ -(raw & 1)


def wrapped(value: int) -> int:
    """The int64 that Java makes of a sum or difference, of which it keeps the lowest 64 bits."""
    if INT64_MIN <= value <= INT64_MAX:
        return value
    return (value - INT64_MIN & _MASKS[MAX_VARLONG_BYTES]) + INT64_MIN


def read_varint(data: Bytes, position: int) -> tuple[int, int]:
    """The int32 at `position` and the position after it; raises `MalformedVarint`."""
    raw, position = read_raw(data, position, MAX_VARINT_BYTES)
    return (raw >> 1) ^ -(raw & 1), position


def read_varlong(data: Bytes, position: int) -> tuple[int, int]:
    """The int64 at `position` and the position after it; raises `MalformedVarint`."""
    raw, position = read_raw(data, position, MAX_VARLONG_BYTES)
    return (raw >> 1) ^ -(raw & 1), position


def read_raw(data: Bytes, position: int, max_bytes: int) -> tuple[int, int]:
    """The number at `position` as it is stored, zigzag (odd is negative), and the position after it.

    `max_bytes` is `MAX_VARINT_BYTES` or `MAX_VARLONG_BYTES`. Raises `MalformedVarint`.
    """
    if position < len(data) and data[position] < 0x80:
        return data[position], position + 1
    value = shift = 0
    for byte in data[position : position + max_bytes]:
        position += 1
        if byte < 0x80:
            # Java's readers drop the bits that the last byte may have too many.
            return (value | byte << shift) & _MASKS[max_bytes], position
        value |= (byte & 0x7F) << shift
        shift += 7
    if shift == 7 * max_bytes:
        raise MalformedVarint(f"a varint of more than {max_bytes} bytes")
    raise MalformedVarint("the data ends in a varint")


_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))
