"""Writing a cleaned segment: the `.log` file and its indexes, all ending in `.cleaned` until they are swapped in.

Which batches it gets is decided in `cleaning.py`; how it takes the place of others is in `Log.replace_segments`.
"""

from __future__ import annotations

from collections.abc import Sequence

from minibroker.protocol.records.batch import BatchHeader
from minibroker.storage.files import Bytes, Disk, File
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.names import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from minibroker.storage.producers.aborted_transactions import AbortedTransaction, transactions_bytes
from minibroker.storage.segment_indexes import SegmentIndexes

MAX_POSITION = 0x7FFFFFFF  # indexes hold positions as int32


class SegmentOverflow(Exception):
    """Batches that do not fit into one segment, as its indexes could not name them; the message says why."""


class SegmentWriter:
    """A segment in the making, `path` being that of its files without suffix. All methods raise `OSError`."""

    def __init__(self, disk: Disk, path: str, base_offset: int, settings: LogSettings, buffer_bytes: int) -> None:
        self.path = path
        self.size_bytes = 0
        self._disk = disk
        self._buffer = bytearray()
        self._buffer_bytes = buffer_bytes
        self._indexes = SegmentIndexes(disk, path, base_offset, settings)
        self._indexes.offsets.path += CLEANED_SUFFIX
        self._indexes.times.path += CLEANED_SUFFIX
        discard_cleaned(disk, path)
        self._file = disk.open(path + LOG_SUFFIX + CLEANED_SUFFIX, create=True)

    def add(self, header: BatchHeader, data: Bytes) -> None:
        """Write the batch after the ones before. Raises `SegmentOverflow`."""
        position = self.size_bytes
        if position + len(data) > MAX_POSITION or not self._indexes.can_name(header.last_offset):
            raise SegmentOverflow(f"the batch of offset {header.base_offset} does not fit into {self.path}")
        # A full index takes no further entry: what lies behind the last one is found by reading on.
        known = self._indexes.offsets.last_position if self._indexes.is_full else position
        self._indexes.note(known, header.last_offset, header.max_timestamp)
        self._buffer += data
        self.size_bytes += len(data)
        if len(self._buffer) >= self._buffer_bytes:
            self._write_out()

    def finish(self, aborted: Sequence[AbortedTransaction], modified_ms: int) -> File:
        """Finish the files, sync them, and return the `.log` file. `aborted` is for the transaction index.

        The file counts as modified when the newest of its originals was: records without a timestamp are judged by
        that.
        """
        self._write_out()
        self._indexes.finish(self.size_bytes)
        if aborted:
            index = self._disk.open(self.path + TRANSACTION_INDEX_SUFFIX + CLEANED_SUFFIX, create=True)
            index.write(0, transactions_bytes(aborted))
            index.sync()
        self._file.sync()
        self._indexes.sync()
        self._disk.set_modified_ms(self.path + LOG_SUFFIX + CLEANED_SUFFIX, modified_ms)
        return self._file

    def _write_out(self) -> None:
        if self._buffer:
            self._file.write(self.size_bytes - len(self._buffer), self._buffer)
            self._buffer = bytearray()


def discard_cleaned(disk: Disk, path: str) -> None:
    """Remove what was written of a cleaned segment. Raises `OSError`."""
    for kind in SEGMENT_SUFFIXES:
        disk.remove(path + kind + CLEANED_SUFFIX)


def discard_half_swapped(disk: Disk, path: str) -> None:
    """Remove a cleaned segment of which some files end in `.swap` already, but not all. Raises `OSError`.

    As long as a `.cleaned` file is there, no start takes a `.swap` file for whole: so that one goes first.
    """
    for kind in SEGMENT_SUFFIXES:
        disk.remove(path + kind + SWAP_SUFFIX)
    discard_cleaned(disk, path)
