"""The one door to the disk: every byte that the broker stores or looks up passes through `Disk` and `File`.

What the files mean is not known here. Tests replace the two classes by ones that fail on demand.
"""

from __future__ import annotations

import errno
import fcntl
import os

# What the system says where a process, or the machine, has too many files open. No fsync ends so, only an open.
TOO_MANY_FILES = frozenset({errno.EMFILE, errno.ENFILE})

Bytes = bytes | bytearray | memoryview

# The files we read whole are checkpoints, snapshots and indexes; an index has at most `segment.index.bytes`.
MAX_WHOLE_FILE_BYTES = 1 << 30


class File:
    """One open file. Its descriptor is closed by `close()`, or when the last reference to it goes.

    So a region of a segment that waits in a connection's queue stays readable after the segment was deleted.
    Every method raises `OSError` as the system does.
    """

    __slots__ = ("path", "_fd")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def read(self, position: int, size: int) -> bytes:
        """The `size` bytes from `position` on, fewer only if the file ends before."""
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        return data + self.read(position + len(data), size - len(data))

    def write(self, position: int, data: Bytes) -> None:
        """Write all of `data` at `position`. When this raises, a part of it may be in the file."""
        written = os.pwrite(self._fd, data, position)
        if written != len(data):
            self._write_rest(position + written, memoryview(data)[written:])

    def _write_rest(self, position: int, data: memoryview) -> None:
        while data:
            written = os.pwrite(self._fd, data, position)
            if written == 0:
                raise OSError(errno.EIO, "the disk accepts no more bytes", self.path)
            position += written
            data = data[written:]

    def sendfile(self, socket_fd: int, position: int, size: int) -> int:
        """Send up to `size` bytes from `position` to a socket without copying them; how many went out."""
        return os.sendfile(socket_fd, self._fd, position, size)

    def truncate(self, size: int) -> None:
        """Cut, or extend by zeros, to `size` bytes."""
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        """Return once all that was written is on the disk itself. Slow: never in the event loop's thread."""
        os.fsync(self._fd)

    def size_bytes(self) -> int:
        """The size of the file as the file system has it."""
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        """Give the descriptor back. A second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class Disk:
    """The operations on names: files and directories. Every method raises `OSError` as the system does."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing, made empty first if it is not there and `create` is set.

        On a file system that has become read-only what is there can still be read: then only writing fails.
        """
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            return self.make_file(path, os.open(path, flags, 0o644))
        except OSError as error:
            if create or error.errno != errno.EROFS:
                raise
            return self.open_to_read(path)

    def open_to_read(self, path: str) -> File:
        """Open a file for reading only, by those who must not change it."""
        return self.make_file(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def make_file(self, path: str, fd: int) -> File:
        """Return what `open` gives for a descriptor; a disk with a kind of files of its own overrides it."""
        return File(path, fd)

    def exists(self, path: str) -> bool:
        """Whether anything has this name."""
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        """Whether the name is a directory's."""
        return os.path.isdir(path)

    def size_bytes(self, path: str) -> int:
        """The size of the file of this name."""
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        """When the file was written last, in ms since 1970."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        """Set the time at which the file counts as written last, in ms since 1970."""
        os.utime(path, ns=(time_ms * 1_000_000, time_ms * 1_000_000))

    def space_bytes(self, path: str) -> tuple[int, int]:
        """(size, free for us) of the file system that the path is on."""
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def names(self, directory: str) -> list[str]:
        """The names in a directory, sorted."""
        return sorted(os.listdir(directory))

    def parent(self, path: str) -> str:
        """The directory that the name is in."""
        return os.path.dirname(path.rstrip("/")) or ("/" if path.startswith("/") else ".")

    def missing(self, path: str) -> list[str]:
        """The directories that `make_directory` would make, the last one first."""
        if self.exists(path):
            return []
        return [path, *self.missing(self.parent(path))]

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it, unless it is there."""
        os.makedirs(path, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        """Give a file or directory another name; a file of that name is replaced at the same instant."""
        os.replace(old, new)

    def remove(self, path: str) -> None:
        """Remove a file. One that is not there is well."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all that is in it. One that is not there is well."""
        import shutil  # it imports every archive format, which a start need not wait for

        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return

    def read_whole(self, path: str) -> bytes:
        """All bytes of a small file. Raises `OSError` (EFBIG) rather than take more than 1 GiB of memory."""
        file = self.open(path)
        try:
            size = file.size_bytes()
            if size > MAX_WHOLE_FILE_BYTES:
                raise OSError(errno.EFBIG, "too large to be read whole", path)
            return file.read(0, size)
        finally:
            file.close()

    def write_whole(self, path: str, data: Bytes, *, sync: bool) -> None:
        """Put `data` in place of the file's content at one instant: a reader or a crash sees the old or the new.

        With `sync`, the new content is on the disk itself on return; without, a power cut may bring the old one back.
        """
        temporary = f"{path}.tmp"
        file = self.open(temporary, create=True)
        try:
            file.truncate(0)
            file.write(0, data)
            if sync:
                file.sync()
        finally:
            file.close()
        self.rename(temporary, path)
        if sync:
            self.sync_directory(os.path.dirname(path))

    def sync_directory(self, path: str) -> None:
        """Return once names made, changed or removed in the directory are so on the disk itself."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> File | None:
        """Take the lock that the file of this name stands for, until the `File` is closed; None if another has it.

        Two kinds of lock are taken: POSIX record locks are what a Java broker takes and what holds against one, but
        a process never conflicts with itself there; flock() tells two brokers in one process from each other.
        """
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return None
            raise
        return File(path, fd)
