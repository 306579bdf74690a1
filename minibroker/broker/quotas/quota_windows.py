"""The recent use that quotas limit. Pure; time is passed in, in ms.

Both count as Apache Kafka's metrics do, so that throttle times are equal: `Rate` like `Rate` over a `SampledStat`,
`TokenBucket` like `TokenBucket` (KIP-599).
"""

from __future__ import annotations

from minibroker.named_tuples import NamedTuple


class Windows(NamedTuple):
    """The number of windows, and the length of each."""

    number: int
    size_ms: int


class _Sample:
    __slots__ = ("last_ms", "start_ms", "total")

    def __init__(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.total = 0.0


class Rate:
    """The use per second, over a number of recent windows."""

    __slots__ = ("_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: list[_Sample] = []  # in the order of their starts

    def record_value(self, value: float, now_ms: int) -> None:
        """Add a value, such as bytes or a time, to the current window."""
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._windows.size_ms:
            self._drop_old_windows(now_ms)
            samples.append(_Sample(now_ms))
        samples[-1].total += value
        samples[-1].last_ms = now_ms

    def subtract_value(self, value: float) -> None:
        """Take a recorded value back from the current window."""
        self._samples[-1].total -= value

    def measure_rate(self, now_ms: int) -> float:
        """Return the use per second."""
        self._drop_old_windows(now_ms)
        return sum(sample.total for sample in self._samples) * 1000 / self.measure_window_ms(now_ms)

    def measure_window_ms(self, now_ms: int) -> int:
        """Return the time over which the use is measured: at least all windows but one."""
        self._drop_old_windows(now_ms)
        number, size_ms = self._windows
        elapsed_ms = now_ms - self._samples[0].start_ms if self._samples else 0
        return max(elapsed_ms + max(number - 1 - elapsed_ms // size_ms, 0) * size_ms, 1)

    def is_idle(self, now_ms: int) -> bool:
        """Return whether all values are older than the windows."""
        self._drop_old_windows(now_ms)
        return not self._samples

    def _drop_old_windows(self, now_ms: int) -> None:
        limit_ms = now_ms - self._windows.number * self._windows.size_ms
        self._samples[:] = [sample for sample in self._samples if sample.last_ms > limit_ms]

    def compute_throttle_ms(self, per_second: float, now_ms: int) -> int:
        """Return how long to wait until the use is within `per_second` per second, 0 if it is."""
        value = self.measure_rate(now_ms)
        return round((value - per_second) / per_second * self.measure_window_ms(now_ms)) if value > per_second else 0


class TokenBucket:
    """Tokens, refilled steadily up to the windows' total: bursts are allowed, and clients wait when tokens are owed."""

    __slots__ = ("_last_ms", "_tokens", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._tokens: float | None = None  # None: full
        self._last_ms = 0

    def take_tokens(self, value: float, per_second: float, now_ms: int) -> None:
        """Take tokens, even more than there are."""
        self._tokens = self.refill_and_get_tokens(per_second, now_ms) - value

    def refill_and_get_tokens(self, per_second: float, now_ms: int) -> float:
        """Return the number of tokens, negative if they are owed; `per_second` are refilled per second."""
        number, size_ms = self._windows
        most = number * size_ms / 1000 * per_second
        come_back = per_second * (now_ms - self._last_ms) / 1000
        self._tokens = most if self._tokens is None else min(most, self._tokens + come_back)
        self._last_ms = now_ms
        return self._tokens

    def compute_throttle_ms(self, per_second: float, now_ms: int) -> int:
        """Return how long to wait until nothing is owed, 0 if nothing is."""
        tokens = self.refill_and_get_tokens(per_second, now_ms)
        return round(-tokens / per_second * 1000) if tokens < 0 else 0
