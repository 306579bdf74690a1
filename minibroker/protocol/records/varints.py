"""Zigzag varints, as records of format 2 use them (KIP-98): `varint` of 32 bits and `varlong` of 64.

The unsigned varints of messages (KIP-482) are not here: they belong to the primitives of the message codec.

Seven bits a byte, lowest first, the top bit of a byte says that more follow; zigzag makes small negative numbers short:
0, -1, 1, -2, 2 are 0, 1, 2, 3, 4. A varint takes at most 5 bytes and a varlong 10.
"""

from __future__ import annotations

MAX_VARINT_BYTES = 5
MAX_VARLONG_BYTES = 10


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


def read_varint(data: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """The int32 at `position` and the position after it; raises `MalformedVarint`."""
    return _read(data, position, MAX_VARINT_BYTES, 0xFFFFFFFF)


def read_varlong(data: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """The int64 at `position` and the position after it; raises `MalformedVarint`."""
    return _read(data, position, MAX_VARLONG_BYTES, 0xFFFFFFFFFFFFFFFF)


def _read(data: bytes | bytearray | memoryview, position: int, max_bytes: int, mask: int) -> tuple[int, int]:
    value = 0
    for shift, byte in enumerate(data[position : position + max_bytes]):
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            value &= mask  # Java's readers drop the bits that the last byte has too many
            return (value >> 1) ^ -(value & 1), position + shift + 1
    left = len(data) - position
    raise MalformedVarint(
        f"a varint of more than {max_bytes} bytes" if left >= max_bytes else "the data ends in a varint"
    )


_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))
