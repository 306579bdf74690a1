"""The directories of an embedded broker: its logs, one directory after another as it is reset, and its snapshots.

What is in them is the broker's business; here they are made, copied and removed.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from minibroker.broker.metadata.metadata_snapshots import BOOTSTRAP
from minibroker.broker.monitoring.measured_disk import MeasuredDisk, SyncStatistics
from minibroker.storage.checkpoints.checkpoint_texts import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)
from minibroker.storage.directories.log_directory import CLEAN_SHUTDOWN
from minibroker.storage.files import Disk, File
from minibroker.storage.names import TEMPORARY_SUFFIX, topic_partition_of

# What there is in a log directory beside the logs.
FILES: Final = {
    META_PROPERTIES,
    CLEAN_SHUTDOWN,
    BOOTSTRAP,
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
}
UNLISTED_LOG: Final = re.compile(r".+\.[0-9a-f]{32}-(delete|stray|future)")


class UnsyncedFile(File):
    """A file of which nothing needs to outlive the machine."""

    __slots__ = ()

    def sync(self) -> None:
        """Nothing."""


class UnsyncedDisk(Disk):
    """For what is temporary: waiting for the disk itself is most of what a start, a reset or a stop would take."""

    def opened(self, path: str, fd: int) -> File:
        """A file that is not synced."""
        return UnsyncedFile(path, fd)

    def sync_directory(self, path: str) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Snapshot:
    """The logs as they were at one time, in a directory of its own, as a crash at that time would have left them."""

    directory: Path


class Data:
    """Where the logs are now (`current`, None while closed): in a given directory, or in temporary ones."""

    def __init__(self, given: Path | None) -> None:
        self._given = given
        self._temporary: Path | None = None
        self._remove: Callable[[], object] | None = None
        self._number = 0
        self._removals: list[threading.Thread] = []
        self.current = given
        self.disk = UnsyncedDisk() if given is None else Disk()

    def measured(self, syncs: SyncStatistics) -> Disk:
        """The disk, with its syncs counted; in a temporary directory there are none."""
        return self.disk if self._given is None else MeasuredDisk(syncs)

    def open(self) -> None:
        """Make the temporary directory, in which snapshots are too."""
        self._temporary = Path(tempfile.mkdtemp(prefix="minibroker-"))
        self._remove = weakref.finalize(self, _remove_own, self._temporary, os.getpid())  # at the latest at the exit
        if self._given is None:
            self.current = self._next()

    def begin_anew(self) -> None:
        """Go on with an empty directory. What was in a temporary one is removed by a thread: it takes its time."""
        if self._given is not None:
            _empty(self._given)
            return
        old, self.current = self.current, self._next()
        self._removals = [removal for removal in self._removals if removal.is_alive()]
        if old is not None:
            removal = threading.Thread(target=shutil.rmtree, args=(old, True), name="minibroker-removal", daemon=True)
            self._removals.append(removal)
            removal.start()

    def snapshot(self) -> Snapshot:
        """A copy of what is there now."""
        assert self.current is not None
        copy = self._next()
        _copy(self.current, copy)
        return Snapshot(copy)

    def check(self, snapshot: Snapshot) -> None:
        """Raises FileNotFoundError for a snapshot that is gone, as its broker was stopped."""
        if not snapshot.directory.is_dir():
            raise FileNotFoundError(f"the snapshot {snapshot.directory} went with its broker")

    def restore(self, snapshot: Snapshot) -> None:
        """Go on with a copy of a snapshot, which `check` has seen."""
        self.begin_anew()
        assert self.current is not None
        _copy(snapshot.directory, self.current)

    def close(self) -> None:
        """Remove what is temporary."""
        remove, self._remove, self._temporary = self._remove, None, None
        while self._removals:
            self._removals.pop().join()
        if remove is not None:
            remove()
            self.current = self._given

    def _next(self) -> Path:
        assert self._temporary is not None
        self._number += 1
        path = self._temporary / str(self._number)
        path.mkdir()
        return path


def _remove_own(directory: Path, process_id: int) -> None:
    """Remove a directory, but not in a fork of the process that made it, whose end it must outlive."""
    if os.getpid() == process_id:
        shutil.rmtree(directory, ignore_errors=True)


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".lock"))


def _empty(directory: Path) -> None:
    """Remove what a broker has written there, and nothing else: a test may have named a directory of somebody's own."""
    for path in directory.iterdir():
        if path.is_dir() and not path.is_symlink():
            if _is_log(path.name):
                shutil.rmtree(path)
        elif path.name.removesuffix(TEMPORARY_SUFFIX) in FILES:
            path.unlink()


def _is_log(name: str) -> bool:
    return topic_partition_of(name) is not None or UNLISTED_LOG.fullmatch(name) is not None
