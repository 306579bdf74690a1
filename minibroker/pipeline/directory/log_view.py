"""The segments of one log now, and its end. It is cheap to refresh, as only what was added is read.

`log_transactions.py` knows which offsets an isolation level may read.
"""

from __future__ import annotations

from contextlib import closing

from minibroker.pipeline.directory.finding import FoundLog
from minibroker.pipeline.directory.segment_files import OpenSegment, Place, SegmentFile, list_segments


class LogView:
    """A log's `segments`, the oldest first, and `end`, the place behind its last whole batch.

    What follows the end is a batch that is being written, or was when the broker died, or the zeros of a preallocated
    file. This is not damage. Damage has a sound batch behind it.
    """

    def __init__(self, log: FoundLog) -> None:
        self.log = log
        self.segments: list[SegmentFile] = []
        self.end = Place(0, 0)
        self.cuts = 0  # how often something that was seen had disappeared

    def look(self) -> LogView:
        """Read what has changed. If this raises `OSError`, the old view stays."""
        segments = list_segments(self.log.path)
        before, last = self.segments[-1:], segments[-1:]
        if before != last or not last:
            self.end, is_cut = self._end_now(before, last)
            self.cuts += is_cut
        self.segments = segments
        return self

    @property
    def start_offset(self) -> int:
        """The offset where the first segment begins."""
        return self.segments[0].base_offset if self.segments else 0

    def size_of(self, segment: SegmentFile) -> int:
        """Return how many bytes of the segment belong to the log."""
        return self.end.position if segment is self.segments[-1] else segment.size_bytes

    def end_offset_of(self, index: int) -> int:
        """Return where the segment of this index ends; if another follows, by that one's name."""
        return self.segments[index + 1].base_offset if index + 1 < len(self.segments) else self.end.next_offset

    def _end_now(self, before: list[SegmentFile], last: list[SegmentFile]) -> tuple[Place, bool]:
        """Return where the last segment ends, and whether something that was seen has disappeared."""
        if not last:
            return Place(0, 0), bool(before)
        with closing(OpenSegment(last[0])) as opened:
            if not before or last[0].path != before[0].path:
                return opened.last_place(), last[0].base_offset < self.end.next_offset
            is_there = opened.has(self.end)
            return opened.last_place(self.end if is_there else None), not is_there
