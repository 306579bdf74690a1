"""The directories of an embedded broker: its logs, another directory after each reset, and its snapshots.

This file creates, copies and removes them; the broker manages their content.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from minibroker.broker.metadata.metadata_snapshots import BOOTSTRAP
from minibroker.broker.monitoring.measured_disk import MeasuredDisk, SyncStatistics
from minibroker.operating_system import close_file, lock_file
from minibroker.storage.checkpoints.checkpoint_texts import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)
from minibroker.storage.files import Disk, File
from minibroker.storage.names import CLEAN_SHUTDOWN, TEMPORARY_SUFFIX, parse_log_name

# The files of a log directory beside the logs.
FILES: Final = {
    META_PROPERTIES,
    BOOTSTRAP,
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
    CLEAN_SHUTDOWN,
}
PREFIX: Final = "minibroker-"  # of temporary directories
OWNER: Final = "owner"  # the file that their process locks
ABANDONED_S: Final = 3600
UNLISTED_LOG: Final = re.compile(r".+\.[0-9a-f]{32}-(delete|stray|future)")


class UnsyncedFile(File):
    """A file that is not synced: it need not survive a power cut."""

    __slots__ = ()

    def sync(self) -> None:
        """Do nothing."""


class UnsyncedDisk(Disk):
    """A disk for temporary data, without syncs: they take most of the time of a start, a reset or a stop."""

    def make_file(self, path: str, fd: int) -> File:
        """Return a file that is not synced."""
        return UnsyncedFile(path, fd)

    def sync_directory(self, path: str) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class Snapshot:
    """A copy of the logs at some time, as a crash at that time would leave them."""

    directory: Path


class BrokerDirectories:
    """The directories of the logs: `current` is a given directory, a temporary one, or None while closed."""

    def __init__(self, path: Path | None) -> None:
        self._given = path
        self._temporary: Path | None = None
        self._remove: Callable[[], object] | None = None
        self._number = 0
        self._lock: int | None = None  # held while the directory is in use
        self._removals: list[threading.Thread] = []
        self.current = path

    def make_disk(self, sync_statistics: SyncStatistics | None) -> Disk:
        """Return the disk, which counts its syncs in `sync_statistics`; a temporary directory has none."""
        if self._given is None:
            return UnsyncedDisk()
        return Disk() if sync_statistics is None else MeasuredDisk(sync_statistics)

    def create_directory(self) -> None:
        """Create the temporary directory, which holds the snapshots too."""
        _start_removing_abandoned_directories()
        self._temporary = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock = lock_file(str(self._temporary / OWNER))
        # It is called at exit at the latest.
        self._remove = weakref.finalize(self, _remove_unless_forked, self._temporary, os.getpid())
        if self._given is None:
            self.current = self._make_next_path()

    def switch_to_empty(self) -> None:
        """Switch to an empty directory. A thread removes the old one if it was temporary."""
        if self._given is not None:
            _remove_contents(self._given)
            return
        old, self.current = self.current, self._make_next_path()
        self._removals = [removal for removal in self._removals if removal.is_alive()]
        if old is not None:
            removal = threading.Thread(target=shutil.rmtree, args=(old, True), name="minibroker-removal", daemon=True)
            self._removals.append(removal)
            removal.start()

    def take_snapshot(self) -> Snapshot:
        """Copy the current directory."""
        assert self.current is not None
        copy = self._make_next_path()
        _copy_tree(self.current, copy)
        return Snapshot(copy)

    def check_snapshot_exists(self, snapshot: Snapshot) -> None:
        """Raise FileNotFoundError for a snapshot that was removed when its broker stopped."""
        if not snapshot.directory.is_dir():
            raise FileNotFoundError(f"the snapshot {snapshot.directory} was removed with its broker")

    def restore_snapshot(self, snapshot: Snapshot) -> None:
        """Switch to a copy of a snapshot. Call `check_snapshot_exists` before."""
        self.switch_to_empty()
        assert self.current is not None
        _copy_tree(snapshot.directory, self.current)

    def close_and_remove_directories(self, *, aside: bool = False) -> None:
        """Remove the temporary directory; with `aside` in a thread, for which the process waits at its end."""
        remove, self._remove, self._temporary = self._remove, None, None
        while self._removals:
            self._removals.pop().join()
        if remove is None:
            return
        if self._lock is not None:
            close_file(self._lock)
        self.current = self._given
        if aside:
            threading.Thread(target=remove, name="minibroker-removal").start()
        else:
            remove()

    def _make_next_path(self) -> Path:
        """Create the next subdirectory of the temporary directory, and return its path."""
        assert self._temporary is not None
        self._number += 1
        path = self._temporary / str(self._number)
        path.mkdir()
        return path


@functools.cache
def _start_removing_abandoned_directories() -> None:
    """Remove what killed processes left, in a thread, once in a process."""
    threading.Thread(target=remove_abandoned_directories, name="removal-of-abandoned", daemon=True).start()


def remove_abandoned_directories() -> None:
    """Remove temporary directories whose process was killed.

    Nobody holds their lock; those of the last hour stay, as their owner may be about to lock them.
    """
    for directory in Path(tempfile.gettempdir()).glob(f"{PREFIX}????????"):
        with contextlib.suppress(OSError):  # another user's, or gone meanwhile
            owner = directory / OWNER
            if time.time() - owner.stat().st_mtime < ABANDONED_S:
                continue
            lock = lock_file(str(owner))
            if lock is not None:
                close_file(lock)
                shutil.rmtree(directory)


def _remove_unless_forked(directory: Path, process_id: int) -> None:
    """Remove a directory, but not in a fork of the process that made it, which still needs it."""
    if os.getpid() == process_id:
        shutil.rmtree(directory, ignore_errors=True)


def _copy_tree(source: Path, target: Path) -> None:
    shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".lock"))


def _remove_contents(directory: Path) -> None:
    """Remove what a broker has written there, and nothing else: the directory may contain other files."""
    for path in directory.iterdir():
        if path.is_dir() and not path.is_symlink():
            if _is_log_directory_name(path.name):
                shutil.rmtree(path)
        elif path.name.removesuffix(TEMPORARY_SUFFIX) in FILES:
            path.unlink()


def _is_log_directory_name(name: str) -> bool:
    return parse_log_name(name) is not None or UNLISTED_LOG.fullmatch(name) is not None
