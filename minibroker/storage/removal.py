"""Removes the files of deleted segments and logs after `file.delete.delay.ms`. They were renamed before."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from functools import partial

from minibroker.storage.environment import Environment, run_and_return_error
from minibroker.storage.files import Disk

logger = logging.getLogger(__name__)


def remove_files_later(environment: Environment, paths: Sequence[str], delay_ms: int) -> None:
    """Remove files after a delay. Readers that have one of them open can go on."""
    if paths:
        environment.schedule(delay_ms, partial(_remove_files, environment.disk, paths))


def _remove_files(disk: Disk, paths: Sequence[str]) -> None:
    for path in paths:
        try:
            disk.remove(path)
        except OSError as error:
            logger.warning("%s stays until the next start: %s", path, error)


class TreeRemoval:
    """Removes whole directories in another thread, one after the other.

    Removing a topic of a thousand partitions takes seconds. It must not block clients, or all threads.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._due: deque[str] = deque()

    def remove_tree_later(self, path: str, delay_ms: int) -> None:
        """Remove the directory after a delay."""
        self._environment.schedule(delay_ms, partial(self._queue_tree_removal, path))

    def remove_tree_now(self, path: str) -> None:
        """Remove the directory in this thread, if it exists."""
        self._log_result(path, run_and_return_error(partial(self._environment.disk.remove_tree, path)))

    def _queue_tree_removal(self, path: str) -> None:
        self._due.append(path)
        if len(self._due) == 1:
            self._start_next_removal()

    def _start_next_removal(self) -> None:
        self._environment.run_in_thread(
            partial(self._environment.disk.remove_tree, self._due[0]), self._log_result_and_start_next_removal
        )

    def _log_result_and_start_next_removal(self, error: Exception | None) -> None:
        self._log_result(self._due.popleft(), error)
        if self._due:
            self._start_next_removal()

    def _log_result(self, path: str, error: Exception | None) -> None:
        if error is not None:
            logger.warning("%s stays until the next start: %s", path, error)
