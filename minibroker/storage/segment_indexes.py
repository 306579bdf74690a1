"""The two sparse indexes of a segment, by offset and by timestamp.

Both get an entry about every `index.interval.bytes`. They are in memory from the first lookup on. `segment.py` rebuilds
them from the batches if the files are damaged.

    byte  size  field of an entry of the `.index` file, 8 bytes
       0     4  last offset of a batch, minus the segment's base offset
       4     4  position of that batch in the `.log` file

    byte  size  field of an entry of the `.timeindex` file, 12 bytes
       0     8  the largest timestamp so far, ms since 1970
       8     4  last offset of the batch that contains it, minus the segment's base offset
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from operator import le, lt
from struct import Struct
from typing import ClassVar, Final

from minibroker.storage.files import Disk, File
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.names import INDEX_SUFFIX, TIME_INDEX_SUFFIX

NO_TIMESTAMP: Final = -1
MAX_RELATIVE_OFFSET: Final = 0x7FFFFFFF
# A log that is twice this much larger than `index.interval.bytes` has an entry, unless its batches are even larger.
LARGE_BATCH_BYTES = 1 << 20


class CorruptIndex(ValueError):
    """An index that contradicts itself or its log. The storage rebuilds it; this is not raised to callers."""


class SparseIndex(ABC):
    """Two columns of numbers that never decrease. New entries stay in memory until `write_file()`.

    `count` is the number of all entries. `is_changed` says that the file was written or truncated. `is_short` says that
    it has never had more than one entry: a power cut before a sync leaves that one, or none, or zeros. Methods that use
    the file raise `OSError`.
    """

    __slots__ = (
        "path",
        "base_offset",
        "count",
        "is_changed",
        "is_short",
        "_disk",
        "_first",
        "_second",
        "_unread",
        "_written",
    )

    ENTRY: ClassVar[Struct]
    FIRST_TYPE: ClassVar[str]
    SECOND_TYPE: ClassVar[str] = "i"

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.count = 0
        self.is_changed = False
        self.is_short = True
        self._disk = disk
        self._first = array(self.FIRST_TYPE)
        self._second = array(self.SECOND_TYPE)
        self._unread = 0  # entries that are in the file, but not yet in memory
        self._written: int | None = None  # valid entries in the file; None: no file yet
        self._set_last_entry(None)

    def open_file(self) -> None:
        """Read only the last entry of the file. Raises `CorruptIndex`."""
        file = self._disk.open(self.path)
        size, entry = file.size_bytes(), self.ENTRY.size
        if size % entry:
            raise CorruptIndex(f"its size is {size}, not a multiple of {entry}")
        if size:
            last: tuple[int, int] = self.ENTRY.unpack(_read_exactly(file, size - entry, entry))
            if min(last) < 0:
                raise CorruptIndex("its last entry is negative")
            self._set_last_entry(last)
        self.count = self._unread = self._written = size // entry

    def has_file(self) -> bool:
        """Return whether there is a file."""
        return self._written is not None or self._disk.exists(self.path)

    def load_entries(self) -> None:
        """Load all entries into memory, as look-ups need them. Raises `CorruptIndex`."""
        if not self._unread:
            return
        data = _read_exactly(self._disk.open(self.path), 0, self._unread * self.ENTRY.size)
        first, second = self._unpack_columns(data)
        if first[0] < 0 or second[0] < 0 or not self._are_columns_increasing(memoryview(first), memoryview(second)):
            raise CorruptIndex("its entries do not increase")
        self._first, self._second = first + self._first, second + self._second
        self._unread = 0

    def write_file(self, *, sync: bool = False) -> None:
        """Write the entries in memory to the file."""
        if self._written == self.count and not sync:
            return
        file = self._disk.open(self.path, create=True)
        if self._written != self.count:
            written, size = self._written or 0, file.size_bytes()
            self.is_changed = self.is_changed or self.count > 0 or size > 0
            self.is_short = self.is_short and self.count <= 1 and size == written * self.ENTRY.size
            if size != written * self.ENTRY.size:
                file.truncate(written * self.ENTRY.size)
            if self.count > written:
                file.write(written * self.ENTRY.size, self._pack_entries(written - self._unread))
        self._written = self.count
        if sync:
            file.sync()

    def _truncate_to_count(self, count: int) -> None:
        """Remove all entries after the first `count`. The index must be loaded."""
        del self._first[count:], self._second[count:]
        self.count = count
        if self._written is not None and self._written > count:
            self.is_changed, self.is_short = True, False
            self._disk.open(self.path).truncate(count * self.ENTRY.size)
            self._written = count
        self._set_last_entry((self._first[-1], self._second[-1]) if count else None)

    def _unpack_columns(self, data: bytes) -> tuple[array[int], array[int]]:
        """Return the first fields of all entries, and the second fields."""
        first, second = array(self.FIRST_TYPE), array(self.SECOND_TYPE)
        for one, other in self.ENTRY.iter_unpack(data):
            first.append(one)
            second.append(other)
        return first, second

    def _pack_entries(self, start: int) -> bytes:
        """Return the bytes of the entries from number `start` on."""
        return b"".join(map(self.ENTRY.pack, self._first[start:], self._second[start:]))

    @abstractmethod
    def _are_columns_increasing(self, first: memoryview, second: memoryview) -> bool:
        """Return whether the first and second fields of the entries increase as they must."""

    @abstractmethod
    def _set_last_entry(self, last: tuple[int, int] | None) -> None:
        """Set the attributes that depend on the last entry, None for an empty index."""


def _read_exactly(file: File, position: int, size: int) -> bytes:
    data = file.read(position, size)
    if len(data) != size:
        raise CorruptIndex("it has become shorter")
    return data


class TimeIndex(SparseIndex):
    """The entries of one segment's time index.

    `last_timestamp` and `last_offset` are those of the last entry (-1 and the base offset if there is none).
    Call `load_entries()` before `find_offset_at_or_before_timestamp`, `list_entries` and `truncate`.
    """

    __slots__ = ("last_timestamp", "last_offset")

    last_timestamp: int
    last_offset: int

    ENTRY: ClassVar[Struct] = Struct(">qi")
    FIRST_TYPE: ClassVar[str] = "q"

    def append_entry(self, timestamp: int, offset: int) -> None:
        """Add an entry, if its timestamp is larger than the last one's."""
        if timestamp <= self.last_timestamp:
            return
        self._first.append(timestamp)
        self._second.append(offset - self.base_offset)
        self.count += 1
        self.last_timestamp = timestamp
        self.last_offset = offset

    def find_offset_at_or_before_timestamp(self, timestamp: int) -> int:
        """Return an offset such that all batches that end before it are older than `timestamp`."""
        at = bisect_left(self._first, timestamp)
        return self.base_offset + (self._second[at - 1] if at else 0)

    def truncate(self, offset: int) -> None:
        """Remove the entries for `offset` and later ones."""
        self._truncate_to_count(bisect_left(self._second, offset - self.base_offset))

    def list_entries(self) -> list[tuple[int, int]]:
        """Return (timestamp, offset) of all entries."""
        return [(t, self.base_offset + o) for t, o in zip(self._first, self._second, strict=True)]

    def _are_columns_increasing(self, first: memoryview, second: memoryview) -> bool:
        """Return whether timestamps increase and offsets do not decrease."""
        return all(map(lt, first, first[1:])) and all(map(le, second, second[1:]))

    def _set_last_entry(self, last: tuple[int, int] | None) -> None:
        """Set the last timestamp and offset by the last entry, None for an empty index."""
        timestamp, relative_offset = last or (NO_TIMESTAMP, 0)
        self.last_timestamp = timestamp
        self.last_offset = self.base_offset + relative_offset


class OffsetIndex(SparseIndex):
    """The entries of one segment's offset index. `last_position` is that of the last one, 0 if there is none.

    Call `load_entries()` before `find_position_at_or_before_offset`, `find_batch_start_at_or_before_position`,
    `list_entries` and `truncate`.
    """

    __slots__ = ("last_position",)

    last_position: int

    ENTRY: ClassVar[Struct] = Struct(">ii")
    FIRST_TYPE: ClassVar[str] = "i"

    def append_entry(self, offset: int, position: int) -> None:
        """Add an entry, which must follow the last one."""
        self._first.append(offset - self.base_offset)
        self._second.append(position)
        self.count += 1
        self.last_position = position

    def find_position_at_or_before_offset(self, offset: int) -> int:
        """Return the largest known position whose batch ends at or before `offset`, 0 if there is none."""
        at = bisect_right(self._first, offset - self.base_offset)
        return self._second[at - 1] if at else 0

    def find_batch_start_at_or_before_position(self, position: int) -> int:
        """Return the largest known start of a batch at or before `position`, 0 if there is none."""
        at = bisect_right(self._second, position)
        return self._second[at - 1] if at else 0

    def truncate(self, position: int) -> None:
        """Remove the entries of batches that start at or after `position`."""
        self._truncate_to_count(bisect_right(self._second, position - 1))

    def list_entries(self) -> list[tuple[int, int]]:
        """Return (offset, position) of all entries."""
        return [(self.base_offset + o, p) for o, p in zip(self._first, self._second, strict=True)]

    def _unpack_columns(self, data: bytes) -> tuple[array[int], array[int]]:
        """Unpack all entries at once in C, as a full index has more than a million."""
        both = array("i", data)
        if sys.byteorder == "little":
            both.byteswap()
        return both[0::2], both[1::2]

    def _are_columns_increasing(self, first: memoryview, second: memoryview) -> bool:
        """Return whether offsets and positions increase."""
        return all(map(lt, first, first[1:])) and all(map(lt, second, second[1:]))

    def _set_last_entry(self, last: tuple[int, int] | None) -> None:
        """Set the last position by the last entry, None for an empty index."""
        self.last_position = last[1] if last else 0


class SegmentIndexes:
    """The indexes of one segment.

    `max_timestamp` is the largest of all batches, -1 if none has one, and `offset_of_max_timestamp` the last offset of
    that batch. `is_full` says that there is no room for another entry (`segment.index.bytes`); fewer than `room_bytes`
    of small batches, all that have room, will not fill it.
    """

    __slots__ = ("offsets", "times", "max_timestamp", "offset_of_max_timestamp", "is_full", "room_bytes", "_settings")

    def __init__(self, disk: Disk, path: str, base_offset: int, settings: LogSettings) -> None:
        """Take the path of the files without suffix."""
        self._settings = settings
        self.offsets = OffsetIndex(disk, path + INDEX_SUFFIX, base_offset)
        self.times = TimeIndex(disk, path + TIME_INDEX_SUFFIX, base_offset)
        self.max_timestamp = NO_TIMESTAMP
        self.offset_of_max_timestamp = base_offset
        self._update_max_entry_counts()

    def open_files(self, log_size_bytes: int, first_timestamp: int) -> None:
        """Read the last entries of the files. `first_timestamp` is that of the first batch, -1 if it has none.

        Raises `CorruptIndex`, also for a missing file, and `OSError`.
        """
        try:
            self.offsets.open_file()
            if log_size_bytes or self.times.has_file():
                self.times.open_file()
        except FileNotFoundError as error:
            raise CorruptIndex(f"{error.filename} is missing") from None
        if self.offsets.count and self.offsets.last_position >= log_size_bytes:
            raise CorruptIndex(f"{self.offsets.path} has positions behind the end of the log")
        if self.times.last_timestamp < first_timestamp:
            raise CorruptIndex(f"{self.times.path} ends before the first timestamp of the log")
        if not self.offsets.count and log_size_bytes > self._settings.index_interval_bytes + 2 * LARGE_BATCH_BYTES:
            raise CorruptIndex(f"{self.offsets.path} is empty, although the log is large")
        self.max_timestamp = self.times.last_timestamp
        self.offset_of_max_timestamp = self.times.last_offset
        self._update_max_entry_counts()

    def load_entries(self) -> None:
        """Load all entries into memory, as look-ups need them. Raises `CorruptIndex`, `OSError`."""
        self.offsets.load_entries()
        self.times.load_entries()

    def add_batch_to_indexes(self, position: int, last_offset: int, max_timestamp: int) -> None:
        """Update the indexes by the batch at `position`, which follows all batches before."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.offset_of_max_timestamp = last_offset
        if position - self.offsets.last_position > self._settings.index_interval_bytes:
            self.offsets.append_entry(last_offset, position)
            self.times.append_entry(self.max_timestamp, self.offset_of_max_timestamp)
            self._update_max_entry_counts()

    def fits_relative_offset(self, offset: int) -> bool:
        """Return whether entries can contain the offset, as 31 bits above the base offset."""
        return offset - self.offsets.base_offset <= MAX_RELATIVE_OFFSET

    def truncate(self, position: int, end_offset: int) -> int:
        """Remove the entries for batches from `position`, or `end_offset`, on. All entries must be loaded.

        Return the position from which on the remaining batches may have larger timestamps than `max_timestamp`, so that
        the caller must `add_batch_to_indexes` them again.
        """
        self.offsets.truncate(position)
        self.times.truncate(end_offset)
        self.max_timestamp = self.times.last_timestamp
        self.offset_of_max_timestamp = self.times.last_offset
        self._update_max_entry_counts()
        return self.offsets.find_position_at_or_before_offset(self.times.last_offset)

    def finish_and_write_files(self, log_size_bytes: int) -> None:
        """Add the last entry of the time index, and write the files. Raises `OSError`.

        An empty log needs no time index: Kafka silently creates a missing one, unlike an offset index.
        """
        self.times.append_entry(self.max_timestamp, self.offset_of_max_timestamp)
        self.offsets.write_file()
        if log_size_bytes or self.times.has_file():
            self.times.write_file()

    def mark_files_outdated(self) -> None:
        """Assume index files with old content on the disk, so that all is written and synced again."""
        for index in (self.offsets, self.times):
            index.is_changed, index.is_short = True, False

    def write_files_and_list_unsynced(self, disk: Disk, first_timestamp: int) -> list[File]:
        """Write the files, and return those that need a sync. Raises `OSError`.

        A file with one entry needs none if the first batch has a timestamp: after a power cut it is either right, or
        `open` recognises it as wrong.
        """
        for index in (self.offsets, self.times):
            index.write_file()
        needed = (self.offsets, self.offsets.is_short), (self.times, self.times.is_short and first_timestamp > 0)
        return [disk.open(index.path) for index, is_seen in needed if index.is_changed and not is_seen]

    def sync_files(self) -> None:
        """Write and sync both files. Raises `OSError`."""
        self.offsets.write_file(sync=True)
        self.times.write_file(sync=True)

    def update_settings(self, settings: LogSettings) -> None:
        """Use new settings from now on."""
        self._settings = settings
        self._update_max_entry_counts()

    def _update_max_entry_counts(self) -> None:
        """Update `is_full` and `room_bytes`. As in Kafka, the time index reserves room for its last entry."""
        room, offsets, times = self._settings.segment_index_bytes, self.offsets.count, self.times.count
        self.is_full = offsets >= room // OffsetIndex.ENTRY.size or times >= room // TimeIndex.ENTRY.size - 1
        left = (room - 1) // TimeIndex.ENTRY.size - max(offsets, times) - 1  # the larger entries
        self.room_bytes = left * (self._settings.index_interval_bytes + 1)
