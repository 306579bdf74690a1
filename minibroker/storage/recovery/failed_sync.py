"""Remembers a failed sync of a log until a start has written the data again.

After a failed fsync, the system may treat the pages in memory as written: reads find data that is not on the disk, and
the next fsync succeeds without writing it. Only another write brings it there. So the log goes offline and creates a
marker file in its directory; the next start that finds the file writes the data again. A power cut may remove the file,
but reads after a power cut return what is on the disk.
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


def mark_failed_sync(disk: Disk, directory: str) -> None:
    """Create the marker file of a failed sync. Without it, only a restart of the machine shows what is on the disk."""
    path = f"{directory}/{FAILED_SYNC}"
    try:
        disk.open(path, create=True).close()
    except OSError as error:
        logger.critical("%s cannot be created: %s; restart the machine before the log is used again", path, error)


def rewrite_unsynced_segments(disk: Disk, directory: str, segments: Iterable[Segment]) -> None:
    """Write and sync the batches of these segments again. Raises `OSError`, and then the marker file stays.

    Each file is replaced by a copy, so that a power cut leaves one of both.
    """
    logger.warning("%s: a sync has failed, the data is written again", directory)
    for segment in segments:
        _replace_segment_by_copy(disk, segment)
    disk.sync_directory(directory)
    disk.remove(f"{directory}/{FAILED_SYNC}")


def _replace_segment_by_copy(disk: Disk, segment: Segment) -> None:
    """Replace the `.log` file by a synced copy with the same modification time."""
    original = segment.file
    copy = disk.open(original.path + TEMPORARY_SUFFIX, create=True)
    copy.truncate(0)
    for position in range(0, segment.size_bytes, BLOCK_BYTES):
        size = min(BLOCK_BYTES, segment.size_bytes - position)
        copy.write(position, original.read(position, size))
    copy.sync()
    disk.set_modified_ms(copy.path, disk.get_modified_ms(original.path))  # retention may depend on it
    disk.rename(copy.path, original.path)
    segment.close()
