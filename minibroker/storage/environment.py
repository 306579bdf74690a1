"""What the storage gets from outside: the disk, time, other threads, and random numbers. Tests replace them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from minibroker.named_tuples import NamedTuple
from minibroker.storage.files import Disk

# `run_in_thread(work, done)`: `work()` in another thread, then `done(what it raised, or None)` in the caller's own.
Done = Callable[[Exception | None], None]
RunAside = Callable[[Callable[[], None], Done], None]


def run_work_at_once(work: Callable[[], None], on_done: Done) -> None:
    """Run the work here and now, where there is no other thread, and no event loop to block."""
    on_done(run_and_return_error(work))


def run_and_return_error(work: Callable[[], None]) -> Exception | None:
    """Run the work, and return what it raised, or None."""
    try:
        work()
    except Exception as error:
        return error
    return None


class Environment(NamedTuple):
    """The environment of every log: the disk, the clock, timers, another thread, and random numbers.

    `now_ms()` is the wall clock, ms since 1970; `schedule(delay_ms, callback)` calls `callback()` after the delay;
    `run_in_thread(work, done)` runs slow work in another thread; `random` is for the jitter of segments.
    """

    disk: Disk
    now_ms: Callable[[], int]
    schedule: Callable[[int, Callable[[], None]], object]
    run_in_thread: RunAside = run_work_at_once
    random: Random = Random()
