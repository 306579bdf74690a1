"""An offset checkpoint of a log directory: one offset for each log, in memory and in a file."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable

from minibroker.storage.checkpoints.checkpoint_texts import (
    MalformedCheckpoint,
    TopicPartition,
    format_offset_checkpoint,
    parse_offset_checkpoint,
)
from minibroker.storage.environment import Environment
from minibroker.storage.names import TEMPORARY_SUFFIX
from minibroker.storage.recovery.recovery import LogDirectoryError

logger = logging.getLogger(__name__)

NEXT_SUFFIX = ".next"  # not `.tmp`, which `write_whole` may be using at the same time


class OffsetCheckpoint:
    """The `offsets` by (topic, partition), and their file at `path`.

    Logs are deleted by the thousand, so the file is written later; a start ignores rows of missing logs. But before
    a log of the same name is created, the old row must be removed (`remove_row_from_file`): otherwise a start after
    a crash would take the old log's start offset or recovery point for the new log's.
    """

    def __init__(self, environment: Environment, path: str) -> None:
        self.path = path
        self.offsets: dict[TopicPartition, int] = {}
        self._environment = environment
        self._disk = environment.disk
        self._written: dict[TopicPartition, int] | None = None  # the content of the file; None: unknown
        self._named: set[TopicPartition] = set()  # the logs that have a row in the file, or may have one soon
        self._writes = 0  # counted, so that old content never replaces newer content
        self._on_its_way = False
        self._is_due_again = False  # asked for while it was on its way

    def read_offsets(self, logs: Iterable[TopicPartition]) -> None:
        """Read the file's rows for these logs. Raises `OSError`, `LogDirectoryError`."""
        if not self._disk.exists(self.path):
            return
        try:
            found = parse_offset_checkpoint(self._disk.read_whole(self.path))
        except MalformedCheckpoint as error:
            raise LogDirectoryError(f"{self.path} is malformed: {error}") from None
        self._named = set(found)
        self.offsets = {key: found[key] for key in logs if key in found}

    def write_offsets(self, *, sync: bool) -> None:
        """Write the file now. Raises `OSError`."""
        self._writes += 1
        self._named |= self.offsets.keys()
        self._written = None
        self._disk.write_whole(self.path, format_offset_checkpoint(self.offsets), sync=sync)
        self._remember_written_offsets(dict(self.offsets))

    def remove_row(self, key: TopicPartition) -> bool:
        """Remove the row of a deleted log, and return whether there was one. The file changes with the next write."""
        return self.offsets.pop(key, None) is not None

    def remove_row_from_file(self, key: TopicPartition) -> None:
        """Remove a log's row from the file before a log of this name is created. Raises `OSError`.

        The new content is synced before the rename, and the rename is done before the new log's directory is made: if a
        power cut leaves the new log, it also leaves the new checkpoint.
        """
        self.offsets.pop(key, None)
        if key in self._named:
            self._writes += 1
            self._written = None
            offsets = dict(self.offsets)
            self._write_file_with_suffix(TEMPORARY_SUFFIX, offsets)
            self._disk.rename(self.path + TEMPORARY_SUFFIX, self.path)
            self._remember_written_offsets(offsets)

    def write_offsets_soon(self) -> None:
        """Write and sync the file in another thread, unless it is up to date; after one that is on its way.

        A failure is logged. The old file then stays, which only costs time at a start after a crash.
        """
        self._is_due_again = self._on_its_way
        if self._on_its_way or self.offsets == self._written:
            return
        self._on_its_way = True
        writes = self._writes
        offsets = dict(self.offsets)
        self._named |= offsets.keys()

        def remember_written_offsets(error: Exception | None) -> None:
            self._on_its_way = False
            self._log_write_error(error)
            if error is None and self._writes == writes:
                self._rename_written_file(offsets)
            if self._is_due_again:
                self.write_offsets_soon()

        self._environment.run_in_thread(
            lambda: self._write_file_with_suffix(NEXT_SUFFIX, offsets), remember_written_offsets
        )

    def _write_file_with_suffix(self, suffix: str, offsets: dict[TopicPartition, int]) -> None:
        """Write and sync a file with this suffix beside the checkpoint. May run in another thread."""
        file = self._disk.open(self.path + suffix, create=True)
        try:
            file.truncate(0)
            file.write(0, format_offset_checkpoint(offsets))
            file.sync()
        finally:
            file.close()

    def _rename_written_file(self, offsets: dict[TopicPartition, int]) -> None:
        """Replace the checkpoint by the new file beside it, and sync the directory."""
        try:
            self._disk.rename(self.path + NEXT_SUFFIX, self.path)
        except OSError as error:
            self._log_write_error(error)
            return
        self._writes += 1
        self._remember_written_offsets(offsets)
        self._environment.run_in_thread(
            lambda: self._disk.sync_directory(os.path.dirname(self.path)), self._log_write_error
        )

    def _remember_written_offsets(self, offsets: dict[TopicPartition, int]) -> None:
        self._written = offsets
        self._named = set(offsets)

    def _log_write_error(self, error: Exception | None) -> None:
        if error is not None:
            logger.error("%s could not be written: %s", self.path, error)
