"""One segment of a log: a `.log` file, its two indexes, and where in it an offset or a timestamp is found.

When to begin another segment, and what offsets a batch gets, is the log's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from minibroker.protocol.records.batch import LOG_OVERHEAD_BYTES, BatchHeader
from minibroker.protocol.records.record import records_of
from minibroker.storage.files import Bytes, Disk, File
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from minibroker.storage.offset_index import MAX_RELATIVE_OFFSET, CorruptIndex, OffsetIndex
from minibroker.storage.scanning import headers, spans
from minibroker.storage.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from minibroker.storage.time_index import NO_TIMESTAMP, TimeIndex

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

# What sequential readers come back for: offset -> position. Small, because it is only worth the time of a scan.
REMEMBERED_POSITIONS = 256


class Region(NamedTuple):
    """Whole batches as they lie in a file: what a Fetch answer sends without copying.

    `next_offset` is where to read on after them. The region stays readable after its segment was deleted.
    """

    file: File
    position: int
    size_bytes: int
    next_offset: int

    def read(self) -> bytes:
        """The batches themselves."""
        return self.file.read(self.position, self.size_bytes)


class TimestampOffset(NamedTuple):
    """A record found by its time: `offset`, `timestamp` in ms since 1970, and the leader epoch of its batch."""

    offset: int
    timestamp: int
    leader_epoch: int


def segment_name(base_offset: int) -> str:
    """The name without suffix that the files of a segment bear."""
    return f"{base_offset:020d}"


class Segment:
    """The batches from `base_offset` on, up to `size_bytes` of the `.log` file.

    `max_timestamp` is the largest of any batch so far and `offset_of_max_timestamp` the last offset of that batch;
    `first_timestamp` is the largest of the first batch (-1 if unknown or none), which decides when the segment has
    lasted `segment.ms`. `is_full` says that an index has no room left. All four are known once `load` has run.
    """

    __slots__ = (
        "path",
        "base_offset",
        "size_bytes",
        "max_timestamp",
        "offset_of_max_timestamp",
        "first_timestamp",
        "created_ms",
        "is_full",
        "_loaded",
        "_disk",
        "_settings",
        "_file",
        "_offset_index",
        "_time_index",
        "_remembered",
    )

    def __init__(self, disk: Disk, directory: str, base_offset: int, settings: LogSettings, now_ms: int) -> None:
        self.path = f"{directory}/{segment_name(base_offset)}"
        self.base_offset = base_offset
        self.size_bytes = 0
        self.created_ms = now_ms
        self._disk = disk
        self._settings = settings
        self._file: File | None = None
        self._remembered: dict[int, int] = {}
        self._loaded = True
        self._offset_index = OffsetIndex(disk, self.path + INDEX_SUFFIX, base_offset)
        self._time_index = TimeIndex(disk, self.path + TIME_INDEX_SUFFIX, base_offset)
        self.forget_batches()

    @classmethod
    def create(cls, disk: Disk, directory: str, base_offset: int, settings: LogSettings, now_ms: int) -> Segment:
        """An empty segment, whose `.log` file is made. Raises `OSError`."""
        segment = cls(disk, directory, base_offset, settings, now_ms)
        segment._file = disk.open(segment.path + LOG_SUFFIX, create=True)
        segment._file.truncate(0)
        return segment

    @classmethod
    def open(cls, disk: Disk, directory: str, base_offset: int, settings: LogSettings, now_ms: int) -> Segment:
        """A segment that is on the disk, of which nothing is read yet. Raises `OSError`."""
        segment = cls(disk, directory, base_offset, settings, now_ms)
        segment.size_bytes = disk.size_bytes(segment.path + LOG_SUFFIX)
        segment._loaded = False
        return segment

    def load(self) -> None:
        """Read what the last index entries say, and the first batch; indexes that are missing or bad are made anew.

        Raises `OSError`, and `CorruptBatch` if the batches themselves are bad where they had to be read.
        """
        if self._loaded:
            return
        try:
            self._offset_index.open()
            self._time_index.open()
            self._check_indexes()
        except (CorruptIndex, FileNotFoundError):
            self.rebuild_indexes()
            return
        self.max_timestamp = self._time_index.last_timestamp
        self.offset_of_max_timestamp = self._time_index.last_offset
        self._note_fullness()
        for _, header in headers(self.file, 0, self.size_bytes):
            self.first_timestamp = header.max_timestamp
            break
        self._loaded = True

    @property
    def file(self) -> File:
        """The `.log` file, opened on first use."""
        file = self._file
        if file is None:
            file = self._file = self._disk.open(self.path + LOG_SUFFIX)
        return file

    def append(self, data: Bytes, first_offset: int, batches: Sequence[BatchHeader]) -> None:
        """Write batches whose offsets run on from `first_offset`. Raises `OSError`, and then has not changed."""
        position = self.size_bytes
        self.file.write(position, data)
        for header in batches:
            last_offset = first_offset + header.last_offset_delta
            self.note(position, last_offset, header.max_timestamp)
            position += header.batch_length + LOG_OVERHEAD_BYTES
            first_offset = last_offset + 1
        self.size_bytes = position

    def note(self, position: int, last_offset: int, max_timestamp: int) -> None:
        """Take the batch at `position` into timestamps and indexes, as is done after each append and in recovery."""
        if position == 0:
            self.first_timestamp = max_timestamp
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.offset_of_max_timestamp = last_offset
        if position - self._offset_index.last_position > self._settings.index_interval_bytes:
            self._offset_index.append(last_offset, position)
            self._time_index.append(self.max_timestamp, self.offset_of_max_timestamp)
            self._note_fullness()

    def forget_batches(self) -> None:
        """Begin anew with timestamps and indexes, as if nothing had been appended; each batch must be noted again."""
        self._loaded = True
        self._offset_index = OffsetIndex(self._disk, self.path + INDEX_SUFFIX, self.base_offset)
        self._time_index = TimeIndex(self._disk, self.path + TIME_INDEX_SUFFIX, self.base_offset)
        self.max_timestamp = NO_TIMESTAMP
        self.offset_of_max_timestamp = self.base_offset
        self.first_timestamp = NO_TIMESTAMP
        self._remembered.clear()
        self.is_full = False

    def accepts(self, size_bytes: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """Whether batches may still be added, or another segment must begin. An empty one takes what it can name."""
        if not self.can_name(last_offset):
            return False
        if self.size_bytes == 0:
            return True
        if self.is_full or self.size_bytes + size_bytes > self._settings.segment_bytes:
            return False
        waited_ms = max_timestamp - self.first_timestamp if self.first_timestamp >= 0 else now_ms - self.created_ms
        return waited_ms <= self._settings.segment_ms

    def can_name(self, offset: int) -> bool:
        """Whether the indexes can hold the offset, which they do as 31 bits above the base offset."""
        return offset - self.base_offset <= MAX_RELATIVE_OFFSET

    def read(self, offset: int, max_bytes: int, end: tuple[int, int], minimum_one: bool) -> Region | None:
        """Whole batches from the one on that contains `offset`, up to `end` (position, offset).

        None if there is no such batch before `end`, or if it is larger than `max_bytes` and `minimum_one` is not set.
        Raises `OSError`, `CorruptBatch`.
        """
        end_position, end_offset = end
        start = self._remembered.get(offset, -1)
        if start < 0:
            start = self.position_of(offset)
        if end_position - start > max_bytes:
            end_position, end_offset = self._cut(start, end, max_bytes, minimum_one)
        if end_position <= start:
            return None
        self._remember(end_offset, end_position)
        return Region(self.file, start, end_position - start, end_offset)

    def position_of(self, offset: int) -> int:
        """Where the first batch begins that ends at or after `offset`; `size_bytes` if there is none.

        Raises `OSError`, `CorruptBatch`.
        """
        start = self._indexes()[0].floor(offset)
        for position, _, _, last_offset in spans(self.file, start, self.size_bytes):
            if last_offset >= offset:
                return position
        return self.size_bytes

    def next_offset(self) -> int:
        """The offset after the last batch, found from the last index entry on. Raises `CorruptBatch`, `OSError`."""
        self.load()
        end_offset = self.base_offset
        for _, _, _, last_offset in spans(self.file, self._offset_index.last_position, self.size_bytes):
            end_offset = last_offset + 1
        return end_offset

    def find_timestamp(self, timestamp: int, start_offset: int) -> TimestampOffset | None:
        """The first record at or after `start_offset` whose timestamp is at least `timestamp`.

        Raises `OSError`, `CorruptBatch`.
        """
        offset_index, time_index = self._indexes()
        start = offset_index.floor(max(time_index.floor(timestamp), start_offset))
        for position, header in headers(self.file, start, self.size_bytes):
            if header.max_timestamp < timestamp or header.last_offset < start_offset:
                continue
            for record in records_of(self.file.read(position, header.size_bytes)):
                if record.timestamp >= timestamp and record.offset >= start_offset:
                    return TimestampOffset(record.offset, record.timestamp, header.partition_leader_epoch)
        return None

    def truncate(self, position: int, end_offset: int) -> None:
        """Cut the segment to `position`, where the batch after `end_offset` - 1 begins. Raises `OSError`."""
        offset_index, time_index = self._indexes()
        self.file.truncate(position)
        self.size_bytes = position
        self._remembered.clear()
        offset_index.truncate(position)
        time_index.truncate(end_offset)
        self._note_fullness()
        self.max_timestamp, self.offset_of_max_timestamp = time_index.last_timestamp, time_index.last_offset
        for _, header in headers(self.file, offset_index.floor(time_index.last_offset), position):
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.offset_of_max_timestamp = header.max_timestamp, header.last_offset
        if position == 0:
            self.forget_batches()

    def rebuild_indexes(self) -> None:
        """Make both indexes anew from the headers in the file. Raises `CorruptBatch`, `OSError`."""
        self.forget_batches()
        for position, header in headers(self.file, 0, self.size_bytes):
            self.note(position, header.last_offset, header.max_timestamp)

    def finish(self) -> None:
        """Complete the time index and bring both index files up to date (roll, clean close). Raises `OSError`."""
        self.load()
        self._time_index.append(self.max_timestamp, self.offset_of_max_timestamp)
        self._offset_index.write_out()
        self._time_index.write_out()

    def sync(self) -> None:
        """Bring all three files to the disk itself. Raises `OSError`."""
        self.file.sync()
        self._offset_index.write_out(sync=True)
        self._time_index.write_out(sync=True)

    def update_settings(self, settings: LogSettings) -> None:
        """What is written from now on follows the new settings."""
        self._settings = settings
        self._note_fullness()

    def close(self) -> None:
        """Let go of the file. Regions that are still being sent keep it open."""
        self._file = None

    def mark_deleted(self, suffix: str) -> list[str]:
        """Rename the files of the segment, which then no start will take for one; their new names."""
        names = [self.path + kind for kind in SEGMENT_SUFFIXES if self._disk.exists(self.path + kind)]
        for name in names:
            self._disk.rename(name, name + suffix)
        return [name + suffix for name in names]

    def _cut(self, start: int, end: tuple[int, int], max_bytes: int, minimum_one: bool) -> tuple[int, int]:
        """(position, offset) at which to stop so that at most `max_bytes` of whole batches lie from `start` to there.

        If the index knows a batch in the second half, it ends before that one, rather than have headers read to win
        a few more.
        """
        limit = start + max_bytes
        at = self._indexes()[0].position_floor(limit)
        if at - start > max_bytes // 2:
            return at, int.from_bytes(self.file.read(at, 8), "big")
        stop = start, 0
        for position, size, _, last_offset in spans(self.file, max(at, start), end[0]):
            if position + size > limit and (position > start or not minimum_one):
                break
            stop = position + size, last_offset + 1
        return stop

    def _remember(self, offset: int, position: int) -> None:
        if len(self._remembered) >= REMEMBERED_POSITIONS:
            self._remembered.clear()
        self._remembered[offset] = position

    def _indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """Both indexes with all their entries, made anew if they turn out bad."""
        self.load()
        try:
            self._offset_index.load()
            self._time_index.load()
        except CorruptIndex:
            self.rebuild_indexes()
        return self._offset_index, self._time_index

    def _check_indexes(self) -> None:
        if self._offset_index.count and self._offset_index.last_position >= self.size_bytes:
            raise CorruptIndex("its last entry is beyond the end of the log")
        if self.size_bytes and not self._time_index.count and self._offset_index.count:
            raise CorruptIndex("the time index is empty beside an offset index that is not")

    def _note_fullness(self) -> None:
        """Full as in Kafka: the time index keeps room for its closing entry."""
        room = self._settings.segment_index_bytes
        self.is_full = (
            self._offset_index.count >= room // OFFSET_ENTRY_BYTES
            or self._time_index.count >= room // TIME_ENTRY_BYTES - 1
        )
