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

from minibroker.storage.files import Disk

ENTRY_BYTES = 8
MAX_RELATIVE_OFFSET = 0x7FFFFFFF

_ENTRY = Struct(">ii")
_SWAP = sys.byteorder == "little"


class CorruptIndex(ValueError):
    """An index that contradicts itself or its log. It is rebuilt; nobody outside the storage layer sees this."""


class OffsetIndex:
    """The entries of one segment's index, in memory from the first look-up on.

    New entries are kept until `write_out()`. `last_offset` and `last_position` are those of the last entry (the base
    offset and 0 if there is none); `count` is the number of entries.
    """

    __slots__ = (
        "path",
        "base_offset",
        "count",
        "last_offset",
        "last_position",
        "_disk",
        "_offsets",
        "_positions",
        "_unread",
        "_written",
    )

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.count = 0
        self.last_offset = base_offset
        self.last_position = 0
        self._disk = disk
        self._offsets = array("i")
        self._positions = array("i")
        self._unread = 0  # entries that are in the file, but not yet in memory
        self._written: int | None = None  # entries in the file; None: there is no file yet

    def open(self) -> None:
        """Learn the last entry from the file, reading no other. Raises `CorruptIndex`, `OSError`."""
        file = self._disk.open(self.path)
        size = file.size_bytes()
        if size % ENTRY_BYTES:
            raise CorruptIndex(f"its size is {size}, not a multiple of {ENTRY_BYTES}")
        self.count = self._unread = self._written = size // ENTRY_BYTES
        if self.count:
            relative, self.last_position = _ENTRY.unpack(file.read(size - ENTRY_BYTES, ENTRY_BYTES))
            self.last_offset = self.base_offset + relative
            if relative < 0 or self.last_position < 0:
                raise CorruptIndex("its last entry is negative")

    def load(self) -> None:
        """Have all entries in memory. Raises `CorruptIndex`, `OSError`."""
        if self._unread:
            self._read()

    def append(self, offset: int, position: int) -> None:
        """Add an entry, which must be beyond the last one."""
        self._offsets.append(offset - self.base_offset)
        self._positions.append(position)
        self.count += 1
        self.last_offset = offset
        self.last_position = position

    def floor(self, offset: int) -> int:
        """The largest known position whose batch ends at or before `offset`; 0 if none does."""
        at = bisect_right(self._offsets, offset - self.base_offset) - 1
        return self._positions[at] if at >= 0 else 0

    def position_floor(self, position: int) -> int:
        """The largest known start of a batch at or before `position`."""
        at = bisect_right(self._positions, position) - 1
        return self._positions[at] if at >= 0 else 0

    def truncate(self, position: int) -> None:
        """Remove the entries of batches that start at or after `position`."""
        keep = bisect_right(self._positions, position - 1)
        del self._offsets[keep:], self._positions[keep:]
        self.count = keep
        self.last_offset = self.base_offset + (self._offsets[-1] if keep else 0)
        self.last_position = self._positions[-1] if keep else 0
        if self._written is not None and self._written > keep:
            self._written = -1  # the file holds too much: it must be written anew

    def write_out(self, *, sync: bool = False) -> None:
        """Bring the file to what is in memory. Raises `OSError`."""
        if self._written == self.count and not sync:
            return
        file = self._disk.open(self.path, create=True)
        if self._written is None or self._written < 0:
            file.truncate(0)
            self._written = 0
        file.write(self._written * ENTRY_BYTES, self._packed(self._written - self._unread))
        self._written = self.count
        if sync:
            file.sync()

    def entries(self) -> list[tuple[int, int]]:
        """(offset, position) of all entries."""
        return [(self.base_offset + o, p) for o, p in zip(self._offsets, self._positions, strict=True)]

    def _packed(self, start: int) -> bytes:
        pairs = array("i", bytes(ENTRY_BYTES * (len(self._offsets) - start)))
        pairs[0::2] = self._offsets[start:]
        pairs[1::2] = self._positions[start:]
        if _SWAP:
            pairs.byteswap()
        return pairs.tobytes()

    def _read(self) -> None:
        pairs = array("i")
        pairs.frombytes(self._disk.open(self.path).read(0, self._unread * ENTRY_BYTES))
        if _SWAP:
            pairs.byteswap()
        offsets, positions = pairs[0::2], pairs[1::2]
        if not (_increasing(offsets) and _increasing(positions)) or len(offsets) != self._unread:
            raise CorruptIndex("its entries do not increase")
        self._offsets, self._positions = offsets + self._offsets, positions + self._positions
        self._unread = 0


def _increasing(values: array[int]) -> bool:
    """All at once in C: a full index has more than a million entries."""
    return not values or (values[0] >= 0 and all(map(lt, values, memoryview(values)[1:])))
