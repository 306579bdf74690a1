"""How far each batch of a stream reads: its limit is shared fairly, and nothing that is new or gone goes unnoticed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.pipeline.log_source import DataLoss, OffsetRange, OptionError
from minibroker.pipeline.options import ReadOptions, parse_options
from minibroker.pipeline.planning import (
    Offsets,
    count_offsets_by_partition,
    find_initial_offsets,
    find_stream_ranges,
    limit_end_offsets,
    make_json_offsets,
    parse_json_offsets,
)
from tests.cases import for_each
from tests.pipeline.stand_in import StandIn, partition, span

NAMES = st.sampled_from([f"{topic}-{number}" for topic in "ab" for number in (0, 2, 10)])
BOUNDS = st.tuples(st.integers(0, 50), st.integers(0, 500)).map(lambda pair: (pair[0], pair[0] + pair[1]))
LOGS = st.dictionaries(NAMES, BOUNDS, min_size=1).map(StandIn)


def stream(**options: str) -> ReadOptions:
    return parse_options({"path": "/", "subscribepattern": ".*"} | options, "records", "stream")


def at(**offsets: int) -> Offsets:
    """`a0=5` as the offset 5 of a-0."""
    return {partition(f"{name[0]}-{name[1:]}"): offset for name, offset in offsets.items()}


def latest_in(log: StandIn) -> Offsets:
    return {partition: bounds.latest for partition, bounds in log.find_bounds(log.list_partitions()).items()}


def ranges(log: StandIn, start: Offsets, end: Offsets, **options: str) -> list[OffsetRange]:
    return find_stream_ranges(stream(**options), log, start, end)


def test_offsets_are_formatted_as_by_sparks_own_source() -> None:
    assert json.dumps(make_json_offsets(at(b0=3, a10=2, a2=1))) == '{"a": {"2": 1, "10": 2}, "b": {"0": 3}}'


@given(st.dictionaries(NAMES.map(partition), st.integers(0, 2**63 - 1)))
def test_offsets_are_restored_from_a_checkpoint(offsets: Offsets) -> None:
    assert parse_json_offsets(json.loads(json.dumps(make_json_offsets(offsets)))) == offsets


def test_a_stream_starts_at_the_latest_offset_by_default() -> None:
    log = StandIn({"a-0": (5, 9)})
    assert find_initial_offsets(stream(), log) == at(a0=9)
    assert find_initial_offsets(stream(startingOffsets="earliest"), log) == at(a0=5)
    assert find_initial_offsets(stream(startingTimestamp="70"), log) == at(a0=7)
    with pytest.raises(OptionError, match="no record at 900 ms or later"):
        find_initial_offsets(stream(startingTimestamp="900"), log)


def test_the_limit_of_a_batch_is_divided_in_proportion_to_the_unread_offsets() -> None:
    log = StandIn({"a-0": (0, 100), "a-1": (0, 300), "b-0": (0, 1), "b-1": (5, 5)})
    end = limit_end_offsets(at(a0=0, a1=0, b0=0, b1=5), latest_in(log), 40, log)
    assert end == at(a0=9, a1=29, b0=1, b1=5)


@given(LOGS, st.integers(1, 300))
def test_the_offset_limit_of_a_batch_is_obeyed_without_starving_partitions(log: StandIn, most: int) -> None:
    start = {each: bounds.earliest for each, bounds in log.logs.items()}
    latest = latest_in(log)
    end = limit_end_offsets(start, latest, most, log)
    there = count_offsets_by_partition(start, latest, log)
    taken = {each: end[each] - start[each] for each in end}
    assert {each for each, offsets in taken.items() if offsets} == set(there)
    assert all(start[each] <= end[each] <= latest[each] for each in latest)
    assert sum(taken.values()) < most + len(there) or sum(there.values()) <= most


@given(LOGS, st.integers(1, 300))
def test_successive_batches_read_every_record_once(log: StandIn, most: int) -> None:
    position: Offsets = {}  # all partitions are new
    log = StandIn({f"{each.topic}-{each.partition}": (0, bounds.latest) for each, bounds in log.logs.items()})
    read: list[OffsetRange] = []
    while position != (end := limit_end_offsets(position, latest_in(log), most, log)):
        read += ranges(log, position, end)
        position = end
    for each, bounds in log.logs.items():
        of_partition = [(found.start, found.end) for found in read if found.partition == each]
        edges = [0, *(end for _, end in of_partition)]
        assert of_partition == list(zip(edges, edges[1:], strict=False))
        assert edges[-1] == bounds.latest


def test_a_new_partition_is_read_from_its_start() -> None:
    log = StandIn({"a-0": (0, 9), "a-1": (0, 4)})
    assert ranges(log, at(a0=9), at(a0=9, a1=4)) == [span("a-1", 0, 4)]


@for_each(
    ("log", "start", "end", "complaint", "rest"),
    [
        ({"a-0": (0, 9), "a-1": (2, 4)}, at(a0=9), at(a0=9, a1=4), "a-1: offsets 0 to 1 are gone", [("a-1", 2, 4)]),
        ({"a-0": (0, 9)}, at(a0=0, b0=7), at(a0=9), "b-0 is gone", [("a-0", 0, 9)]),
        ({"a-0": (0, 9)}, at(a0=0, b0=7), at(a0=9, b0=8), "b-0 is gone", [("a-0", 0, 9)]),
        ({"a-0": (5, 9)}, at(a0=3), at(a0=9), "a-0: offsets 3 to 4 are gone", [("a-0", 5, 9)]),
        ({"a-0": (0, 9)}, at(a0=3), at(a0=12), "a-0 ends at offset 9 now", [("a-0", 3, 9)]),
        ({"a-0": (0, 9)}, at(a0=12), at(a0=9), "a-0 went back from offset 12 to 9", []),
    ],
)
def test_missing_offsets_fail_a_stream_unless_data_loss_is_allowed(
    log: dict[str, tuple[int, int]], start: Offsets, end: Offsets, complaint: str, rest: list[tuple[str, int, int]]
) -> None:
    with pytest.raises(DataLoss) as caught:
        ranges(StandIn(log), start, end)
    assert str(caught.value).startswith(complaint)
    assert ranges(StandIn(log), start, end, failOnDataLoss="false") == [span(*each) for each in rest]
