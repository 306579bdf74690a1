"""The clock that tests move, and that the machine's own agrees with it in what it offers."""

from __future__ import annotations

import asyncio
import threading
import time

from minibroker.broker.clock import Clock, SystemClock
from tests.broker.manual_clock import ManualClock


def test_a_manual_clock_stands_still_until_it_is_moved() -> None:
    clock = ManualClock(wall_ms=1000)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (1000, 0.0)
    clock.advance(250)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (1250, 250.0)


def test_timers_run_in_order_each_at_its_own_time() -> None:
    clock = ManualClock()
    seen: list[tuple[str, float]] = []
    for name, delay_ms in (("late", 30), ("early", 10), ("second of two", 20), ("third of two", 20)):
        clock.call_later(delay_ms, lambda name=name: seen.append((name, clock.monotonic_ms())))
    clock.advance(29)
    assert seen == [("early", 10.0), ("second of two", 20.0), ("third of two", 20.0)]
    clock.advance(1)
    assert seen[-1] == ("late", 30.0)


def test_a_due_timer_set_by_a_timer_runs_in_the_same_advance() -> None:
    clock = ManualClock()
    seen: list[float] = []

    def again() -> None:
        seen.append(clock.monotonic_ms())
        clock.call_later(10, again)

    clock.call_later(10, again)
    clock.advance(35)
    assert seen == [10.0, 20.0, 30.0]


def test_a_cancelled_timer_does_not_run_and_may_be_cancelled_afterwards() -> None:
    clock = ManualClock()
    seen: list[str] = []
    cancelled, run = clock.call_later(5, lambda: seen.append("no")), clock.call_later(5, lambda: seen.append("yes"))
    cancelled.cancel()
    clock.advance(5)
    run.cancel()
    clock.advance(5)
    assert seen == ["yes"]


async def test_the_system_clock_has_the_machines_time_and_runs_timers_on_its_loop() -> None:
    clock: Clock = SystemClock(asyncio.get_running_loop())
    before_ms, started_ms = time.time_ns() // 1_000_000, clock.monotonic_ms()
    ran = asyncio.Event()
    clock.call_later(0, lambda: None).cancel()
    clock.call_later(0, ran.set)
    await ran.wait()
    assert before_ms <= clock.wall_ms() <= time.time_ns() // 1_000_000
    assert clock.monotonic_ms() >= started_ms


def test_background_work_runs_immediately_unless_it_is_held() -> None:
    clock = ManualClock()
    seen: list[object] = []
    failure = OSError("no")

    def fail() -> None:
        raise failure

    clock.run_in_thread(lambda: seen.append("work"), seen.append)
    clock.run_in_thread(fail, seen.append)
    assert seen == ["work", None, failure]
    clock.holds_aside = True
    clock.run_in_thread(
        lambda: seen.append("held"), lambda error: clock.run_in_thread(lambda: seen.append("more"), seen.append)
    )
    assert seen[3:] == []
    assert clock.do_aside() == 1
    assert seen[3:] == ["held"]
    assert (clock.do_aside(), clock.do_aside()) == (1, 0)
    assert seen[3:] == ["held", "more", None]


async def test_the_system_clock_runs_background_work_in_another_thread() -> None:
    clock = SystemClock(asyncio.get_running_loop())
    threads: list[threading.Thread] = []
    reports: asyncio.Queue[Exception | None] = asyncio.Queue()

    def work() -> None:
        threads.append(threading.current_thread())

    def fail() -> None:
        raise OSError("no")

    def done(error: Exception | None) -> None:
        threads.append(threading.current_thread())
        reports.put_nowait(error)

    clock.run_in_thread(work, done)
    assert await reports.get() is None
    assert threads[0] is not threads[1] is threading.current_thread()
    clock.run_in_thread(fail, done)
    assert isinstance(await reports.get(), OSError)
    clock.wait_for_threads_and_callbacks()


async def test_work_in_its_own_thread_delays_neither_background_work_nor_the_exit() -> None:
    clock = SystemClock(asyncio.get_running_loop(), aside_threads=1)
    may_go_on = threading.Event()
    ends: asyncio.Queue[Exception | None] = asyncio.Queue()
    clock.run_in_own_thread(lambda: may_go_on.wait() and None, ends.put_nowait)
    clock.run_in_thread(lambda: None, ends.put_nowait)
    assert await ends.get() is None and not clock.is_busy
    clock.wait_for_threads_and_callbacks()
    assert ends.empty()
    may_go_on.set()
    assert await ends.get() is None
    failure = ValueError("no")

    def fail() -> None:
        raise failure

    clock.run_in_own_thread(fail, ends.put_nowait)
    assert await ends.get() is failure


def test_the_process_exit_waits_for_background_work_and_calls_back_once() -> None:
    loop = asyncio.new_event_loop()
    clock = SystemClock(loop)
    go_on = threading.Event()
    reports: list[Exception | None] = []
    for _ in range(2):
        clock.run_in_thread(go_on.wait, reports.append)  # type: ignore[arg-type]
    threading.Thread(target=go_on.set).start()
    clock.wait_for_threads_and_callbacks()
    assert reports == [None, None]
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert reports == [None, None]
    clock.wait_for_threads_and_callbacks()
