"""Busy polling: after a read the loop asks its sockets again for some microseconds, instead of going to sleep.

To wake a core that sleeps takes longer than to answer a request. A client that waits for each answer before it sends
the next request is thereby answered in little more than half of the time. With many active clients there is nothing to
gain and nothing to lose, as a socket is always ready; without clients the loop sleeps.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from minibroker.operating_system import usable_cpus

DEFAULT_US = 60  # librdkafka's and the Java client's answer to an answer takes 20 to 50


class BusyPolling:
    """Keeps a loop awake until `duration_us` have passed without a read."""

    __slots__ = ("_call_soon", "_duration_seconds", "_is_on", "_now", "_reads", "_reads_seen", "_until")

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
        self._reads = self._reads_seen = 0
        self._until = 0.0

    def note_read(self) -> None:
        """Stay awake for a while from now on."""
        self._reads += 1
        if not self._is_on:
            self._is_on = True
            self._call_soon(self._poll)

    def _poll(self) -> None:
        """Run in each turn of the loop, which does not sleep while there is something to run in the next one."""
        now = self._now()
        if self._reads != self._reads_seen:
            self._reads_seen, self._until = self._reads, now + self._duration_seconds
        elif now >= self._until:
            self._is_on = False
            return
        self._call_soon(self._poll)


def busy_poll_us(setting: int) -> int:
    """Return how long to poll by the value of `socket.busy.poll.us`, 0 for not at all.

    On one CPU polling would only keep the client from running.
    """
    if setting >= 0:
        return setting
    return DEFAULT_US if usable_cpus() > 1 else 0
