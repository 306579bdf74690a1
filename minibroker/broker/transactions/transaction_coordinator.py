"""The transaction coordinator: all transactional ids; each change is written to `__transaction_state`, then applied.

`transitions` decides how a request changes a transaction; `markers` writes the markers. `TransactionExpiry` aborts
transactions that last too long, and deletes unused ids.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from minibroker.broker.clock import process_items_in_slices
from minibroker.broker.coordination.coordinator_logs import CoordinatorLogSettings
from minibroker.broker.coordination.runtime import CoordinatorRuntime, ValuesByPartition
from minibroker.broker.metadata.features import TRANSACTION_VERSION
from minibroker.broker.metadata.partitions import TRANSACTIONS_TOPIC
from minibroker.broker.transactions import transitions
from minibroker.broker.transactions.markers import MarkerSender
from minibroker.broker.transactions.transaction import (
    AT_REST,
    ENDING,
    NEVER_MS,
    TopicPartition,
    Transaction,
    TransactionState,
)
from minibroker.broker.transactions.transaction_codec import (
    encode_transaction,
    encode_transaction_tombstone,
    parse_transaction,
)
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.transaction_records import TransactionLogKey, TransactionLogValue
from minibroker.protocol.records.internal import decode_internal_record
from minibroker.protocol.records.record import Record

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster
    from minibroker.broker.control.controller import Controller
    from minibroker.broker.metadata.nodes import Node

ABORT_INTERVAL: Final = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
FORGET_INTERVAL: Final = "transaction.remove.expired.transaction.cleanup.interval.ms"

log = logging.getLogger("minibroker.transactions")

SETTINGS: Final = CoordinatorLogSettings(
    "transaction.state.log.num.partitions",
    "transaction.state.log.replication.factor",
    "transaction.state.log.segment.bytes",
    "transaction.state.log.load.buffer.size",
    min_isr="transaction.state.log.min.isr",
    compression_type="uncompressed",
)


class TransactionCoordinator(CoordinatorRuntime["TransactionShard"]):
    """The coordinator of all transactional ids of the cluster, whose state is in `__transaction_state`."""

    def __init__(self, cluster: Cluster, controller: Controller) -> None:
        super().__init__(cluster, controller, TRANSACTIONS_TOPIC, SETTINGS)
        self.transactions: ValuesByPartition[Transaction] = ValuesByPartition(self.log.get_partition_index)
        self.markers = MarkerSender(self)
        self.expiry = TransactionExpiry(self)

    def make_shard(self, index: int) -> TransactionShard:
        return TransactionShard(self, index)

    @property
    def transaction_version(self) -> int:
        """Return the finalized level of the feature transaction.version."""
        return self.cluster.image.features.get(TRANSACTION_VERSION, 0)

    # --- nodes and transactions -----------------------------------------------------------------

    def check_is_coordinator(self, node: Node, coordinator_key: str | None) -> None:
        """Check that `node` coordinates this id. Raises KafkaError, INVALID_REQUEST for an empty transactional id."""
        if not coordinator_key:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A transactional id must not be empty.")
        super().check_is_coordinator(node, coordinator_key)

    def get_coordinator_epoch(self, transactional_id: str) -> int:
        """Return the epoch of markers: the leader epoch of the partition with the id's state. Raises KafkaError."""
        return self.log.get_partition(self.log.get_partition_index(transactional_id)).leader_epoch

    def get_transaction(self, transactional_id: str) -> Transaction:
        """Return the transaction of an id. Raises KafkaError(INVALID_PRODUCER_ID_MAPPING) for an unknown id."""
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"{transactional_id} has no producer id.")
        return transaction

    # --- requests -------------------------------------------------------------------------------

    def initialize_producer(
        self, transactional_id: str, timeout_ms: int, expected: transitions.ExpectedIdAndEpoch = None
    ) -> tuple[int, int]:
        """Return a producer id and epoch for a producer with this id; its predecessor is fenced.

        Raises KafkaError: PRODUCER_FENCED, the errors of `append_entries`, and CONCURRENT_TRANSACTIONS while an ongoing
        transaction is aborted, until which the client retries.
        """
        now_ms = self.cluster.clock.wall_ms()
        new_id = self.controller.allocate_producer_id
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            transaction = Transaction(transactional_id, new_id(), timeout_ms, now_ms)
        if transaction.state is TransactionState.ONGOING:
            transitions.check_expected_producer(transaction, expected)
            self.abort_and_fence_producer(transaction)
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "The ongoing transaction is aborted first.")
        after = transitions.initialize_producer(transaction, timeout_ms, expected, now_ms, new_id)
        self._append_and_apply_transaction(after)
        return after.producer_id, after.producer_epoch

    def add_partitions(
        self, transactional_id: str, producer: tuple[int, int], partitions: Iterable[TopicPartition], version: int
    ) -> None:
        """Add partitions to the transaction; `version` is the client's transaction version.

        Raises KafkaError as `transitions.add_partitions_to_transaction` and `append_entries`.
        """
        transaction = self.get_transaction(transactional_id)
        now_ms = self.cluster.clock.wall_ms()
        after = transitions.add_partitions_to_transaction(transaction, producer, partitions, version, now_ms)
        if after is not transaction:
            self._append_and_apply_transaction(after)

    def check_partition_in_transaction(
        self, transactional_id: str, producer: tuple[int, int], partition: TopicPartition
    ) -> None:
        """Check that the partition is part of the producer's open transaction (KIP-890). Raises KafkaError."""
        transitions.check_partition_in_transaction(self.get_transaction(transactional_id), producer, partition)

    def end_transaction(
        self, transactional_id: str, producer: tuple[int, int], commit: bool, version: int
    ) -> tuple[int, int]:
        """Write the decision to end the transaction; markers follow. Return the next producer id and epoch.

        Raises KafkaError as `transitions.end_transaction` and `append_entries`.
        """
        transaction = self.get_transaction(transactional_id)
        now_ms = self.cluster.clock.wall_ms()
        new_id = self.controller.allocate_producer_id
        after = transitions.end_transaction(transaction, producer, commit, version, now_ms, new_id)
        if after is not transaction:
            self._append_decision_and_send_markers(after)
        return transitions.choose_next_producer_id_and_epoch(after)

    # --- without a request ----------------------------------------------------------------------

    def abort_and_fence_producer(self, transaction: Transaction) -> None:
        """Abort an ongoing transaction and fence its producer. Raises KafkaError."""
        now_ms = self.cluster.clock.wall_ms()
        after = transitions.transition_to_fenced_abort(
            transaction, self.transaction_version, now_ms, self.controller.allocate_producer_id
        )
        self._append_decision_and_send_markers(after)

    def _append_decision_and_send_markers(self, new_transaction: Transaction) -> None:
        """Write the decision; its markers follow once it is durable, after a crash at the next start."""
        self._append_and_apply_transaction(new_transaction)
        self.call_when_durable(
            new_transaction.transactional_id,
            lambda failure: None if failure else self.markers.send_markers(new_transaction),
        )

    def complete_transaction(self, transactional_id: str) -> None:
        """Record that all markers of a transaction are written. Raises KafkaError."""
        transaction = self.transactions[transactional_id]
        self._append_and_apply_transaction(transitions.complete_transaction(transaction, self.cluster.clock.wall_ms()))

    def delete_transactional_id(self, transactional_id: str) -> None:
        """Delete an id, with a tombstone. Raises KafkaError."""
        self.append_entries(transactional_id, [encode_transaction_tombstone(transactional_id)])
        del self.transactions[transactional_id]

    def _append_and_apply_transaction(self, new_transaction: Transaction) -> None:
        self.append_entries(
            new_transaction.transactional_id, [encode_transaction(new_transaction, self.transaction_version)]
        )
        self.transactions[new_transaction.transactional_id] = new_transaction


class TransactionShard:
    """The transactional ids of one partition."""

    def __init__(self, coordinator: TransactionCoordinator, index: int) -> None:
        self._coordinator = coordinator
        self._index = index

    def replay_record(self, record: Record, producer_id: int) -> None:
        key, value = decode_internal_record(TRANSACTIONS_TOPIC, record.key, record.value)
        if not isinstance(key.message, TransactionLogKey):
            return
        transactions, transactional_id = self._coordinator.transactions, key.message.transactional_id
        if value is not None and isinstance(value.message, TransactionLogValue):
            transactions[transactional_id] = parse_transaction(key.message, value.message)
        elif value is None and transactional_id in transactions:
            del transactions[transactional_id]

    def apply_transaction_end(self, producer_id: int, *, committed: bool) -> None:
        """Do nothing, as no record of this topic is part of a transaction."""

    def start_timers_after_load(self) -> None:
        """Send the markers of decided transactions, and start to check timeouts."""
        for transaction in self._coordinator.transactions.list_values_of_partition(self._index):
            if transaction.state in ENDING:
                self._coordinator.markers.send_markers_soon(transaction)
        self._coordinator.expiry.start_timers()

    def discard_state(self) -> None:
        for transaction in self._coordinator.transactions.remove_values_of_partition(self._index):
            self._coordinator.markers.stop_sending_markers(transaction.transactional_id)


class TransactionExpiry:
    """Checks all transactional ids at the intervals of the settings, once it is started."""

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator
        self._started = False

    def start_timers(self) -> None:
        """Start the checks, unless they have started."""
        if not self._started:
            self._started = True
            self._repeat_for_each_transaction(ABORT_INTERVAL, self._abort_if_timed_out)
            self._repeat_for_each_transaction(FORGET_INTERVAL, self._delete_if_unused)

    def _repeat_for_each_transaction(
        self, interval_setting: str, process_transaction: Callable[[Transaction], None]
    ) -> None:
        """Call `process_transaction` for each transaction at the interval that the setting gives."""
        cluster = self._coordinator.cluster

        def visit_all_transactions() -> None:
            transactions = self._coordinator.transactions.iterate_present_values()
            process_items_in_slices(
                cluster.clock,
                process_transaction,
                transactions,
                lambda: self._repeat_for_each_transaction(interval_setting, process_transaction),
            )

        cluster.clock.call_later(cluster.settings[interval_setting], visit_all_transactions)

    def _abort_if_timed_out(self, transaction: Transaction) -> None:
        """Abort a transaction that has exceeded its producer's transaction.timeout.ms."""
        now_ms = self._coordinator.cluster.clock.wall_ms()
        if transaction.state is not TransactionState.ONGOING or transaction.timeout_ms == NEVER_MS:
            return
        if transaction.start_ms + transaction.timeout_ms < now_ms:
            try:
                self._coordinator.abort_and_fence_producer(transaction)
            except KafkaError as error:
                log.warning("%s cannot be aborted yet: %s", transaction.transactional_id, error)
            else:
                log.info("%s is aborted, as it has timed out", transaction.transactional_id)

    def _delete_if_unused(self, transaction: Transaction) -> None:
        """Delete an id that was unused for transactional.id.expiration.ms."""
        cluster = self._coordinator.cluster
        after_ms = cluster.settings["transactional.id.expiration.ms"]
        if transaction.state in AT_REST and transaction.last_update_ms + after_ms <= cluster.clock.wall_ms():
            try:
                self._coordinator.delete_transactional_id(transaction.transactional_id)
            except KafkaError as error:
                log.warning("%s cannot be forgotten yet: %s", transaction.transactional_id, error)
