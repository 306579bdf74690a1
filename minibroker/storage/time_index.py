"""The `.timeindex` file of a segment: up to which offset timestamps have been no larger than a given one.

Sparse, like the offset index, beside whose entries its own are made. Timestamps of batches are not read here.

    byte  size  field of an entry, 12 bytes
       0     8  the largest timestamp so far, ms since 1970
       8     4  last offset of the batch that holds it, minus the segment's base offset
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from operator import le, lt
from struct import Struct

from minibroker.storage.files import Disk
from minibroker.storage.offset_index import CorruptIndex

ENTRY_BYTES = 12
NO_TIMESTAMP = -1

_ENTRY = Struct(">qi")


class TimeIndex:
    """The entries of one segment's time index, in memory from the first look-up on.

    New entries are kept until `write_out()`. `last_timestamp` and `last_offset` are those of the last entry (-1 and the
    base offset if there is none); `count` is the number of entries.
    """

    __slots__ = (
        "path",
        "base_offset",
        "count",
        "last_timestamp",
        "last_offset",
        "_disk",
        "_timestamps",
        "_offsets",
        "_unread",
        "_written",
    )

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.count = 0
        self.last_timestamp = NO_TIMESTAMP
        self.last_offset = base_offset
        self._disk = disk
        self._timestamps = array("q")
        self._offsets = array("i")
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
            self.last_timestamp, relative = _ENTRY.unpack(file.read(size - ENTRY_BYTES, ENTRY_BYTES))
            self.last_offset = self.base_offset + relative
            if relative < 0 or self.last_timestamp < 0:
                raise CorruptIndex("its last entry is negative")

    def load(self) -> None:
        """Have all entries in memory. Raises `CorruptIndex`, `OSError`."""
        if self._unread:
            self._read()

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry, unless its timestamp is no larger than the last one's."""
        if timestamp <= self.last_timestamp:
            return
        self._timestamps.append(timestamp)
        self._offsets.append(offset - self.base_offset)
        self.count += 1
        self.last_timestamp = timestamp
        self.last_offset = offset

    def floor(self, timestamp: int) -> int:
        """An offset such that all batches that end before it are older than `timestamp`."""
        at = bisect_right(self._timestamps, timestamp - 1) - 1
        return self.base_offset + (self._offsets[at] if at >= 0 else 0)

    def truncate(self, offset: int) -> None:
        """Remove the entries of `offset` and later ones."""
        keep = bisect_right(self._offsets, offset - self.base_offset - 1)
        del self._timestamps[keep:], self._offsets[keep:]
        self.count = keep
        self.last_timestamp = self._timestamps[-1] if keep else NO_TIMESTAMP
        self.last_offset = self.base_offset + (self._offsets[-1] if keep else 0)
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
        """(timestamp, offset) of all entries."""
        return [(t, self.base_offset + o) for t, o in zip(self._timestamps, self._offsets, strict=True)]

    def _packed(self, start: int) -> bytes:
        pairs = zip(self._timestamps[start:], self._offsets[start:], strict=True)
        return b"".join([_ENTRY.pack(timestamp, offset) for timestamp, offset in pairs])

    def _read(self) -> None:
        data = self._disk.open(self.path).read(0, self._unread * ENTRY_BYTES)
        if len(data) != self._unread * ENTRY_BYTES:
            raise CorruptIndex("it has become shorter")
        timestamps, offsets = array("q"), array("i")
        for timestamp, offset in _ENTRY.iter_unpack(data):
            timestamps.append(timestamp)
            offsets.append(offset)
        increasing = all(map(lt, timestamps, memoryview(timestamps)[1:])) and all(
            map(le, offsets, memoryview(offsets)[1:])
        )
        if timestamps[0] < 0 or offsets[0] < 0 or not increasing:
            raise CorruptIndex("its entries do not increase")
        self._timestamps, self._offsets = timestamps + self._timestamps, offsets + self._offsets
        self._unread = 0
