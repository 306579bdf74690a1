"""What the commands share, without a broker."""

from __future__ import annotations

from datetime import timedelta

import click
import pytest

from minibroker.cli.shared import parse_assignment, parse_duration
from tests.cases import for_each


def test_an_assignment_is_split_at_its_first_equals_sign() -> None:
    assert parse_assignment("a=b=c") == ("a", "b=c")
    assert parse_assignment("a=") == ("a", "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("P1D", timedelta(days=1)),
        ("PT30M", timedelta(minutes=30)),
        ("PT1.5S", timedelta(seconds=1.5)),
        ("P2DT3H4M5S", timedelta(days=2, hours=3, minutes=4, seconds=5)),
        ("PT0S", timedelta()),
    ],
)
def test_a_duration_has_days_hours_minutes_and_seconds(text: str, expected: timedelta) -> None:
    assert parse_duration(text) == round(expected.total_seconds() * 1000)


@for_each("text", ["", "P", "PT", "1D", "P1H", "PT1D", "P1DT", "-P1D", "P1Y", "PT1,5S"])
def test_an_invalid_duration_is_rejected(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no period like"):
        parse_duration(text)
