"""A segment of a log: its `.log` file and its indexes, and finding offsets and timestamps in it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from minibroker.named_tuples import NamedTuple
from minibroker.protocol.errors import CorruptBatch
from minibroker.protocol.records.batch import ELIDED_BIT, LOG_OVERHEAD_BYTES, BatchHeader
from minibroker.protocol.steps import Steps
from minibroker.storage.batch_scanning import (
    HEADERS_AT_ONCE,
    iterate_batch_spans,
    iterate_headers,
    make_offset_error,
    read_stored_batch_in_steps,
)
from minibroker.storage.files import Bytes, Disk, File
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    make_segment_name,
)
from minibroker.storage.segment_indexes import NO_TIMESTAMP, CorruptIndex, OffsetIndex, SegmentIndexes, TimeIndex

logger = logging.getLogger(__name__)

# Positions by offset, to which sequential readers come back. They save a lookup and a scan; more would cost memory.
REMEMBERED_POSITIONS: Final = 256


class Region(NamedTuple):
    """Whole batches in a file, which a Fetch response sends without copying.

    `next_offset` is that of the next read. The region stays readable after its segment was deleted.
    """

    file: File
    position: int
    size_bytes: int
    next_offset: int

    def read(self) -> bytes:
        """Return the bytes of the batches. Raises `OSError`."""
        return self.file.read(self.position, self.size_bytes)


class TimestampOffset(NamedTuple):
    """A record found by its timestamp: its offset, its timestamp in ms since 1970, and its batch's leader epoch."""

    offset: int
    timestamp: int
    leader_epoch: int


TimestampSearch = Steps[TimestampOffset | None]


class Segment:
    """The batches from `base_offset` on, up to `size_bytes` of the `.log` file.

    `first_timestamp` is the largest one of the first batch (-1: none), from which `segment.ms` counts. It and `indexes`
    are valid after `load_last_entries()`. All methods that read or write raise `OSError`, and those that read the file
    also `CorruptBatch`.
    """

    __slots__ = (
        "path",
        "base_offset",
        "size_bytes",
        "first_timestamp",
        "created_ms",
        "jitter_ms",
        "indexes",
        "_disk",
        "_settings",
        "_max_segment_ms",
        "_file",
        "_loaded",
        "_preallocated",
        "_remembered",
        "_not_newer",
        "_has_own_indexes",
        "_readable",
    )

    def __init__(self, disk: Disk, directory: str, base_offset: int, settings: LogSettings, now_ms: int) -> None:
        self.path = f"{directory}/{make_segment_name(base_offset)}"
        self.base_offset = base_offset
        self.size_bytes = 0
        self.first_timestamp = NO_TIMESTAMP
        self.created_ms = now_ms
        self.jitter_ms = 0
        self.indexes = SegmentIndexes(disk, self.path, base_offset, settings)
        self._disk = disk
        self._settings = settings
        self._max_segment_ms = settings.max_segment_ms
        self._file: File | None = None
        self._loaded = True
        self._preallocated = False  # zeros may follow the last batch
        self._remembered: dict[int, int] = {}
        self._not_newer: dict[int, tuple[int, int]] = {}
        self._readable: tuple[int, int] | None = None
        self._has_own_indexes = True  # false: the files under the names of the indexes may be another segment's

    @classmethod
    def create(cls, disk: Disk, directory: str, base_offset: int, settings: LogSettings, now_ms: int) -> Segment:
        """Create an empty segment and its `.log` file; with `preallocate`, fill it with zeros up to `segment.bytes`."""
        segment = cls(disk, directory, base_offset, settings, now_ms)
        segment._file = disk.open(segment.path + LOG_SUFFIX, create=True)
        segment._file.truncate(0)
        if settings.preallocate:
            segment._file.truncate(settings.segment_bytes)
            segment._preallocated = True
        return segment

    @classmethod
    def open(cls, disk: Disk, directory: str, base_offset: int, settings: LogSettings, now_ms: int) -> Segment:
        """Return a segment that is on the disk. Nothing is read yet but its size."""
        segment = cls(disk, directory, base_offset, settings, now_ms)
        segment.size_bytes = disk.size_bytes(segment.path + LOG_SUFFIX)
        segment._loaded = False
        return segment

    @classmethod
    def open_with_file(
        cls, disk: Disk, directory: str, base_offset: int, settings: LogSettings, now_ms: int, file: File
    ) -> Segment:
        """Return a segment whose batches are in `file`. The file and its indexes do not have their final names yet."""
        segment = cls(disk, directory, base_offset, settings, now_ms)
        segment.size_bytes = file.size_bytes()
        segment._file = file
        segment._loaded = False
        return segment

    def load_last_entries(self) -> None:
        """Read the first batch's header and the last index entries. Rebuild damaged indexes."""
        if self._loaded:
            return
        for _, header in iterate_headers(self.file, 0, self.size_bytes):
            self.first_timestamp = header.max_timestamp
            break
        try:
            self.indexes.open_files(self.size_bytes, self.first_timestamp)
        except CorruptIndex as error:
            self._rebuild_indexes(error)
            return
        self._loaded = True

    @property
    def file(self) -> File:
        """The `.log` file, opened on first use."""
        file = self._file
        if file is None:
            file = self._file = self._disk.open(self.path + LOG_SUFFIX)
        return file

    @property
    def settings(self) -> LogSettings:
        """The settings under which the segment is written."""
        return self._settings

    def append(self, data: Bytes, first_offset: int, batches: Sequence[BatchHeader]) -> None:
        """Write batches with offsets from `first_offset` on. If this raises, the segment has not changed."""
        position = self.size_bytes
        self.file.write(position, data)
        for header in batches:
            last_offset = first_offset + header.last_offset_delta
            self.add_batch_to_indexes(position, last_offset, header.max_timestamp)
            position += header.batch_length + LOG_OVERHEAD_BYTES
            first_offset = last_offset + 1
        self.size_bytes = position

    def add_batch_to_indexes(self, position: int, last_offset: int, max_timestamp: int) -> None:
        """Update the indexes by the batch at `position`, after an append or in recovery."""
        if position == 0:
            self.first_timestamp = max_timestamp
        self.indexes.add_batch_to_indexes(position, last_offset, max_timestamp)

    def clear_indexes_to_rebuild(self) -> None:
        """Clear the indexes and other state. The caller must `add_batch_to_indexes` each batch again."""
        self.indexes = SegmentIndexes(self._disk, self.path, self.base_offset, self._settings)
        self.indexes.mark_files_outdated()
        self.first_timestamp = NO_TIMESTAMP
        self._remembered.clear()
        self._not_newer = {}  # a new one, as `has_format_newer_than` may be using the old one between two steps
        self._readable = None
        self._loaded = True

    def has_room_for_batch(self, size_bytes: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """Return whether a batch fits, so that no new segment must begin. An empty one has no size limit."""
        if not self.indexes.fits_relative_offset(last_offset):
            return False
        if self.size_bytes == 0:
            return True
        if self.indexes.is_full or self.size_bytes + size_bytes > self._settings.segment_bytes:
            return False
        waited_ms = max_timestamp - self.first_timestamp if self.first_timestamp >= 0 else now_ms - self.created_ms
        return waited_ms <= self._max_segment_ms - self.jitter_ms

    def read(self, offset: int, max_bytes: int, end: tuple[int, int], minimum_one: bool) -> Region | None:
        """Return whole batches from the one that contains `offset` on, up to `end` (position, offset).

        Return None if there is no such batch before `end`, or if it is larger than `max_bytes`, without `minimum_one`.
        """
        end_position, end_offset = end
        start = self._remembered.get(offset, -1)
        if start < 0:
            start = self.find_position_of_offset(offset)
        if end_position - start > max_bytes:
            end_position, end_offset = self._find_end_of_batches_to_read(start, end_position, max_bytes, minimum_one)
        if end_position <= start:
            return None
        self.remember_position_of_offset(end_offset, end_position)
        return Region(self.file, start, end_position - start, end_offset)

    def find_readable_end(self, next_base_offset: int, *, may_have_gaps: bool) -> tuple[int, int]:
        """Return the (position, offset) up to which a closed segment can be read.

        That is its size and the next segment's base offset, unless its end is damaged or missing, which is logged. This
        is checked once, from the last index entry on. `may_have_gaps`: compaction may have removed its last records.
        """
        if self._readable is None:
            known = self.read_last_offset_of_time_index() if self._has_own_indexes else -1
            position, end_offset, problem = self._find_sound_end(next_base_offset)
            if end_offset <= known:
                problem = problem or f"its time index has offset {known}"
            elif end_offset != next_base_offset and not may_have_gaps:
                problem = problem or f"the next segment begins at offset {next_base_offset}"
            self._readable = (position, end_offset) if problem else (self.size_bytes, next_base_offset)
            if problem:
                logger.error(
                    "%s is damaged: it can be read up to position %d, offset %d: %s",
                    self.path + LOG_SUFFIX,
                    position,
                    end_offset,
                    problem,
                )
        return self._readable

    def read_last_offset_of_time_index(self) -> int:
        """Return the last offset in the time index's file; -1 if it is empty, missing or damaged."""
        times = TimeIndex(self._disk, self.path + TIME_INDEX_SUFFIX, self.base_offset)
        try:
            times.open_file()
        except (FileNotFoundError, CorruptIndex):
            return -1
        return times.last_offset if times.last_timestamp > 0 else -1  # Kafka preallocates the file with zeros

    def is_preallocated_by_kafka(self) -> bool:
        """Return whether the offset index's file ends with zeros, as Kafka preallocates those of active segments."""
        try:
            file = self._disk.open_to_read(self.path + INDEX_SUFFIX)
        except FileNotFoundError:
            return False
        size, entry = file.size_bytes(), OffsetIndex.ENTRY.size
        return size >= entry and not any(file.read(size - entry, entry))

    def _find_sound_end(self, next_base_offset: int) -> tuple[int, int, str]:
        """Return where the sound batches end: position, offset, and what is wrong behind them ("": nothing)."""
        end, problem = self.size_bytes, ""
        try:
            self._load_indexes()
        except CorruptBatch as error:  # the rebuilt indexes have what lies before
            end, problem = error.position, str(error.message)
        position, end_offset, other = self._find_sound_end_from_position(
            self.indexes.offsets.last_position, end, next_base_offset
        )
        return position, end_offset, problem or other

    def _find_sound_end_from_position(self, start: int, end: int, next_base_offset: int) -> tuple[int, int, str]:
        """Find the sound end as `_find_sound_end` does. Begin at 0 if there is no batch at `start`."""
        position, end_offset = start, self.base_offset
        try:
            for at, size, base_offset, last_offset in iterate_batch_spans(self.file, start, end):
                if not end_offset <= base_offset <= last_offset < next_base_offset:
                    raise CorruptBatch(f"the batch at {at} has the offsets {base_offset} to {last_offset}", at)
                position, end_offset = at + size, last_offset + 1
        except CorruptBatch as error:
            if start == position > 0:
                position, end_offset, _ = self._find_sound_end_from_position(0, start, next_base_offset)
            return position, end_offset, str(error.message)
        return position, end_offset, ""

    def remember_position_of_offset(self, offset: int, position: int) -> None:
        """Remember the position of `offset` for the next read there."""
        if len(self._remembered) >= REMEMBERED_POSITIONS:
            self._remembered.clear()
        self._remembered[offset] = position

    def has_format_newer_than(self, magic: int, position: int, end: int) -> Steps[bool]:
        """Return, in steps, whether a batch between two positions has a format above `magic`, or elided attributes.

        The result is remembered for the next read, so that no header is read twice.
        """
        known = self._not_newer
        known_from, known_to = known.get(magic, (position, position))
        if not known_from <= position <= known_to:
            known_from = known_to = position
        for passed, (at, header) in enumerate(iterate_headers(self.file, known_to, max(end, known_to)), 1):
            if header.magic > magic or header.attributes & ELIDED_BIT:
                known[magic] = known_from, at
                return True
            if passed % HEADERS_AT_ONCE == 0:
                yield
        known[magic] = known_from, max(end, known_to)
        return False

    def find_position_of_offset(self, offset: int) -> int:
        """Return the position of the first batch that ends at or after `offset`, `size_bytes` if there is none."""
        if offset <= self.base_offset:
            return 0
        found = self._remembered.get(offset, -1)
        if found >= 0:
            return found
        start = self._load_indexes().offsets.find_position_at_or_before_offset(offset)
        batches = iterate_batch_spans(self.file, start, self.size_bytes)
        found = next((position for position, _, _, last in batches if last >= offset), self.size_bytes)
        self.remember_position_of_offset(offset, found)
        return found

    def find_batch_at_offset(self, offset: int) -> tuple[int, int]:
        """Return (position, base offset) of the first batch that ends at or after `offset`, or of the end."""
        position = self.find_position_of_offset(offset)
        for _, _, base_offset, _ in iterate_batch_spans(self.file, position, self.size_bytes):
            return position, min(base_offset, offset)
        return position, offset

    def find_next_offset(self) -> int:
        """Return the offset after the last batch. It is searched from the last index entry on."""
        self.load_last_entries()
        end_offset = self.base_offset
        for _, _, _, last_offset in iterate_batch_spans(self.file, self.indexes.offsets.last_position, self.size_bytes):
            end_offset = last_offset + 1
        return end_offset

    def find_first_record_at_timestamp(self, timestamp: int, start_offset: int) -> TimestampSearch:
        """Find, in steps, the first record at or after `start_offset` whose timestamp is at least `timestamp`.

        Batches that are appended or removed meanwhile are ignored.
        """
        from minibroker.protocol.records.streaming import check_record_sizes, stream_records  # no start needs it

        indexes = self._load_indexes()
        file = self.file
        start = indexes.offsets.find_position_at_or_before_offset(
            max(indexes.times.find_offset_at_or_before_timestamp(timestamp), start_offset)
        )
        for passed, (position, header) in enumerate(iterate_headers(file, start, self.size_bytes), 1):
            if passed % HEADERS_AT_ONCE == 0:
                yield
            if header.max_timestamp < timestamp or header.last_offset < start_offset:
                continue
            batch = yield from read_stored_batch_in_steps(file, position, header)
            yield from check_record_sizes(batch, header, self._settings.max_decompressed_message_bytes)
            for record in stream_records(batch, with_values=False):
                if record is None:
                    yield
                elif record.timestamp >= timestamp and record.offset >= start_offset:
                    return TimestampOffset(record.offset, record.timestamp, header.partition_leader_epoch)
        return None

    def find_largest_timestamp_since(self, start_offset: int) -> Steps[int]:
        """Return, in steps, the largest timestamp of the records from `start_offset` on, or -1."""
        from minibroker.protocol.records.streaming import check_record_sizes, stream_records  # no start needs it

        file, largest = self.file, NO_TIMESTAMP
        for passed, (position, header) in enumerate(
            iterate_headers(file, self.find_position_of_offset(start_offset), self.size_bytes)
        ):
            if passed:
                largest = max(largest, header.max_timestamp)
                if passed % HEADERS_AT_ONCE == 0:
                    yield
                continue
            batch = yield from read_stored_batch_in_steps(file, position, header)  # its first records may lie below
            yield from check_record_sizes(batch, header, self._settings.max_decompressed_message_bytes)
            for record in stream_records(batch, with_values=False):
                if record is None:
                    yield
                elif record.offset >= start_offset:
                    largest = max(largest, record.timestamp)
        return largest

    def truncate(self, position: int, end_offset: int) -> None:
        """Truncate the segment to `position`, where the batch of `end_offset` begins."""
        uncertain = self._load_indexes().truncate(position, end_offset)
        self._remembered.clear()
        self._not_newer = {}  # a new one, see `clear_indexes_to_rebuild`
        self._readable = None
        self.file.truncate(position)
        self.size_bytes = position
        for at, header in iterate_headers(self.file, uncertain, position):
            self.add_batch_to_indexes(at, header.last_offset, header.max_timestamp)
        if position == 0:
            self.clear_indexes_to_rebuild()

    def finish_indexes(self) -> None:
        """Complete the indexes and write their files, if they were loaded."""
        if self._preallocated:
            self.file.truncate(self.size_bytes)
            self._preallocated = False
        if self._loaded:
            self.indexes.finish_and_write_files(self.size_bytes)

    def write_indexes_and_list_files(self, *, with_indexes: bool) -> list[File]:
        """Write the indexes, and return the files to sync. Indexes that were not loaded are left out."""
        if not with_indexes or not self._loaded:
            return [self.file]
        return [self.file, *self.indexes.write_files_and_list_unsynced(self._disk, self.first_timestamp)]

    def update_settings(self, settings: LogSettings) -> None:
        """Use new settings from now on."""
        self._settings = settings
        self._max_segment_ms = settings.max_segment_ms
        self.indexes.update_settings(settings)

    def close(self) -> None:
        """Close the file until it is needed again. Regions that are being sent keep it open."""
        self._file = None

    def rename_files_to_deleted(self) -> list[str]:
        """Rename the files of the segment, so that a start removes them. Return the new paths.

        If this raises, the segment is still there. Once the `.log` file is renamed, a start also removes the others.
        """
        log_path = self.path + LOG_SUFFIX
        self._disk.rename(log_path, log_path + DELETED_SUFFIX)
        renamed = [log_path + DELETED_SUFFIX]
        try:
            renamed += self.change_file_suffix("", DELETED_SUFFIX)
        except OSError as error:
            logger.warning("%s: an index is not removed before the next start: %s", self.path, error)
        return renamed

    def change_file_suffix(self, old: str, new: str) -> list[str]:
        """Rename the files of the segment that end in `old`, the `.log` file first. Return the new paths."""
        paths = [self.path + kind for kind in SEGMENT_SUFFIXES if self._disk.exists(self.path + kind + old)]
        for path in paths:
            self._disk.rename(path + old, path + new)
        return [path + new for path in paths]

    def get_largest_timestamp(self) -> int:
        """Return the largest timestamp of a record, in ms, or the file's modification time if no record has one."""
        self.load_last_entries()
        if self.indexes.max_timestamp >= 0:
            return self.indexes.max_timestamp
        return self.get_modified_ms()

    def get_modified_ms(self) -> int:
        """Return the file's modification time, in ms, which retention uses for records without timestamps (KIP-33)."""
        return self._disk.get_modified_ms(self.path + LOG_SUFFIX)

    def _find_end_of_batches_to_read(self, start: int, end: int, max_bytes: int, minimum_one: bool) -> tuple[int, int]:
        """Return the (position, offset) of the end of the whole batches that fit into `max_bytes`.

        If the index has a batch in the second half, the region ends before that one, as reading headers would only gain
        a few batches.
        """
        limit = start + max_bytes
        at = self._load_indexes().offsets.find_batch_start_at_or_before_position(limit)
        if at - start > max_bytes // 2:
            return at, int.from_bytes(self.file.read(at, 8), "big")
        stop = start, 0
        for position, size, base_offset, last_offset in iterate_batch_spans(self.file, max(at, start), end):
            if position + size > limit and (position > start or not minimum_one):
                return position, base_offset  # this may be the batch that the index has found
            stop = position + size, last_offset + 1
        return stop

    def _load_indexes(self) -> SegmentIndexes:
        """Return the indexes with all entries in memory, rebuilt if they are damaged."""
        self.load_last_entries()
        try:
            self.indexes.load_entries()
        except CorruptIndex as error:
            self._rebuild_indexes(error)
        return self.indexes

    def rebuild_indexes(self, reason: str) -> None:
        """Read all batches instead of the index files, which may be another segment's until the next start."""
        self._has_own_indexes = False
        self._rebuild_indexes(CorruptIndex(reason))

    def _rebuild_indexes(self, problem: CorruptIndex) -> None:
        logger.info("%s: the indexes are rebuilt: %s", self.path, problem)
        self.clear_indexes_to_rebuild()
        next_offset = self.base_offset
        for position, header in iterate_headers(self.file, 0, self.size_bytes):
            if header.base_offset < next_offset or not self.indexes.fits_relative_offset(header.last_offset):
                raise make_offset_error(self.file, position, header, next_offset)
            self.add_batch_to_indexes(position, header.last_offset, header.max_timestamp)
            next_offset = header.next_offset
