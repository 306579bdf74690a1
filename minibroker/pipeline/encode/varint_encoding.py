"""Zigzag varints of whole columns: the numbers of a row become one binary value, one after another.

`minibroker.protocol.records.varints` encodes single varints.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from minibroker.pipeline.array_types import Bools, Int64s, UInt8s, UInt64s

_BITS = 7  # of each byte


def zigzag(values: Int64s) -> UInt64s:
    """Return the zigzag form of signed numbers: 0, -1, 1, -2 become 0, 1, 2, 3."""
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def sizes_of(numbers: UInt64s) -> Int64s:
    """Return the size of each number as a varint: 1 to 10 bytes."""
    sizes = np.ones(len(numbers), np.int64)
    for size in range(1, _width(numbers)):
        sizes += numbers >= np.uint64(1 << _BITS * size)
    return sizes


def size_of(number: int) -> int:
    """Return the size of an unsigned number as a varint, in bytes."""
    return max(1, -(-number.bit_length() // _BITS))


def rows_of_varints(columns: Sequence[UInt64s]) -> pa.BinaryArray:
    """Return a binary value for each row: the varints of the row's numbers, in the order of the columns.

    They are written into a table with the longest row's size for each row; then the used bytes are taken out of it.
    """
    count = len(columns[0])
    widths = [_width(column) for column in columns]
    table = np.empty((count, sum(widths)), np.uint8)
    used = np.ones(table.shape, np.bool_)
    at = 0
    for column, width in zip(columns, widths, strict=True):
        _write(column, table[:, at : at + width], used[:, at : at + width])
        at += width
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(used.sum(axis=1, dtype=np.int32), out=offsets[1:])
    data = table[used] if table.shape[1] > len(columns) else table.reshape(-1)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _width(numbers: UInt64s) -> int:
    return size_of(int(numbers.max())) if len(numbers) else 1


def _write(numbers: UInt64s, table: UInt8s, used: Bools) -> None:
    """Write the varints of a column. All bytes of a varint but the last have the top bit set."""
    width = table.shape[1]
    for byte in range(width):
        if byte:
            numbers = numbers >> np.uint64(_BITS)
            used[:, byte] = numbers > 0
        low = numbers.astype(np.uint8)
        if byte == width - 1:
            table[:, byte] = low
        else:
            more = numbers >= np.uint64(1 << _BITS)
            table[:, byte] = np.where(more, low | np.uint8(0x80), low & np.uint8(0x7F))
