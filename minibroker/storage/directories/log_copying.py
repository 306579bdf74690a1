"""Copying a log into another directory while it is read and appended to, until the copy can take its place.

Closed segments are copied with their indexes, as files, and brought to the disk itself; of the segment in use the copy
gets what is there, and the rest at one instant. What takes whose place, and when, is the business of whoever moves it.
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
from minibroker.storage.names import LOG_SUFFIX, MOVED_MARKER, SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX, segment_name
from minibroker.storage.segment import Segment

CHUNK_BYTES = 4 << 20  # what is copied before others get the thread
UNSYNCED_FILES = 4  # so many may be left for the work on the tail, during which no flush of the log can begin
TAIL_BYTES = 1 << 20  # what may be missing when the copy takes the log's place, as it is copied in the loop's thread
PASSES = 8  # how often what has come meanwhile is looked for, before the loop's thread is to copy the rest

Work = Callable[[], None]


class LogCopy:
    """The copy of `log` in the directory `path`; its methods are for the loop's thread, the work that they give is not.

    `size_bytes` is how much of the batches it has. Whoever changes the log meanwhile need not know of the copy: what
    is no longer the log's is copied anew. Methods and work raise `OSError`.
    """

    def __init__(self, log: Log, path: str) -> None:
        self.log = log
        self.path = path
        self._disk = log.environment.disk
        self._whole: dict[int, Segment] = {}  # the segments that the copy has, by their base offsets
        self._part: tuple[Segment, int] | None = None  # the one that is being copied, and up to which position
        self._tail: Segment | None = None  # the one that was in use when the work on the tail began
        self._late: dict[int, int] = {}  # how much is copied of that and of later ones, by their base offsets
        # The `.log` files, and the indexes, by base offset, that may not be on the disk itself.
        self._unsynced_logs: dict[int, str] = {}
        self._unsynced_indexes: dict[int, list[str]] = {}
        self._indexes_were_synced = False

    @property
    def size_bytes(self) -> int:
        """How many bytes of batches have been copied."""
        part = 0 if self._part is None else self._part[1]
        return part + sum(self._late.values()) + sum(segment.size_bytes for segment in self._whole.values())

    @property
    def end_offset(self) -> int:
        """Up to where the copy has whole segments."""
        missing = self.missing()
        return (missing or self.log.segments[-1]).base_offset

    def missing(self) -> Segment | None:
        """The first closed segment that the copy does not have."""
        for segment in self.log.segments[:-1]:
            if self._whole.get(segment.base_offset) is not segment:
                return segment
        return None

    def copy_of(self, segment: Segment) -> Work:
        """The work that copies the next part of a closed segment; to be told of by `copied`."""
        if self._part is None or self._part[0] is not segment:
            self._part = segment, 0
        position, end = self._part[1], segment.size_bytes
        return partial(self._copy_segment, segment, position, end)

    def copied(self, segment: Segment) -> None:
        """The work on a part of the segment has been done."""
        position = min((self._part[1] if self._part else 0) + CHUNK_BYTES, segment.size_bytes)
        self._part = segment, position
        if position == segment.size_bytes:
            self._part = None
            if segment in self.log.segments:
                self._whole[segment.base_offset] = segment

    def sync_of_segments(self) -> Work | None:
        """The work that brings whole segments to the disk itself, if there is much of it.

        Of the batches only those must be there that the log has brought there itself; indexes once, as far as there are
        any then: who writes fast might otherwise never be caught up with.
        """
        promised = [offset for offset in self._unsynced_logs if offset < self.log.recovery_point]
        if len(promised) > UNSYNCED_FILES:
            return partial(self._sync_logs, promised)
        if self._indexes_were_synced:
            return None
        self._indexes_were_synced = True
        return self._sync_indexes

    def copy_of_tail(self) -> Work:
        """The work that copies the segment in use, as far as it goes now, and all that is no segment."""
        self._tail = self.log.segments[-1]
        self._late.clear()
        kept = {segment.base_offset for segment in self.log.segments}
        stale = [offset for offset in self._whole if offset not in kept]
        for offset in stale:
            del self._whole[offset]
            self._unsynced_logs.pop(offset, None)
            self._unsynced_indexes.pop(offset, None)
        return partial(self._copy_rest, self._tail, stale, self.log.recovery_point)

    def is_current(self) -> bool:
        """Whether nothing but a small end of the log is missing, after the work on the tail."""
        if self._tail is None or not self.log.in_use or self._tail not in self.log.segments:
            return False
        later = self._from(self._tail)
        if any(self._whole.get(segment.base_offset) is not segment for segment in self.log.segments[: -len(later)]):
            return False
        return 0 <= sum(segment.size_bytes for segment in later) - sum(self._late.values()) <= TAIL_BYTES

    @property
    def has_lost_its_tail(self) -> bool:
        """Whether the segment that the work on the tail began with is none of the log's any more."""
        return self._tail not in self.log.segments

    @property
    def tail_offset(self) -> int:
        """From where on the copy has no indexes, once it is current."""
        assert self._tail is not None
        return self._tail.base_offset

    @property
    def recovery_point(self) -> int:
        """Up to where the copy is on the disk itself, indexes and all, once it is current."""
        return min([self.tail_offset, *self._unsynced_logs, *self._unsynced_indexes])

    def unsynced_names(self) -> list[str]:
        """The names of the indexes that may not be on the disk itself."""
        return [os.path.basename(path) for paths in self._unsynced_indexes.values() for path in paths]

    def complete(self) -> None:
        """Copy what has been appended since the work on the tail ended. Until the log is let go, nothing may follow."""
        assert self._tail is not None
        self._copy_late(self._tail)

    def _from(self, segment: Segment) -> list[Segment]:
        """The segments of the log from this one on."""
        return list(self.log.segments[self.log.segments.index(segment) :])

    def _copy_late(self, tail: Segment) -> int:
        """Copy what the log has from `tail` on, as far as it is not there yet; how many bytes that was."""
        count = 0
        for segment in self._from(tail):
            position, end = self._late.get(segment.base_offset, 0), segment.size_bytes
            self._copy_batches(segment, position, end)
            self._late[segment.base_offset] = end
            count += end - position
        return count

    # --- in another thread ----------------------------------------------------------------------

    def _copy_segment(self, segment: Segment, position: int, end: int) -> None:
        """Copy a chunk of the batches from `position` on; with the last one the indexes too."""
        name = segment_name(segment.base_offset)
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

    def _copy_rest(self, tail: Segment, stale: list[int], promised_offset: int) -> None:
        """Copy the tail and what is no segment, and sync what is promised; then what has come meanwhile.

        Only of batches is it promised that they are on the disk itself: all else can be made anew from them.
        """
        for offset in stale:
            for suffix in (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX):
                self._disk.remove(f"{self.path}/{segment_name(offset)}{suffix}")
        name = segment_name(tail.base_offset)
        self._copy_late(tail)
        self._unsynced_logs[tail.base_offset] = f"{self.path}/{name}{LOG_SUFFIX}"
        self._sync_logs([offset for offset in self._unsynced_logs if offset < promised_offset])
        source = self.log.directory
        for other in (name + SNAPSHOT_SUFFIX, LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA):
            with suppress(FileNotFoundError):  # a log without records has hardly any of them
                self._copy_file(f"{source}/{other}", other)
        self._disk.write_whole(f"{self.path}/{MOVED_MARKER}", source.encode(), sync=True)
        for _ in range(PASSES):
            if self._copy_late(tail) == 0:
                break

    def _sync_logs(self, offsets: list[int]) -> None:
        for offset in offsets:
            self._sync_file(self._unsynced_logs[offset])
            del self._unsynced_logs[offset]

    def _sync_indexes(self) -> None:
        for offset in list(self._unsynced_indexes):
            for path in self._unsynced_indexes[offset]:
                self._sync_file(path)
            del self._unsynced_indexes[offset]

    def _sync_file(self, path: str) -> None:
        file = self._disk.open(path)
        file.sync()
        file.close()

    def _copy_batches(self, segment: Segment, start: int, end: int) -> None:
        source = self._disk.open_to_read(segment.path + LOG_SUFFIX)
        copy = self._disk.open(f"{self.path}/{segment_name(segment.base_offset)}{LOG_SUFFIX}", create=True)
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
