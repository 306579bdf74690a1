"""That a sync of a log has failed, remembered until a start has written once more what it was for.

After an fsync that failed, the system may take the pages in memory for written: whoever reads finds in them what is not
on the disk, and the next fsync succeeds without writing them. Nothing but another write brings them there. So the log
goes offline, a file in its directory says why, and the start that finds the file writes what it has read again. A power
cut may take the file: what is read after one is what the disk has. When a log goes offline is decided by the log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from minibroker.storage.files import Disk
from minibroker.storage.segment import Segment

logger = logging.getLogger(__name__)

FAILED_SYNC = "sync-failed"
BLOCK_BYTES = 1 << 20


def remember(disk: Disk, directory: str) -> None:
    """Have the next start know. Without that only a restart of the machine shows what is on the disk itself."""
    path = f"{directory}/{FAILED_SYNC}"
    try:
        disk.open(path, create=True).close()
    except OSError as error:
        logger.critical("%s cannot be made: %s; restart the machine before the log is used again", path, error)


def write_again(disk: Disk, directory: str, segments: Iterable[Segment]) -> None:
    """Have the next sync bring the batches of these segments, and no more, to the disk itself. Raises `OSError`."""
    logger.warning("%s: a sync has failed, what it was for is written again", directory)
    for segment in segments:
        for position in range(0, segment.size_bytes, BLOCK_BYTES):
            size = min(BLOCK_BYTES, segment.size_bytes - position)
            segment.file.write(position, segment.file.read(position, size))
        segment.file.truncate(segment.size_bytes + 1)  # its size is in doubt as well
        segment.file.truncate(segment.size_bytes)
    disk.remove(f"{directory}/{FAILED_SYNC}")
