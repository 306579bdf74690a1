"""Which segments become one: as many as fit into the settings' sizes, in order, and none left out."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from minibroker.storage.compaction.rewriting import MAX_GROUP_SEGMENTS, IndexSizes, SourceSegment, group_segments
from minibroker.storage.files import Disk
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.segment import Segment
from minibroker.storage.segment_indexes import MAX_RELATIVE_OFFSET

SETTINGS = LogSettings(segment_bytes=1000, segment_index_bytes=100)


def sources(*sizes: int, offsets: int = 10) -> list[SourceSegment]:
    """Segments of these sizes, each of `offsets` offsets."""
    found = []
    for index, size in enumerate(sizes):
        base = index * offsets
        segment = Segment(Disk(), str(Path("/nowhere")), base, SETTINGS, 0)
        found.append(SourceSegment(segment, segment.path, base, base + offsets, size))
    return found


def none(source: SourceSegment) -> IndexSizes:
    return IndexSizes(0, 0)


def sizes(groups: list[list[SourceSegment]]) -> list[list[int]]:
    return [[source.size_bytes for source in group] for group in groups]


def test_segments_are_grouped_up_to_the_segment_size() -> None:
    assert sizes(group_segments(sources(400, 600, 1, 999, 500, 501), none, SETTINGS)) == [
        [400, 600],
        [1, 999],
        [500],
        [501],
    ]


def test_a_too_large_segment_is_cleaned_in_its_own_group() -> None:
    assert sizes(group_segments(sources(2000, 10, 2000), none, SETTINGS)) == [[2000], [10], [2000]]


def test_empty_segments_are_grouped_with_their_neighbours() -> None:
    assert sizes(group_segments(sources(0, 0, 1000, 0), none, SETTINGS)) == [[0, 0, 1000, 0]]


def test_the_indexes_of_a_group_stay_within_their_size() -> None:
    assert sizes(group_segments(sources(1, 2, 3), lambda source: IndexSizes(50, 0), SETTINGS)) == [[1, 2], [3]]
    assert sizes(group_segments(sources(1, 2, 3), lambda source: IndexSizes(0, 51), SETTINGS)) == [[1], [2], [3]]


def test_offsets_of_grouped_segments_fit_into_one_index() -> None:
    half = MAX_RELATIVE_OFFSET // 2
    assert sizes(group_segments(sources(1, 2, 3, offsets=half), none, SETTINGS)) == [[1, 2], [3]]
    assert sizes(group_segments(sources(1, 0, 0, offsets=half), none, SETTINGS)) == [[1, 0, 0]]


def test_a_group_has_a_bounded_number_of_segments() -> None:
    groups = group_segments(sources(*[1] * (2 * MAX_GROUP_SEGMENTS + 1)), none, SETTINGS)
    assert [len(group) for group in groups] == [MAX_GROUP_SEGMENTS, MAX_GROUP_SEGMENTS, 1]


def test_an_empty_list_of_segments_has_no_groups() -> None:
    assert group_segments([], none, SETTINGS) == []


@given(st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 120)), max_size=30))
def test_each_segment_is_in_exactly_one_group_and_the_order_is_kept(given_sizes: list[tuple[int, int]]) -> None:
    indexes = {index * 10: IndexSizes(size, size // 2) for index, (_, size) in enumerate(given_sizes)}
    every = sources(*(size for size, _ in given_sizes))
    groups = group_segments(every, lambda source: indexes[source.base_offset], SETTINGS)
    assert [source for group in groups for source in group] == every
    for group in groups:
        total = sum(source.size_bytes for source in group)
        index_total = sum(indexes[source.base_offset].offsets_bytes for source in group)
        assert len(group) == 1 or (total <= 1000 and index_total <= 100)
