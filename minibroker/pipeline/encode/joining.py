"""Columns of binary values joined row by row, so that all rows lie one after another in one buffer.

What the columns hold is the formats' business.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_EMPTY = pa.scalar(b"", pa.binary())


def join(*parts: pa.BinaryArray | pa.BinaryScalar) -> pa.BinaryArray:
    """Join the columns' values in each row into one value; nulls are nothing. Its data buffer is all rows.

    All of it must be less than 2 GiB.
    """
    return pc.binary_join_element_wise(*parts, _EMPTY, null_handling="replace", null_replacement=b"")


def offsets_of(column: pa.BinaryArray) -> NDArray[np.int32]:
    """Where the values of a column begin in its data, and where the last ends."""
    return np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
