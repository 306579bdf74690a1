"""The segments of a log, which a broker may be writing, replacing or removing: where offsets and times are in them.

An index entry is only trusted after its batch was found there. `splitting.py` makes the splits.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import minibroker.storage.names as file_names
from minibroker.pipeline.array_types import Int64s
from minibroker.pipeline.directory.finding import FoundLog
from minibroker.pipeline.directory.log_walking import iterate_sound_headers
from minibroker.pipeline.directory.reading_disk import DISK
from minibroker.protocol.errors import CorruptBatch, KafkaError
from minibroker.protocol.records.batch import BatchHeader
from minibroker.protocol.records.streaming import stream_records
from minibroker.storage.batch_scanning import is_unwritten, iterate_headers, read_stored_batch
from minibroker.storage.files import File
from minibroker.storage.names import TIME_INDEX_SUFFIX

MAX_INDEX_BYTES = 1 << 28

MARKS_TRIED = 8  # entries without a batch, before the index counts as useless
INDEX_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])
INDEXES_KEPT = 4
WALKS_KEPT = 256
WALK_MARK_BYTES = 128 << 10  # between remembered batches: 130 KB of memory for a segment of 1 GB
SWAP_WAITS_S = (0, 0.01, 0.02, 0.04)


def read_index_entries(path: str, entry: npt.DTypeLike) -> npt.NDArray[np.void]:
    """Return all entries up to the zeros, of the first `MAX_INDEX_BYTES` of the file; none if it cannot be opened.

    `entry` is the type of an entry. Raises `OSError` if the open file cannot be read.
    """
    kind = np.dtype(entry)
    try:
        file = DISK.open_to_read(path)
    except OSError:
        return np.empty(0, kind)
    with closing(file):
        data = file.read(0, min(file.size_bytes(), MAX_INDEX_BYTES)).rstrip(b"\0")
    whole_bytes = -(-len(data) // kind.itemsize) * kind.itemsize  # the last entry may end with zeros
    return np.frombuffer(data.ljust(whole_bytes, b"\0"), kind)


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A `.log` file as it was found in its directory. `path` has no suffix, as the indexes share it.

    `state` follows the suffix: `.swap` if compaction has made the file, and a crash came before its last rename.
    """

    path: str
    base_offset: int
    size_bytes: int
    modified_ns: int
    state: str = ""

    def make_path(self, suffix: str) -> str:
        """Return the path of one of the segment's files."""
        return f"{self.path}{suffix}{self.state}"


def list_segments(directory: str) -> list[SegmentFile]:
    """Return the segments of the log in a directory, the oldest first; none if it is gone.

    Files that are being deleted (`.deleted`) or made (`.cleaned`) are left out. If there are files that will replace
    others (`.swap`), wait a little for that. If they stay, a broker has died there, and they count as at its next
    start. Raises `OSError`.
    """
    for wait_s in SWAP_WAITS_S:
        time.sleep(wait_s)
        try:
            names = DISK.list_names(directory)
        except FileNotFoundError:
            return []
        swaps = _find_complete_swaps(names)
        if not swaps:
            break
    found = _make_segments(directory, file_names.list_offsets_with_suffix(names, file_names.LOG_SUFFIX))
    for swap in _make_segments(directory, swaps, file_names.SWAP_SUFFIX):
        with closing(OpenSegment(swap)) as opened:
            end = max(opened.find_last_boundary().next_offset, swap.base_offset + 1)
        found = [each for each in found if not swap.base_offset <= each.base_offset < end] + [swap]
    return sorted(found, key=lambda each: each.base_offset)


def _find_complete_swaps(names: Sequence[str]) -> list[int]:
    """Return the base offsets of completely compacted segments: of `.swap` files before the first `.cleaned` file."""
    cleaned = [
        offset
        for name in names
        if name.endswith(file_names.CLEANED_SUFFIX) and (offset := file_names.parse_base_offset(name)) is not None
    ]
    swaps = file_names.list_offsets_with_suffix(names, file_names.LOG_SUFFIX + file_names.SWAP_SUFFIX)
    return [offset for offset in swaps if not cleaned or offset < min(cleaned)]


def _make_segments(directory: str, base_offsets: Iterable[int], state: str = "") -> list[SegmentFile]:
    """Return segments with the sizes of their files, which end with `state`; without those that are gone."""
    found = []
    for base_offset in base_offsets:
        path = f"{directory}/{file_names.make_segment_name(base_offset)}"
        with suppress(FileNotFoundError):  # it was removed after the names were read
            size_bytes, modified_ns = DISK.get_size_and_modified_ns(f"{path}{file_names.LOG_SUFFIX}{state}")
            found.append(SegmentFile(path, base_offset, size_bytes, modified_ns, state))
    return found


class BatchBoundary(NamedTuple):
    """A place between two batches: the position in the file, and the smallest offset that may follow.

    `last_position` is the position of the batch before, None if there is none or it is damaged.
    """

    position: int
    next_offset: int
    last_position: int | None = None


def make_boundary_after(position: int, header: BatchHeader) -> BatchBoundary:
    """Return the place behind the batch at `position`."""
    return BatchBoundary(position + header.size_bytes, header.next_offset, position)


class OpenSegment:
    """A segment whose `.log` file is open, up to `size_bytes` of it. All methods raise `OSError`."""

    def __init__(self, segment: SegmentFile, size_bytes: int | None = None) -> None:
        self.segment = segment
        self.file: File = DISK.open_to_read(segment.make_path(file_names.LOG_SUFFIX))
        self.size_bytes = segment.size_bytes if size_bytes is None else size_bytes
        self.start = BatchBoundary(0, segment.base_offset)

    @cached_property
    def _indexed_offsets_and_positions(self) -> tuple[Int64s, Int64s]:
        """Return (last offset, position) of batches: the index's, and those found by a walk behind its last entry."""
        offsets, positions = _read_index(self.segment, self.size_bytes)
        walked = np.array(_list_walked_batches(self.segment.make_path(file_names.LOG_SUFFIX)), np.int64).reshape(-1, 2)
        further = walked[(walked[:, 1] > positions[-1:].max(initial=-1)) & (walked[:, 1] < self.size_bytes)]
        if not len(further) or (len(offsets) and further[0, 0] <= offsets[-1]):
            return offsets, positions
        return np.append(offsets, further[:, 0]), np.append(positions, further[:, 1])

    def find_boundary_before(self, offset: int) -> BatchBoundary:
        """Return the place before the first batch that ends at or after `offset`.

        Damage directly before it comes after the place.
        """
        place = self._find_indexed_boundary(
            int(np.searchsorted(self._indexed_offsets_and_positions[0], offset)), self.start
        )
        for position, header in iterate_sound_headers(self.file, place.position, self.size_bytes, place.next_offset):
            if header.last_offset >= offset:
                return place
            place = make_boundary_after(position, header)
        return place

    def find_boundary_after(self, offset: int, start: BatchBoundary) -> BatchBoundary:
        """Return the place behind the batch with `offset`, or the first one after it; else the end of the file.

        It is not before `start`. A damaged header may have a wrong last offset, so the next batch counts too.
        """
        place = self._find_indexed_boundary(int(np.searchsorted(self._indexed_offsets_and_positions[0], offset)), start)
        for position, header in iterate_sound_headers(self.file, place.position, self.size_bytes, place.next_offset):
            if offset < place.next_offset <= header.base_offset:
                return place
            place = make_boundary_after(position, header)
        return place if place.position == self.size_bytes else BatchBoundary(self.size_bytes, place.next_offset)

    def find_first_boundary_at_or_after_position(self, min_position: int, start: BatchBoundary) -> BatchBoundary:
        """Return the first place between two batches at or after the position `min_position`, and not before `start`.

        The two batches must agree on the offset there: a corrupt header may have any last offset, also one before its
        base offset. Return `start` if there is no such place.
        """
        place = self._find_indexed_boundary(
            int(np.searchsorted(self._indexed_offsets_and_positions[1], min_position)), start
        )
        least_offset = place.next_offset
        for position, header in iterate_sound_headers(self.file, place.position, self.size_bytes, place.next_offset):
            if min_position <= place.position == position and least_offset <= place.next_offset <= header.base_offset:
                return place
            least_offset, place = place.next_offset, make_boundary_after(position, header)
        return start

    def find_last_boundary(self, known_boundary: BatchBoundary | None = None) -> BatchBoundary:
        """Return the place behind the last batch, starting from `known_boundary` or from the index's last entry.

        A preallocated file has room for a batch that is only partly written; that one does not count. A running
        broker's index may be behind; what follows its last entry is walked over once and remembered.
        """
        walked = _list_walked_batches(self.segment.make_path(file_names.LOG_SUFFIX))
        if known_boundary is None:
            del walked[:]
        before = place = known_boundary or self._find_indexed_boundary(
            len(self._indexed_offsets_and_positions[1]), self.start
        )
        last, marked = None, walked[-1] if walked else place.position
        for position, header in iterate_sound_headers(
            self.file, place.position, self.size_bytes, place.next_offset, blank_ends=True
        ):
            before, place, last = place, make_boundary_after(position, header), header
            if position - marked >= WALK_MARK_BYTES:
                walked.extend((header.last_offset, position))
                marked = position
        if last is None or place.position == self.size_bytes or not is_unwritten(self.file, place.position):
            return place
        try:
            read_stored_batch(self.file, place.position - last.size_bytes, last)
        except CorruptBatch:
            return before
        return place

    def is_boundary(self, boundary: BatchBoundary) -> bool:
        """Return whether a batch still ends there."""
        if boundary.position == 0 or boundary.last_position is None:
            return boundary.position <= self.size_bytes
        try:
            found = next(iterate_headers(self.file, boundary.last_position, self.size_bytes), None)
        except CorruptBatch:
            return False
        return found is not None and make_boundary_after(*found) == boundary

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def _find_indexed_boundary(self, entry_count: int, default: BatchBoundary) -> BatchBoundary:
        """Return the place behind the last batch to which one of the first `entry_count` index entries points.

        Return `default` if that is not after it, or if there is none.
        """
        for entry in range(entry_count - 1, max(entry_count - 1 - MARKS_TRIED, -1), -1):
            position = int(self._indexed_offsets_and_positions[1][entry])
            if position < default.position:
                break
            header = self._read_header(position)
            if header is not None and header.last_offset == self._indexed_offsets_and_positions[0][entry]:
                return make_boundary_after(position, header)
        return default

    def _read_header(self, position: int) -> BatchHeader | None:
        """Return the header of the whole batch at `position` if another batch or nothing follows; else None."""
        found: Iterator[tuple[int, BatchHeader]] = iterate_headers(self.file, position, self.size_bytes)
        try:
            _, header = next(found)
            next(found, None)
        except CorruptBatch:
            return None
        return header


@lru_cache(maxsize=WALKS_KEPT)
def _list_walked_batches(path: str) -> array[int]:
    """Return the list, kept for each file, of last offset and position, in turn, of batches that walks have passed."""
    return array("q")


@lru_cache(maxsize=INDEXES_KEPT)  # one plan may ask a segment for many small ranges
def _read_index(segment: SegmentFile, size_bytes: int) -> tuple[Int64s, Int64s]:
    """Return (last offset, position) of the batches in the index, both ascending; none if it contradicts itself.

    Entries beyond `size_bytes` of the log are left out. Raises `OSError`.
    """
    entries = read_index_entries(segment.make_path(file_names.INDEX_SUFFIX), INDEX_ENTRY)
    offsets, positions = entries["offset"].astype(np.int64) + segment.base_offset, entries["position"].astype(np.int64)
    if np.any(np.diff(offsets) <= 0) or np.any(np.diff(positions) <= 0):
        nothing = np.empty(0, np.int64)
        return nothing, nothing
    there = (positions >= 0) & (positions < size_bytes)
    return offsets[there], positions[there]


class LogView:
    """A log's `segments`, the oldest first, and `end`, the place behind its last whole batch.

    What follows the end is a batch that is being written, or was when the broker died, or the zeros of a preallocated
    file. This is not damage. Damage has a sound batch behind it.
    """

    def __init__(self, log: FoundLog) -> None:
        self.log = log
        self.segments: list[SegmentFile] = []
        self.end = BatchBoundary(0, 0)
        self.cuts = 0  # how often something that was seen had disappeared

    def read_changes(self) -> LogView:
        """Read what has changed. If this raises `OSError`, the old view stays."""
        segments = list_segments(self.log.path)
        before, last = self.segments[-1:], segments[-1:]
        if before != last or not last:
            self.end, is_cut = self._find_end_now(before, last)
            self.cuts += is_cut
        self.segments = segments
        return self

    @property
    def start_offset(self) -> int:
        """The offset where the first segment begins."""
        return self.segments[0].base_offset if self.segments else 0

    def get_size_in_log(self, segment: SegmentFile) -> int:
        """Return how many bytes of the segment belong to the log."""
        return self.end.position if segment is self.segments[-1] else segment.size_bytes

    def get_end_offset_of_segment(self, index: int) -> int:
        """Return where the segment of this index ends; if another follows, by that one's name."""
        return self.segments[index + 1].base_offset if index + 1 < len(self.segments) else self.end.next_offset

    def _find_end_now(self, before: list[SegmentFile], last: list[SegmentFile]) -> tuple[BatchBoundary, bool]:
        """Return the end of the log, whose last segment is `last` and was `before`, and whether a part is gone."""
        if not last:
            return BatchBoundary(0, 0), bool(before)
        with closing(OpenSegment(last[0])) as opened:
            if not before or last[0].path != before[0].path:
                return opened.find_last_boundary(), last[0].base_offset < self.end.next_offset
            is_there = opened.is_boundary(self.end)
            return opened.find_last_boundary(self.end if is_there else None), not is_there


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
        """Return the first offset in the segment whose record has the searched time or a later one, or None.

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
        """Return the offset of the first matching record of a batch, or None.

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
