"""Copies a log into another directory while it is in use, until the copy can replace it.

Closed segments are copied with their indexes, as files, and synced. The active segment is copied as far as it goes, and
the caller copies the rest in the loop's thread when it replaces the log.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from minibroker.storage.checkpoints.checkpoint_texts import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
)
from minibroker.storage.log import Log
from minibroker.storage.names import LOG_SUFFIX, MOVED_MARKER, SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX, make_segment_name
from minibroker.storage.segment import Segment

CHUNK_BYTES = 4 << 20  # copied in one piece of work
UNSYNCED_FILES = 4  # the most that may be left for the work on the tail, during which no flush of the log can begin
TAIL_BYTES = 1 << 20  # the most that the loop's thread copies when the copy replaces the log
PASSES = 8  # how often the work on the tail copies new batches, before the rest is left to the loop's thread

Work = Callable[[], None]


class LogCopy:
    """The copy of `log` in the directory `path`. Its methods are for the loop's thread, and return work for another.

    The log may change at any time: segments that it replaces are copied again. Methods and work raise `OSError`.
    """

    def __init__(self, log: Log, path: str) -> None:
        self.log = log
        self.path = path
        self._disk = log.environment.disk
        self._whole: dict[int, Segment] = {}  # the copied segments, by base offset
        self._part: tuple[Segment, int] | None = None  # the segment that is being copied, and the bytes copied so far
        self._tail: Segment | None = None  # the active segment when the work on the tail began
        self._late: dict[int, int] = {}  # the bytes copied of the tail and of later segments, by base offset
        # The `.log` files, and the indexes, that may not be synced, by base offset.
        self._unsynced_logs: dict[int, str] = {}
        self._unsynced_indexes: dict[int, list[str]] = {}
        self._indexes_were_synced = False

    @property
    def size_bytes(self) -> int:
        """The number of copied bytes of batches."""
        part = 0 if self._part is None else self._part[1]
        return part + sum(self._late.values()) + sum(segment.size_bytes for segment in self._whole.values())

    @property
    def end_offset(self) -> int:
        """The offset up to which the copy has whole segments."""
        missing = self.find_segment_to_copy()
        return (missing or self.log.segments[-1]).base_offset

    def find_segment_to_copy(self) -> Segment | None:
        """Return the first closed segment that the copy does not have, or None."""
        for segment in self.log.segments[:-1]:
            if self._whole.get(segment.base_offset) is not segment:
                return segment
        return None

    def make_copy_work_of_segment(self, segment: Segment) -> Work:
        """Return the work that copies the next part of a segment. Call `record_copied_part_of_segment` after it."""
        if self._part is None or self._part[0] is not segment:
            self._part = segment, 0
        position, end = self._part[1], segment.size_bytes
        return partial(self._copy_segment, segment, position, end)

    def record_copied_part_of_segment(self, segment: Segment) -> None:
        """Record that a part of the segment was copied."""
        position = min((self._part[1] if self._part else 0) + CHUNK_BYTES, segment.size_bytes)
        self._part = segment, position
        if position == segment.size_bytes:
            self._part = None
            if segment in self.log.segments:
                self._whole[segment.base_offset] = segment

    def make_sync_work_of_segments(self) -> Work | None:
        """Return the work that syncs whole segments, or None if there is little to sync.

        Only batches that the log has synced must be synced in the copy. Indexes are synced once, as many as there are
        at that time: otherwise the copy might never catch up with a fast writer.
        """
        promised = [offset for offset in self._unsynced_logs if offset < self.log.recovery_point]
        if len(promised) > UNSYNCED_FILES:
            return partial(self._sync_copied_segments, promised)
        if self._indexes_were_synced:
            return None
        self._indexes_were_synced = True
        return self._sync_copied_indexes

    def make_copy_work_of_tail(self) -> Work:
        """Return the work that copies the active segment, up to its present end, and the files besides segments."""
        self._tail = self.log.segments[-1]
        self._late.clear()
        kept = {segment.base_offset for segment in self.log.segments}
        stale = [offset for offset in self._whole if offset not in kept]
        for offset in stale:
            del self._whole[offset]
            self._unsynced_logs.pop(offset, None)
            self._unsynced_indexes.pop(offset, None)
        return partial(self._copy_tail_and_other_files, self._tail, stale, self.log.recovery_point)

    def is_almost_complete(self) -> bool:
        """Return whether, after copying the tail, only a small end of the log is missing."""
        if self._tail is None or not self.log.is_open_and_online or self._tail not in self.log.segments:
            return False
        later = self._list_segments_from(self._tail)
        if any(self._whole.get(segment.base_offset) is not segment for segment in self.log.segments[: -len(later)]):
            return False
        return 0 <= sum(segment.size_bytes for segment in later) - sum(self._late.values()) <= TAIL_BYTES

    @property
    def is_tail_gone_from_log(self) -> bool:
        """Whether the log no longer has the segment that was active when copying the tail began."""
        return self._tail not in self.log.segments

    @property
    def unindexed_from_offset(self) -> int:
        """The offset from which on a current copy has no indexes."""
        assert self._tail is not None
        return self._tail.base_offset

    @property
    def recovery_point(self) -> int:
        """The offset up to which a current copy is synced, with its indexes."""
        return min([self.unindexed_from_offset, *self._unsynced_logs, *self._unsynced_indexes])

    def list_unsynced_indexes(self) -> list[str]:
        """Return the names of the indexes that may not be synced."""
        return [os.path.basename(path) for paths in self._unsynced_indexes.values() for path in paths]

    def copy_last_appends(self) -> None:
        """Copy what was appended since the tail was copied. Append nothing until the copy replaces the log."""
        assert self._tail is not None
        self._copy_appends_since(self._tail)

    def _list_segments_from(self, segment: Segment) -> list[Segment]:
        """Return the segments of the log from this one on."""
        return list(self.log.segments[self.log.segments.index(segment) :])

    def _copy_appends_since(self, tail: Segment) -> int:
        """Copy what is missing from `tail` on. Return the number of copied bytes."""
        count = 0
        for segment in self._list_segments_from(tail):
            position, end = self._late.get(segment.base_offset, 0), segment.size_bytes
            self._copy_batches(segment, position, end)
            self._late[segment.base_offset] = end
            count += end - position
        return count

    # --- in another thread ----------------------------------------------------------------------

    def _copy_segment(self, segment: Segment, position: int, end: int) -> None:
        """Copy a chunk of the batches from `position` on, and after the last chunk the indexes."""
        name = make_segment_name(segment.base_offset)
        self._copy_batches(segment, position, min(position + CHUNK_BYTES, end))
        if end - position <= CHUNK_BYTES:
            self._unsynced_logs[segment.base_offset] = f"{self.path}/{name}{LOG_SUFFIX}"
            self._unsynced_indexes[segment.base_offset] = []
            for suffix in (*SEGMENT_SUFFIXES[1:], SNAPSHOT_SUFFIX):
                if self._disk.exists(segment.path + suffix):
                    self._copy_file(segment.path + suffix, name + suffix)
                    self._unsynced_indexes[segment.base_offset].append(f"{self.path}/{name}{suffix}")
                else:
                    self._disk.remove(f"{self.path}/{name}{suffix}")

    def _copy_tail_and_other_files(self, tail: Segment, stale_base_offsets: list[int], log_recovery_point: int) -> None:
        """Copy the tail and other files, sync batches below `log_recovery_point`, and copy what was appended meanwhile.

        Only batches must be synced, as everything else can be rebuilt from them.
        """
        for offset in stale_base_offsets:
            for suffix in (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX):
                self._disk.remove(f"{self.path}/{make_segment_name(offset)}{suffix}")
        name = make_segment_name(tail.base_offset)
        self._copy_appends_since(tail)
        self._unsynced_logs[tail.base_offset] = f"{self.path}/{name}{LOG_SUFFIX}"
        self._sync_copied_segments([offset for offset in self._unsynced_logs if offset < log_recovery_point])
        source = self.log.directory
        for other in (name + SNAPSHOT_SUFFIX, LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA):
            with suppress(FileNotFoundError):  # a log without records lacks most of them
                self._copy_file(f"{source}/{other}", other)
        self._disk.write_whole(f"{self.path}/{MOVED_MARKER}", source.encode(), sync=True)
        for _ in range(PASSES):
            if self._copy_appends_since(tail) == 0:
                break

    def _sync_copied_segments(self, offsets: list[int]) -> None:
        """Sync the copied `.log` files of the segments with these base offsets."""
        for offset in offsets:
            self._sync_file(self._unsynced_logs[offset])
            del self._unsynced_logs[offset]

    def _sync_copied_indexes(self) -> None:
        for offset in list(self._unsynced_indexes):
            for path in self._unsynced_indexes[offset]:
                self._sync_file(path)
            del self._unsynced_indexes[offset]

    def _sync_file(self, path: str) -> None:
        file = self._disk.open(path)
        file.sync()
        file.close()

    def _copy_batches(self, segment: Segment, start: int, end: int) -> None:
        """Copy the bytes of a segment's `.log` file from `start` to `end`."""
        source = self._disk.open_to_read(segment.path + LOG_SUFFIX)
        copy = self._disk.open(f"{self.path}/{make_segment_name(segment.base_offset)}{LOG_SUFFIX}", create=True)
        try:
            if start == 0:
                copy.truncate(0)
            for position in range(start, end, CHUNK_BYTES):
                copy.write(position, source.read(position, min(CHUNK_BYTES, end - position)))
        finally:
            source.close()
            copy.close()

    def _copy_file(self, path: str, name: str) -> None:
        self._disk.write_whole(f"{self.path}/{name}", self._disk.read_whole(path), sync=False)
