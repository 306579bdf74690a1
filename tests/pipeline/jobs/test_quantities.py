"""Numbers as a person reads them."""

from __future__ import annotations

import pytest

from minibroker.pipeline.jobs.quantities import binary_text, bytes_text, count_text, span_text, time_of, time_text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (950, "950 B"), (999.6, "1 kB"), (16_384, "16.4 kB"), (2_000_000_000, "2 GB"), (10**22, "1e+04 EB")],
)
def test_bytes_have_three_digits_and_a_unit(size_bytes: float, text: str) -> None:
    assert bytes_text(size_bytes) == text


def test_counts_have_a_factor_where_they_are_large() -> None:
    assert [count_text(number) for number in (0, 0.0219, 7, 1250, 3_200_000)] == ["0", "0.0219", "7", "1.25 k", "3.2 M"]


def test_powers_of_two_are_whole_numbers() -> None:
    assert [binary_text(2**power) for power in (9, 10, 14, 21)] == ["512 B", "1 KiB", "16 KiB", "2 MiB"]


def test_times_are_in_utc_and_those_beyond_the_calendar_are_numbers() -> None:
    assert time_text(1_790_000_000_000) == "2026-09-21 14:13:20"
    assert time_text(None) == ""
    assert time_text(2**62) == f"{2**62} ms"
    assert time_of(2**62) is None


def test_spans_are_told_in_their_largest_unit() -> None:
    texts = [span_text(span_ms) for span_ms in (1, 1000, 15_000, 60_000, 7_200_000, 86_400_000, 28 * 86_400_000)]
    assert texts == ["1 ms", "second", "15 seconds", "minute", "2 hours", "day", "28 days"]
