"""The two indexes of a segment as a pair: when an entry is due, and whether the files can be believed.

The batches themselves are read by `segment.py`, which has the indexes made anew when they cannot.
"""

from __future__ import annotations

from minibroker.storage.files import Disk, File
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.names import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from minibroker.storage.offset_index import MAX_RELATIVE_OFFSET, OffsetIndex
from minibroker.storage.sparse_index import CorruptIndex
from minibroker.storage.time_index import NO_TIMESTAMP, TimeIndex

# A log that is this much larger than `index.interval.bytes` has an entry, whatever the size of its batches.
LARGE_BATCH_BYTES = 1 << 20


class SegmentIndexes:
    """Indexes of one segment: what is known of its batches without reading them.

    `max_timestamp` is the largest of any batch, -1 if none has one, and `offset_of_max_timestamp` the last offset of
    that batch. `is_full` says that no further entry would find room (`segment.index.bytes`).
    """

    __slots__ = ("offsets", "times", "max_timestamp", "offset_of_max_timestamp", "is_full", "_settings")

    def __init__(self, disk: Disk, path: str, base_offset: int, settings: LogSettings) -> None:
        """`path` is that of the files, without suffix."""
        self._settings = settings
        self.offsets = OffsetIndex(disk, path + INDEX_SUFFIX, base_offset)
        self.times = TimeIndex(disk, path + TIME_INDEX_SUFFIX, base_offset)
        self.max_timestamp = NO_TIMESTAMP
        self.offset_of_max_timestamp = base_offset
        self.is_full = False

    def open(self, log_size_bytes: int, *, timed: bool) -> None:
        """Learn the last entries from the files. `timed` says whether the first batch has a timestamp.

        Raises `CorruptIndex`, also if one is missing; `OSError`.
        """
        try:
            self.offsets.open()
            self.times.open()
        except FileNotFoundError as error:
            raise CorruptIndex(f"{error.filename} is missing") from None
        if self.offsets.count and self.offsets.last_position >= log_size_bytes:
            raise CorruptIndex(f"{self.offsets.path} goes beyond the end of the log")
        if timed and not self.times.count:
            raise CorruptIndex(f"{self.times.path} is empty, unlike the log")
        if not self.offsets.count and log_size_bytes > self._settings.index_interval_bytes + 2 * LARGE_BATCH_BYTES:
            raise CorruptIndex(f"{self.offsets.path} is empty, although the log is large")
        self.max_timestamp = self.times.last_timestamp
        self.offset_of_max_timestamp = self.times.last_offset
        self._note_room()

    def load(self) -> None:
        """Load all entries into memory, as look-ups need them. Raises `CorruptIndex`, `OSError`."""
        self.offsets.load()
        self.times.load()

    def note(self, position: int, last_offset: int, max_timestamp: int) -> None:
        """Take in the batch at `position`, which follows all that were taken in before."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.offset_of_max_timestamp = last_offset
        if position - self.offsets.last_position > self._settings.index_interval_bytes:
            self.offsets.append(last_offset, position)
            self.times.append(self.max_timestamp, self.offset_of_max_timestamp)
            self._note_room()

    def can_name(self, offset: int) -> bool:
        """Whether entries can hold the offset, which they do as 31 bits above the base offset."""
        return offset - self.offsets.base_offset <= MAX_RELATIVE_OFFSET

    def has_room_for(self, size_bytes: int) -> bool:
        """Whether there is room for the entries of so many bytes of small batches."""
        room_bytes = self._settings.segment_index_bytes
        entries = size_bytes // (self._settings.index_interval_bytes + 1) + 2
        larger = max(self.offsets.ENTRY.size, self.times.ENTRY.size)
        return (max(self.offsets.count, self.times.count) + entries) * larger < room_bytes

    def truncate(self, position: int, end_offset: int) -> int:
        """Drop the entries for batches from `position`, or `end_offset`, on; they must have been loaded.

        Returns the position from which on the remaining batches may have larger timestamps than `max_timestamp`, and
        must be noted again.
        """
        self.offsets.truncate(position)
        self.times.truncate(end_offset)
        self.max_timestamp = self.times.last_timestamp
        self.offset_of_max_timestamp = self.times.last_offset
        self._note_room()
        return self.offsets.floor(self.times.last_offset)

    def finish(self) -> None:
        """Add the closing entry of the time index, and bring the files to what is in memory. Raises `OSError`."""
        self.times.append(self.max_timestamp, self.offset_of_max_timestamp)
        self.offsets.write_out()
        self.times.write_out()

    def files_to_sync(self, disk: Disk) -> list[File]:
        """Bring the files to what is in memory: these are the ones to sync. Raises `OSError`."""
        for index in (self.offsets, self.times):
            index.write_out()
        return [disk.open(self.offsets.path), disk.open(self.times.path)]

    def sync(self) -> None:
        """Bring both to the disk itself. Raises `OSError`."""
        self.offsets.write_out(sync=True)
        self.times.write_out(sync=True)

    def update_settings(self, settings: LogSettings) -> None:
        """Entries follow the new settings from now on."""
        self._settings = settings
        self._note_room()

    def _note_room(self) -> None:
        """Note whether there is room. As in Kafka, the time index keeps some for its closing entry."""
        room = self._settings.segment_index_bytes
        offsets_full = self.offsets.count >= room // self.offsets.ENTRY.size
        self.is_full = offsets_full or self.times.count >= room // self.times.ENTRY.size - 1
