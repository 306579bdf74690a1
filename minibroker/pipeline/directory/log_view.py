"""What one log consists of now, and where it ends: cheap to ask again, as only what was added is looked at.

Which offsets of it may be read under which isolation level is `log_transactions.py`'s business.
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
        """Take in what has changed. Raises `OSError`, and has then taken in nothing."""
        segments = segments_in(self.log.path)
        before, last = self.segments[-1:], segments[-1:]
        if before != last or not last:
            self.end, is_cut = self._end_now(before, last)
            self.cuts += is_cut
        self.segments = segments
        return self

    @property
    def start_offset(self) -> int:
        """Where the first segment begins."""
        return self.segments[0].base_offset if self.segments else 0

    def size_of(self, segment: SegmentFile) -> int:
        """How many bytes of the segment belong to the log."""
        return self.end.position if segment is self.segments[-1] else segment.size_bytes

    def end_offset_of(self, index: int) -> int:
        """Where the segment of this index ends, be it by the name of the next one."""
        return self.segments[index + 1].base_offset if index + 1 < len(self.segments) else self.end.next_offset

    def _end_now(self, before: list[SegmentFile], last: list[SegmentFile]) -> tuple[Place, bool]:
        """(where the last of the segments ends, whether something that had been there is there no more)."""
        if not last:
            return Place(0, 0), bool(before)
        with closing(OpenSegment(last[0])) as opened:
            if not before or last[0].path != before[0].path:
                return opened.last_place(), last[0].base_offset < self.end.next_offset
            is_there = opened.has(self.end)
            return opened.last_place(self.end if is_there else None), not is_there
