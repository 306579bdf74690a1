"""One of the offset checkpoints of a log directory: an offset for each log, in memory and in its file.

Which offsets they are is the directory's business, the text is `checkpoints.py`'s.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable

from minibroker.storage.checkpoints import MalformedCheckpoint, TopicPartition, offsets_from_text, offsets_text
from minibroker.storage.environment import Environment
from minibroker.storage.recovery import LogDirectoryError

logger = logging.getLogger(__name__)

NEXT_SUFFIX = ".next"  # not `.tmp`, which a write that does not wait may be using


class OffsetCheckpoint:
    """The `offsets`, by (topic, partition), and the file at `path` that is to say the same."""

    def __init__(self, environment: Environment, path: str) -> None:
        self.path = path
        self.offsets: dict[TopicPartition, int] = {}
        self._environment = environment
        self._disk = environment.disk
        self._written: bytes | None = None
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
        self.offsets = {key: found[key] for key in logs if key in found}

    def write(self, *, sync: bool) -> None:
        """Write the file, now. Raises `OSError`."""
        text = offsets_text(self.offsets)
        self._writes += 1
        self._disk.write_whole(self.path, text, sync=sync)
        self._written = text

    def forget(self, key: TopicPartition) -> None:
        """Drop a log's row, so that a later log of this name does not get it. Raises `OSError`."""
        if self.offsets.pop(key, None) is not None:
            self.write(sync=False)

    def write_soon(self) -> None:
        """Bring the file to the disk itself in another thread, unless it says the same already, or one is at it.

        That it fails is logged: the checkpoint then stays what it was, which costs a start after a crash some work.
        """
        text = offsets_text(self.offsets)
        if text == self._written or self._on_its_way:
            return
        self._on_its_way = True
        writes = self._writes

        def written(error: Exception | None) -> None:
            self._on_its_way = False
            self._complain(error)
            if error is None and self._writes == writes:
                self._put_in_place(text)

        self._environment.run_aside(lambda: self._write_next(text), written)

    def _write_next(self, text: bytes) -> None:
        """In another thread."""
        file = self._disk.open(self.path + NEXT_SUFFIX, create=True)
        try:
            file.truncate(0)
            file.write(0, text)
            file.sync()
        finally:
            file.close()

    def _put_in_place(self, text: bytes) -> None:
        try:
            self._disk.rename(self.path + NEXT_SUFFIX, self.path)
        except OSError as error:
            self._complain(error)
            return
        self._writes += 1
        self._written = text
        self._environment.run_aside(lambda: self._disk.sync_directory(os.path.dirname(self.path)), self._complain)

    def _complain(self, error: Exception | None) -> None:
        if error is not None:
            logger.error("%s could not be written: %s", self.path, error)
