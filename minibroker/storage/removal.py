"""Removing segments: their files are renamed to `.deleted` at once, and unlinked after `file.delete.delay.ms`.

Which segments go is decided by the log and by `retention.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from minibroker.storage.environment import Environment
from minibroker.storage.files import Disk

logger = logging.getLogger(__name__)


def unlink_later(environment: Environment, paths: Sequence[str], delay_ms: int) -> None:
    """Have the files removed after a while. Whoever reads in one of them then still has it open."""
    if paths:
        environment.schedule(delay_ms, partial(_unlink, environment.disk, paths))


def _unlink(disk: Disk, paths: Sequence[str]) -> None:
    for path in paths:
        try:
            disk.remove(path)
        except OSError as error:
            logger.warning("%s stays until the next start: %s", path, error)
