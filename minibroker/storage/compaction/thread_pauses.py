"""The pauses of a thread that computes beside the event loop's, with which it shares the interpreter.

Each time the loop's thread comes back from the kernel, it waits for the interpreter, while the other one computes; with
fifty clients it comes back fifty times a turn. So while the loop is busy, the other thread pauses most of the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import TypeVar

RECORDS_BETWEEN_RESTS = 64  # after which one is due, if half a millisecond is over
WORK_SECONDS = 0.0005
PAUSE_SECONDS = 0.0015
BUSY_SHARE = 0.25  # of the time between two looks, that the loop's thread has computed

Item = TypeVar("Item")


class ThreadPauses:
    """The pauses of one thread. `loop_seconds` is the CPU time that the loop's has taken; None: it never pauses."""

    def __init__(
        self,
        loop_seconds: Callable[[], float] | None = None,
        now: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._loop_seconds = loop_seconds
        self._now = now
        self._sleep = sleep
        self._looked_at = self._taken = 0.0

    def sleep_if_due(self) -> None:
        """Sleep if this thread has worked for half a millisecond since the last look, and the loop was busy."""
        if self._loop_seconds is None:
            return
        now = self._now()
        since = now - self._looked_at
        if since < WORK_SECONDS:
            return
        try:
            taken = self._loop_seconds()
        except OSError:  # its thread has ended
            self._loop_seconds = None
            return
        is_busy, self._looked_at, self._taken = taken - self._taken > BUSY_SHARE * since, now, taken
        if is_busy:
            self._sleep(PAUSE_SECONDS)
            self._looked_at = self._now()


def iterate_records_with_pauses(records: Iterator[Item], pause_if_due: Callable[[], None]) -> Iterator[Item]:
    """Return the same records, with a call of `pause_if_due` before every `RECORDS_BETWEEN_RESTS` of them."""
    return chain.from_iterable(_split_records_between_pauses(records, pause_if_due))


def _split_records_between_pauses(
    records: Iterator[Item], pause_if_due: Callable[[], None]
) -> Iterator[Iterator[Item]]:
    """Yield iterators over `RECORDS_BETWEEN_RESTS` records each, and call `pause_if_due` before each."""
    for first in records:
        pause_if_due()
        yield chain((first,), islice(records, RECORDS_BETWEEN_RESTS - 1))


def do_not_pause() -> None:
    """Do not pause, where no event loop is beside."""
