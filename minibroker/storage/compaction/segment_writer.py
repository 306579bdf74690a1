"""Writes a cleaned segment: the `.log` file and its indexes. They end in `.cleaned` until they are swapped in.

`rewriting.py` chooses the batches, and `Log.replace_segments` swaps the files in.
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
from minibroker.storage.producers.aborted_transactions import AbortedTransaction, encode_aborted_transactions
from minibroker.storage.segment_indexes import SegmentIndexes

MAX_POSITION = 0x7FFFFFFF  # indexes store positions as int32


class SegmentOverflow(Exception):
    """A batch does not fit into the segment, as the indexes could not address it."""


class SegmentWriter:
    """A segment that is being written. `path` is the path of its files without suffix. All methods raise `OSError`."""

    def __init__(self, disk: Disk, path: str, base_offset: int, settings: LogSettings, buffer_bytes: int) -> None:
        self.path = path
        self.size_bytes = 0
        self._disk = disk
        self._buffer = bytearray()
        self._buffer_bytes = buffer_bytes
        self._indexes = SegmentIndexes(disk, path, base_offset, settings)
        self._indexes.offsets.path += CLEANED_SUFFIX
        self._indexes.times.path += CLEANED_SUFFIX
        remove_unfinished_cleaned_files(disk, path)
        self._file = disk.open(path + LOG_SUFFIX + CLEANED_SUFFIX, create=True)

    def add_batch(self, header: BatchHeader, data: Bytes) -> None:
        """Append a batch. Raises `SegmentOverflow`."""
        position = self.size_bytes
        if position + len(data) > MAX_POSITION or not self._indexes.fits_relative_offset(header.last_offset):
            raise SegmentOverflow(f"the batch of offset {header.base_offset} does not fit into {self.path}")
        # A full index takes no more entries. Readers find later batches by reading on from the last entry.
        known = self._indexes.offsets.last_position if self._indexes.is_full else position
        self._indexes.add_batch_to_indexes(known, header.last_offset, header.max_timestamp)
        self._buffer += data
        self.size_bytes += len(data)
        if len(self._buffer) >= self._buffer_bytes:
            self._write_buffer()

    def finish_segment_files(self, aborted_transactions: Sequence[AbortedTransaction], modified_ms: int) -> File:
        """Finish the files, sync them, and return the `.log` file. The transaction index gets `aborted_transactions`.

        The file gets the modification time of its newest original, which retention uses for records without timestamps.
        """
        self._write_buffer()
        self._indexes.finish_and_write_files(self.size_bytes)
        if aborted_transactions:
            index = self._disk.open(self.path + TRANSACTION_INDEX_SUFFIX + CLEANED_SUFFIX, create=True)
            index.write(0, encode_aborted_transactions(aborted_transactions))
            index.sync()
        self._file.sync()
        self._indexes.sync_files()
        self._disk.set_modified_ms(self.path + LOG_SUFFIX + CLEANED_SUFFIX, modified_ms)
        return self._file

    def _write_buffer(self) -> None:
        if self._buffer:
            self._file.write(self.size_bytes - len(self._buffer), self._buffer)
            self._buffer = bytearray()


def remove_unfinished_cleaned_files(disk: Disk, path: str) -> None:
    """Remove the `.cleaned` files of a segment. Raises `OSError`."""
    for kind in SEGMENT_SUFFIXES:
        disk.remove(path + kind + CLEANED_SUFFIX)


def remove_half_swapped_files(disk: Disk, path: str) -> None:
    """Remove a cleaned segment of which some files end in `.swap` already, but not all. Raises `OSError`.

    A start ignores `.swap` files as long as there is a `.cleaned` file, so the `.swap` files are removed first.
    """
    for kind in SEGMENT_SUFFIXES:
        disk.remove(path + kind + SWAP_SUFFIX)
    remove_unfinished_cleaned_files(disk, path)
