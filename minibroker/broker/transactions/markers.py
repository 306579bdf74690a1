"""The sender of markers, which end a transaction in each of its partitions. It retries until all leaders have them.

The coordinator decides when a transaction ends. Each leader's node writes the markers as for WriteTxnMarkers, but no
request is sent, as all nodes are in one process.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from minibroker.broker.clock import process_items_in_slices
from minibroker.broker.transactions.marking import EndedTransaction, write_marker_or_return_error
from minibroker.broker.transactions.transaction import ENDING, TopicPartition, Transaction, TransactionState
from minibroker.broker.turn import AppendWait, make_append_wait
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.steps import split_into_portions
from minibroker.storage.producers.transaction_markers import TransactionMarker

if TYPE_CHECKING:
    from minibroker.broker.clock import Timer
    from minibroker.broker.transactions.transaction_coordinator import TransactionCoordinator

log = logging.getLogger("minibroker.transactions")

RETRY_MS: Final = 100

# With DONE a partition has its marker, or will never need one; with GIVEN_UP another coordinator has taken over.
DONE: Final = frozenset({ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT})
GIVEN_UP: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})


class MarkerSender:
    """The transactions that are ending, and their partitions without a marker."""

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator
        self._missing: dict[str, set[TopicPartition]] = {}
        self._timers: dict[str, Timer] = {}
        self._held: set[str] = set()

    def hold_back_markers(self, transactional_id: str) -> None:
        """Hold back the markers of this id until `send_held_markers`, so that no transaction of it ends."""
        self._held.add(transactional_id)

    def send_held_markers(self, transactional_id: str) -> None:
        """Send the markers of this id that were held back."""
        self._held.discard(transactional_id)
        if transactional_id in self._missing and transactional_id not in self._timers:
            self._try_to_write_markers_later(transactional_id, 0)

    def get_partitions_without_marker(self, transactional_id: str) -> frozenset[TopicPartition]:
        """Return the partitions of a transaction that have no marker yet."""
        return frozenset(self._missing.get(transactional_id, ()))

    def send_markers(self, transaction: Transaction) -> None:
        """Write the markers of a transaction whose end is decided, then complete it; retry until that succeeds."""
        self._missing[transaction.transactional_id] = set(transaction.partitions)
        self._try_to_write_markers(transaction.transactional_id)

    def send_markers_soon(self, transaction: Transaction) -> None:
        """Send markers as `send_markers` does, but in a later turn of the loop."""
        self._missing[transaction.transactional_id] = set(transaction.partitions)
        self._try_to_write_markers_later(transaction.transactional_id, 0)

    def stop_sending_markers(self, transactional_id: str) -> None:
        """Stop sending markers for this id."""
        self._missing.pop(transactional_id, None)
        timer = self._timers.pop(transactional_id, None)
        if timer is not None:
            timer.cancel()

    def _try_to_write_markers_later(self, transactional_id: str, delay_ms: int) -> None:
        def try_to_write_markers() -> None:
            self._try_to_write_markers(transactional_id)

        self._timers[transactional_id] = self._coordinator.cluster.clock.call_later(delay_ms, try_to_write_markers)

    def _try_to_write_markers(self, transactional_id: str) -> None:
        self._timers.pop(transactional_id, None)
        if transactional_id in self._held:
            return
        transaction = self._coordinator.transactions.get(transactional_id)
        if transaction is None or transaction.state not in ENDING:
            self._missing.pop(transactional_id, None)
            return
        missing = self._missing[transactional_id]
        failed = False

        def write_markers_of_portion(partitions: Sequence[TopicPartition]) -> None:
            nonlocal failed
            if failed or self._missing.get(transactional_id) is not missing:
                return
            try:
                self._write_markers(transaction, missing, partitions)
            except KafkaError as error:
                log.warning("%s cannot be ended yet: %s", transactional_id, error)
                self._try_to_write_markers_later(transactional_id, RETRY_MS)
                failed = True

        def complete_when_all_written() -> None:
            if not failed and self._missing.get(transactional_id) is missing:
                self._complete_when_flushed(transaction)

        process_items_in_slices(
            self._coordinator.cluster.clock,
            write_markers_of_portion,
            split_into_portions(sorted(missing)),
            complete_when_all_written,
        )

    def _complete_when_flushed(self, transaction: Transaction) -> None:
        """Complete the transaction once its markers are flushed, where that is required; retry if some are missing."""
        transactional_id = transaction.transactional_id
        missing = self._missing[transactional_id]
        if missing:
            self._complete_transaction_or_retry(transactional_id)
            return

        unflushed = self._list_unflushed_markers(transaction)
        if not unflushed:
            self._complete_transaction_or_retry(transactional_id)
            return
        flushing, lost = {where for where, _ in unflushed}, set[TopicPartition]()
        missing.update(flushing)

        def count_flushed_marker(partition: TopicPartition, failure: KafkaError | None) -> None:
            flushing.discard(partition)
            if failure is not None:
                lost.add(partition)
            if not flushing:
                missing.intersection_update(lost)
                if self._missing.get(transactional_id) is missing:
                    self._complete_transaction_or_retry(transactional_id)

        for where, wait in unflushed:
            self._coordinator.cluster.turn.call_when_wait_is_over(wait, partial(count_flushed_marker, where))

    def _list_unflushed_markers(self, transaction: Transaction) -> list[tuple[TopicPartition, AppendWait]]:
        """Return (partition, wait for its flush) where the markers of the transaction need one (flush.messages)."""
        topics = self._coordinator.cluster.image.topics
        found = (
            (where, topics[where[0]].find_partition(where[1])) for where in transaction.partitions if where[0] in topics
        )
        here = ((where, partition.log) for where, partition in found if partition is not None)
        return [(where, make_append_wait(kept)) for where, kept in here if kept.flusher.is_needed]

    def _complete_transaction_or_retry(self, transactional_id: str) -> None:
        try:
            if not self._missing[transactional_id]:
                self._coordinator.complete_transaction(transactional_id)
                del self._missing[transactional_id]
                return
        except KafkaError as error:
            log.warning("%s cannot be ended yet: %s", transactional_id, error)
        self._try_to_write_markers_later(transactional_id, RETRY_MS)

    def _write_markers(
        self, transaction: Transaction, unmarked_partitions: set[TopicPartition], partitions: Iterable[TopicPartition]
    ) -> None:
        """Write the markers at the leaders of these partitions. Raises KafkaError."""
        cluster = self._coordinator.cluster
        epoch = self._coordinator.get_coordinator_epoch(transaction.transactional_id)
        marker = TransactionMarker(transaction.state is TransactionState.PREPARE_COMMIT, epoch)
        producer = transaction.producer_id, transaction.producer_epoch
        ending = EndedTransaction(cluster, producer, marker, transaction.client_version)
        for name, index in partitions:
            topic = cluster.image.topics.get(name)
            partition = None if topic is None else topic.find_partition(index)
            if partition is None:  # of a deleted topic
                unmarked_partitions.discard((name, index))
            elif (node := cluster.nodes.get(partition.leader_id)) is not None:
                self._handle_marker_result(
                    transaction,
                    unmarked_partitions,
                    (name, index),
                    write_marker_or_return_error(cluster, node, ending, name, index),
                )

    def _handle_marker_result(
        self,
        transaction: Transaction,
        unmarked_partitions: set[TopicPartition],
        partition: TopicPartition,
        code: ErrorCode,
    ) -> None:
        """Remove a partition from `unmarked_partitions` if its marker is written or given up; else log the error."""
        if code in DONE:
            unmarked_partitions.discard(partition)
        elif code in GIVEN_UP:
            log.warning("%s: %s-%d takes no marker: %s", transaction.transactional_id, *partition, code.name)
            unmarked_partitions.discard(partition)
        else:
            log.info("%s: %s-%d has no marker yet: %s", transaction.transactional_id, *partition, code.name)
