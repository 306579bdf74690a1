"""What one log has written without a sync beside its segments: small files, and names in its directory.

All of it becomes part of the next flush. Which segments a flush has to do with is decided by the log.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol

from minibroker.storage.files import Disk, File


class KeptFiles(Protocol):
    """Files that somebody else writes."""

    def unsynced_paths(self) -> Sequence[str]:
        """The paths of those that may not be on the disk itself. Raises `OSError`."""

    def note_synced(self) -> None:
        """The caller sees to the sync of what `unsynced_paths` gave."""


class Unsynced:
    """The files in a log's `directory` that may not be on the disk itself, `kept` by several.

    Nor may be the names in it, nor its own, before the first flush, and after `names_change()`.
    """

    __slots__ = ("_disk", "_directory", "_kept", "_names_synced")

    def __init__(self, disk: Disk, directory: str, kept: Sequence[KeptFiles]) -> None:
        self._disk = disk
        self._directory = directory
        self._kept = kept
        self._names_synced = False

    def names_change(self) -> None:
        """A file is made, renamed or removed."""
        self._names_synced = False

    def collect(self) -> tuple[list[File], list[str]]:
        """The files and the directories to sync, files first. Raises `OSError`."""
        paths = [path for kept in self._kept for path in kept.unsynced_paths()]
        files = [self._disk.open(path) for path in paths]
        if self._names_synced and not paths:
            return files, []
        return files, [self._directory, os.path.dirname(self._directory)]

    def note_synced(self) -> None:
        """The caller sees to the sync of what `collect()` gave."""
        for kept in self._kept:
            kept.note_synced()
        self._names_synced = True
