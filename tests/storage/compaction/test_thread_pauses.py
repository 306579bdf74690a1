"""When a thread beside the event loop's pauses."""

from __future__ import annotations

import time
from threading import Event, Thread

import pytest

from minibroker.operating_system import find_thread_clock
from minibroker.storage.compaction.thread_pauses import (
    PAUSE_SECONDS,
    WORK_SECONDS,
    ThreadPauses,
    iterate_records_with_pauses,
)


class Stage:
    """Two threads on clocks of the test: the loop's has taken `loop_s`, and `rests` are the other one's."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.loop_s = 7.0
        self.slept: list[float] = []
        self.rests = ThreadPauses(lambda: self.loop_s, lambda: self.now_s, self._sleep)
        self.rests.sleep_if_due()

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds

    def work(self, *, beside_s: float) -> None:
        """Work until a rest is due, while the loop's thread takes `beside_s`."""
        self.now_s += WORK_SECONDS
        self.loop_s += beside_s
        self.rests.sleep_if_due()


def test_a_cleaning_thread_rests_after_each_half_millisecond_beside_a_busy_event_loop() -> None:
    stage = Stage()
    stage.work(beside_s=WORK_SECONDS / 2)
    stage.rests.sleep_if_due()
    stage.now_s += WORK_SECONDS / 2
    stage.rests.sleep_if_due()
    assert stage.slept == [PAUSE_SECONDS]
    stage.work(beside_s=WORK_SECONDS / 2)
    assert stage.slept == [PAUSE_SECONDS] * 2


def test_a_cleaning_thread_does_not_rest_beside_an_idle_event_loop() -> None:
    stage = Stage()
    for _ in range(3):
        stage.work(beside_s=WORK_SECONDS / 100)
    assert stage.slept == []


@pytest.mark.parametrize(("count", "rests"), [(0, 0), (1, 1), (64, 1), (65, 2), (200, 4)])
def test_a_cleaning_thread_may_rest_before_every_64_records(count: int, rests: int) -> None:
    looked: list[None] = []
    assert list(iterate_records_with_pauses(iter(range(count)), lambda: looked.append(None))) == list(range(count))
    assert len(looked) == rests


def test_a_cleaning_thread_continues_when_the_event_loop_has_ended() -> None:
    def gone() -> float:
        raise OSError("there is no such thread")

    ThreadPauses(gone, lambda: 100.0).sleep_if_due()


def test_the_cpu_clock_of_a_thread_counts_only_its_own_work() -> None:
    clocks, is_over = [], Event()
    idle = Thread(target=lambda: (clocks.append(find_thread_clock()), is_over.wait()))
    idle.start()
    while not clocks:
        time.sleep(0)
    (clock,) = clocks
    if clock is not None:
        before_s, burn_until_s = clock(), time.process_time() + 0.05
        while time.process_time() < burn_until_s:
            pass
        assert clock() - before_s < 0.025
    is_over.set()
    idle.join()
