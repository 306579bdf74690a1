"""The only access to the disk: all that the broker stores and reads goes through `Disk` and `File`.

Tests replace the two classes by ones that fail on demand.
"""

from __future__ import annotations

import errno
import os
from typing import Final

from minibroker import operating_system as system

# The errors for too many open files of a process, or of the machine. Only open() fails with them, never fsync().
TOO_MANY_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE})

Bytes = system.Bytes

# Checkpoints, snapshots and indexes are read whole; an index has at most `segment.index.bytes`.
MAX_WHOLE_FILE_BYTES = 1 << 30


class File:
    """An open file. Its descriptor is closed by `close()`, or with the last reference to the object.

    So a region of a segment in a connection's queue stays readable after the segment was deleted (not on Windows).
    Every method raises `OSError` as the system does.
    """

    __slots__ = ("path", "_fd")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def read(self, position: int, size: int) -> bytes:
        """Return `size` bytes from `position` on, fewer only if the file ends before."""
        data = system.read_at(self._fd, size, position)
        if len(data) == size or not data:
            return data
        return data + self.read(position + len(data), size - len(data))

    def write(self, position: int, data: Bytes) -> None:
        """Write all of `data` at `position`. When this raises, a part of it may be in the file."""
        written = system.write_at(self._fd, data, position)
        if written != len(data):
            self._write_remaining_bytes(position + written, memoryview(data)[written:])

    def _write_remaining_bytes(self, position: int, data: memoryview) -> None:
        while data:
            written = system.write_at(self._fd, data, position)
            if written == 0:
                raise OSError(errno.EIO, "the disk accepts no more bytes", self.path)
            position += written
            data = data[written:]

    def sendfile(self, socket_fd: int, position: int, size: int) -> int:
        """Send up to `size` bytes from `position` to a socket without copying them. Return how many were sent.

        Only where `operating_system.HAS_SENDFILE` says so.
        """
        assert system.sendfile is not None
        return system.sendfile(socket_fd, self._fd, position, size)

    def truncate(self, size: int) -> None:
        """Truncate to `size` bytes, or extend with zeros."""
        system.truncate_file(self._fd, size)

    def sync(self) -> None:
        """Wait until all that was written is on the disk (fsync). Slow: not for the event loop's thread."""
        system.sync_file(self._fd)

    def size_bytes(self) -> int:
        """Return the size of the file."""
        return system.get_file_size(self._fd)

    def close(self) -> None:
        """Close the descriptor. A second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            system.close_file(fd)

    def __del__(self) -> None:
        self.close()


class Disk:
    """The operations on names: files and directories. Every method raises `OSError` as the system does."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file for reading and writing. With `create`, create it if it does not exist.

        On a file system that has become read-only, the file can still be read, and only writing fails.
        """
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        try:
            return self.make_file(path, system.open_file(path, flags))
        except OSError as error:
            if create or error.errno != errno.EROFS:
                raise
            return self.open_to_read(path)

    def open_to_read(self, path: str) -> File:
        """Open a file for reading only."""
        return self.make_file(path, system.open_file(path, os.O_RDONLY))

    def make_file(self, path: str, fd: int) -> File:
        """Return the file of a descriptor. Subclasses with their own kind of files override this."""
        return File(path, fd)

    def exists(self, path: str) -> bool:
        """Return whether the path exists."""
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        """Return whether the path is a directory."""
        return os.path.isdir(path)

    def size_bytes(self, path: str) -> int:
        """Return the size of a file."""
        return os.stat(path).st_size

    def get_modified_ms(self, path: str) -> int:
        """Return when the file was last written, in ms since 1970."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        """Set the file's modification time, in ms since 1970."""
        os.utime(path, ns=(time_ms * 1_000_000, time_ms * 1_000_000))

    def measure_space_bytes(self, path: str) -> tuple[int, int]:
        """Return (size, free for us) of the path's file system."""
        return system.measure_space_bytes(path)

    def list_names(self, directory: str) -> list[str]:
        """Return the names in a directory, sorted."""
        return sorted(os.listdir(directory))

    def get_parent(self, path: str) -> str:
        """Return the directory that contains the path."""
        return os.path.dirname(path.rstrip("/")) or ("/" if path.startswith("/") else ".")

    def list_missing_directories(self, path: str) -> list[str]:
        """Return the directories that `make_directory` would create, the innermost first."""
        if self.exists(path):
            return []
        return [path, *self.list_missing_directories(self.get_parent(path))]

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents, as far as they do not exist."""
        os.makedirs(path, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory. It atomically replaces a file that has the new name."""
        system.rename(old, new)

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""
        try:
            system.remove(path)
        except FileNotFoundError:
            return

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all that is in it, if it exists."""
        try:
            system.remove_tree(path)
        except FileNotFoundError:
            return

    def read_whole(self, path: str) -> bytes:
        """Return all bytes of a small file. Raises `OSError` (EFBIG) above 1 GiB."""
        file = self.open(path)
        try:
            size = file.size_bytes()
            if size > MAX_WHOLE_FILE_BYTES:
                raise OSError(errno.EFBIG, "too large to be read whole", path)
            return file.read(0, size)
        finally:
            file.close()

    def write_whole(self, path: str, data: Bytes, *, sync: bool) -> None:
        """Replace the file's content atomically: readers, also after a crash, see either the old or the new content.

        With `sync`, the new content is synced on return. Without, a power cut may bring the old one back.
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
        """Wait until the names created, changed or removed in the directory are on the disk (fsync)."""
        system.sync_directory(path)

    def lock(self, path: str) -> File | None:
        """Lock the file until the returned `File` is closed. Return None if somebody else has the lock.

        It takes two locks: a POSIX record lock, as Java brokers do, and flock(), as a record lock does not exclude
        another broker in the same process. On Windows one lock, that of Java brokers, does both.
        """
        fd = system.lock_file(path)
        return None if fd is None else File(path, fd)
