"""What one log consists of now, and where it ends: cheap to ask again, as only what was added is looked at.

Which offsets of it may be read under which isolation level is `transactions.py`'s business.
"""

from __future__ import annotations

from contextlib import closing

from minibroker.pipeline.directory.finding import FoundLog
from minibroker.pipeline.directory.segment_files import OpenSegment, Place, SegmentFile, segments_in


class LogView:
    """A log's `segments`, oldest first, and `end`, the place behind the last whole batch of the last of them.

    What lies behind that are bytes of a batch that is being written, or was when the broker died, or zeros of a file
    that was made longer beforehand: the end of the log, no damage. Damage is what has a sound batch behind it.
    """

    def __init__(self, log: FoundLog) -> None:
        self.log = log
        self.segments: list[SegmentFile] = []
        self.end = Place(0, 0)
        self.cuts = 0  # how often what had been there was there no more

    def look(self) -> LogView:
        """Take in what has changed. Raises `OSError`."""
        before = self.segments[-1] if self.segments else None
        self.segments = segments_in(self.log.path)
        if not self.segments:
            self._set(Place(0, 0), is_cut=True)
        elif before is None or self.segments[-1].path != before.path:
            self._move_to(self.segments[-1])
        elif self.segments[-1] != before:
            self._follow(self.segments[-1])
        return self

    def size_of(self, segment: SegmentFile) -> int:
        """How many bytes of the segment belong to the log."""
        return self.end.position if segment is self.segments[-1] else segment.size_bytes

    def end_offset_of(self, index: int) -> int:
        """Where the segment of this index ends, be it by the name of the next one."""
        return self.segments[index + 1].base_offset if index + 1 < len(self.segments) else self.end.next_offset

    def _move_to(self, segment: SegmentFile) -> None:
        with closing(OpenSegment(segment)) as opened:
            self._set(opened.last_place(), is_cut=segment.base_offset < self.end.next_offset)

    def _follow(self, segment: SegmentFile) -> None:
        with closing(OpenSegment(segment)) as opened:
            is_there = opened.has(self.end)
            self._set(opened.last_place(self.end if is_there else None), is_cut=not is_there)

    def _set(self, end: Place, *, is_cut: bool) -> None:
        self.end = end
        self.cuts += is_cut
