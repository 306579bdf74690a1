"""Takes away from Python what Windows lacks, so that a run of the tests on Linux takes the paths that replace it.

    python3 -m pytest --bare

It puts this directory on PYTHONPATH. Every Python process imports this file when it starts, those that tests start
included. There is no uvloop, sendfile, pread, fcntl, resource, signal handler of a loop, or descriptor of a directory
then; whoever renames or removes a file that this process has open gets a PermissionError, as on Windows; and msvcrt can
lock a file.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import shutil
import stat
import subprocess  # before there is a msvcrt, by which it recognises Windows
import sys
import types
from collections.abc import Callable
from typing import Any

ALSO_NEEDED = (asyncio, shutil, subprocess)  # these look at what there is when they are imported
LACKING = ("O_DIRECTORY", "memfd_create", "pread", "preadv", "pwrite", "pwritev", "sendfile", "statvfs")
ABSENT = ("uvloop", "fcntl", "resource")


def locking(fd: int, mode: int, size: int) -> None:
    """Lock or unlock a file, as the function of the same name in msvcrt."""
    try:
        fcntl.flock(fd, fcntl.LOCK_UN if mode == msvcrt.LK_UNLCK else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from None


def refuse_signals(loop: Any, number: int, callback: Any, *args: Any) -> None:
    """Refuse to handle a signal, as loops do on Windows."""
    raise NotImplementedError


def while_closed(change: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that changes names, and refuses those of files that are open."""

    def changed(*paths: Any, **options: Any) -> Any:
        directory = options.get("dir_fd")
        start = "" if directory is None else os.readlink(f"/proc/self/fd/{directory}")
        for path in paths:
            if is_open(os.path.abspath(os.path.join(start, os.fsdecode(path)))):
                raise PermissionError(errno.EACCES, "open in this process", path)
        return change(*paths, **options)

    return changed


def is_open(path: str) -> bool:
    """Return whether this process has the file open, or one in the directory."""
    return path.startswith(DATA) and any(
        opened == path or opened.startswith(f"{path}/") for opened in map(opened_as, os.listdir("/proc/self/fd"))
    )


def opened_as(descriptor: str) -> str:
    """Return the path of an open file; nothing for anything else."""
    try:
        is_file = stat.S_ISREG(os.fstat(int(descriptor)).st_mode)
        return os.readlink(f"/proc/self/fd/{descriptor}") if is_file else ""
    except OSError:
        return ""


def disk_usage(path: str) -> Any:
    """Return what Windows tells without statvfs."""
    found = statvfs(path)
    free = found.f_bavail * found.f_frsize
    return shutil._ntuple_diskusage(found.f_blocks * found.f_frsize, 0, free)  # type: ignore[attr-defined]


DATA = os.path.realpath(os.environ.get("TMPDIR", "/tmp"))  # where tests have the data of their brokers
msvcrt: Any = types.ModuleType("msvcrt")
msvcrt.locking, msvcrt.LK_UNLCK, msvcrt.LK_NBLCK = locking, 0, 2
sys.modules["msvcrt"] = msvcrt
for name in ABSENT:
    sys.modules[name] = None  # type: ignore[assignment]
statvfs, shutil.disk_usage = os.statvfs, disk_usage
shutil._USE_CP_SENDFILE = False  # type: ignore[attr-defined]
for name in LACKING:
    delattr(os, name)
asyncio.SelectorEventLoop.add_signal_handler = refuse_signals  # type: ignore[method-assign]
os.replace, os.rename = while_closed(os.replace), while_closed(os.rename)
os.unlink = os.remove = while_closed(os.unlink)
os.rmdir = while_closed(os.rmdir)
