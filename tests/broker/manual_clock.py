"""A clock for tests that moves only by `advance`."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

from minibroker.broker.clock import Done, Timer, Work


class ManualTimer:
    """A timer of a `ManualClock`."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    """A clock that only `advance` moves. Timers run inside `advance`, in the order in which they are due.

    Work for other threads is done at once or, while `holds_aside` is set, by `do_aside`.
    """

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self.holds_aside = False
        self._aside: list[tuple[Work, Done]] = []
        self._start_ms = wall_ms
        self._elapsed_ms = 0.0
        self._order = itertools.count()
        self._timers: list[tuple[float, int, ManualTimer]] = []

    def wall_ms(self) -> int:
        return self._start_ms + int(self._elapsed_ms)

    def monotonic_ms(self) -> float:
        return self._elapsed_ms

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        timer = ManualTimer(callback)
        heapq.heappush(self._timers, (self._elapsed_ms + delay_ms, next(self._order), timer))
        return timer

    def run_in_thread(self, work: Work, done: Done) -> None:
        self._aside.append((work, done))
        if not self.holds_aside:
            self.do_aside()

    run_in_own_thread = run_in_thread

    def do_aside(self) -> int:
        """Do the work that is held, but not the work that it causes; return how much it was."""
        held, self._aside = self._aside, []
        for work, done in held:
            error = None
            try:
                work()
            except Exception as raised:
                error = raised
            done(error)
        return len(held)

    def advance(self, by_ms: float) -> None:
        """Move on by `by_ms`, stopping at each timer on the way."""
        target_ms = self._elapsed_ms + by_ms
        while self._timers and self._timers[0][0] <= target_ms:
            due_ms, _, timer = heapq.heappop(self._timers)
            self._elapsed_ms = max(self._elapsed_ms, due_ms)
            if timer.callback is not None:
                timer.callback()
        self._elapsed_ms = target_ms
