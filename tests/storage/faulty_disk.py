"""A disk in memory that fails as real ones do: seeded, with a memory of what was synced and what a power cut may take.

What each file and directory hold is known twice: as the processes see it (the page cache), and as it is on the disk
itself. A killed process loses nothing of the first; a power cut leaves the second, and any part of what was not synced.

    a write        on the disk itself after a sync of the file; before, a power cut keeps it, loses it, or tears it at a
                   sector, each write by itself, so that a later one may be there and an earlier one not
    a name         on the disk itself after a sync of its directory; before, a power cut keeps the first so many changes
                   of the names in a directory, in their order, as a journal does, and loses the others
    a failed sync  leaves what it was for in doubt for ever: a later one does not bring it there
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple

from minibroker.storage.files import Bytes, Disk, File

SECTOR_BYTES = 512
ERRORS = (errno.EIO, errno.ENOSPC, errno.EROFS, errno.EBADF, errno.EINVAL)


class Crash(BaseException):
    """The process is no more. Not an `Exception`: nothing may catch it."""


class Change(NamedTuple):
    """A write at a position or, with `data` None, a cut to this size."""

    position: int
    data: bytes | None


class FileNode:
    """A file, whatever its names. `content` is as processes see it."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.modified_ms = 0
        self._synced = bytearray()
        self._unsynced: list[Change] = []
        self._in_doubt: list[Change] = []

    def apply(self, change: Change) -> None:
        _apply(self.content, change)
        self._unsynced.append(change)

    def sync(self) -> None:
        for change in self._unsynced:
            _apply(self._synced, change)
        self._unsynced.clear()

    def fail_to_sync(self) -> None:
        """The changes are no longer waiting to be written, and nobody knows whether they were."""
        self._in_doubt += self._unsynced
        self._unsynced.clear()

    def cut_power(self, random: Random, happened: Counter[str]) -> None:
        left = list(_survivors(self._unsynced, random))
        happened["write lost"] += len(self._unsynced) - len(left)
        happened["write torn"] += sum(change not in self._unsynced for change in left)
        for change in left:
            _apply(self._synced, change)
        self._unsynced.clear()
        self._in_doubt.clear()
        self.content = bytearray(self._synced)


class DirectoryNode:
    """A directory: what its names stand for, as processes see it."""

    def __init__(self) -> None:
        self.entries: dict[str, FileNode | DirectoryNode] = {}
        self._synced: dict[str, FileNode | DirectoryNode] = {}
        self._unsynced: list[Callable[[dict[str, FileNode | DirectoryNode]], None]] = []

    def change(self, change: Callable[[dict[str, FileNode | DirectoryNode]], None]) -> None:
        change(self.entries)
        self._unsynced.append(change)

    def sync(self) -> None:
        for change in self._unsynced:
            change(self._synced)
        self._unsynced.clear()

    def fail_to_sync(self) -> None:
        """Do nothing: the journal is kept in order, so that what comes later is not on the disk either."""

    def cut_power(self, random: Random, happened: Counter[str]) -> None:
        kept = random.randint(0, len(self._unsynced))
        happened["name lost"] += len(self._unsynced) - kept
        for change in self._unsynced[:kept]:
            change(self._synced)
        self._unsynced.clear()
        self.entries = dict(self._synced)
        for node in self.entries.values():
            node.cut_power(random, happened)


def _apply(content: bytearray, change: Change) -> None:
    if change.data is None:
        size = change.position
        del content[size:]
        content.extend(bytes(size - len(content)))
        return
    content.extend(bytes(max(0, change.position - len(content))))
    content[change.position : change.position + len(change.data)] = change.data


def _survivors(changes: list[Change], random: Random) -> Iterable[Change]:
    """Which of the changes a power cut leaves: all, none, the first ones, or any; the last of them may be torn."""
    kind = random.choice(("all", "none", "first", "any", "any"))
    if kind == "first":
        changes = changes[: random.randint(0, len(changes))]
    elif kind == "any":
        changes = [change for change in changes if random.random() < 0.5]
    if kind == "none":
        return
    for index, change in enumerate(changes):
        if change.data and index == len(changes) - 1 and random.random() < 0.5:
            change = _torn(change, random)
        yield change


def _torn(change: Change, random: Random) -> Change:
    assert change.data is not None
    end = random.randint(change.position, change.position + len(change.data)) // SECTOR_BYTES * SECTOR_BYTES
    return change._replace(data=change.data[: max(0, end - change.position)])


class MemoryFile(File):
    """An open file of a `FaultyDisk`."""

    __slots__ = ("_disk", "_node", "_read_only")

    def __init__(self, disk: FaultyDisk, path: str, node: FileNode, read_only: bool) -> None:
        super().__init__(path, -1)
        self._disk = disk
        self._node = node
        self._read_only = read_only

    def read(self, position: int, size: int) -> bytes:
        self._disk.begin("read", self.path)
        return bytes(self._node.content[position : position + size])

    def write(self, position: int, data: Bytes) -> None:
        if self._read_only:
            raise self._disk.error(errno.EBADF, self.path)
        whole = bytes(data)
        allowed = self._disk.begin("write", self.path, len(whole), position + len(whole) - len(self._node.content))
        if allowed:
            self._node.apply(Change(position, whole[:allowed]))
            self._node.modified_ms = self._disk.now_ms()
        if allowed < len(whole) or self._disk.is_dead:
            self._disk.stop_short(self.path)

    def truncate(self, size: int) -> None:
        if self._read_only:
            raise self._disk.error(errno.EINVAL, self.path)
        self._disk.begin("truncate", self.path)
        if size != len(self._node.content):
            self._node.apply(Change(size, None))

    def sync(self) -> None:
        self._disk.sync(self._node, self.path)

    def sendfile(self, socket_fd: int, position: int, size: int) -> int:
        return os.write(socket_fd, self.read(position, size))

    def size_bytes(self) -> int:
        return len(self._node.content)


class FaultyDisk(Disk):
    """`random` decides what fails, and what a power cut takes; `now_ms()` is the time that files get.

    While `failing` names operations ("read", "write", "truncate", "sync", "open", "create", "rename", "remove"), each
    of them fails with EIO with the probability `failure_rate`, on paths that end in `suffix`. `room_bytes` is how much
    more files may grow before there is no space left (None: no end). `read_only` is for a file system that was
    remounted. After `lifetime` more operations that change something, the process is dead (`is_dead`).
    `doubtful` are the paths of what could not be synced since the last power cut; `happened` counts what has failed,
    and what a power cut has torn or taken.
    """

    def __init__(self, random: Random, now_ms: Callable[[], int] = lambda: 0) -> None:
        self.random = random
        self.now_ms = now_ms
        self.failing: set[str] = set()
        self.failure_rate = 1.0
        self.suffix = ""
        self.room_bytes: int | None = None
        self.read_only = False
        self.lifetime: int | None = None
        self.happened: Counter[str] = Counter()
        self.doubtful: set[str] = set()
        self.is_dead = False
        self._root = DirectoryNode()
        self._locks: set[FileNode] = set()

    # --- what happens to it -----------------------------------------------------------------------

    def heal(self) -> None:
        """All works again, and a new process may use the disk."""
        self.failing = set()
        self.failure_rate = 1.0
        self.suffix = ""
        self.room_bytes = None
        self.read_only = False
        self.lifetime = None
        self.is_dead = False
        self._locks.clear()

    def cut_power(self) -> None:
        """Cut the power: what was not synced is left in part, or not at all. The disk is healthy afterwards."""
        self._root.cut_power(self.random, self.happened)
        self.doubtful.clear()
        self.heal()

    def holds(self, path: str) -> bool:
        """Whether anything has this name: for a test that wants to know, whatever the state of the disk."""
        return self._find(path) is not None

    def settle(self, path: str) -> None:
        """Time has passed: what was done to the names in this directory is on the disk itself."""
        self._directory(path).sync()

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        """A bit of a stored byte turns over, as nobody has asked it to."""
        node = self._file(path)
        flipped = bytes([node.content[position] ^ 1 << bit])
        node.apply(Change(position, flipped))
        node.sync()

    def begin(self, operation: str, path: str, size: int = 0, growth: int = 0) -> int:
        """Raise what the operation fails with; otherwise, how many of `size` bytes may be written."""
        if self.is_dead:
            raise Crash
        if operation not in ("read", "open"):
            if self.lifetime is not None:
                self.lifetime -= 1
                if self.lifetime < 0:
                    self.is_dead = True
                    if operation != "write":
                        raise Crash
                    return self.random.randint(0, size)
            if self.read_only and operation != "sync":
                raise self.error(errno.EROFS, path)
        if operation in self.failing and path.endswith(self.suffix) and self.random.random() < self.failure_rate:
            if operation != "write":
                raise self.error(errno.EIO, path)
            return self.random.randint(0, max(size - 1, 0))
        if self.room_bytes is not None and operation in ("write", "create"):
            if growth > self.room_bytes or (operation == "create" and not self.room_bytes):
                if operation == "create":
                    raise self.error(errno.ENOSPC, path)
                allowed, self.room_bytes = self.room_bytes, 0
                return max(0, size - growth) + allowed
            self.room_bytes -= max(growth, 0)
        return size

    def stop_short(self, path: str) -> None:
        """A write has ended in the middle: because the process has, or with the error that it gets."""
        self.happened["short write"] += 1
        if self.is_dead:
            raise Crash
        raise self.error(errno.ENOSPC if self.room_bytes == 0 else errno.EIO, path)

    def sync(self, node: FileNode | DirectoryNode, path: str) -> None:
        """Sync a file or directory, or fail to."""
        try:
            self.begin("sync", path)
        except OSError:
            node.fail_to_sync()
            self.doubtful.add(path)
            self.happened["failed sync"] += 1
            raise
        node.sync()

    def error(self, code: int, path: str) -> OSError:
        """An error of the disk's."""
        self.happened[os.strerror(code)] += 1
        return OSError(code, os.strerror(code), path)

    # --- the tree ---------------------------------------------------------------------------------

    def _find(self, path: str) -> FileNode | DirectoryNode | None:
        node: FileNode | DirectoryNode | None = self._root
        for name in filter(None, path.split("/")):
            node = node.entries.get(name) if isinstance(node, DirectoryNode) else None
        return node

    def _file(self, path: str) -> FileNode:
        node = self._find(path)
        if not isinstance(node, FileNode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def _directory(self, path: str) -> DirectoryNode:
        node = self._find(path)
        if not isinstance(node, DirectoryNode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    # --- what a disk does -------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> File:
        directory, name = self._directory(os.path.dirname(path)), os.path.basename(path)
        if create and name not in directory.entries:
            self.begin("create", path)
            node = FileNode()
            node.modified_ms = self.now_ms()
            directory.change(lambda entries: entries.__setitem__(name, node))
        self.begin("open", path)
        return MemoryFile(self, path, self._file(path), read_only=self.read_only)

    def open_to_read(self, path: str) -> File:
        self.begin("open", path)
        return MemoryFile(self, path, self._file(path), read_only=True)

    def exists(self, path: str) -> bool:
        self.begin("open", path)
        return self._find(path) is not None

    def is_directory(self, path: str) -> bool:
        return isinstance(self._find(path), DirectoryNode)

    def size_bytes(self, path: str) -> int:
        return len(self._file(path).content)

    def get_modified_ms(self, path: str) -> int:
        return self._file(path).modified_ms

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        self._file(path).modified_ms = time_ms

    @property
    def failures(self) -> int:
        """How many errors it has raised."""
        return sum(self.happened[os.strerror(code)] for code in ERRORS)

    def measure_space_bytes(self, path: str) -> tuple[int, int]:
        return 1 << 40, 1 << 40 if self.room_bytes is None else self.room_bytes

    def list_names(self, directory: str) -> list[str]:
        self.begin("open", directory)
        return sorted(self._directory(directory).entries)

    def make_directory(self, path: str) -> None:
        above, made = "", self._root
        for name in filter(None, path.split("/")):
            above += f"/{name}"
            found = made.entries.get(name)
            if found is None:
                self.begin("create", above)
                found = DirectoryNode()
                made.change(lambda entries, name=name, node=found: entries.__setitem__(name, node))  # type: ignore[misc]
            assert isinstance(found, DirectoryNode)
            made = found

    def rename(self, old: str, new: str) -> None:
        directory, other = self._directory(os.path.dirname(old)), self._directory(os.path.dirname(new))
        assert directory is other, "nothing is ever moved into another directory"
        name, new_name = os.path.basename(old), os.path.basename(new)
        if name not in directory.entries:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        self.begin("rename", new)
        directory.change(lambda entries: entries.__setitem__(new_name, entries.pop(name)))

    def remove(self, path: str) -> None:
        directory, name = self._find(os.path.dirname(path)), os.path.basename(path)
        if isinstance(directory, DirectoryNode) and name in directory.entries:
            self.begin("remove", path)
            directory.change(lambda entries: entries.pop(name, None))

    def remove_tree(self, path: str) -> None:
        self.remove(path)

    def sync_directory(self, path: str) -> None:
        self.sync(self._directory(path), path)

    def lock(self, path: str) -> File | None:
        return self.open(path, create=True)
