"""Spans of time as tests write them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from minibroker.testing.durations import Duration, milliseconds


@pytest.mark.parametrize(
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
        (0, 0),
        (12.5, 12.5),
        (timedelta(minutes=1), 60_000),
    ],
)
def test_a_span_is_read(written: Duration, span_ms: float) -> None:
    assert milliseconds(written) == span_ms


@pytest.mark.parametrize(
    "written",
    [
        "",
        "soon",
        "5",
        "5 fortnights",
        "-1 s",
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
def test_what_is_no_span_is_refused(written: Duration) -> None:
    with pytest.raises(ValueError):
        milliseconds(written)
