"""Where `minibroker groups reset-offsets` goes: its words and its arithmetic."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import click
import pytest

from minibroker.cli.groups.groups_targets import (
    Target,
    moment_of,
    target_of,
)

PLACE = ("orders", 1)
NOW_MS = 1_700_000_000_000
UNSET = {"to_earliest": False, "to_latest": False, "to_current": False, "to_offset": None, "shift_by": None}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-31T12:00:00", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ("2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-01-31T12:00:00.5+01:00", datetime(2026, 1, 31, 11, 0, 0, 500_000, tzinfo=UTC)),
    ],
)
def test_a_time_is_utc_by_default(text: str, expected: datetime) -> None:
    assert moment_of(text) == round(expected.timestamp() * 1000)


def test_a_time_may_be_relative_to_now() -> None:
    now_ms = time.time_ns() // 1_000_000
    assert 0 <= moment_of("2 hours ago") - (now_ms - 7_200_000) <= 60_000
    assert moment_of("@1700000000000") == NOW_MS


@pytest.mark.parametrize("text", ["", "noon", "2026-13-01"])
def test_an_invalid_time_is_rejected(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no time like"):
        moment_of(text)


def test_exactly_one_reset_option_is_required() -> None:
    assert target_of({**UNSET, "to_latest": True}) == Target("to_latest", 1)
    assert target_of({**UNSET, "to_offset": 0}) == Target("to_offset", 0)
    for wrong in (UNSET, {**UNSET, "to_offset": 0, "shift_by": -1}):
        with pytest.raises(click.UsageError, match="choose one of --to-earliest, .*--shift-by"):
            target_of(wrong)


@pytest.mark.parametrize(
    ("target", "current", "at_time", "expected"),
    [
        (Target("to_earliest"), 7, None, 2),
        (Target("to_latest"), 7, None, 10),
        (Target("to_current"), 7, None, 7),
        (Target("to_current"), None, None, 10),
        (Target("to_offset", 5), 7, None, 5),
        (Target("shift_by", -3), 7, None, 4),
        (Target("shift_by", 3), 7, None, 10),
        (Target("to_datetime", NOW_MS), 7, 6, 6),
        (Target("to_datetime", NOW_MS), 7, -1, 10),
        (Target("by_duration", 1), None, 6, 6),
    ],
)
def test_each_reset_option_determines_an_offset(
    target: Target, current: int | None, at_time: int | None, expected: int
) -> None:
    assert target.wanted(PLACE, current, 2, 10, at_time) == expected


def test_a_missing_offset_cannot_be_shifted() -> None:
    with pytest.raises(click.ClickException, match="cannot shift orders-1: nothing is committed for it"):
        Target("shift_by", 3).wanted(PLACE, None, 2, 10, None)


def test_only_times_and_durations_require_the_clock() -> None:
    assert Target("to_datetime", 5).timestamp_ms(NOW_MS) == 5
    assert Target("to_datetime", -5).timestamp_ms(NOW_MS) == 0
    assert Target("by_duration", 5).timestamp_ms(NOW_MS) == NOW_MS - 5
    assert Target("by_duration", 2 * NOW_MS).timestamp_ms(NOW_MS) == 0
    assert Target("to_offset", 5).timestamp_ms(NOW_MS) is None
