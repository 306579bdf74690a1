"""Spans of time, sizes and times as people write and read them."""

from __future__ import annotations

from datetime import timedelta, timezone

import pytest

from minibroker.quantities import (
    Duration,
    format_bytes,
    format_instant,
    format_number,
    format_span,
    format_time,
    make_utc_time,
    parse_milliseconds,
    parse_moment_ms,
)
from tests.cases import for_each


@for_each(
    ("size_bytes", "text"),
    [(0, "0 B"), (950, "950 B"), (999.6, "1 kB"), (16_384, "16.4 kB"), (2_000_000_000, "2 GB"), (10**22, "1e+04 EB")],
)
def test_sizes_have_three_digits_and_a_unit(size_bytes: float, text: str) -> None:
    assert format_bytes(size_bytes) == text


def test_large_counts_have_a_unit_prefix() -> None:
    assert [format_number(number) for number in (0, 0.0219, 7, 1250, 3_200_000)] == [
        "0",
        "0.0219",
        "7",
        "1.25 k",
        "3.2 M",
    ]


def test_timestamps_are_formatted_in_utc_or_as_numbers_beyond_the_calendar() -> None:
    assert format_time(1_790_000_000_000) == "2026-09-21 14:13:20"
    assert format_time(None) == ""
    assert format_time(2**62) == f"{2**62} ms"
    assert make_utc_time(2**62) is None


def test_a_duration_is_formatted_in_its_largest_unit() -> None:
    texts = [format_span(span_ms) for span_ms in (1, 1000, 15_000, 60_000, 7_200_000, 86_400_000, 28 * 86_400_000)]
    assert texts == ["1 ms", "second", "15 seconds", "minute", "2 hours", "day", "28 days"]


@for_each(
    ("written", "span_ms"),
    [
        ("7 days", 604_800_000),
        ("1day", 86_400_000),
        ("1.5 s", 1500),
        ("90 seconds", 90_000),
        ("10 min", 600_000),
        ("2 hours", 7_200_000),
        ("1 week", 604_800_000),
        ("250 ms", 250),
        ("15m", 900_000),
        ("P1DT2H", 93_600_000),
        ("PT30M", 1_800_000),
        ("PT1.5S", 1500),
        (0, 0),
        (12.5, 12.5),
        (timedelta(minutes=1), 60_000),
    ],
)
def test_a_duration_is_parsed(written: Duration, span_ms: float) -> None:
    assert parse_milliseconds(written) == span_ms


@for_each(
    "written",
    [
        "",
        "soon",
        "5",
        "5 fortnights",
        "-1 s",
        "P",
        "P1DT",
        "P1H",
        "-P1D",
        -1,
        timedelta(seconds=-1),
        float("inf"),
        float("nan"),
        "1001000 years",
        "53000 weeks",
        None,
        True,
    ],
)
def test_invalid_durations_are_rejected(written: Duration) -> None:
    with pytest.raises(ValueError):
        parse_milliseconds(written)


NOW_MS = 1_769_857_200_500  # 2026-01-31T11:00:00.500Z
PARIS = timezone(timedelta(hours=1))


@for_each(
    ("text", "moment"),
    [
        ("2026-01-31T12:00:00", "2026-01-31T11:00:00.000Z"),
        ("2026-01-31 12:00", "2026-01-31T11:00:00.000Z"),
        ("2026-01-31", "2026-01-30T23:00:00.000Z"),
        ("2026-01-31T12:00:00.5Z", "2026-01-31T12:00:00.500Z"),
        ("2 hours ago", "2026-01-31T09:00:00.500Z"),
        ("90s ago", "2026-01-31T10:58:30.500Z"),
        ("P1D AGO", "2026-01-30T11:00:00.500Z"),
        ("now", "2026-01-31T11:00:00.500Z"),
        ("today", "2026-01-30T23:00:00.000Z"),
        ("Yesterday", "2026-01-29T23:00:00.000Z"),
        ("09:30", "2026-01-31T08:30:00.000Z"),
        ("@1500", "1970-01-01T00:00:01.500Z"),
        ("1969-12-31", "1970-01-01T00:00:00.000Z"),
        ("900 years ago", None),
        ("30000 days ago", "1970-01-01T00:00:00.000Z"),
    ],
)
def test_a_human_readable_time_is_parsed(text: str, moment: str | None) -> None:
    if moment is None:
        with pytest.raises(ValueError, match="is no duration"):
            parse_moment_ms(text, NOW_MS, PARIS)
    else:
        assert format_instant(parse_moment_ms(text, NOW_MS, PARIS)) == moment


@for_each("text", ["", "noon", "2026-13-01", "25:00", "ago", "-1 hours ago", "tomorrow", "1.5", "@-1"])
def test_an_invalid_time_is_rejected(text: str) -> None:
    with pytest.raises(ValueError):
        parse_moment_ms(text, NOW_MS)


def test_a_time_beyond_the_calendar_is_a_number() -> None:
    assert format_instant(1 << 62) == str(1 << 62)
