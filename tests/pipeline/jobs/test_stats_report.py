"""What counted rows come to: ratios, estimates from a sample, and how unevenly records spread over keys."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.pipeline.jobs.stats_report import (
    DAY_MS,
    SECOND_MS,
    SPANS_MAX,
    KeySkew,
    Statistics,
    Traffic,
    gini,
    lorenz_curve,
    span_for,
    window_of,
)
from tests.pipeline.jobs import made_up

ROW = {**made_up.ROW, "topic": "t", "first_ms": 0, "last_ms": 10_000}


def test_sample_measurements_are_extrapolated() -> None:
    traffic = Traffic.of(ROW, ("topic",), 200_000)
    assert (traffic.by, traffic.share) == ({"topic": "t"}, 0.25)
    assert (traffic.compression_ratio, traffic.uncompressed_bytes) == (3.0, 150_000)
    assert traffic.overhead_per_record == 20.0
    assert (traffic.key_bytes, traffic.value_bytes, traffic.tombstones) == (10_000, 120_000, 30)
    assert traffic.records_per_second == 100.0
    assert not traffic.is_measured_wholly


def test_nothing_is_extrapolated_without_a_measured_batch() -> None:
    nothing = {name: 0 for name in ROW if name.startswith("measured")}
    traffic = Traffic.of({**ROW, **nothing, "first_ms": None, "last_ms": None}, (), 0)
    assert (traffic.compression_ratio, traffic.overhead_per_record, traffic.tombstones) == (None, None, None)
    assert (traffic.records_per_second, traffic.share) == (None, 0.0)


@pytest.mark.parametrize(
    ("frequencies", "coefficient"),
    [([(5, 10)], 0.0), ([(1, 1)], 0.0), ([(1_000_000, 1), (1, 999)], 0.998), ([(3, 1), (1, 1)], 0.25)],
)
def test_gini_is_0_for_equal_and_near_1_for_unequal_values(
    frequencies: list[tuple[int, int]], coefficient: float
) -> None:
    assert gini(*lorenz_curve(frequencies)) == pytest.approx(coefficient, abs=1e-3)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=40))
def test_gini_is_half_the_mean_difference_over_the_mean(values: list[int]) -> None:
    differences = sum(abs(one - other) for one in values for other in values)
    expected = differences / (2 * len(values) * sum(values))
    frequencies = sorted(((value, values.count(value)) for value in set(values)), reverse=True)
    assert gini(*lorenz_curve(frequencies)) == pytest.approx(expected, abs=1e-9)


def test_skew_counts_records_without_a_key_separately() -> None:
    skew = KeySkew.of("t", [(90, 1), (1, 10)], [(b"hot", 90), (b"a", 1), (None, 100)])
    assert (skew.keys, skew.records, skew.records_without_key) == (11, 100, 100)
    assert skew.share_of_top_percent == 0.9  # of 11 keys, the first
    assert [(top.key, top.share) for top in skew.top] == [(b"hot", 0.45), (b"a", 0.005), (None, 0.5)]
    assert skew.curve[0] == (0.0, 0.0) and skew.curve[-1] == (1.0, 1.0)


def test_a_topic_without_any_key_has_no_skew() -> None:
    skew = KeySkew.of("t", [], [(None, 5)])
    assert (skew.keys, skew.gini, skew.share_of_top_percent, skew.curve) == (0, None, None, [(0.0, 0.0)])


def test_a_curve_of_many_keys_stays_short() -> None:
    curve = KeySkew.of("t", [(count, 1) for count in range(50_000, 0, -1)], []).curve
    assert len(curve) < 1100


def test_intervals_are_chosen_to_limit_their_number() -> None:
    assert span_for(None, None) == SECOND_MS
    assert span_for(0, 119 * SECOND_MS) == SECOND_MS
    assert span_for(0, 120 * SECOND_MS) == 2 * SECOND_MS
    assert span_for(0, 30 * DAY_MS) / DAY_MS == 0.5
    for length in (10**6, 10**9, 10**11):
        assert length / span_for(0, length) <= SPANS_MAX


def test_the_report_can_be_converted_to_json() -> None:
    skew = KeySkew.of("t", [(1, 2)], [(b"text", 1), (b"\xff", 1), (None, 1)])
    found = Statistics("x", 10, Traffic.of(ROW, ("topic",), 50_000), keys=[skew])
    parsed = json.loads(json.dumps(found.as_json()))
    assert parsed["all"]["by"] == {"topic": "t"}
    assert [{**top, "share": 0} for top in parsed["keys"][0]["top"]] == [
        {"key": "text", "records": 1, "share": 0},
        {"key_hex": "ff", "records": 1, "share": 0},
        {"key": None, "records": 1, "share": 0},
    ]


@pytest.mark.parametrize(
    ("first_ms", "last_ms", "quantiles", "window"),
    [
        (0, 0, [], (0, 0)),
        (0, 100_000, [500, 99_500, 5_000, 95_000, 25_000, 75_000], (0, 100_000)),  # nothing is far
        (1, 10**18, [10**12, 10**12 + 9_000_000, 0, 0, 0, 0], (10**12 - 9_000_000, 10**12 + 18_000_000)),
        (10**12, 10**18, [10**12, 10**18, 10**12, 10**18, 10**12, 10**12], (10**12, 10**12 + 60_000)),  # a fifth is far
        (10**12, 10**18, [10**12, 10**18] * 3, (10**12, 10**18)),  # half of it is
    ],
)
def test_a_plot_omits_outliers(first_ms: int, last_ms: int, quantiles: list[int], window: tuple[int, int]) -> None:
    assert window_of(first_ms, last_ms, quantiles) == window
