"""Cuts ranges of offsets into stretches of files for tasks. Cuts are between batches whose headers were read.

    segments   |------ 0 ------|---------- 180 ----------|--- 420 ...
    range              [====================================)
    stretches          [ a    ][ b       ][ c       ][ d    )      each at most about as large as a split
    splits             (   1  )(    2    )(     3          )       small ones together

`split_reading.py` reads them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import NamedTuple

from minibroker.pipeline.directory.log_walking import iterate_sound_headers
from minibroker.pipeline.directory.segment_files import BatchBoundary, LogView, OpenSegment, SegmentFile
from minibroker.pipeline.log_source import OffsetRange, Split
from minibroker.storage.names import LOG_SUFFIX


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
        """The number of bytes to read."""
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
        """The number of bytes."""
        return self.last.position - self.first.position


def iterate_extents(view: LogView, start: int, end: int) -> Iterator[SegmentExtent]:
    """Yield the extents of the offsets from `start` to before `end`, the oldest segment first. Raises `OSError`."""
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
    """Return stretches of at most about `step_bytes` that together cover a range's extents and offsets."""
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
