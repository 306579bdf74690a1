"""Time, passed in: the wall clock, the monotonic clock and timers that everything in the broker asks.

`SystemClock` is the real one, on an event loop's timers; `ManualClock` stands still until it is told to move.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A callback that is still to come."""

    def cancel(self) -> None:
        """Take it back; without effect when it has run already."""


class Clock(Protocol):
    """What the broker knows of time."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC, as in record timestamps."""

    def monotonic_ms(self) -> float:
        """Milliseconds that never go back, for durations."""

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Run `callback` on the loop once `delay_ms` have passed."""


class SystemClock:
    """The machine's time; timers run on `loop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000.0

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        return self._loop.call_later(delay_ms / 1000.0, callback)


class ManualTimer:
    """A timer of a `ManualClock`."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    """A clock that only `advance` moves. Timers run inside `advance`, in the order in which they are due."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
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

    def advance(self, by_ms: float) -> None:
        """Move on by `by_ms`, stopping at each timer on the way."""
        target_ms = self._elapsed_ms + by_ms
        while self._timers and self._timers[0][0] <= target_ms:
            due_ms, _, timer = heapq.heappop(self._timers)
            self._elapsed_ms = max(self._elapsed_ms, due_ms)
            if timer.callback is not None:
                timer.callback()
        self._elapsed_ms = target_ms
