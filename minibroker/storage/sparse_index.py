"""What the two indexes of a segment have in common: a file of entries of one size, in memory from the first look-up on.

What an entry says, and which entry answers a question, is in `offset_index.py` and `time_index.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from struct import Struct

from minibroker.storage.files import Disk, File


class CorruptIndex(ValueError):
    """An index that contradicts itself or its log. It is rebuilt; nobody outside the storage layer sees this."""


class SparseIndex(ABC):
    """Two columns of numbers, neither ever falling. New entries are kept in memory until `write_out()`.

    `count` is the number of entries, in memory or not yet. Methods raise `OSError` where they reach for the file.
    """

    __slots__ = ("path", "base_offset", "count", "_disk", "_first", "_second", "_unread", "_written")

    ENTRY: Struct
    FIRST_TYPE: str
    SECOND_TYPE = "i"

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.count = 0
        self._disk = disk
        self._first = array(self.FIRST_TYPE)
        self._second = array(self.SECOND_TYPE)
        self._unread = 0  # entries that are in the file, but not yet in memory
        self._written: int | None = None  # entries of the file that are as they should be; None: there is no file yet
        self._note_last(None)

    def open(self) -> None:
        """Learn the last entry from the file, reading no other. Raises `CorruptIndex`."""
        file = self._disk.open(self.path)
        size, entry = file.size_bytes(), self.ENTRY.size
        if size % entry:
            raise CorruptIndex(f"its size is {size}, not a multiple of {entry}")
        if size:
            last: tuple[int, int] = self.ENTRY.unpack(_exactly(file, size - entry, entry))
            if min(last) < 0:
                raise CorruptIndex("its last entry is negative")
            self._note_last(last)
        self.count = self._unread = self._written = size // entry

    def load(self) -> None:
        """Load all entries into memory, as look-ups need them. Raises `CorruptIndex`."""
        if not self._unread:
            return
        data = _exactly(self._disk.open(self.path), 0, self._unread * self.ENTRY.size)
        first, second = self._columns(data)
        if first[0] < 0 or second[0] < 0 or not self._increasing(memoryview(first), memoryview(second)):
            raise CorruptIndex("its entries do not increase")
        self._first, self._second = first + self._first, second + self._second
        self._unread = 0

    def write_out(self, *, sync: bool = False) -> None:
        """Bring the file to what is in memory."""
        if self._written == self.count and not sync:
            return
        file = self._disk.open(self.path, create=True)
        if self._written != self.count:
            written = self._written or 0
            file.truncate(written * self.ENTRY.size)
            file.write(written * self.ENTRY.size, self._packed(written - self._unread))
        self._written = self.count
        if sync:
            file.sync()

    def _keep(self, count: int) -> None:
        """Drop all entries after the first `count`; the index must have been loaded."""
        del self._first[count:], self._second[count:]
        self.count = count
        if self._written is not None and self._written > count:
            self._disk.open(self.path).truncate(count * self.ENTRY.size)
            self._written = count
        self._note_last((self._first[-1], self._second[-1]) if count else None)

    def _columns(self, data: bytes) -> tuple[array[int], array[int]]:
        first, second = array(self.FIRST_TYPE), array(self.SECOND_TYPE)
        for one, other in self.ENTRY.iter_unpack(data):
            first.append(one)
            second.append(other)
        return first, second

    def _packed(self, start: int) -> bytes:
        return b"".join(map(self.ENTRY.pack, self._first[start:], self._second[start:]))

    @abstractmethod
    def _increasing(self, first: memoryview, second: memoryview) -> bool:
        """Whether the columns rise as they must."""

    @abstractmethod
    def _note_last(self, last: tuple[int, int] | None) -> None:
        """Take over the last entry, or that there is none."""


def _exactly(file: File, position: int, size: int) -> bytes:
    data = file.read(position, size)
    if len(data) != size:
        raise CorruptIndex("it has become shorter")
    return data
