"""The state of transactions during compaction: which batches were aborted, and which markers are no longer needed.

The rules are Kafka's (CleanedTransactionMetadata): all records of an aborted transaction are removed, and so is a
marker once no batch of its transaction is left and its delete horizon has passed (`batch_filter.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

from minibroker.protocol.records.batch import BatchHeader
from minibroker.protocol.records.control import ControlType, decode_control_type
from minibroker.protocol.records.payload import iterate_records_of_batch
from minibroker.storage.producers.aborted_transactions import AbortedTransaction


class CleanedTransactions:
    """The transactions that are open at the cleaner's position. Pass all batches of producers to it, in order.

    `aborted` are all aborted transactions, as the transaction indexes list them; `start_offset` is where the cleaner
    begins. `still_indexed` collects those that had records before this cleaning: their markers are kept, and the index
    of the cleaned segment must list them.
    """

    __slots__ = ("still_indexed", "_waiting", "_open_aborted", "_has_records", "_open_committed")

    def __init__(self, aborted: Iterable[AbortedTransaction], start_offset: int) -> None:
        reached = (transaction for transaction in aborted if transaction.last_offset >= start_offset)
        self._waiting = sorted(reached, key=lambda transaction: transaction.first_offset, reverse=True)
        self._open_aborted: dict[int, AbortedTransaction] = {}
        self._has_records: set[int] = set()  # producers of open aborted transactions
        self._open_committed: set[int] = set()
        self.still_indexed: list[AbortedTransaction] = []

    def is_data_batch_aborted(self, header: BatchHeader) -> bool:
        """Return whether a transactional data batch belongs to an aborted transaction."""
        self._begin_aborted_transactions(header.last_offset)
        if header.producer_id in self._open_aborted:
            self._has_records.add(header.producer_id)
            return True
        self._open_committed.add(header.producer_id)
        return False

    def is_marker_removable(self, header: BatchHeader, batch: bytes) -> bool:
        """Return whether the control batch could be removed, as no other batch of its transaction is left.

        Raises `InvalidRecords` for a batch without a control record's key.
        """
        self._begin_aborted_transactions(header.last_offset)
        if header.record_count == 0:  # emptied by an earlier cleaning, and kept for the producer's epoch
            return True
        record = next(iterate_records_of_batch(batch), None)
        kind = None if record is None else decode_control_type(record.key)
        if kind is ControlType.ABORT:
            return not self._close_aborted_transaction(header.producer_id)
        if kind is ControlType.COMMIT:
            had_records = header.producer_id in self._open_committed
            self._open_committed.discard(header.producer_id)
            return not had_records
        return False

    def _close_aborted_transaction(self, producer_id: int) -> bool:
        """Close the producer's aborted transaction, and return whether it has records left."""
        transaction = self._open_aborted.pop(producer_id, None)
        if transaction is None or producer_id not in self._has_records:
            return False
        self._has_records.remove(producer_id)
        self.still_indexed.append(transaction)
        return True

    def _begin_aborted_transactions(self, last_offset: int) -> None:
        """Open the aborted transactions that have begun by `last_offset`."""
        while self._waiting and self._waiting[-1].first_offset <= last_offset:
            transaction = self._waiting.pop()
            self._open_aborted.setdefault(transaction.producer_id, transaction)
