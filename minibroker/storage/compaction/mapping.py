"""The first half of a cleaning: for each key of the dirty part, the offset of its last record.

What is done with that is in `batch_filter.py`, and who calls in `cleaning.py`.
"""

from __future__ import annotations

from minibroker.protocol.errors import KafkaError
from minibroker.protocol.records.batch import CONTROL_BIT, MAGIC, TRANSACTIONAL_BIT, BatchHeader
from minibroker.protocol.records.formats import records_in
from minibroker.protocol.records.streaming import slices_of
from minibroker.storage.compaction.offset_map import OffsetMap
from minibroker.storage.compaction.reading import StoredBatch, uncleanable
from minibroker.storage.compaction.transactions import CleanedTransactions
from minibroker.storage.files import File


class KeyMapper:
    """Puts batches into `keys`, oldest first: the records from `start_offset` on that were not aborted."""

    def __init__(self, keys: OffsetMap, transactions: CleanedTransactions, start_offset: int) -> None:
        self._keys = keys
        self._transactions = transactions
        self._start_offset = start_offset

    def take(self, file: File, batch: StoredBatch) -> bool:
        """Take in a batch of `file`. False if there is no room for all of its keys: it is then known in part.

        Raises `Uncleanable` if its records cannot be read.
        """
        header = batch.header
        try:
            taken = not self._holds_keys(header, batch.data) or self._put(header, batch.data)
        except KafkaError as error:
            raise uncleanable(file, batch.position, header.base_offset, error) from error
        if taken and header.last_offset >= self._start_offset:
            self._keys.latest_offset = header.last_offset
        return taken

    def _holds_keys(self, header: BatchHeader, data: bytes) -> bool:
        if header.attributes & CONTROL_BIT:
            self._transactions.passes_marker(header, data)
            return False
        if header.attributes & TRANSACTIONAL_BIT and self._transactions.passes_aborted(header):
            return False
        return header.record_count != 0 and header.last_offset >= self._start_offset

    def _put(self, header: BatchHeader, data: bytes) -> bool:
        if header.magic < MAGIC:
            return self._put_messages(data)
        put, start, base = self._keys.put, self._start_offset, header.base_offset
        for record in slices_of(data, header):
            if record is None:
                continue
            _, _, raw_offset, _, key, _ = record
            offset = base + (raw_offset >> 1)
            if key is not None and offset >= start and not put(key, offset):
                return False
        return True

    def _put_messages(self, data: bytes) -> bool:
        """The same for a message of format 0 or 1."""
        for record in records_in(data):
            key, offset = record.key, record.offset
            if key is not None and offset >= self._start_offset and not self._keys.put(key, offset):
                return False
        return True
