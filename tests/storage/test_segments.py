"""The order of segments: who an offset belongs to, and neighbours that are exchanged.

Reading and finding across segments is tested on whole logs, in `test_log_reading.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.storage.files import Disk
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.segment import Segment
from minibroker.storage.segments import LogSegments
from tests.cases import for_each


def segment(directory: Path, base_offset: int) -> Segment:
    return Segment.create(Disk(), str(directory), base_offset, LogSettings(), 0)


@pytest.fixture
def segments(tmp_path: Path) -> LogSegments:
    """At 10, 20 and 30."""
    return LogSegments([segment(tmp_path, base_offset) for base_offset in (10, 20, 30)])


@for_each(("offset", "index"), [(0, 0), (10, 0), (19, 0), (20, 1), (30, 2), (99, 2)])
def test_an_offset_belongs_to_the_last_segment_that_begins_at_or_before_it(
    segments: LogSegments, offset: int, index: int
) -> None:
    assert segments.find_segment_index(offset) == index
    assert segments.list_segments_before(offset) == segments.all[:index]
    assert segments.list_segments_from(offset) == segments.all[index:]


def test_segments_are_added_at_the_end_and_removed_anywhere(segments: LogSegments, tmp_path: Path) -> None:
    segments.add_segment(segment(tmp_path, 40))
    segments.remove_segment(segments.all[1])
    assert segments.base_offsets == [each.base_offset for each in segments.all] == [10, 30, 40]


def test_neighbouring_segments_are_replaced_by_one(segments: LogSegments, tmp_path: Path) -> None:
    new = segment(tmp_path, 15)
    segments.replace_segments_in_slice(segments.find_slice_of_adjacent_segments(segments.all[:2]), new)
    assert segments.base_offsets == [15, 30]
    assert segments.all[0] is new


def test_segments_that_are_not_neighbours_cannot_be_replaced(segments: LogSegments, tmp_path: Path) -> None:
    first, second, third = segments.all
    for group in ([first, third], [second, first], [third, segment(tmp_path, 40)], [segment(tmp_path, 5)]):
        with pytest.raises(ValueError):
            segments.find_slice_of_adjacent_segments(group)
