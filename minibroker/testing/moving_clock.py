"""The clock of an embedded broker: it follows the machine's, and can be advanced and stopped.

It has all timers of the broker, and belongs to its loop; `TestClock` is what tests use.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

from minibroker.broker.clock import Done, SystemClock, Timer, Work

# A jump runs what is due at its end. With this many jumps a move follows chains (a timeout, the rebalance that it
# causes, the end of that), and a chore of every five seconds does not run 120,000 times for a week.
JUMPS = 200


class MovingTimer:
    """A scheduled callback of a `MovingClock`."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Drop the callback."""
        self.callback = None


class MovingClock:
    """The machine's clock plus the time that was added. `system` has the threads, and wakes this clock."""

    def __init__(self, system: SystemClock) -> None:
        self._system = system
        self._ahead_ms = 0.0
        self._wall_ahead_ms = 0.0
        self._frozen_at: tuple[int, float] | None = None  # the machine's wall and monotonic time, in ms
        self._order = itertools.count()
        self._timers: list[tuple[float, int, MovingTimer]] = []
        self._alarm: Timer | None = None
        self._alarm_ms = float("inf")
        self.after: Callable[[], None] | None = None  # called after timers have run, and after work in other threads
        self.wait_for_threads_and_callbacks = system.wait_for_threads_and_callbacks

    def run_in_thread(self, work: Work, on_done: Done) -> None:
        """Run `work` in another thread, then `on_done` on the loop."""
        self._system.run_in_thread(work, lambda error: self._call_done_with_error(on_done, error))

    def run_in_own_thread(self, work: Work, on_done: Done) -> None:
        """Run `work` in a thread of its own, then `on_done` on the loop, unless the process ends before."""
        self._system.run_in_own_thread(work, lambda error: self._call_done_with_error(on_done, error))

    def _call_done_with_error(self, on_done: Done, error: Exception | None) -> None:
        """Call `on_done` with the error of work in a thread, None without one, then the clock's callback `after`."""
        on_done(error)
        if self.after is not None:
            self.after()

    # --- for the broker ---------------------------------------------------------------------------

    def wall_ms(self) -> int:
        """Return the milliseconds since 1970-01-01 UTC, plus the time that was added."""
        wall_ms = self._system.wall_ms() if self._frozen_at is None else self._frozen_at[0]
        return wall_ms + int(round(self._wall_ahead_ms, 3))  # many jumps have added up

    def monotonic_ms(self) -> float:
        """Return milliseconds that never go back."""
        now_ms = self._system.monotonic_ms() if self._frozen_at is None else self._frozen_at[1]
        return now_ms + self._ahead_ms

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Run `callback` on the loop once `delay_ms` have passed here; a delay of 0 also passes while frozen."""
        timer = MovingTimer(callback)
        due_ms = self.monotonic_ms() + max(delay_ms, 0.0)
        heapq.heappush(self._timers, (due_ms, next(self._order), timer))
        self._set_alarm()
        return timer

    @property
    def is_busy(self) -> bool:
        """Return whether another thread is working."""
        return self._system.is_busy

    # --- for `TestClock` --------------------------------------------------------------------------

    @property
    def frozen(self) -> bool:
        """Whether the clock is stopped."""
        return self._frozen_at is not None

    def freeze(self) -> None:
        """Stop the clock."""
        if self._frozen_at is None:
            self._frozen_at = self._system.wall_ms(), self._system.monotonic_ms()
            self._set_alarm()

    def unfreeze(self) -> None:
        """Run again from where the clock stopped."""
        if self._frozen_at is not None:
            stopped_ms = self._system.monotonic_ms() - self._frozen_at[1]
            self._ahead_ms -= stopped_ms
            self._wall_ahead_ms -= stopped_ms
            self._frozen_at = None
            self._set_alarm()

    def move_ahead(self, by_ms: float) -> None:
        """Move ahead, and run the timers that are due then, in the order of their times."""
        self._ahead_ms += by_ms
        self._wall_ahead_ms += by_ms
        self._run_due_timers_and_set_alarm()

    def reset(self) -> None:
        """Run again, with the machine's date. The monotonic clock is not set back: timers depend on it."""
        self.unfreeze()
        self._wall_ahead_ms = 0.0

    # --- timers -----------------------------------------------------------------------------------

    def _run_due_timers_and_set_alarm(self) -> None:
        """Run the callbacks that are due now. Those added meanwhile wait, so that the loop gets its turn."""
        now_ms = self.monotonic_ms()
        due = []
        while self._timers and self._timers[0][0] <= now_ms:
            due.append(heapq.heappop(self._timers)[2])
        try:
            while due:
                callback = due.pop(0).callback
                if callback is not None:
                    callback()
        finally:
            for timer in due:  # a callback failed: the loop logs it, and the others must still run
                heapq.heappush(self._timers, (now_ms, next(self._order), timer))
            self._set_alarm()
        if self.after is not None:
            self.after()

    def _set_alarm(self) -> None:
        """Schedule a call of the machine's clock for the first timer."""
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        wake_ms = self._timers[0][0] - self._ahead_ms if self._timers else float("inf")
        if self._frozen_at is not None:
            wake_ms = self._frozen_at[1] if wake_ms <= self._frozen_at[1] else float("inf")
        if wake_ms == self._alarm_ms:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._alarm_ms = None, wake_ms
        if wake_ms < float("inf"):
            self._alarm = self._system.call_later(max(wake_ms - self._system.monotonic_ms(), 0.0), self._run_timers)

    def _run_timers(self) -> None:
        """Run the timers that are due, as the alarm has rung."""
        self._alarm, self._alarm_ms = None, float("inf")
        self._run_due_timers_and_set_alarm()
