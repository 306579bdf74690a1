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
from minibroker.storage.names import TEMPORARY_SUFFIX
from minibroker.storage.segment import Segment

logger = logging.getLogger(__name__)

FAILED_SYNC = "sync-failed"
BLOCK_BYTES = 1 << 20


def remember(disk: Disk, directory: str) -> None:
    """Leave a note for the next start. Without it only a restart of the machine shows what is on the disk itself."""
    path = f"{directory}/{FAILED_SYNC}"
    try:
        disk.open(path, create=True).close()
    except OSError as error:
        logger.critical("%s cannot be made: %s; restart the machine before the log is used again", path, error)


def write_again(disk: Disk, directory: str, segments: Iterable[Segment]) -> None:
    """Bring the batches of these segments, and no more, to the disk itself. Raises `OSError`, and the note stays.

    Each file is replaced by a copy: what a power cut leaves is the one or the other.
    """
    logger.warning("%s: a sync has failed, what it was for is written again", directory)
    for segment in segments:
        _replace_by_copy(disk, segment)
    disk.sync_directory(directory)
    disk.remove(f"{directory}/{FAILED_SYNC}")


def _replace_by_copy(disk: Disk, segment: Segment) -> None:
    original = segment.file
    copy = disk.open(original.path + TEMPORARY_SUFFIX, create=True)
    copy.truncate(0)
    for position in range(0, segment.size_bytes, BLOCK_BYTES):
        size = min(BLOCK_BYTES, segment.size_bytes - position)
        copy.write(position, original.read(position, size))
    copy.sync()
    disk.set_modified_ms(copy.path, disk.modified_ms(original.path))  # it may be all that retention goes by
    disk.rename(copy.path, original.path)
    segment.close()
