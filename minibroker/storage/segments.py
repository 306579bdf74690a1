"""The segments of a log in order: reading and searching across them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.records.batch import LOG_OVERHEAD_BYTES
from minibroker.protocol.records.message import MIN_MESSAGE_BYTES
from minibroker.storage.names import LOG_SUFFIX
from minibroker.storage.segment import Region, Segment, TimestampSearch
from minibroker.storage.segment_indexes import NO_TIMESTAMP


class LogSegments:
    """At least one segment. `all` has them oldest first; the last one is active.

    `base_offsets` has their base offsets. Methods that read raise `OSError`, `CorruptBatch`.
    """

    __slots__ = ("all", "base_offsets")

    def __init__(self, segments: list[Segment]) -> None:
        self.all = segments
        self.base_offsets = [segment.base_offset for segment in segments]

    @property
    def size_bytes(self) -> int:
        """The size of the batches in all segments."""
        return sum(segment.size_bytes for segment in self.all)

    def find_segment_index(self, offset: int) -> int:
        """Return the index of the segment of `offset`, 0 for an offset before all segments."""
        return max(bisect_right(self.base_offsets, offset) - 1, 0)

    def list_segments_before(self, offset: int) -> list[Segment]:
        """Return the segments that end at or before `offset`."""
        return self.all[: self.find_segment_index(offset)]

    def list_segments_from(self, offset: int) -> list[Segment]:
        """Return the segment of `offset`, and all after it."""
        return self.all[self.find_segment_index(offset) :]

    def add_segment(self, segment: Segment) -> None:
        """Append a segment."""
        self.all.append(segment)
        self.base_offsets.append(segment.base_offset)

    def remove_segment(self, segment: Segment) -> None:
        """Remove a segment."""
        index = self.all.index(segment)
        del self.all[index], self.base_offsets[index]

    def find_slice_of_adjacent_segments(self, adjacent_segments: Sequence[Segment]) -> slice:
        """Return the slice of `all` with these segments. Raises `ValueError` if they are not neighbours, or gone."""
        index = self.all.index(adjacent_segments[0])
        place = slice(index, index + len(adjacent_segments))
        if self.all[place] != list(adjacent_segments):
            raise ValueError(f"the segments from {adjacent_segments[0].path} on have changed")
        return place

    def replace_segments_in_slice(self, replaced_slice: slice, new_segment: Segment) -> None:
        """Replace segments by a new one."""
        self.all[replaced_slice] = [new_segment]
        self.base_offsets[replaced_slice] = [new_segment.base_offset]

    def read(
        self,
        offset: int,
        max_bytes: int,
        limit_and_log_end_offset: tuple[int, int],
        minimum_one: bool,
        clean_offset: int,
    ) -> Region | None:
        """Read from the segment of `offset`, or from a later one, as compaction may have removed batches.

        Only records below the limit are read. Segments below `clean_offset` have been compacted. Raises `KafkaError`
        KAFKA_STORAGE_ERROR if the end of a segment is lost.
        """
        limit, log_end_offset = limit_and_log_end_offset
        index = self.find_segment_index(offset)
        ends = [*self.base_offsets[index + 1 :], log_end_offset]
        for segment, end_offset in zip(self.all[index:], ends, strict=True):
            end = segment.size_bytes, end_offset
            if segment is not self.all[-1]:
                gaps = "compact" in segment.settings.cleanup_policy or segment.base_offset < clean_offset
                end = segment.find_readable_end(end_offset, may_have_gaps=gaps)
                if end[1] <= offset < end_offset:
                    raise _make_lost_records_error(segment, end, end_offset)
            if limit < end[1]:
                end = segment.find_position_of_offset(limit), limit
            region = segment.read(offset, max_bytes, end, minimum_one)
            if region or limit <= end_offset or segment.find_position_of_offset(offset) < segment.size_bytes:
                return region
            offset = end_offset
        return None

    def find_first_record_at_timestamp(self, timestamp: int, start_offset: int) -> TimestampSearch:
        """Find, in steps, the first record at or after `start_offset` whose timestamp is at least `timestamp`.

        Segments may be added, removed or replaced between the steps. The search goes on with the segment of the offset
        at which the last one ended.
        """
        offset = self.base_offsets[0]
        while True:
            index = self.find_segment_index(offset)
            segment, next_offsets = self.all[index], self.base_offsets[index + 1 : index + 2]
            segment.load_last_entries()
            if segment.indexes.max_timestamp >= timestamp:
                place = yield from segment.find_first_record_at_timestamp(timestamp, max(offset, start_offset))
                if place:
                    return place
            if not next_offsets:
                return None
            offset = next_offsets[0]
            yield

    def find_first_of_largest_timestamp(self, start_offset: int) -> TimestampSearch:
        """Find, in steps, the first record with the largest timestamp at or after `start_offset`; None if none has one.

        The largest timestamp of the segment of `start_offset` may be that of a record before it.
        """
        first, *others = self.list_segments_from(start_offset)
        largest = NO_TIMESTAMP
        for segment in others:
            segment.load_last_entries()
            largest = max(largest, segment.indexes.max_timestamp)
            yield
        first.load_last_entries()
        if first.indexes.max_timestamp >= max(largest, 0):
            place = yield from first.find_first_record_at_timestamp(first.indexes.max_timestamp, start_offset)
            if place:
                return place
            largest = max(largest, (yield from first.find_largest_timestamp_since(start_offset)))
        if largest < 0:
            return None
        return (yield from self.find_first_record_at_timestamp(largest, start_offset))


def _make_lost_records_error(segment: Segment, end: tuple[int, int], end_offset: int) -> KafkaError:
    """Return the error for a read behind the readable end (position, offset) of a segment.

    As in Kafka, it is CORRUPT_MESSAGE if there is the head of a batch that is too small to be one.
    """
    position, offset = end
    head = segment.file.read(position, LOG_OVERHEAD_BYTES) if position < segment.size_bytes else b""
    length = int.from_bytes(head[8:], "big", signed=True)
    is_too_small = len(head) == LOG_OVERHEAD_BYTES and LOG_OVERHEAD_BYTES + length < MIN_MESSAGE_BYTES[0]
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE if is_too_small else ErrorCode.KAFKA_STORAGE_ERROR,
        f"{segment.path}{LOG_SUFFIX} is damaged: offsets {offset} to {end_offset - 1} cannot be read",
    )
