"""The `.timeindex` file of a segment: up to which offset timestamps have been no larger than a given one.

Sparse, like the offset index, beside whose entries its own are made. Timestamps of batches are not read here.

    byte  size  field of an entry, 12 bytes
       0     8  the largest timestamp so far, ms since 1970
       8     4  last offset of the batch that holds it, minus the segment's base offset
"""

from __future__ import annotations

from bisect import bisect_left
from operator import le, lt
from struct import Struct

from minibroker.storage.sparse_index import SparseIndex

NO_TIMESTAMP = -1


class TimeIndex(SparseIndex):
    """The entries of one segment's time index.

    `last_timestamp` and `last_offset` are those of the last entry (-1 and the base offset if there is none).
    `floor`, `entries` and `truncate` need `load()` before.
    """

    __slots__ = ("last_timestamp", "last_offset")

    last_timestamp: int
    last_offset: int

    ENTRY = Struct(">qi")
    FIRST_TYPE = "q"

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry, unless its timestamp is no larger than the last one's."""
        if timestamp <= self.last_timestamp:
            return
        self._first.append(timestamp)
        self._second.append(offset - self.base_offset)
        self.count += 1
        self.last_timestamp = timestamp
        self.last_offset = offset

    def floor(self, timestamp: int) -> int:
        """An offset such that all batches that end before it are older than `timestamp`."""
        at = bisect_left(self._first, timestamp)
        return self.base_offset + (self._second[at - 1] if at else 0)

    def truncate(self, offset: int) -> None:
        """Remove the entries of `offset` and later ones."""
        self._keep(bisect_left(self._second, offset - self.base_offset))

    def entries(self) -> list[tuple[int, int]]:
        """(timestamp, offset) of all entries."""
        return [(t, self.base_offset + o) for t, o in zip(self._first, self._second, strict=True)]

    def _increasing(self, first: memoryview, second: memoryview) -> bool:
        return all(map(lt, first, first[1:])) and all(map(le, second, second[1:]))

    def _note_last(self, last: tuple[int, int] | None) -> None:
        timestamp, relative_offset = last or (NO_TIMESTAMP, 0)
        self.last_timestamp = timestamp
        self.last_offset = self.base_offset + relative_offset
