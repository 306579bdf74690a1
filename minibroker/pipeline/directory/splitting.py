"""Cuts ranges of offsets into stretches of files for tasks, and reads these, block by block, into the rows of a table.

    segments   |------ 0 ------|---------- 180 ----------|--- 420 ...
    range              [====================================)
    stretches          [ a    ][ b       ][ c       ][ d    )      each at most about as large as a split
    splits             (   1  )(    2    )(     3          )       small ones together

Cuts are between batches whose headers were read. A task first checks that they still are where the plan says.
`log_walking.py` passes damage that hides the next batch; `minibroker.pipeline.decode` handles damage within a batch.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa

from minibroker.pipeline.decode.batch_headers import DataOrigin
from minibroker.pipeline.decode.decoder import AbortedRanges, make_decoder
from minibroker.pipeline.decode.gathering import BatchDamage
from minibroker.pipeline.directory.log_walking import (
    BLOCK_BYTES,
    BatchBlock,
    Checksums,
    FileShortened,
    iterate_blocks_or_damage,
    iterate_sound_headers,
)
from minibroker.pipeline.directory.reading_disk import DISK
from minibroker.pipeline.directory.segment_files import BatchBoundary, LogView, OpenSegment, SegmentFile
from minibroker.pipeline.log_source import DataLoss, OffsetRange, ReadRequest, Split
from minibroker.protocol.errors import CorruptBatch
from minibroker.protocol.records.batch import BatchHeader
from minibroker.protocol.records.walking import SkippedBytes
from minibroker.storage.batch_scanning import iterate_headers
from minibroker.storage.files import File
from minibroker.storage.inspection.file_walking import make_batch_walker
from minibroker.storage.names import LOG_SUFFIX
from minibroker.storage.segment_indexes import MAX_RELATIVE_OFFSET


@dataclass(frozen=True, slots=True)
class BatchStretch:
    """Whole batches from `position` to `end_position` of a file, for the offsets from `start` to before `end`.

    `first_offset` is the base offset of the first batch, `last_position` the position of the last one, and
    `next_offset` the offset after it. They show whether the batches are still there. They are None where there was
    damage. `size_bytes` and `modified_ns` are those of the file when the plan was made.
    """

    path: str
    position: int
    end_position: int
    start: int
    end: int
    first_offset: int | None
    last_position: int | None
    next_offset: int
    size_bytes: int
    modified_ns: int

    @property
    def length_bytes(self) -> int:
        """The size of the batches."""
        return self.end_position - self.position


@dataclass(frozen=True, slots=True)
class SplitStretches:
    """The `place` of a split, and the (producer id, first offset, last offset) of aborted transactions in it.

    `aborted` is None if uncommitted records are read too.
    """

    stretches: tuple[BatchStretch, ...]
    aborted: tuple[tuple[int, int, int], ...] | None = None


class SegmentExtent(NamedTuple):
    """The part of one segment that belongs to a range."""

    segment: SegmentFile
    size_bytes: int
    first: BatchBoundary
    last: BatchBoundary
    start: int
    end: int

    @property
    def length_bytes(self) -> int:
        """The size of the extent."""
        return self.last.position - self.first.position


def iterate_extents(view: LogView, start: int, end: int) -> Iterator[SegmentExtent]:
    """Yield the part of each segment with offsets from `start` to before `end`, the oldest first. Raises `OSError`."""
    bases = [segment.base_offset for segment in view.segments]
    for index in range(max(bisect_right(bases, start) - 1, 0), bisect_left(bases, end)):
        segment = view.segments[index]
        below = bases[index + 1] if index + 1 < len(bases) else end
        first_offset, end_offset = max(start, segment.base_offset), min(end, below)
        size_bytes = view.get_size_in_log(segment)
        with closing(OpenSegment(segment, size_bytes)) as opened:
            first = opened.find_boundary_before(first_offset) if first_offset > segment.base_offset else opened.start
            last = opened.find_boundary_after(end_offset - 1, first)
        if last.position > first.position:
            yield SegmentExtent(segment, size_bytes, first, last, first_offset, end_offset)


def cut_into_stretches(extents: Sequence[SegmentExtent], offsets: OffsetRange, step_bytes: int) -> list[BatchStretch]:
    """Return these parts of segments, cut into stretches of about `step_bytes` that cover all offsets of the range."""
    whole = [stretch for extent in extents for stretch in _cut_extent(extent, step_bytes)]
    if not whole:  # compaction has left nothing
        return []
    starts = [offsets.start, *(stretch.start for stretch in whole[1:])]
    ends = [*starts[1:], offsets.end]
    return [replace(each, start=start, end=end) for each, start, end in zip(whole, starts, ends, strict=True)]


def pack_stretches(stretches: Sequence[BatchStretch], offsets: OffsetRange, step_bytes: int) -> Iterator[Split]:
    """Yield the stretches of a range as splits, with small ones together up to `step_bytes`."""
    together: list[BatchStretch] = []
    size_bytes = 0
    for stretch in stretches:
        if together and size_bytes + stretch.length_bytes > step_bytes:
            yield _make_split(together, offsets)
            together, size_bytes = [], 0
        together.append(stretch)
        size_bytes += stretch.length_bytes
    if together:
        yield _make_split(together, offsets)


def _make_split(stretches: Sequence[BatchStretch], offsets: OffsetRange) -> Split:
    return Split(
        OffsetRange(offsets.partition, stretches[0].start, stretches[-1].end), SplitStretches(tuple(stretches))
    )


def _cut_extent(extent: SegmentExtent, step_bytes: int) -> list[BatchStretch]:
    """Cut an extent that is larger than `step_bytes` into about equal parts."""
    parts = -(-extent.length_bytes // step_bytes)
    with closing(OpenSegment(extent.segment, extent.size_bytes)) as opened:
        places = [extent.first]
        for part in range(1, parts):
            wanted = extent.first.position + extent.length_bytes * part // parts
            if wanted > places[-1].position:
                place = opened.find_first_boundary_at_or_after_position(wanted, places[-1])
                if places[-1].position < place.position < extent.last.position:
                    places.append(place)
        places.append(extent.last)
        return [_make_stretch(opened, extent, *pair) for pair in zip(places, places[1:], strict=False)]


def _make_stretch(
    opened: OpenSegment, extent: SegmentExtent, first: BatchBoundary, last: BatchBoundary
) -> BatchStretch:
    """Return the batches between two boundaries of a segment as a stretch to read."""
    header = next(
        (
            h
            for at, h in iterate_sound_headers(opened.file, first.position, last.position, first.next_offset)
            if at == first.position
        ),
        None,
    )
    return BatchStretch(
        path=extent.segment.make_path(LOG_SUFFIX),
        position=first.position,
        end_position=last.position,
        start=extent.start if first is extent.first else first.next_offset,
        end=extent.end if last is extent.last else last.next_offset,
        first_offset=None if header is None else header.base_offset,
        last_position=last.last_position,
        next_offset=last.next_offset,
        size_bytes=extent.segment.size_bytes,
        modified_ns=extent.segment.modified_ns,
    )


logger = logging.getLogger(__name__)

FindStretches = Callable[[OffsetRange], list[BatchStretch]]


class SplitReader:
    """The rows of one split. `find` returns where offsets are now, if they are no longer where the plan says."""

    def __init__(
        self, split: Split, request: ReadRequest, find_stretches: FindStretches, block_bytes: int = BLOCK_BYTES
    ) -> None:
        assert isinstance(split.place, SplitStretches)
        self._split = split
        self._place = split.place
        self._request = request
        self._find = find_stretches
        self._block_bytes = block_bytes
        self._aborted = None if split.place.aborted is None else AbortedRanges(split.place.aborted)
        self._decoder = make_decoder(self._request, self._split.offsets, self._aborted)
        self._next_offset = split.offsets.start  # offsets before were decoded

    def read_rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows. Raises `DataLoss`, `CorruptData`, `OSError`."""
        for stretch in self._place.stretches:
            yield from self._read_stretch(stretch)
        yield from self._decoder.decode_remaining_batches()

    def _read_stretch(self, stretch: BatchStretch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a stretch. If it has changed since it was planned, warn, and read what is left, or fail."""
        try:
            yield from self._read_planned_stretch(stretch)
        except DataLoss as loss:
            if self._request.fail_on_data_loss:
                raise
            logger.warning("%s; reading what is left", loss)
            rest = OffsetRange(self._split.offsets.partition, max(stretch.start, self._next_offset), stretch.end)
            for each in self._find(rest):
                try:
                    yield from self._read_planned_stretch(each)
                except DataLoss as again:  # it was just found, and is gone again
                    logger.warning("%s", again)

    def _read_planned_stretch(self, stretch: BatchStretch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a stretch that is where it was planned. Raises `DataLoss` if it is not."""
        with closing(_open_file(stretch)) as file:
            yield from self._decode_blocks(file, stretch)

    def _decode_blocks(self, file: File, stretch: BatchStretch) -> Iterator[pa.RecordBatch]:
        limit = stretch.start + MAX_RELATIVE_OFFSET + 1  # a segment cannot name a later offset
        walker = make_batch_walker(file, stretch.end_position, next_offset=stretch.start, limit=limit)
        self._next_offset = max(self._next_offset, stretch.start)
        try:
            for step in iterate_blocks_or_damage(file, walker, stretch.position, Checksums.LAST, self._block_bytes):
                if isinstance(step, BatchBlock):
                    yield from self._decoder.decode_batches(step.data, step.headers, DataOrigin(file.path, step.origin))
                    self._next_offset = max(self._next_offset, int(step.headers.last_offset[-1]) + 1)
                else:
                    yield from self._yield_damaged_range(step, file.path)
        except FileShortened as error:
            raise DataLoss(str(error)) from None

    def _yield_damaged_range(self, damage: SkippedBytes, path: str) -> Iterator[pa.RecordBatch]:
        """Yield the row for bytes that are no batch, after the rows before it. Raises `CorruptData`."""
        reason = f"expected {damage.expected}, found {damage.found}"
        if self._request.mode == "PERMISSIVE":
            yield from self._decoder.decode_remaining_batches()
            self._decoder = make_decoder(self._request, self._split.offsets, self._aborted)
            reason += f"; {damage.size_bytes} bytes are skipped"
        place = DataOrigin(path, damage.position)
        yield from self._decoder.report_damage(BatchDamage(self._next_offset, reason, place, position=0))


def _open_file(stretch: BatchStretch) -> File:
    """Open the file if the stretch is unchanged. Raises `DataLoss`."""
    try:
        file = DISK.open_to_read(stretch.path)
    except FileNotFoundError:
        raise DataLoss(f"{_describe_planned_stretch(stretch)}, and the file is gone") from None
    size = file.size_bytes()
    if size < stretch.end_position:
        file.close()
        raise DataLoss(f"{_describe_planned_stretch(stretch)}, and the file has {size} bytes now")
    if not _is_unchanged(file, stretch):
        file.close()
        raise DataLoss(f"{_describe_planned_stretch(stretch)}, and other batches are there now")
    return file


def _describe_planned_stretch(stretch: BatchStretch) -> str:
    return (
        f"{stretch.path}: offsets {stretch.start} to {stretch.end - 1} were from {stretch.position} to "
        f"{stretch.end_position} when the read was planned"
    )


def _is_unchanged(file: File, stretch: BatchStretch) -> bool:
    """Return whether the first and the last batch still begin and end at the same positions, with the same offsets.

    If both were damaged, it must be the same file, and it must not have been written to.
    """
    if stretch.first_offset is None and stretch.last_position is None:
        try:
            return DISK.get_size_and_modified_ns(stretch.path) == (stretch.size_bytes, stretch.modified_ns)
        except FileNotFoundError:
            return False
    if stretch.first_offset is not None:
        first = _read_header(file, stretch.position, stretch.end_position)
        if first is None or first.base_offset != stretch.first_offset:
            return False
    if stretch.last_position is None:
        return True
    last = _read_header(file, stretch.last_position, stretch.end_position)
    return (
        last is not None
        and last.next_offset == stretch.next_offset
        and stretch.last_position + last.size_bytes == stretch.end_position
    )


def _read_header(file: File, position: int, end: int) -> BatchHeader | None:
    try:
        return next((header for _, header in iterate_headers(file, position, end)), None)
    except CorruptBatch:
        return None
