"""Durations in tests: numbers are seconds."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from minibroker.testing import Broker, Expired
from minibroker.testing.durations import add_unit_to_duration
from minibroker.testing.faults.rules import Rule


@pytest.mark.parametrize(
    ("given", "span"),
    [
        (0, timedelta(0)),
        (0.25, timedelta(milliseconds=250)),
        (1000, timedelta(seconds=1000)),
        ("5 min", "5 min"),
        (timedelta(days=1), timedelta(days=1)),
    ],
)
def test_a_number_is_a_duration_in_seconds(given: Any, span: object) -> None:
    assert add_unit_to_duration(given) == span


@pytest.mark.parametrize("given", [True, None, [1], b"1 s", -1, float("nan"), float("inf"), 1e300])
def test_an_invalid_duration_is_an_error(given: Any) -> None:
    with pytest.raises(ValueError, match="is no duration|no span of time"):
        add_unit_to_duration(given)


def test_a_wait_ends_after_its_timeout_in_seconds() -> None:
    with Broker() as broker:
        with pytest.raises(Expired, match="^after 0.01 s: "):
            broker.expect("t", 1, 0.01)
        with pytest.raises(Expired, match="^after 0.01 s: "):
            broker.expect("t", timeout=0.01)


async def test_an_awaited_wait_ends_after_its_timeout() -> None:
    async with Broker() as broker:
        with pytest.raises(Expired, match="^after 0.01 s: "):
            await broker.aexpect("t", timeout=0.01)


def test_any_large_number_is_a_duration_in_seconds() -> None:
    with Broker() as broker:
        broker.clock.freeze()
        before = broker.clock.now_ms()
        broker.clock.advance(3600)
        assert broker.clock.now_ms() - before == 3_600_000


def test_durations_of_faults_are_in_seconds() -> None:
    rule = Rule(delay=0.25, throttle=2, name=None)
    assert (rule.delay_ms, rule.throttle_ms, str(rule)) == (250, 2000, "delay 0.25 s, throttle 2 s")
    assert (Rule(delay=1500).delay_ms, str(Rule(delay=1500))) == (1_500_000, "delay 1500 s")
