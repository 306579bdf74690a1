"""The coordinator: all transactional ids, what was asked for each, written to `__transaction_state` and then applied.

What a request makes of a transaction is decided in `transitions`; markers are `markers.py`'s business.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from minibroker.broker.coordination.coordinator_logs import StateTopic, StateTopicSettings
from minibroker.broker.metadata.features import TRANSACTION_VERSION
from minibroker.broker.metadata.partitions import TRANSACTIONS_TOPIC, Partition, Topic
from minibroker.broker.transactions import transitions
from minibroker.broker.transactions.expiry import TransactionExpiry
from minibroker.broker.transactions.markers import RETRY_MS, MarkerSender
from minibroker.broker.transactions.records import tombstone, transaction_entry, transaction_of
from minibroker.broker.transactions.transaction import ENDING, State, TopicPartition, Transaction
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.transaction_records import TransactionLogKey, TransactionLogValue
from minibroker.protocol.records.internal import decode_internal
from minibroker.protocol.records.record import Record
from minibroker.protocol.steps import Steps

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster, Node
    from minibroker.broker.requests.turn import Wait

log = logging.getLogger("minibroker.transactions")

SETTINGS = StateTopicSettings(
    "transaction.state.log.num.partitions",
    "transaction.state.log.replication.factor",
    "transaction.state.log.segment.bytes",
    "transaction.state.log.load.buffer.size",
    min_isr="transaction.state.log.min.isr",
    compression_type="uncompressed",
)


class TransactionCoordinator:
    """All transactional ids of the cluster, each looked after by the node that leads its partition of the topic."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.topic = StateTopic(cluster, TRANSACTIONS_TOPIC, SETTINGS, self._reload)
        self.transactions: dict[str, Transaction] = {}
        self.markers = MarkerSender(self)
        self._unreadable: set[int] = set()
        self._expiry = TransactionExpiry(self)

    @property
    def version(self) -> int:
        """The level of the feature transaction.version that is in force."""
        return self.cluster.image.features.get(TRANSACTION_VERSION, 0)

    # --- start ----------------------------------------------------------------------------------

    def load(self) -> None:
        """Fold all partitions of the topic, and go on with the transactions that a crash has left half-way ended."""
        for partition in self.topic.partitions_here():
            self._load(partition)
        for transaction in self.transactions.values():
            if transaction.state in ENDING:
                self.markers.send(transaction)
        self._expiry.start()

    def _reload(self, partition: Partition) -> None:
        self._forget_partition(partition.index)
        self._load(partition)
        for transaction in self.transactions.values():
            if transaction.state in ENDING and not self.markers.are_sent(transaction.transactional_id):
                self.markers.send(transaction, RETRY_MS)  # its end was lost: not at once, or a full disk gets fuller

    def _load(self, partition: Partition) -> None:
        try:
            self.topic.replay(partition, self)
        except KafkaError as error:
            log.critical("the transactions in %s are not served until the next start: %s", partition, error)
            self._unreadable.add(partition.index)
            self._forget_partition(partition.index)

    def _forget_partition(self, index: int) -> None:
        """Know nothing of what a partition holds: half of it may say what was not so in the end."""
        for transactional_id in [each for each in self.transactions if self.topic.partition_of(each) == index]:
            del self.transactions[transactional_id]

    def record(self, record: Record, producer_id: int) -> None:
        """Fold one record in. Raises KafkaError or ValueError for one that says nothing that is known."""
        key, value = decode_internal(TRANSACTIONS_TOPIC, record.key, record.value)
        if not isinstance(key.message, TransactionLogKey):
            return
        if value is None:
            self.transactions.pop(key.message.transactional_id, None)
        elif isinstance(value.message, TransactionLogValue):
            self.transactions[key.message.transactional_id] = transaction_of(key.message, value.message)

    def transaction_ended(self, producer_id: int, *, committed: bool) -> None:
        """Nothing in this topic is part of a transaction itself."""

    # --- which node, which transaction ----------------------------------------------------------

    def create_topic(self) -> None:
        """Create the topic unless it is there, and look after timeouts from now on. Raises KafkaError."""
        self.topic.create()
        self._expiry.start()

    def create_topic_in_steps(self) -> Steps[None]:
        """As `create_topic`; wait while somebody else creates it. Raises KafkaError."""
        yield from self.topic.create_in_steps()
        self._expiry.start()

    def node_of(self, transactional_id: str) -> Node | None:
        """The node that looks after a transactional id, None while nobody does."""
        return self.topic.node_of(transactional_id)

    def check(self, node: Node, transactional_id: str | None) -> str:
        """The transactional id, if it can be one, and `node` looks after it.

        Raises KafkaError: INVALID_REQUEST, NOT_COORDINATOR.
        """
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A transactional id is not empty.")
        unreadable = self.topic.partition_of(transactional_id) in self._unreadable
        if self.node_of(transactional_id) is not node or unreadable:
            message = f"Node {node.node_id} does not coordinate {transactional_id}."
            raise KafkaError(ErrorCode.NOT_COORDINATOR, message)
        return transactional_id

    def coordinator_epoch(self, transactional_id: str) -> int:
        """The epoch that markers bear: the leader epoch of the partition with the id's state. Raises KafkaError."""
        return self.topic.partition(self.topic.partition_of(transactional_id)).leader_epoch

    def find(self, transactional_id: str) -> Transaction:
        """What is known of an id. Raises KafkaError(INVALID_PRODUCER_ID_MAPPING) if that is nothing."""
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"{transactional_id} has no producer id.")
        return transaction

    # --- requests -------------------------------------------------------------------------------

    def initialize(
        self, transactional_id: str, timeout_ms: int, expected: transitions.Expected = None
    ) -> tuple[int, int]:
        """The producer id and epoch for a producer with this id; whoever had them before is fenced.

        An ongoing transaction is aborted first: meanwhile this raises KafkaError(CONCURRENT_TRANSACTIONS), and the
        client asks again. Raises KafkaError: PRODUCER_FENCED, and what writing raises.
        """
        now_ms = self.cluster.clock.wall_ms()
        new_id = self.cluster.controller.next_producer_id
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            transaction = Transaction(transactional_id, new_id(), timeout_ms, now_ms)
        if transaction.state is State.ONGOING:
            transitions.check_expected(transaction, expected)
            self.abort_and_fence(transaction)
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "The ongoing transaction is aborted first.")
        after = transitions.initialized(transaction, timeout_ms, expected, now_ms, new_id)
        self._change(after)
        return after.producer_id, after.producer_epoch

    def add_partitions(
        self, transactional_id: str, producer: tuple[int, int], partitions: Iterable[TopicPartition], version: int
    ) -> None:
        """Have the partitions be part of the transaction; `version` is the client's transaction version.

        Raises KafkaError: as `transitions.with_partitions`, and what writing raises.
        """
        transaction = self.find(transactional_id)
        now_ms = self.cluster.clock.wall_ms()
        after = transitions.with_partitions(transaction, producer, partitions, version, now_ms)
        if after is not transaction:
            self._change(after)

    def check_partition(self, transactional_id: str, producer: tuple[int, int], partition: TopicPartition) -> None:
        """Raises KafkaError unless the partition is part of the producer's open transaction (KIP-890)."""
        transitions.check_partition(self.find(transactional_id), producer, partition)

    def end(self, transactional_id: str, producer: tuple[int, int], commit: bool, version: int) -> tuple[int, int]:
        """End the transaction: the decision is written, markers follow. The producer id and epoch for the next one.

        Raises KafkaError: as `transitions.ended`, and what writing raises.
        """
        transaction = self.find(transactional_id)
        now_ms = self.cluster.clock.wall_ms()
        new_id = self.cluster.controller.next_producer_id
        after = transitions.ended(transaction, producer, commit, version, now_ms, new_id)
        if after is not transaction:
            self._decide(after)
        return transitions.producer_after(after)

    # --- what the coordinator does by itself ----------------------------------------------------

    def abort_and_fence(self, transaction: Transaction) -> None:
        """Abort an ongoing transaction and fence its producer. Raises KafkaError."""
        now_ms = self.cluster.clock.wall_ms()
        after = transitions.fenced(transaction, self.version, now_ms, self.cluster.controller.next_producer_id)
        self._decide(after)

    def _decide(self, after: Transaction) -> None:
        """Write down how a transaction is to end; its markers follow once that is kept, if need be after a start."""
        self._change(after)
        self.when_kept(after.transactional_id, lambda failure: None if failure else self.markers.send(after))

    def complete(self, transactional_id: str) -> None:
        """All markers of a transaction are written. Raises KafkaError if that cannot be recorded."""
        transaction = self.transactions[transactional_id]
        self._change(transitions.completed(transaction, self.cluster.clock.wall_ms()))

    def forget(self, transactional_id: str) -> None:
        """Take back all that is known of an id. Raises KafkaError."""
        self.topic.append(self.topic.partition_of(transactional_id), [tombstone(transactional_id)])
        del self.transactions[transactional_id]

    def _change(self, after: Transaction) -> None:
        index = self.topic.partition_of(after.transactional_id)
        self.topic.append(index, [transaction_entry(after, self.version)])
        self.transactions[after.transactional_id] = after

    def when_kept(self, transactional_id: str, then: Callable[[KafkaError | None], None]) -> None:
        """Call `then` once what was written for an id may be told to a client; mostly at once."""
        self.topic.when_kept(self.topic.partition_of(transactional_id), then)

    def wait(self, transactional_id: str) -> Wait:
        """The promise to be kept before a client is told what was written for an id. Raises KafkaError."""
        return self.topic.wait(self.topic.partition_of(transactional_id))

    def topic_deleted(self, topic: Topic) -> None:
        """Somebody has deleted a topic: if it is that of the transactions, nothing is known of them any more."""
        if topic.name == self.topic.name:
            self.transactions.clear()
            self._unreadable.clear()
            self.markers.forget_all()
