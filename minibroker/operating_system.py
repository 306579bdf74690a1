"""Everything that not every operating system has, and what replaces it. No other file asks on which one it runs.

    what                              Linux, macOS                     elsewhere (Windows)
    event loop                        uvloop, if it is installed       asyncio's own
    read and write at a position      pread, pwrite                    seek, then read or write, one at a time
    rename and remove an open file    possible                         closed before, opened again by its new name
    sendfile                          used for plain connections       data is read and written
    locks of files                    flock and lockf                  msvcrt.locking
    sync the names in a directory     fsync of the directory           the file system does it by itself
    signals                           handlers of the loop             Python's handlers, which wake the loop
    limit and table of open files     raised at the start              left as they are
    usable CPUs                       affinity and quota (Linux)       all
    memory of large frames            private                          backed by the page file
    bind a port again, or share it    SO_REUSEADDR; for sharing on     exclusive; there, SO_REUSEADDR means sharing
                                      macOS SO_REUSEPORT, too

Tests force the right column on Linux: tests/bare/sitecustomize.py takes away what Windows lacks.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from threading import Lock, RLock, get_ident
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncio
    import socket
    from mmap import mmap

Bytes = bytes | bytearray | memoryview

UNLIMITED: Final = -1
MOST_FILES_OF_MACOS: Final = 10_240  # it refuses higher limits, even if its hard limit is none
HAS_POSITIONED_IO: Final = hasattr(os, "pread") and hasattr(os, "pwrite")
BINARY: Final[int] = getattr(os, "O_BINARY", 0)  # Windows translates line endings without it
LOCKED: Final = (errno.EAGAIN, errno.EACCES, errno.EDEADLK)  # what a lock fails with that somebody else has


# --- event loop and signals -------------------------------------------------------------------------------------------


def make_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new loop of uvloop's, if it is installed, otherwise asyncio's."""
    try:
        import uvloop
    except ImportError:
        import asyncio

        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def call_on_end_signals(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    """Call `callback` in the loop when the process is asked to end: by SIGTERM, Ctrl-C or, on Windows, Ctrl-Break."""
    import signal

    def wake(*_: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and the process ends already
            loop.call_soon_threadsafe(callback)

    for name in ("SIGTERM", "SIGINT", "SIGBREAK"):
        if (number := getattr(signal, name, None)) is not None:
            try:
                loop.add_signal_handler(number, callback)
            except NotImplementedError:
                signal.signal(number, wake)


# --- files ------------------------------------------------------------------------------------------------------------


class _OpenFile:
    """A file of `OpenFiles`. `fd` is -1 once it is closed or removed, and nobody has it once it `is_disowned`."""

    __slots__ = ("path", "flags", "fd", "is_disowned", "lock")

    def __init__(self, path: str, flags: int, fd: int) -> None:
        self.path = path
        self.flags = flags
        self.fd = fd
        self.is_disowned = False
        self.lock = RLock()  # its owner may be collected as garbage, and close it, in the thread that has the lock

    def is_below_path(self, path: str) -> bool:
        """Return whether it has this path, or is in the directory with this path."""
        return self.path == path or self.path.startswith(f"{path}/")

    def close(self) -> None:
        """Close the descriptor, if it is open."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def reopen(self, path: str) -> None:
        """Open it again at a path, unless its owner was collected since it was closed."""
        self.path = path
        self.fd = os.open(path, self.flags)
        if self.is_disowned:
            self.close()


class OpenFiles:
    """Open files by handles, for systems without pread, or where an open file can be neither renamed nor removed.

    Any thread may call the methods; one file is used by one thread at a time. Before a rename, the files that it
    concerns are closed; they are opened again under their new names. Once a file is removed, its handles fail with
    ESTALE: elsewhere they could still be read.
    """

    def __init__(self) -> None:
        self._files: dict[int, _OpenFile] = {}
        self._handles = itertools.count()
        self._names = Lock()  # nothing is opened while something is renamed or removed

    def open_file(self, path: str, flags: int) -> int:
        """Open a file as os.open does, and return its handle."""
        path, flags = os.path.abspath(path), flags | BINARY
        with self._names:
            handle = next(self._handles)
            self._files[handle] = _OpenFile(path, flags & ~os.O_CREAT, os.open(path, flags, 0o644))
        return handle

    def close_file(self, handle: int) -> None:
        """Close a file."""
        file = self._files.pop(handle)
        with file.lock:
            file.is_disowned = True
            file.close()

    def read_at(self, handle: int, size: int, position: int) -> bytes:
        """Return up to `size` bytes from `position` on."""
        with self._open_descriptor(handle) as fd:
            os.lseek(fd, position, os.SEEK_SET)
            return os.read(fd, size)

    def write_at(self, handle: int, data: Bytes, position: int) -> int:
        """Write at `position`; return how many bytes were written."""
        with self._open_descriptor(handle) as fd:
            os.lseek(fd, position, os.SEEK_SET)
            return os.write(fd, data)

    def truncate_file(self, handle: int, size: int) -> None:
        """Truncate a file, or extend it with zeros."""
        with self._open_descriptor(handle) as fd:
            os.ftruncate(fd, size)

    def sync_file(self, handle: int) -> None:
        """Wait until all that was written is on the disk."""
        with self._open_descriptor(handle) as fd:
            os.fsync(fd)

    def size_of_file(self, handle: int) -> int:
        """Return the size of a file in bytes."""
        with self._open_descriptor(handle) as fd:
            return os.fstat(fd).st_size

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory, and replace a file that has the new name."""
        old, new = os.path.abspath(old), os.path.abspath(new)
        with self._names, self._close_for_a_while(old) as moved, self._close_for_a_while(new) as replaced:
            path = old
            try:
                os.replace(old, new)
                path, replaced[:] = new, []
            finally:
                for file in moved:
                    file.reopen(path + file.path[len(old) :])
                for file in replaced:
                    file.reopen(file.path)

    def remove(self, path: str) -> None:
        """Remove a file."""
        path = os.path.abspath(path)
        with self._names, self._close_for_a_while(path):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all that is in it."""
        import shutil

        path = os.path.abspath(path)
        with self._names, self._close_for_a_while(path):
            shutil.rmtree(path)

    def lock_file(self, path: str) -> int | None:
        """Lock a file until its handle is closed. Return None if it is locked already."""
        import msvcrt  # not on Linux: its stub has nothing there

        handle = self.open_file(path, os.O_RDWR | os.O_CREAT)
        try:
            msvcrt.locking(self._files[handle].fd, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
        except OSError as error:
            self.close_file(handle)
            if error.errno in LOCKED:
                return None
            raise
        return handle

    @contextlib.contextmanager
    def _open_descriptor(self, handle: int) -> Iterator[int]:
        """Yield the descriptor of a file, which no other thread uses meanwhile."""
        file = self._files.get(handle)
        if file is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        with file.lock:
            if file.fd < 0:
                raise OSError(errno.ESTALE, "the file was removed", file.path)
            yield file.fd

    @contextlib.contextmanager
    def _close_for_a_while(self, path: str) -> Iterator[list[_OpenFile]]:
        """Close the files at or below a path during the block, and yield them; the caller opens them again."""
        with contextlib.ExitStack() as locked:
            files = [file for file in list(self._files.values()) if file.is_below_path(path)]
            for file in files:
                locked.enter_context(file.lock)
            files = [file for file in files if file.fd >= 0]
            for file in files:
                file.close()
            yield files


def _open_file(path: str, flags: int) -> int:
    """Open a file, and return its descriptor."""
    return os.open(path, flags, 0o644)


def _remove_tree(path: str) -> None:
    import shutil  # here, as it imports every archive format, which would slow down the start

    shutil.rmtree(path)


def _lock_file(path: str) -> int | None:
    """Lock a file, and return its descriptor, None if it is locked already."""
    import fcntl

    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if error.errno in LOCKED:
            return None
        raise
    return fd


# The operations on files, by descriptors or by handles of `OpenFiles`: these names are the same functions everywhere.
open_file: Callable[[str, int], int]
close_file: Callable[[int], None]
read_at: Callable[[int, int, int], bytes]
write_at: Callable[[int, Bytes, int], int]
truncate_file: Callable[[int, int], None]
sync_file: Callable[[int], None]
get_file_size: Callable[[int], int]
rename: Callable[[str, str], None]
remove: Callable[[str], None]
remove_tree: Callable[[str], None]
lock_file: Callable[[str], int | None]
sendfile: Callable[[int, int, int, int], int] | None

if HAS_POSITIONED_IO:
    open_file, close_file, read_at, write_at = _open_file, os.close, os.pread, os.pwrite
    truncate_file = os.ftruncate
    rename, remove, remove_tree, lock_file = os.replace, os.unlink, _remove_tree, _lock_file
    sendfile = getattr(os, "sendfile", None)

    def sync_file(fd: int) -> None:
        """Wait until all that was written is on the disk."""
        os.fsync(fd)

    def get_file_size(fd: int) -> int:
        """Return the size of a file in bytes."""
        return os.fstat(fd).st_size

else:
    _files = OpenFiles()
    open_file, close_file, read_at, write_at = _files.open_file, _files.close_file, _files.read_at, _files.write_at
    truncate_file, sync_file, get_file_size = _files.truncate_file, _files.sync_file, _files.size_of_file
    rename, remove, remove_tree, lock_file = _files.rename, _files.remove, _files.remove_tree, _files.lock_file
    sendfile = None

HAS_SENDFILE: Final = sendfile is not None


def sync_directory(path: str) -> None:
    """Wait until the names in a directory are on the disk, where a directory can be synced."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def measure_space_bytes(path: str) -> tuple[int, int]:
    """Return (size, free for us) of a path's file system."""
    if not hasattr(os, "statvfs"):
        import shutil  # it is slow to import

        usage = shutil.disk_usage(path)
        return usage.total, usage.free
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def make_temporary_directory(prefix: str) -> str:
    """Create a directory that only its owner can read, without tempfile, whose import takes 3 ms of a start."""
    parent = os.environ.get("TMPDIR") or "/tmp"
    if os.name != "posix" or not os.path.isdir(parent):
        import tempfile

        parent = tempfile.gettempdir()
    path = os.path.join(parent, prefix + os.urandom(8).hex())
    os.mkdir(path, 0o700)
    return path


@contextlib.contextmanager
def make_secret_file(content: bytes) -> Iterator[str]:
    """Yield the path of a file with a secret, for functions that need one: in memory, or else readable by its owner."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        descriptor = os.memfd_create("secret")
        try:
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    import tempfile

    with tempfile.TemporaryDirectory() as directory:  # readable by its owner; Windows opens no file a second time
        path = os.path.join(directory, "secret")
        with open(path, "xb") as file:
            file.write(content)
        yield path


# --- memory -----------------------------------------------------------------------------------------------------------


def reserve_memory(size_bytes: int) -> mmap:
    """Return zeroed memory, of which the system provides a page when it is first written to."""
    import mmap

    if sys.platform == "win32":
        return mmap.mmap(-1, size_bytes)
    return mmap.mmap(-1, size_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # by default it is shared memory


# --- limits of the process --------------------------------------------------------------------------------------------


def count_usable_cpus(root: str = "/") -> float:
    """Return how many CPUs this process may use: those of its affinity, or less by the quota of its control groups."""
    cpus: float = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [(f"{group}/cpu.max",) for group in _list_control_groups(root)]
    for names in (*quotas, ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):  # version 2, and the container's of 1
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
            texts = [_read_text(f"{root}sys/fs/cgroup/{name}") for name in names]
            quota, period = map(int, " ".join(texts).split())
            if quota > 0 and period > 0:
                cpus = min(cpus, quota / period)
    return cpus


def _list_control_groups(root: str) -> list[str]:
    """Return the paths of the process's control group (of version 2) and of all above it; none on another system."""
    try:
        lines = _read_text(f"{root}proc/self/cgroup").splitlines()
    except (OSError, ValueError):
        return []
    parts = [line.strip("/").split("/") for line in lines if line.startswith("0::")]
    return ["/".join(names[1:count]) for names in parts for count in range(len(names), 0, -1)]


def _read_text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def raise_open_file_limit(wanted_count: int) -> int:
    """Allow `wanted_count` open files, at most the hard limit. Return the limit in force, `UNLIMITED` for none."""
    try:
        import resource
    except ImportError:
        return UNLIMITED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted_count = wanted_count if hard == resource.RLIM_INFINITY else min(hard, wanted_count)
    for limit in (wanted_count, min(wanted_count, MOST_FILES_OF_MACOS)):
        if soft != resource.RLIM_INFINITY and soft < limit:
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
                break
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return UNLIMITED if limit == resource.RLIM_INFINITY else limit


def count_free_descriptors() -> int:
    """Return how many more files and sockets the process may open, at the least; `UNLIMITED` for any number."""
    try:
        import resource
    except ImportError:
        return UNLIMITED
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return UNLIMITED
    try:
        lowest = os.open(os.devnull, os.O_RDONLY)  # all below are taken; few are above
    except OSError:
        return 0
    os.close(lowest)
    return limit - lowest


def open_and_close_descriptor(number: int) -> None:
    """Open a file with this descriptor and close it, so that the kernel's table of open files has room for as many."""
    try:
        import fcntl
    except ImportError:
        return
    descriptor = os.open(os.devnull, os.O_RDONLY)
    with contextlib.suppress(OSError):  # it is only slower without
        os.close(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, number))
    os.close(descriptor)


def find_thread_clock() -> Callable[[], float] | None:
    """Return a clock of the CPU time that the calling thread takes, in seconds, which any thread may read.

    None if the system has none. It raises OSError once the thread has ended.
    """
    try:
        return partial(time.clock_gettime, time.pthread_getcpuclockid(get_ident()))
    except (AttributeError, OSError):  # a browser has the function alone
        return None


def find_c_function(name: str) -> Any:
    """Return a function of the C library, or None if it has none of this name."""
    import ctypes  # no start should wait for it

    try:
        return getattr(ctypes.CDLL(None), name, None)
    except TypeError:  # Windows has no such library
        return None


# --- sockets ----------------------------------------------------------------------------------------------------------


def reuse_address(listening: socket.socket, *, shared: bool = False) -> None:
    """Let a port be bound although connections of its last user linger, and not while somebody listens on it.

    With `shared`, a socket that does not listen may have the port as well; it must be prepared in the same way.
    """
    import socket

    if sys.platform == "win32":
        option = socket.SO_REUSEADDR if shared else socket.SO_EXCLUSIVEADDRUSE
        listening.setsockopt(socket.SOL_SOCKET, option, 1)
        return
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared and sys.platform != "linux":  # as BSD has it
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
