"""Busy polling keeps a loop awake for a while after each read, and no longer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minibroker.broker.network import busy_polling
from minibroker.broker.network.busy_polling import (
    DEFAULT_US,
    FEW_READS,
    READS_A_TRIAL,
    VAIN_PERIODS,
    BusyPolling,
    choose_busy_poll_us,
)


class Loop:
    """A loop whose turns a test runs, with a time that it moves."""

    def __init__(self) -> None:
        self.now_us = 0.0
        self._soon: list[Callable[[], None]] = []
        self.polling = BusyPolling(self._soon.append, 60, lambda: self.now_us / 1_000_000)

    @property
    def sleeps(self) -> bool:
        """Return whether there is nothing for the next turn."""
        return not self._soon

    def run_turn(self, after_us: float) -> None:
        """Run the next turn `after_us` microseconds later."""
        self.now_us += after_us
        callbacks = self._soon[:]
        self._soon.clear()
        for callback in callbacks:
            callback()


def test_an_event_loop_sleeps_if_nothing_is_read() -> None:
    assert Loop().sleeps


def test_an_event_loop_polls_for_the_configured_time_after_a_read() -> None:
    loop = Loop()
    loop.polling.keep_polling_after_read()
    loop.run_turn(after_us=5)
    loop.run_turn(after_us=59)
    assert not loop.sleeps
    loop.run_turn(after_us=2)
    assert loop.sleeps


def test_another_read_restarts_the_polling_time() -> None:
    loop = Loop()
    loop.polling.keep_polling_after_read()
    loop.run_turn(after_us=0)
    loop.polling.keep_polling_after_read()
    loop.run_turn(after_us=50)
    loop.run_turn(after_us=50)
    assert not loop.sleeps
    loop.run_turn(after_us=50)
    assert loop.sleeps


def test_several_reads_in_one_turn_of_the_event_loop_schedule_one_poll() -> None:
    loop = Loop()
    for _ in range(3):
        loop.polling.keep_polling_after_read()
    assert len(loop._soon) == 1


def test_an_event_loop_does_not_poll_while_many_clients_are_active() -> None:
    loop = Loop()
    for reads, sleeps in ((FEW_READS, False), (FEW_READS + 1, True), (FEW_READS, False)):
        for _ in range(reads):
            loop.polling.keep_polling_after_read()
        loop.run_turn(after_us=1)
        assert loop.sleeps is sleeps


def test_an_event_loop_stops_polling_while_other_processes_need_the_cpu() -> None:
    loop = Loop()
    loop.polling.keep_polling_after_read()
    loop.run_turn(after_us=1)
    loop.run_turn(after_us=1_001)  # another process ran meanwhile
    assert loop.sleeps
    loop.now_us += 19_000
    loop.polling.keep_polling_after_read()
    assert loop.sleeps
    loop.now_us += 1_000
    loop.polling.keep_polling_after_read()
    assert not loop.sleeps


def test_a_long_request_does_not_stop_busy_polling() -> None:
    loop = Loop()
    loop.polling.keep_polling_after_read()
    loop.run_turn(after_us=5_000)
    assert not loop.sleeps


def test_an_event_loop_that_slept_polls_again_after_a_read() -> None:
    loop = Loop()
    for _ in range(2):
        loop.polling.keep_polling_after_read()
        loop.run_turn(after_us=1)
        loop.run_turn(after_us=61)
        assert loop.sleeps


def poll_in_vain(loop: Loop) -> None:
    loop.polling.keep_polling_after_read()
    assert not loop.sleeps
    loop.run_turn(after_us=1)
    loop.run_turn(after_us=61)
    assert loop.sleeps


def test_an_event_loop_rarely_polls_if_clients_pause_longer_than_it_would_poll() -> None:
    loop = Loop()
    for _ in range(VAIN_PERIODS):
        poll_in_vain(loop)
    for _ in range(2):
        for _ in range(READS_A_TRIAL):
            loop.polling.keep_polling_after_read()
            assert loop.sleeps
        poll_in_vain(loop)


def test_an_event_loop_polls_after_each_read_again_once_a_trial_poll_succeeds() -> None:
    loop = Loop()
    for _ in range(VAIN_PERIODS):
        poll_in_vain(loop)
    for _ in range(READS_A_TRIAL):
        loop.polling.keep_polling_after_read()
    poll_in_vain(loop)  # a trial, too, which makes the next one's success no less
    for _ in range(READS_A_TRIAL + 1):
        loop.polling.keep_polling_after_read()
    loop.run_turn(after_us=1)
    loop.polling.keep_polling_after_read()
    loop.run_turn(after_us=59)
    loop.polling.keep_polling_after_read()
    loop.run_turn(after_us=59)
    loop.run_turn(after_us=61)
    assert loop.sleeps
    poll_in_vain(loop)


def test_an_event_loop_rarely_polls_if_polling_fails_more_often_than_it_succeeds() -> None:
    loop = Loop()
    for _ in range(VAIN_PERIODS - 1):  # the first read makes up for nothing
        loop.polling.keep_polling_after_read()
        loop.run_turn(after_us=1)
        loop.polling.keep_polling_after_read()  # found by polling
        loop.run_turn(after_us=30)
        loop.run_turn(after_us=61)
        poll_in_vain(loop)
    loop.polling.keep_polling_after_read()
    assert loop.sleeps


def test_busy_polling_is_off_by_default_on_a_machine_with_one_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(busy_polling, "count_usable_cpus", lambda: 1.0)
    assert choose_busy_poll_us(-1) == 0
    assert choose_busy_poll_us(30) == 30
    monkeypatch.setattr(busy_polling, "count_usable_cpus", lambda: 1.5)
    assert choose_busy_poll_us(-1) == DEFAULT_US
    assert choose_busy_poll_us(0) == 0
