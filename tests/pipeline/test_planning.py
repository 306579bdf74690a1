"""Which offsets a batch query reads: all of them, once, and never silently fewer than were asked for."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.pipeline.log_source import DataLoss, OffsetRange, OptionError, Split
from minibroker.pipeline.options import parse_options
from minibroker.pipeline.planning import (
    cut_range_by_size,
    divide_large_ranges,
    divide_range_by_count,
    find_batch_ranges,
    make_splits,
)
from tests.pipeline.stand_in import StandIn, partition, span

LOG = StandIn({"orders-0": (0, 100), "orders-1": (40, 60), "orders-2": (7, 7)})
OFFSETS = st.integers(0, 200)
RANGES = st.lists(st.tuples(OFFSETS, OFFSETS), max_size=6).map(
    lambda pairs: [OffsetRange(partition(f"t-{n}"), min(pair), max(pair)) for n, pair in enumerate(pairs)]
)


def ranges(log: StandIn = LOG, **options: str) -> list[OffsetRange]:
    return find_batch_ranges(parse_options({"path": "/", "subscribe": "orders"} | options, "records", "batch"), log)


def refusal(log: StandIn = LOG, **options: str) -> str:
    with pytest.raises(OptionError) as caught:
        ranges(log, **options)
    return str(caught.value)


def each(*offsets: int) -> str:
    """Return JSON with an offset for each partition."""
    return json.dumps({"orders": {str(number): offset for number, offset in enumerate(offsets)}})


def test_all_offsets_are_read_by_default() -> None:
    assert ranges() == [span("orders-0", 0, 100), span("orders-1", 40, 60)]


def test_offsets_may_be_given_per_partition() -> None:
    found = ranges(startingOffsets=each(5, -2, 7), endingOffsets=each(-1, 50, 7))
    assert found == [span("orders-0", 5, 100), span("orders-1", 40, 50)]


def test_a_timestamp_is_resolved_to_its_first_record() -> None:
    assert ranges(startingTimestamp="451", endingTimestamp="500", startingOffsetsByTimestampStrategy="latest") == [
        span("orders-0", 46, 50),
        span("orders-1", 46, 50),
    ]


def test_a_timestamp_before_all_records_is_the_earliest_offset() -> None:
    log = StandIn({"orders-0": (40, 60)})
    assert ranges(log, startingTimestamp="0", endingTimestamp="99999") == [span("orders-0", 40, 60)]


def test_timestamps_may_be_given_per_partition() -> None:
    found = ranges(endingOffsetsByTimestamp=each(10, 410, 0))
    assert found == [span("orders-0", 0, 1), span("orders-1", 40, 41)]


def test_a_start_timestamp_after_all_records_is_rejected_unless_allowed() -> None:
    assert "orders-1 has no record at 700 ms or later" in refusal(startingTimestamp="700")
    found = ranges(startingTimestamp="700", startingOffsetsByTimestampStrategy="latest")
    assert found == [span("orders-0", 70, 100)]


def test_a_timestamp_of_an_uncommitted_record_is_after_all_records() -> None:
    class Uncommitted(StandIn):
        def find_offsets_at(self, timestamps_ms):  # type: ignore[no-untyped-def]
            return dict.fromkeys(timestamps_ms, 80)

    log = Uncommitted({"orders-0": (0, 60)})
    assert ranges(log, endingTimestamp="800") == [span("orders-0", 0, 60)]
    assert "has no record at 800 ms" in refusal(log, startingTimestamp="800")


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets", "endingOffsetsByTimestamp"])
def test_offsets_must_be_given_for_exactly_the_selected_partitions(option: str) -> None:
    assert f"{option}: orders-1, orders-2 are missing" in refusal(**{option: each(5)})
    assert refusal(**{option: each(5, 50, 7, 0)}) == f"{option}: orders-3 is not among what is read"


def test_a_start_after_the_end_is_rejected() -> None:
    log = StandIn({"orders-0": (0, 100)})
    complaint = refusal(log, startingTimestamp="500", endingOffsets=each(20))
    assert complaint == "orders-0: starting offset 50 is after ending offset 20"


@pytest.mark.parametrize(
    ("options", "complaint", "rest"),
    [
        ({"startingOffsets": each(30)}, "orders-0: offsets 30 to 39 are gone", [(40, 60)]),
        ({"startingOffsets": each(10), "endingOffsets": each(20)}, "orders-0: offsets 10 to 39 are gone", []),
        ({"endingOffsets": each(61)}, "orders-0 ends at offset 60 now, but was to be read up to 61", [(40, 60)]),
        ({"startingOffsets": each(61)}, "orders-0 ends at offset 60 now, but was to be read up to 61", []),
    ],
)
def test_missing_offsets_fail_the_query_unless_data_loss_is_allowed(
    options: dict[str, str], complaint: str, rest: list[tuple[int, int]], caplog: pytest.LogCaptureFixture
) -> None:
    log = StandIn({"orders-0": (40, 60)})
    with pytest.raises(DataLoss) as caught:
        ranges(log, **options)
    assert str(caught.value) == f"{complaint}; failOnDataLoss=false reads what is left"
    with caplog.at_level(logging.WARNING):
        assert ranges(log, failOnDataLoss="false", **options) == [span("orders-0", *pair) for pair in rest]
    assert caplog.messages == [complaint]


@given(RANGES, st.integers(1, 40))
def test_divided_ranges_cover_every_offset_once(whole: list[OffsetRange], least: int) -> None:
    pieces = divide_large_ranges(whole, least)
    wanted = [(each.partition, offset) for each in whole for offset in range(each.start, each.end)]
    assert [(each.partition, offset) for each in pieces for offset in range(each.start, each.end)] == wanted
    assert all(each.start < each.end for each in pieces)


@given(st.integers(0, 500), st.integers(1, 500), st.integers(1, 60))
def test_divided_ranges_are_of_equal_size(start: int, size: int, count: int) -> None:
    sizes = [each.end - each.start for each in divide_range_by_count(span("t-0", start, start + size), count)]
    assert len(sizes) == min(count, size)
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(1, 500), st.integers(1, 60))
def test_no_divided_range_exceeds_the_maximum_size(size: int, most: int) -> None:
    assert all(each.end - each.start <= most for each in cut_range_by_size(span("t-0", 0, size), most))


def test_large_partitions_are_divided_more_often() -> None:
    pieces = divide_large_ranges([span("a-0", 0, 1000), span("b-0", 0, 10), span("c-0", 0, 500)], 7)
    assert [each.partition.topic for each in pieces] == ["a"] * 4 + ["b"] + ["c"] * 2


def test_partitions_are_not_divided_if_there_are_enough() -> None:
    whole = [span("a-0", 0, 1000), span("b-0", 0, 10)]
    assert divide_large_ranges(whole, 2) == whole


def test_min_partitions_and_max_records_per_partition_determine_the_splits() -> None:
    options = parse_options({"path": "/", "subscribe": "orders", "maxRecordsPerPartition": "60"}, "records", "batch")
    assert make_splits(options, LOG, [span("orders-0", 0, 100)]) == [
        Split(span("orders-0", 0, 50)),
        Split(span("orders-0", 50, 100)),
    ]
    options = parse_options({"path": "/", "subscribe": "orders", "minPartitions": "4"}, "records", "batch")
    assert len(make_splits(options, LOG, [span("orders-0", 0, 100)])) == 4
    assert make_splits(options, LOG, []) == []
