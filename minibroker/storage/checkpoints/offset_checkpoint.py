"""One of the offset checkpoints of a log directory: an offset for each log, in memory and in its file.

Which offsets they are is the directory's business, the text is `checkpoint_texts.py`'s.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable

from minibroker.storage.checkpoints.checkpoint_texts import (
    MalformedCheckpoint,
    TopicPartition,
    offsets_from_text,
    offsets_text,
)
from minibroker.storage.environment import Environment
from minibroker.storage.names import TEMPORARY_SUFFIX
from minibroker.storage.recovery.recovery import LogDirectoryError

logger = logging.getLogger(__name__)

NEXT_SUFFIX = ".next"  # not `.tmp`, which a write that does not wait may be using


class OffsetCheckpoint:
    """The `offsets`, by (topic, partition), and the file at `path` that is to say the same.

    Logs go by the thousand, so the file follows later: a start passes over rows of logs that are not there. Only before
    a log of such a name is made must the row be gone (`make_way`): it would tell a start after a crash that the new log
    begins where the old one did, or that it need not be read.
    """

    def __init__(self, environment: Environment, path: str) -> None:
        self.path = path
        self.offsets: dict[TopicPartition, int] = {}
        self._environment = environment
        self._disk = environment.disk
        self._written: dict[TopicPartition, int] | None = None  # what the file says; None: that is not known
        self._named: set[TopicPartition] = set()  # the logs of which the file says something, or soon may
        self._writes = 0  # an older content never replaces a newer one
        self._on_its_way = False

    def read(self, logs: Iterable[TopicPartition]) -> None:
        """Take the rows of the file that are about these logs. Raises `OSError`, `LogDirectoryError`."""
        if not self._disk.exists(self.path):
            return
        try:
            found = offsets_from_text(self._disk.read_whole(self.path))
        except MalformedCheckpoint as error:
            raise LogDirectoryError(f"{self.path} is malformed: {error}") from None
        self._named = set(found)
        self.offsets = {key: found[key] for key in logs if key in found}

    def write(self, *, sync: bool) -> None:
        """Write the file, now. Raises `OSError`."""
        self._writes += 1
        self._named |= self.offsets.keys()
        self._written = None
        self._disk.write_whole(self.path, offsets_text(self.offsets), sync=sync)
        self._note_written(dict(self.offsets))

    def forget(self, key: TopicPartition) -> bool:
        """Drop the row of a log that is gone; whether there was one. The file follows with the next write."""
        return self.offsets.pop(key, None) is not None

    def make_way(self, key: TopicPartition) -> None:
        """Take a log out of the file before one of this name is made. Raises `OSError`.

        The content is synced before it gets its name, and the name comes before the new log's: a power cut that leaves
        the log leaves this, too.
        """
        self.offsets.pop(key, None)
        if key in self._named:
            self._writes += 1
            self._written = None
            offsets = dict(self.offsets)
            self._write_beside(TEMPORARY_SUFFIX, offsets)
            self._disk.rename(self.path + TEMPORARY_SUFFIX, self.path)
            self._note_written(offsets)

    def write_soon(self) -> None:
        """Bring the file to the disk itself in another thread, unless it says the same already, or one is at it.

        That it fails is logged: the checkpoint then stays what it was, which costs a start after a crash some work.
        """
        if self._on_its_way or self.offsets == self._written:
            return
        self._on_its_way = True
        writes = self._writes
        offsets = dict(self.offsets)
        self._named |= offsets.keys()

        def written(error: Exception | None) -> None:
            self._on_its_way = False
            self._complain(error)
            if error is None and self._writes == writes:
                self._put_in_place(offsets)

        self._environment.run_aside(lambda: self._write_beside(NEXT_SUFFIX, offsets), written)

    def _write_beside(self, suffix: str, offsets: dict[TopicPartition, int]) -> None:
        """Write a file of another name, to the disk itself. May run in another thread."""
        file = self._disk.open(self.path + suffix, create=True)
        try:
            file.truncate(0)
            file.write(0, offsets_text(offsets))
            file.sync()
        finally:
            file.close()

    def _put_in_place(self, offsets: dict[TopicPartition, int]) -> None:
        try:
            self._disk.rename(self.path + NEXT_SUFFIX, self.path)
        except OSError as error:
            self._complain(error)
            return
        self._writes += 1
        self._note_written(offsets)
        self._environment.run_aside(lambda: self._disk.sync_directory(os.path.dirname(self.path)), self._complain)

    def _note_written(self, offsets: dict[TopicPartition, int]) -> None:
        self._written = offsets
        self._named = set(offsets)

    def _complain(self, error: Exception | None) -> None:
        if error is not None:
            logger.error("%s could not be written: %s", self.path, error)
