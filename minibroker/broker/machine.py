"""What the process of a broker sets on its machine, once, at the start; a broker inside another program sets nothing.

glibc hands the top of the heap back to the kernel whenever a large block there is freed. A broker that takes and frees
a megabyte a request then spends half of its time on page faults: 1.7 ms were measured for a MB received, 0.7 without.
A log keeps a file open and so does a client; 1,024 of them, the usual soft limit, is soon not enough.
A thread that computes, as the cleaner does, lets the thread of the event loop in only every 5 ms: the slowest of a
hundred requests took 5 to 7 ms while a log was compacted, 1 to 2 ms with the setting below, and 0.06 ms without.
Python's collector of cycles goes through all objects whenever there are a quarter more of them: 30 ms with a thousand
topics, which nobody should wait for. So all of them are looked at only when the process is idle, and those that are
alive then are frozen: a busy process goes through the objects since then, often enough that this takes some
milliseconds: 0.2 to 0.6 us for an object, as it is not in the processor's cache. Those that outlive that are frozen,
too, or the next time would take longer: 400 ms with 200,000 groups. If they become garbage later, and in cycles, only
an idle process finds them: so whatever lives for long (topics, logs, groups, connections) ends without cycles.
Linux keeps open files in a table that it doubles, and while a process has threads it waits for all cores before it
does: each of 4,096 files that were opened took 0.02 ms, and the next one 73 ms. A large table takes no time later.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
from collections.abc import Awaitable, Callable

from minibroker import operating_system as system

TRIM_THRESHOLD = -1  # names of mallopt(3)
MMAP_THRESHOLD = -3
KEPT_BYTES = 16 << 20
LARGEST_HEAP_BLOCK_BYTES = 8 << 20
DESCRIPTORS = 1 << 20
STDERR = 2
SWITCH_SECONDS = 0.0001
TABLE_DESCRIPTORS = 1 << 16  # half a megabyte of the kernel's memory
YOUNG_OBJECTS = 700  # Python 3.13 has 2,000 of them, ten times of which are more than should be unseen
UNSEEN_OBJECTS = 16_000  # newer than the last full collection: to go through them and free them all takes 10 ms
COLLECTION_SECONDS = 10.0  # between two looks whether it is time
IDLE_SECONDS = 1.0
IDLE_SHARE = 0.02  # of a core
WORTH_IT_OBJECTS = 700_000  # new ones since all were looked at
OLDEST = 2  # generation
GARBAGE_SHARE = 0.1  # of the objects that are alive


def keep_freed_memory_in_malloc() -> bool:
    """Keep up to 16 MiB of freed memory for the next request; return False if the C library has no such switch."""
    mallopt = system.find_c_function("mallopt")
    if mallopt is None:
        return False
    # Setting either one alone has no effect here: it only stops glibc from adapting the other.
    return bool(mallopt(MMAP_THRESHOLD, LARGEST_HEAP_BLOCK_BYTES)) and bool(mallopt(TRIM_THRESHOLD, KEPT_BYTES))


def reopen_closed_standard_streams() -> None:
    """Open those of stdin, stdout and stderr that are closed: a socket in their place would be read as stdin."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        pass
    os.close(descriptor)


def raise_descriptor_limit() -> int:
    """Allow as many open files as the hard limit, up to about a million; return the limit now in force, -1 for none."""
    return system.raise_open_file_limit(DESCRIPTORS)


def grow_descriptor_table(limit: int) -> None:
    """Let the kernel's table of open files become large now, in a process that has no threads yet.

    `limit` is that of open files, -1 for none.
    """
    system.open_and_close_descriptor(
        (TABLE_DESCRIPTORS if limit == system.UNLIMITED else min(limit, TABLE_DESCRIPTORS)) - 1
    )


def shorten_thread_switch_interval() -> None:
    """Switch threads after a tenth of a millisecond, so that one that computes does not hold up the event loop."""
    sys.setswitchinterval(SWITCH_SECONDS)


def freeze_objects_for_gc() -> GarbageFreezer:
    """Freeze all objects, and let the collector go through newer ones once there are `UNSEEN_OBJECTS` of them.

    Python 3.14.0 to 3.14.4 ignore that number: they go through old objects in small portions.
    """
    gc.freeze()
    middle = gc.get_threshold()[1]
    gc.set_threshold(YOUNG_OBJECTS, middle, max(UNSEEN_OBJECTS // (YOUNG_OBJECTS * middle) - 1, 1))
    freezing = GarbageFreezer()
    gc.callbacks.append(freezing)
    return freezing


class GarbageFreezer:
    """Called by the collector: after it has gone through all that is not frozen, freeze what is alive.

    It does not while much of it is garbage, which more of it is about to become, unless it has become many objects: no
    collection goes through more than twice `UNSEEN_OBJECTS`, but for `collect_cycles_of_all_objects`.
    """

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        """Take note of a collection that begins or ends, as `gc.callbacks` has it."""
        if phase == "start" or info["generation"] < OLDEST:
            return
        alive = len(gc.get_objects(OLDEST))
        if info["collected"] <= GARBAGE_SHARE * alive or alive > UNSEEN_OBJECTS:
            gc.freeze()

    def collect_cycles_of_all_objects(self) -> None:
        """Collect the cycles among all objects, and freeze those that are alive."""
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        gc.collect()  # of nothing, as the next one otherwise waits for a quarter more objects than were alive now


async def collect_garbage_when_idle(
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep, read_cpu_seconds: Callable[[], float] = time.process_time
) -> None:
    """Freeze all objects, and collect the cycles among them whenever that is worth it and the process is idle.

    Never return. `read_cpu_seconds` returns the CPU seconds that the process has used.
    """
    freezing = freeze_objects_for_gc()
    seen = _count_new_objects()
    while True:
        await sleep(COLLECTION_SECONDS)
        if _count_new_objects() - seen >= WORTH_IT_OBJECTS:
            used_before = read_cpu_seconds()
            await sleep(IDLE_SECONDS)
            if read_cpu_seconds() - used_before < IDLE_SHARE * IDLE_SECONDS:
                freezing.collect_cycles_of_all_objects()
                seen = _count_new_objects()


def _count_new_objects() -> int:
    """Return about how many objects have become old since the process began."""
    young, middle, _ = gc.get_threshold()
    collections: int = sum(generation["collections"] for generation in gc.get_stats()[1:])
    return young * middle * collections
