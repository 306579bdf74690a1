"""How fast the cleaner may read and write: `log.cleaner.io.max.bytes.per.second`, over all of its threads together.

Who waits, and what for, is decided in `cleaning.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock


class Throttle:
    """A rate that holds on average. `bytes_per_second` may be changed at any time, from any thread.

    `monotonic_ms()` is a clock that never goes back, `wait(seconds)` returns after that time or earlier.
    """

    def __init__(
        self, bytes_per_second: float, monotonic_ms: Callable[[], float], wait: Callable[[float], object]
    ) -> None:
        self.bytes_per_second = bytes_per_second
        self.wait = wait
        self.monotonic_ms = monotonic_ms
        self._due_ms = 0.0  # when all that was done so far would be done at the rate
        self._lock = Lock()

    def took(self, size_bytes: int) -> float:
        """Note that so much was read or written; when the next may be, by the monotonic clock, in ms."""
        with self._lock:
            start_ms = max(self._due_ms, self.monotonic_ms())
            self._due_ms = start_ms + size_bytes * 1000.0 / max(self.bytes_per_second, 1.0)
            return self._due_ms
