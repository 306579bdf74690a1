"""The clock of an embedded broker: it goes as the machine's does, can be moved ahead, and can be stopped.

All that the broker does after some time hangs on it. It belongs to the broker's loop; what a test calls is in `clock`.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

from minibroker.broker.clock import Done, SystemClock, Timer, Work

# A jump runs what is due at its end. So many a move follow chains (a timeout, then the rebalance that it brings, then
# its end) while a chore of every five seconds is not done 120,000 times for a week.
JUMPS = 200


class MovingTimer:
    """A callback of a `MovingClock` that is still to come."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Take it back."""
        self.callback = None


class MovingClock:
    """A machine's clock and what was added to it. `system` has the threads, and wakes this one."""

    def __init__(self, system: SystemClock) -> None:
        self._system = system
        self._ahead_ms = 0.0
        self._wall_ahead_ms = 0.0
        self._frozen_at: tuple[int, float] | None = None  # the machine's wall and monotonic time, in ms
        self._order = itertools.count()
        self._timers: list[tuple[float, int, MovingTimer]] = []
        self._alarm: Timer | None = None
        self._alarm_ms = float("inf")
        self.after: Callable[[], None] | None = None  # called when timers or other threads have done something
        self.wait_for_aside = system.wait_for_aside

    def run_aside(self, work: Work, done: Done) -> None:
        """Run `work` in another thread, then `done` on the loop."""
        self._system.run_aside(work, lambda error: self._told(done, error))

    def _told(self, done: Done, error: Exception | None) -> None:
        done(error)
        if self.after is not None:
            self.after()

    # --- as the broker knows it -------------------------------------------------------------------

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC, and what was added."""
        wall_ms = self._system.wall_ms() if self._frozen_at is None else self._frozen_at[0]
        return wall_ms + int(round(self._wall_ahead_ms, 3))  # which many moves have added up

    def monotonic_ms(self) -> float:
        """Milliseconds that never go back."""
        now_ms = self._system.monotonic_ms() if self._frozen_at is None else self._frozen_at[1]
        return now_ms + self._ahead_ms

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Run `callback` on the loop once `delay_ms` have passed here; what is due at once runs while frozen, too."""
        timer = MovingTimer(callback)
        due_ms = self.monotonic_ms() + max(delay_ms, 0.0)
        heapq.heappush(self._timers, (due_ms, next(self._order), timer))
        self._set_alarm()
        return timer

    @property
    def busy(self) -> bool:
        """Whether something is being done aside."""
        return self._system.busy

    # --- as a test moves it -----------------------------------------------------------------------

    @property
    def frozen(self) -> bool:
        """Whether it stands still."""
        return self._frozen_at is not None

    def freeze(self) -> None:
        """Stand still."""
        if self._frozen_at is None:
            self._frozen_at = self._system.wall_ms(), self._system.monotonic_ms()
            self._set_alarm()

    def unfreeze(self) -> None:
        """Go on from where it stood."""
        if self._frozen_at is not None:
            stood_ms = self._system.monotonic_ms() - self._frozen_at[1]
            self._ahead_ms -= stood_ms
            self._wall_ahead_ms -= stood_ms
            self._frozen_at = None
            self._set_alarm()

    def jump(self, by_ms: float) -> None:
        """Move ahead and run what is due then, in the order in which it became due."""
        self._ahead_ms += by_ms
        self._wall_ahead_ms += by_ms
        self._run_due()

    def reset(self) -> None:
        """Go on, with the machine's own date. The monotonic clock is not set back, as timers hang on it."""
        self.unfreeze()
        self._wall_ahead_ms = 0.0

    # --- timers -----------------------------------------------------------------------------------

    def _run_due(self) -> None:
        """Each callback that is due by now; not those that are added meanwhile, so that others get their turn."""
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
            for timer in due:  # one has failed; the loop tells of it, and the others are still to run
                heapq.heappush(self._timers, (now_ms, next(self._order), timer))
            self._set_alarm()
        if self.after is not None:
            self.after()

    def _set_alarm(self) -> None:
        """Set the machine's clock to wake this one when the first timer is due."""
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
            self._alarm = self._system.call_later(max(wake_ms - self._system.monotonic_ms(), 0.0), self._rung)

    def _rung(self) -> None:
        self._alarm, self._alarm_ms = None, float("inf")
        self._run_due()
