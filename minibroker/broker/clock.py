"""Time, passed in: the wall clock, the monotonic clock, timers, work in slices, and work in other threads.

`SystemClock` is the real one, on the timers of an event loop. Tests have one that they move.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

# A file system syncs several files at a time in hardly more time than one.
ASIDE_THREADS: Final = 4
SLICE_MS: Final = 2

Work = Callable[[], None]
Done = Callable[[Exception | None], None]
Then = Callable[[], None]
Item = TypeVar("Item")


class Timer(Protocol):
    """A callback that is still to come."""

    def cancel(self) -> None:
        """Cancel it; no effect if it has run already."""


class Clock(Protocol):
    """All that the broker knows of time."""

    def wall_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC, as in record timestamps."""

    def monotonic_ms(self) -> float:
        """Return milliseconds that never go back, for durations."""

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Run `callback` on the loop once `delay_ms` have passed."""

    def run_in_thread(self, work: Work, on_done: Done) -> None:
        """Run `work` in another thread, then `on_done` on the loop, with what `work` raised, or None."""

    def run_in_own_thread(self, work: Work, on_done: Done) -> None:
        """Run `work`, which waits for another machine, in a thread of its own; otherwise as `run_in_thread`.

        Neither the syncs in the other threads nor the end of the process wait for it; then `on_done` may never run.
        """


class BusyClock(Clock, Protocol):
    """A clock that can wait for the work in other threads."""

    def wait_for_threads_and_callbacks(self) -> None:
        """Block until no work is left in other threads and all callbacks have run."""


class SystemClock:
    """The machine's time; timers run on `loop`, and work aside in `aside_threads` threads at most."""

    def __init__(self, loop: asyncio.AbstractEventLoop, aside_threads: int = ASIDE_THREADS) -> None:
        self._loop = loop
        self._aside_threads = aside_threads
        self._threads: ThreadPoolExecutor | None = None
        self._aside: dict[Future[None], Done] = {}

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000.0

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        return self._loop.call_later(delay_ms / 1000.0, callback)

    def run_in_thread(self, work: Work, on_done: Done) -> None:
        if self._threads is None:
            from concurrent.futures import ThreadPoolExecutor  # many brokers never need it

            self._threads = ThreadPoolExecutor(self._aside_threads, "minibroker-aside")
        future = self._threads.submit(work)
        self._aside[future] = on_done
        future.add_done_callback(self._schedule_done_callback_in_loop)

    def run_in_own_thread(self, work: Work, on_done: Done) -> None:
        import threading

        def run_work() -> None:
            error = None
            try:
                work()
            except Exception as raised:
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(on_done, error)

        threading.Thread(target=run_work, name="minibroker-detached", daemon=True).start()

    @property
    def is_busy(self) -> bool:
        """Whether work in other threads runs, or its callback has not run yet."""
        return bool(self._aside)

    def _schedule_done_callback_in_loop(self, future: Future[None]) -> None:
        """Call back in the loop, as work is done; called in the thread that did it."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: `wait_for_threads_and_callbacks` has seen to it
            self._loop.call_soon_threadsafe(self._call_done_callback, future)

    def _call_done_callback(self, future: Future[None]) -> None:
        done = self._aside.pop(future, None)
        if done is None:
            return
        error = future.exception()
        if error is not None and not isinstance(error, Exception):
            raise error
        done(error)

    def wait_for_threads_and_callbacks(self) -> None:
        """Block until no work is left in other threads and all callbacks have run: for the end of the process."""
        while self._aside:
            future = next(iter(self._aside))
            future.exception()
            self._call_done_callback(future)
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None


class ClusterClock:
    """Another clock's time for one life of a cluster; `cancel_all_timers` cancels the timers that have not run."""

    def __init__(self, clock: BusyClock) -> None:
        self._clock = clock
        self._timers: set[_ClusterTimer] = set()
        self._call_report_in_loop = False
        self.wall_ms = clock.wall_ms
        self.monotonic_ms = clock.monotonic_ms
        self.run_in_thread = clock.run_in_thread
        self.run_in_own_thread = clock.run_in_own_thread
        self.wait_for_threads_and_callbacks = clock.wait_for_threads_and_callbacks

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        timer = _ClusterTimer(self._timers, callback)
        if self._call_report_in_loop:
            return timer
        self._timers.add(timer)
        timer.timer = self._clock.call_later(delay_ms, timer.run_callback)
        return timer

    def cancel_all_timers(self) -> None:
        """Cancel all timers, and run no later ones."""
        self._call_report_in_loop = True
        for timer in list(self._timers):
            timer.cancel()


class _ClusterTimer:
    """A timer of a `ClusterClock`, kept in `timers` until it has run."""

    __slots__ = ("_callback", "_timers", "timer")

    def __init__(self, timers: set[_ClusterTimer], callback: Callable[[], None]) -> None:
        self._timers = timers
        self._callback = callback
        self.timer: Timer | None = None

    def run_callback(self) -> None:
        self._timers.discard(self)
        self._callback()

    def cancel(self) -> None:
        self._timers.discard(self)
        if self.timer is not None:
            self.timer.cancel()


def process_items_in_slices(
    clock: Clock, process_item: Callable[[Item], None], items: Iterator[Item], callback: Then
) -> None:
    """Call `process_item` for each item, and then `callback`; other work runs in between."""
    until_ms = clock.monotonic_ms() + SLICE_MS
    for item in items:
        process_item(item)
        if clock.monotonic_ms() >= until_ms:
            clock.call_later(0, lambda: process_items_in_slices(clock, process_item, items, callback))
            return
    callback()


def run_steps_in_slices(clock: Clock, steps: Iterator[None]) -> None:
    """Run all steps in slices, and let other work run between them. The result is dropped."""
    process_items_in_slices(clock, lambda _: None, steps, lambda: None)
