"""Finds offsets by time, by time indexes (if they agree with the log) and headers of batches."""

from __future__ import annotations

from contextlib import closing

import numpy as np

from minibroker.pipeline.directory.log_walking import iterate_sound_headers
from minibroker.pipeline.directory.segment_files import LogView, OpenSegment, SegmentFile, read_index_entries
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.records.batch import BatchHeader
from minibroker.protocol.records.streaming import stream_records
from minibroker.storage.batch_scanning import read_stored_batch
from minibroker.storage.names import TIME_INDEX_SUFFIX

TIME_INDEX_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])


def find_offset_at(view: LogView, timestamp_ms: int, start: int) -> int | None:
    """Return the first offset from `start` on whose timestamp is `timestamp_ms` or later, or None. Raises `OSError`."""
    for index, segment in enumerate(view.segments):
        is_last = index == len(view.segments) - 1
        if not is_last and view.segments[index + 1].base_offset <= start:
            continue
        with closing(OpenSegment(segment, view.get_size_in_log(segment))) as opened:
            found = _TimeSearch(opened, timestamp_ms, start).find_offset(is_segment_closed=not is_last)
        if found is not None:
            return found
    return None


class _TimeSearch:
    """A search in one segment."""

    def __init__(self, opened: OpenSegment, timestamp_ms: int, start: int) -> None:
        self._opened = opened
        self._timestamp_ms = timestamp_ms
        self._start = start
        self._times, self._offsets = _read_time_index(opened.segment)

    def find_offset(self, *, is_segment_closed: bool) -> int | None:
        """Return the offset, or None.

        With `is_segment_closed`, the last entry of the time index has the segment's largest timestamp.
        """
        older = int(np.searchsorted(self._times, self._timestamp_ms))
        if is_segment_closed and 0 < len(self._times) == older and self._does_log_match_entry(older - 1):
            return None
        known = int(self._offsets[older - 1]) if older and self._does_log_match_entry(older - 1) else 0
        opened = self._opened
        place = opened.find_boundary_before(max(known, self._start))
        next_offset = place.next_offset
        for position, header in iterate_sound_headers(opened.file, place.position, opened.size_bytes, next_offset):
            if header.max_timestamp >= self._timestamp_ms and header.last_offset >= self._start:
                found = self._find_offset_in_batch(position, header, next_offset)
                if found is not None:
                    return found
            next_offset = header.next_offset
        return None

    def _does_log_match_entry(self, entry: int) -> bool:
        """Return whether the log has the batch of an entry, with that timestamp."""
        offset, opened = int(self._offsets[entry]), self._opened
        place = opened.find_boundary_before(offset)
        for _, header in iterate_sound_headers(opened.file, place.position, opened.size_bytes, place.next_offset):
            return header.max_timestamp == self._times[entry] and header.base_offset <= offset <= header.last_offset
        return False

    def _find_offset_in_batch(self, position: int, header: BatchHeader, next_offset: int) -> int | None:
        """Return the first matching record of a batch.

        Return the start of a damaged batch, so that a reader finds the damage.
        """
        try:
            for record in stream_records(read_stored_batch(self._opened.file, position, header), with_values=False):
                if record is not None and record.timestamp >= self._timestamp_ms and record.offset >= self._start:
                    return record.offset
        except KafkaError:
            return max(next_offset, self._start)
        return None


def _read_time_index(segment: SegmentFile) -> tuple[np.ndarray, np.ndarray]:
    """Return (timestamp, offset) of a time index, both ascending; none if it contradicts itself. Raises `OSError`."""
    entries = read_index_entries(segment.make_path(TIME_INDEX_SUFFIX), TIME_INDEX_ENTRY)
    times, offsets = entries["timestamp"].astype(np.int64), entries["offset"].astype(np.int64) + segment.base_offset
    if np.any(np.diff(times) <= 0) or np.any(np.diff(offsets) < 0):
        nothing = np.empty(0, np.int64)
        return nothing, nothing
    return times, offsets
