"""Zigzag varints as arrays: one operation reads the varints of many records.

Positions may be anywhere. Behind the end of the data the last byte is read again and again; callers notice at the end
of a record, as positions only grow. After a varint with too many bytes the position is `BEYOND`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from minibroker.pipeline.array_types import Int64s, UInt8s
from minibroker.protocol.records.varints import MAX_VARINT_BYTES, MAX_VARLONG_BYTES

BEYOND: Final = 1 << 50  # behind the end of any data, and far from an overflow
_VARINT_MASK: Final = 0xFFFFFFFF


def read_varints(data: UInt8s, at: Int64s) -> tuple[Int64s, Int64s]:
    """Return the varints at these positions, and the positions after them.

    They are in zigzag form, from 0 to 2^32-1: odd numbers are negative.
    """
    raw, after = _read_varints(data, at, MAX_VARINT_BYTES)
    return raw & _VARINT_MASK, after  # drop surplus bits of the last byte, as Java's readers do


def read_varlongs(data: UInt8s, at: Int64s) -> tuple[Int64s, Int64s]:
    """Return the signed values of the varlongs at these positions, and the positions after them."""
    raw, after = _read_varints(data, at, MAX_VARLONG_BYTES)
    unsigned = raw.view(np.uint64)
    return (unsigned >> np.uint64(1)).view(np.int64) ^ -(raw & 1), after


def from_zigzag(raw: Int64s) -> Int64s:
    """Return the signed values of the results of `read_varints`."""
    return (raw >> 1) ^ -(raw & 1)


def _read_varints(data: UInt8s, at: Int64s, max_bytes: int) -> tuple[Int64s, Int64s]:
    first = data.take(at, mode="clip")
    raw = first.astype(np.int64)
    after = at + 1
    more = np.flatnonzero(first & 0x80)
    raw[more] &= 0x7F
    shift = 7
    while more.size:
        if shift == 7 * max_bytes:
            after[more] = BEYOND
            break
        position = after[more]
        byte = data.take(position, mode="clip")
        raw[more] |= (byte & 0x7F).astype(np.int64) << shift
        after[more] = position + 1
        more = more[byte >= 0x80]
        shift += 7
    return raw, after
