"""Busy polling: after a read the loop asks its sockets again for some microseconds, instead of going to sleep.

To wake a core that sleeps takes longer than to answer a request. A client that waits for each answer before it sends
the next request is thereby answered in about two thirds of the time. With many active clients there is nothing to
gain, as a socket is always ready, so the loop polls only while few are; without clients it sleeps. Where other
processes want the CPU, polling would take it from the client: that shows when a turn without a read takes long. And
where polling finds nothing more often than something, the clients think longer: it is tried now and then only.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, Final

from minibroker.operating_system import count_usable_cpus

FEW_READS: Final = 4  # in a turn of the loop
PREEMPTED_SECONDS: Final = 0.001  # another process keeps a CPU for some ms; a turn without a read takes 5 us
RESPITE_SECONDS: Final = 0.02
VAIN_PERIODS: Final = 4  # more than those in which polling has found a read
READS_A_TRIAL: Final = 64  # after so many vain ones
DEFAULT_US: Final = 60


class BusyPolling:
    """Keeps a loop awake until `duration_us` have passed without a read."""

    __slots__ = (
        "_call_soon",
        "_duration_seconds",
        "_is_on",
        "_now",
        "_polled_at",
        "_reads",
        "_resumes_at",
        "_skipped_reads",
        "_until",
        "_vain_periods",
    )

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], Any],
        duration_us: float,
        now: Callable[[], float] = perf_counter,
    ) -> None:
        """`now` returns a time in seconds; it is the machine's, as nobody can move the time that a core sleeps."""
        self._call_soon = call_soon
        self._duration_seconds = duration_us / 1_000_000
        self._now = now
        self._is_on = False
        self._reads = 0  # since the last poll
        self._vain_periods = self._skipped_reads = 0
        self._polled_at = self._until = self._resumes_at = 0.0

    def keep_polling_after_read(self) -> None:
        """Poll the sockets without sleeping for a while from now on."""
        if self._is_on:
            self._reads += 1
        elif self._vain_periods >= VAIN_PERIODS and self._skipped_reads < READS_A_TRIAL:
            self._skipped_reads += 1
        elif self._now() >= self._resumes_at:
            self._is_on = True
            self._reads = 1
            self._skipped_reads = 0
            self._until = 0.0  # not begun
            self._call_soon(self._poll_or_stop)

    def _poll_or_stop(self) -> None:
        """Schedule this for the next turn, so that the loop does not sleep; stop when polling is no longer worth it."""
        now, reads, polled_at = self._now(), self._reads, self._polled_at
        self._reads, self._polled_at = 0, now
        if reads:
            if self._until and self._vain_periods:
                self._vain_periods -= 1
            self._until = now + self._duration_seconds
        elif now - polled_at > PREEMPTED_SECONDS:
            self._resumes_at = now + RESPITE_SECONDS
        if now >= self._until:
            self._vain_periods = min(self._vain_periods + 1, VAIN_PERIODS)
            self._is_on = False
        elif reads > FEW_READS or now < self._resumes_at:
            self._is_on = False
        else:
            self._call_soon(self._poll_or_stop)


def choose_busy_poll_us(setting: int) -> int:
    """Return how long to poll by the value of `socket.busy.poll.us`, 0 for not at all.

    On one CPU polling would only keep the client from running.
    """
    if setting >= 0:
        return setting
    return DEFAULT_US if count_usable_cpus() > 1 else 0
