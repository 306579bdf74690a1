"""Copying a log into another directory while it is read and appended to, until the copy can take its place.

Closed segments are copied with their indexes, as files, and brought to the disk itself; of the segment in use the copy
gets what is there, and the rest at one instant. What takes whose place, and when, is the business of whoever moves it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from minibroker.storage.checkpoints import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA
from minibroker.storage.log import Log
from minibroker.storage.names import LOG_SUFFIX, MOVED_MARKER, SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX, segment_name
from minibroker.storage.segment import Segment

CHUNK_BYTES = 4 << 20  # what is copied before others get the thread
TAIL_BYTES = 1 << 20  # what may be missing when the copy takes the log's place, as it is copied in the loop's thread

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
        self._tail: tuple[Segment, int] | None = None  # the same of the one in use

    @property
    def size_bytes(self) -> int:
        """How many bytes of batches have been copied."""
        parts = [part for part in (self._part, self._tail) if part is not None]
        return sum(segment.size_bytes for segment in self._whole.values()) + sum(size for _, size in parts)

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

    def copy_of_tail(self) -> Work:
        """The work that copies the segment in use, as far as it goes now, and all that is no segment."""
        tail = self.log.segments[-1]
        self._tail = tail, tail.size_bytes
        kept = {segment.base_offset for segment in self.log.segments}
        stale = [offset for offset in self._whole if offset not in kept]
        for offset in stale:
            del self._whole[offset]
        return partial(self._copy_rest, tail, tail.size_bytes, stale)

    def is_current(self) -> bool:
        """Whether nothing but a small end of the log is missing, after the work on the tail."""
        if self._tail is None or not self.log.in_use or self._tail[0] not in self.log.segments:
            return False
        tail, size = self._tail
        later = self._from(tail)
        if any(self._whole.get(segment.base_offset) is not segment for segment in self.log.segments[: -len(later)]):
            return False
        return 0 <= sum(segment.size_bytes for segment in later) - size <= TAIL_BYTES

    @property
    def recovery_point(self) -> int:
        """Up to where the copy is on the disk itself, indexes and all, once it is current."""
        assert self._tail is not None
        return self._tail[0].base_offset

    def complete(self) -> None:
        """Copy what has been appended since the work on the tail began. Until the log is let go, nothing may follow."""
        assert self._tail is not None
        tail, position = self._tail
        for segment in self._from(tail):
            data = segment.file.read(position, segment.size_bytes - position)
            file = self._disk.open(f"{self.path}/{segment_name(segment.base_offset)}{LOG_SUFFIX}", create=True)
            if position == 0:
                file.truncate(0)
            file.write(position, data)
            file.close()
            position = 0

    def _from(self, segment: Segment) -> list[Segment]:
        """The segments of the log from this one on."""
        return list(self.log.segments[self.log.segments.index(segment) :])

    # --- in another thread ----------------------------------------------------------------------

    def _copy_segment(self, segment: Segment, position: int, end: int) -> None:
        """Copy a chunk of the batches from `position` on; with the last one the indexes too, and sync all."""
        name = segment_name(segment.base_offset)
        last = end - position <= CHUNK_BYTES
        self._copy_batches(segment, position, min(position + CHUNK_BYTES, end), sync=last)
        if last:
            for suffix in SEGMENT_SUFFIXES[1:]:
                if self._disk.exists(segment.path + suffix):
                    self._copy_file(segment.path + suffix, name + suffix)
                else:
                    self._disk.remove(f"{self.path}/{name}{suffix}")

    def _copy_rest(self, tail: Segment, size: int, stale: list[int]) -> None:
        for offset in stale:
            for suffix in SEGMENT_SUFFIXES:
                self._disk.remove(f"{self.path}/{segment_name(offset)}{suffix}")
        self._copy_batches(tail, 0, size, sync=True)
        source = self.log.directory
        for name in self._disk.names(source):
            if name.endswith(SNAPSHOT_SUFFIX) or name in (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA):
                with suppress(FileNotFoundError):  # a snapshot goes with its segment
                    self._copy_file(f"{source}/{name}", name)
        self._disk.write_whole(f"{self.path}/{MOVED_MARKER}", source.encode(), sync=True)

    def _copy_batches(self, segment: Segment, start: int, end: int, *, sync: bool) -> None:
        source = self._disk.open_to_read(segment.path + LOG_SUFFIX)
        copy = self._disk.open(f"{self.path}/{segment_name(segment.base_offset)}{LOG_SUFFIX}", create=True)
        try:
            if start == 0:
                copy.truncate(0)
            for position in range(start, end, CHUNK_BYTES):
                copy.write(position, source.read(position, min(CHUNK_BYTES, end - position)))
            if sync:
                copy.sync()
        finally:
            source.close()
            copy.close()

    def _copy_file(self, path: str, name: str) -> None:
        self._disk.write_whole(f"{self.path}/{name}", self._disk.read_whole(path), sync=True)
