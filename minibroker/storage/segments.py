"""The segments of one log in their order: which one an offset belongs to, and reading and finding across them.

What one segment holds is its own business; when segments come and go is decided by the log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.storage.names import LOG_SUFFIX
from minibroker.storage.segment import Finding, Region, Segment


class Segments:
    """At least one segment; `all` has them oldest first, the last one is the one being appended to.

    `base_offsets` are theirs. Methods that read raise `OSError`, `CorruptBatch`.
    """

    __slots__ = ("all", "base_offsets")

    def __init__(self, segments: list[Segment]) -> None:
        self.all = segments
        self.base_offsets = [segment.base_offset for segment in segments]

    @property
    def size_bytes(self) -> int:
        """The size of all their batches."""
        return sum(segment.size_bytes for segment in self.all)

    def index_of(self, offset: int) -> int:
        """The index of the segment that `offset` belongs to, the first one for what lies before all."""
        return max(bisect_right(self.base_offsets, offset) - 1, 0)

    def before(self, offset: int) -> list[Segment]:
        """Return the segments that lie wholly before `offset`."""
        return self.all[: self.index_of(offset)]

    def since(self, offset: int) -> list[Segment]:
        """The one that `offset` belongs to, and all after it."""
        return self.all[self.index_of(offset) :]

    def add(self, segment: Segment) -> None:
        """Put one at the end."""
        self.all.append(segment)
        self.base_offsets.append(segment.base_offset)

    def remove(self, segment: Segment) -> None:
        """Take one out."""
        index = self.all.index(segment)
        del self.all[index], self.base_offsets[index]

    def place_of(self, neighbours: Sequence[Segment]) -> slice:
        """Where these stand, one after the other. Raises `ValueError` if they do not, or no longer."""
        index = self.all.index(neighbours[0])
        place = slice(index, index + len(neighbours))
        if self.all[place] != list(neighbours):
            raise ValueError(f"there are not, or no longer, such segments from {neighbours[0].path} on")
        return place

    def replace(self, place: slice, new: Segment) -> None:
        """Put one in the place of others."""
        self.all[place] = [new]
        self.base_offsets[place] = [new.base_offset]

    def read(
        self, offset: int, max_bytes: int, limits: tuple[int, int], minimum_one: bool, clean_offset: int
    ) -> Region | None:
        """Read from the segment that has `offset`, or from a later one, as compaction may have left none at `offset`.

        `limits` are the offset up to which is read, and the one at which the last segment ends. What is below
        `clean_offset` has been compacted. Raises `KafkaError` KAFKA_STORAGE_ERROR where a segment has lost its end.
        """
        limit, log_end_offset = limits
        index = self.index_of(offset)
        ends = [*self.base_offsets[index + 1 :], log_end_offset]
        for segment, end_offset in zip(self.all[index:], ends, strict=True):
            end = segment.size_bytes, end_offset
            if segment is not self.all[-1]:
                gaps = "compact" in segment.settings.cleanup_policy or segment.base_offset < clean_offset
                end = segment.readable(end_offset, gaps=gaps)
                if end[1] <= offset < end_offset:
                    raise _lost(segment, end[1], end_offset)
            if limit < end[1]:
                end = segment.position_of(limit), limit
            region = segment.read(offset, max_bytes, end, minimum_one)
            if region or limit <= end_offset or segment.position_of(offset) < segment.size_bytes:
                return region
            offset = end_offset
        return None

    def first_at(self, timestamp: int, start_offset: int) -> Finding:
        """The first record at or after `start_offset` whose timestamp is at least `timestamp`, in steps.

        Segments may come, go and stand for others meanwhile: where one ended, the one with that offset is gone on with.
        """
        offset = self.base_offsets[0]
        while True:
            index = self.index_of(offset)
            segment, next_offsets = self.all[index], self.base_offsets[index + 1 : index + 2]
            segment.load()
            if segment.indexes.max_timestamp >= timestamp:
                found = yield from segment.find_timestamp(timestamp, max(offset, start_offset))
                if found:
                    return found
            if not next_offsets:
                return None
            offset = next_offsets[0]
            yield

    def first_of_largest_timestamp(self, start_offset: int) -> Finding:
        """The first record with the largest timestamp of all, in steps; None if no record has one."""
        for segment in list(self.all):
            segment.load()
            yield
        segment = max(self.all, key=lambda segment: segment.indexes.max_timestamp)
        if segment.indexes.max_timestamp < 0:
            return None
        return (yield from segment.find_timestamp(segment.indexes.max_timestamp, start_offset))


def _lost(segment: Segment, offset: int, end_offset: int) -> KafkaError:
    return KafkaError(
        ErrorCode.KAFKA_STORAGE_ERROR,
        f"{segment.path}{LOG_SUFFIX} is damaged: what it had from offset {offset} to {end_offset - 1} cannot be read",
    )
