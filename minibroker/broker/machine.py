"""What a broker's process asks of its machine, once, at the start; a broker inside of another program asks nothing.

glibc hands the top of the heap back to the kernel whenever a large block there is freed. A broker that takes and frees
a megabyte a request then spends half of its time on page faults: 1.7 ms were measured for a MB received, 0.7 without.
A log keeps a file open and so does a client; 1,024 of them, the usual soft limit, is soon not enough.
A thread that computes, as the cleaner's does, lets that of the event loop in only every 5 ms: the slowest of a hundred
requests took 5 to 7 ms while a log was compacted, 1 to 2 ms with what is set here, and 0.06 ms while none was.
"""

from __future__ import annotations

import ctypes
import resource
import sys

TRIM_THRESHOLD = -1  # names of mallopt(3)
MMAP_THRESHOLD = -3
KEPT_BYTES = 16 << 20
LARGEST_HEAP_BLOCK_BYTES = 8 << 20
DESCRIPTORS = 1 << 20
SWITCH_SECONDS = 0.0001


def keep_freed_memory() -> bool:
    """Keep up to 16 MiB of freed memory for the next request; False where the C library has no such switch."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # Setting either one alone has no effect here: it only stops glibc from adapting the other.
    return bool(mallopt(MMAP_THRESHOLD, LARGEST_HEAP_BLOCK_BYTES)) and bool(mallopt(TRIM_THRESHOLD, KEPT_BYTES))


def raise_descriptor_limit() -> int:
    """Allow as many open files as the hard limit does, up to about a million; the limit now in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def share_the_interpreter() -> None:
    """Have a thread that computes let in one that waits for the interpreter after a tenth of a millisecond."""
    sys.setswitchinterval(SWITCH_SECONDS)
