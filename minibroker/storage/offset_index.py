"""The `.index` file of a segment: at which byte of the `.log` file an offset is found.

Sparse: one entry for about every `index.interval.bytes`. What a batch is, and when an entry is due, is not known here.

    byte  size  field of an entry, 8 bytes
       0     4  last offset of a batch, minus the segment's base offset
       4     4  position of that batch in the `.log` file
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from operator import lt
from struct import Struct

from minibroker.storage.sparse_index import SparseIndex

MAX_RELATIVE_OFFSET = 0x7FFFFFFF


class OffsetIndex(SparseIndex):
    """The entries of one segment's index; `last_position` is that of the last one, 0 if there is none.

    `floor`, `position_floor`, `entries` and `truncate` need `load()` before.
    """

    __slots__ = ("last_position",)

    last_position: int

    ENTRY = Struct(">ii")
    FIRST_TYPE = "i"

    def append(self, offset: int, position: int) -> None:
        """Add an entry, which must be beyond the last one."""
        self._first.append(offset - self.base_offset)
        self._second.append(position)
        self.count += 1
        self.last_position = position

    def floor(self, offset: int) -> int:
        """The largest known position whose batch ends at or before `offset`; 0 if none does."""
        at = bisect_right(self._first, offset - self.base_offset)
        return self._second[at - 1] if at else 0

    def position_floor(self, position: int) -> int:
        """The largest known start of a batch at or before `position`; 0 if there is none."""
        at = bisect_right(self._second, position)
        return self._second[at - 1] if at else 0

    def truncate(self, position: int) -> None:
        """Remove the entries of batches that start at or after `position`."""
        self._keep(bisect_right(self._second, position - 1))

    def entries(self) -> list[tuple[int, int]]:
        """(offset, position) of all entries."""
        return [(self.base_offset + o, p) for o, p in zip(self._first, self._second, strict=True)]

    def _columns(self, data: bytes) -> tuple[array[int], array[int]]:
        """All at once in C: a full index has more than a million entries."""
        both = array("i", data)
        if sys.byteorder == "little":
            both.byteswap()
        return both[0::2], both[1::2]

    def _increasing(self, first: memoryview, second: memoryview) -> bool:
        return all(map(lt, first, first[1:])) and all(map(lt, second, second[1:]))

    def _note_last(self, last: tuple[int, int] | None) -> None:
        self.last_position = last[1] if last else 0
