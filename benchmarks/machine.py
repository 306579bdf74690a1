"""Facts about this machine and its processes: CPU time, memory, load, names.

How they are set beside each other is in `report.py`; nothing here starts a process.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from minibroker.protocol.records.strides import IS_COMPILED

ROOT = Path(__file__).resolve().parent.parent
FORGET_PEAK = "5"  # what proc(5) has for "reset the peak resident set size"
CPUCLOCK_SCHED = 2  # the kernel's number for "user and system time of a process", in the low bits of a clock id


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads of `pid`, in seconds.

    Read from the process's CPU clock (clock_getcpuclockid(3)), which counts nanoseconds: /proc/PID/stat is the same
    sum in ticks of 10 ms, which is a tenth of a short run. Raises `OSError` when there is no such process.
    """
    return time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED)


class LoopTime(NamedTuple):
    """The time of a process's first thread since it began: seconds on a core, and seconds in wait for one."""

    ran_s: float
    coreless_s: float

    @property
    def wanted_s(self) -> float:
        """All seconds in which it was not idle."""
        return self.ran_s + self.coreless_s


def loop_time(pid: int) -> LoopTime:
    """Of the thread that runs the event loop. Raises `OSError` when there is no such process."""
    ran, waited, _ = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()
    return LoopTime(int(ran) / 1e9, int(waited) / 1e9)


def is_alive(pid: int) -> bool:
    """Whether the process runs: one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def resident_kib(pid: int) -> int:
    """Resident memory of `pid` in KiB, summed over its mappings: VmRSS is kept per thread and lags."""
    match = re.search(r"^Rss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    if match is None:
        raise OSError(f"/proc/{pid}/smaps_rollup has no line Rss")
    return int(match[1])


def forget_peak(pid: int) -> None:
    """Reset `peak_kib`."""
    Path(f"/proc/{pid}/clear_refs").write_text(FORGET_PEAK)


def peak_kib(pid: int) -> int:
    """The most resident memory that `pid` has had, in KiB."""
    match = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    if match is None:
        raise OSError(f"/proc/{pid}/status has no line VmHWM")
    return int(match[1])


@contextmanager
def on_one_core(pid: int) -> Iterator[None]:
    """Keep `pid`, and what we start meanwhile, on one core: the one to which a request wakes its server anyway.

    Where a virtual machine's cores are idle, waking another one leaves the machine: 50 us, of which half are counted as
    the waker's CPU. Whether that happens is the scheduler's mood, so that a row has two modes.
    """
    ours, theirs = os.sched_getaffinity(0), os.sched_getaffinity(pid)
    core = {min(ours & theirs)}
    _keep_on(pid, core)
    os.sched_setaffinity(0, core)
    try:
        yield
    finally:
        os.sched_setaffinity(0, ours)
        _keep_on(pid, theirs)


def _keep_on(pid: int, cores: set[int]) -> None:
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(thread), cores)


def load_average() -> float:
    """Processes that ran or wanted to, averaged over the last minute."""
    return os.getloadavg()[0]


class Machine(NamedTuple):
    """Where and when figures were taken; `load_before` and `load_after` are one-minute averages."""

    date: str
    commit: str
    processor: str
    cores: int
    memory_gib: int
    kernel: str
    python: str
    load_before: float
    load_after: float


def describe(load_before: float) -> Machine:
    """This machine now; `load_before` is the load average before the first row."""
    return Machine(
        date=time.strftime("%Y-%m-%d %H:%M", time.gmtime()) + " UTC",
        commit=_commit(),
        processor=_processor(),
        cores=os.cpu_count() or 0,
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        kernel=f"{os.uname().sysname} {os.uname().release}",
        python=platform.python_version() + ", compiled" * IS_COMPILED,
        load_before=load_before,
        load_after=load_average(),
    )


def _processor() -> str:
    match = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return match[1] if match else os.uname().machine


def _commit() -> str:
    """The commit measured, with a + when files of the package differ from it; "unknown" outside a checkout."""
    try:
        name = _git("rev-parse", "--short", "HEAD")
        return name + ("+" if _git("status", "--porcelain", "--", "minibroker") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*words: str) -> str:
    return subprocess.run(["git", "-C", ROOT, *words], check=True, capture_output=True, text=True).stdout.strip()
