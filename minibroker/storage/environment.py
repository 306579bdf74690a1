"""What the storage is given from outside: the disk, time, other threads, chance. Tests replace all of it.

What is done with them stands where it is done.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from minibroker.storage.files import Disk

# `run_aside(work, done)`: `work()` in another thread, then `done(what it raised, or None)` in the caller's own.
Done = Callable[[Exception | None], None]
RunAside = Callable[[Callable[[], None], Done], None]


def run_at_once(work: Callable[[], None], done: Done) -> None:
    """Do the work here and now, where there is no other thread, and no loop that must not wait."""
    done(attempt(work))


def attempt(work: Callable[[], None]) -> Exception | None:
    """Do the work; what it raised, or None."""
    try:
        work()
    except Exception as error:
        return error
    return None


class Environment(NamedTuple):
    """The environment of every log: the disk, the clock, timers, another thread, and random numbers.

    `now_ms()` is the wall clock, ms since 1970; `schedule(delay_ms, callback)` calls `callback()` after a while;
    `run_aside(work, done)` does the slow work of a flush in another thread; `random` is for the jitter of segments.
    """

    disk: Disk
    now_ms: Callable[[], int]
    schedule: Callable[[int, Callable[[], None]], object]
    run_aside: RunAside = run_at_once
    random: Random = Random()
