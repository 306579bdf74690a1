"""How long the cleaner has to wait, on a clock that only the test moves."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from minibroker.storage.compaction.cleaning import MIN_WAIT_MS, CleaningThrottle
from tests.storage.compaction.support import SETTINGS, begin, fill, pairs
from tests.storage.support import open_at


class Time:
    """A clock in ms; who waits moves it."""

    def __init__(self) -> None:
        self.now_ms = 1000.0

    def monotonic_ms(self) -> float:
        return self.now_ms

    def wait(self, seconds: float) -> None:
        self.now_ms += seconds * 1000


def test_throttled_bytes_are_delayed_to_the_rate() -> None:
    time = Time()
    throttle = CleaningThrottle(1000.0, time.monotonic_ms, time.wait)
    assert throttle.count_bytes_and_get_due_ms(500) == 1500
    assert throttle.count_bytes_and_get_due_ms(250) == 1750


def test_idle_time_is_not_credited_to_the_throttle() -> None:
    time = Time()
    throttle = CleaningThrottle(1000.0, time.monotonic_ms, time.wait)
    throttle.count_bytes_and_get_due_ms(10)
    time.now_ms = 50_000
    assert throttle.count_bytes_and_get_due_ms(1000) == 51_000


def test_the_throttle_rate_can_be_changed() -> None:
    time = Time()
    throttle = CleaningThrottle(1000.0, time.monotonic_ms, time.wait)
    assert throttle.count_bytes_and_get_due_ms(1000) == 2000
    throttle.bytes_per_second = 10_000.0
    assert throttle.count_bytes_and_get_due_ms(1000) == 2100


def test_cleaning_does_not_wait_without_a_rate_limit() -> None:
    time = Time()
    throttle = CleaningThrottle(sys.float_info.max, time.monotonic_ms, time.wait)
    assert throttle.count_bytes_and_get_due_ms(1 << 40) == 1000


def test_a_throttle_rate_of_zero_is_as_slow_as_possible() -> None:
    time = Time()
    assert CleaningThrottle(0.0, time.monotonic_ms, time.wait).count_bytes_and_get_due_ms(3) == 4000


def test_each_read_and_write_of_a_cleaning_counts_towards_the_throttle(tmp_path: Path) -> None:
    log = open_at(tmp_path, SETTINGS)
    fill(log, [pairs((f"k{index % 3}", f"v{index}")) for index in range(6)])
    before_bytes, time = log.size_bytes, Time()
    cleaning = begin(log, throttle=CleaningThrottle(1000.0, time.monotonic_ms, time.wait))
    while cleaning.clean_next_segment():
        cleaning.replace_cleaned_segments()
    cleaning.set_clean_offset()
    # the segments are read twice: for their keys, and to copy what is kept
    assert time.now_ms - 1000 == pytest.approx(2 * before_bytes + log.size_bytes, abs=MIN_WAIT_MS)
