"""What the process of a broker sets on its machine, once, at the start; a broker inside another program sets nothing.

glibc hands the top of the heap back to the kernel whenever a large block there is freed. A broker that takes and frees
a megabyte a request then spends half of its time on page faults: 1.7 ms were measured for a MB received, 0.7 without.
A log keeps a file open and so does a client; 1,024 of them, the usual soft limit, is soon not enough.
A thread that computes, as the cleaner does, lets the thread of the event loop in only every 5 ms: the slowest of a
hundred requests took 5 to 7 ms while a log was compacted, 1 to 2 ms with the setting below, and 0.06 ms without.
Python's collector of cycles goes through all objects whenever there are a quarter more of them: 30 ms with a thousand
topics, which nobody should wait for. Young objects are collected as usual, all of them only when the process is idle.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import resource
import sys
import time

TRIM_THRESHOLD = -1  # names of mallopt(3)
MMAP_THRESHOLD = -3
KEPT_BYTES = 16 << 20
LARGEST_HEAP_BLOCK_BYTES = 8 << 20
DESCRIPTORS = 1 << 20
SWITCH_SECONDS = 0.0001
NEVER = 1 << 30
COLLECTION_SECONDS = 10.0  # between two looks whether it is time
IDLE_SECONDS = 1.0
IDLE_SHARE = 0.02  # of a core
WORTH_IT = 100  # collections of young objects, with 7,000 new ones each, since the last one of all
OVERDUE = 20_000


def keep_freed_memory() -> bool:
    """Keep up to 16 MiB of freed memory for the next request; return False if the C library has no such switch."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # Setting either one alone has no effect here: it only stops glibc from adapting the other.
    return bool(mallopt(MMAP_THRESHOLD, LARGEST_HEAP_BLOCK_BYTES)) and bool(mallopt(TRIM_THRESHOLD, KEPT_BYTES))


def raise_descriptor_limit() -> int:
    """Allow as many open files as the hard limit, up to about a million; return the limit now in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def share_the_interpreter() -> None:
    """Switch threads after a tenth of a millisecond, so that one that computes does not hold up the event loop."""
    sys.setswitchinterval(SWITCH_SECONDS)


def spare_the_old() -> None:
    """Let the collector look at young objects only; `collect_when_idle` collects the others."""
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, NEVER)


async def collect_when_idle() -> None:
    """Collect the cycles among old objects, for ever: once it is worth it and the process is idle, or overdue."""
    while True:
        await asyncio.sleep(COLLECTION_SECONDS)
        if gc.get_count()[2] >= WORTH_IT and (await _is_idle() or gc.get_count()[2] >= OVERDUE):
            gc.collect()


async def _is_idle() -> bool:
    used_before = time.process_time()
    await asyncio.sleep(IDLE_SECONDS)
    return time.process_time() - used_before < IDLE_SHARE * IDLE_SECONDS
