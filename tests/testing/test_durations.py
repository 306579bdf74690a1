"""Durations in tests: numbers are seconds, and what looks like milliseconds warns where the test says it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from minibroker.testing import Broker, Expired
from minibroker.testing.durations import span_of
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
def test_a_number_is_one_of_seconds(given: Any, span: object) -> None:
    assert span_of(given) == span


@pytest.mark.parametrize("given", [True, None, [1], b"1 s", -1, float("nan"), float("inf"), 1e300])
def test_what_is_no_duration_is_an_error(given: Any) -> None:
    with pytest.raises(ValueError, match="is no duration|no span of time"):
        span_of(given)


def test_a_wait_ends_after_so_many_seconds() -> None:
    with Broker() as broker:
        with pytest.raises(Expired, match="^after 0.01 s: "):
            broker.expect("t", 1, 0.01)
        with pytest.raises(Expired, match="^after 0.01 s: "):
            broker.expect("t", timeout=0.01)


async def test_the_awaitable_twin_does_so_too() -> None:
    async with Broker() as broker:
        with pytest.raises(Expired, match="^after 0.01 s: "):
            await broker.aexpect("t", timeout=0.01)


USES: list[Callable[[Broker], object]] = [
    lambda broker: broker.clock.advance(5000),
    lambda broker: broker.clock.advance(by=5000),
    lambda broker: broker.slow_joins("g", 5000),
    lambda broker: broker.faults.add(api="Fetch", delay=5000),
    lambda broker: broker.collect_client_metrics("org.", interval=5000),
    lambda broker: broker.issuer.token("alice", expires_in=5000),
    lambda broker: broker.tokens.create("alice", max_lifetime=5000),
]


def test_what_looks_like_milliseconds_warns_where_it_was_written() -> None:
    with Broker(security="SASL_PLAINTEXT") as broker:
        for use in USES:
            with pytest.warns(DeprecationWarning, match="numbers are seconds, and 5000 is taken for milli") as warned:
                use(broker)
            assert [(each.filename, each.lineno) for each in warned] == [(__file__, use.__code__.co_firstlineno)]


@pytest.mark.filterwarnings("ignore:numbers are seconds")
def test_what_looks_like_milliseconds_is_taken_as_such() -> None:
    with Broker() as broker:
        broker.clock.freeze()
        before = broker.clock.now_ms()
        broker.clock.advance(1001)
        assert broker.clock.now_ms() - before == 1001
        broker.clock.advance(1000)
        assert broker.clock.now_ms() - before == 1_001_001


@pytest.mark.filterwarnings("ignore:numbers are seconds")
def test_durations_of_faults_are_seconds_too() -> None:
    rule = Rule(delay=0.25, throttle=2, name=None)
    assert (rule.delay_ms, rule.throttle_ms, str(rule)) == (250, 2000, "delay 0.25 s, throttle 2 s")
    assert (Rule(delay=1500).delay_ms, str(Rule(delay=1500))) == (1500, "delay 1500 ms")
