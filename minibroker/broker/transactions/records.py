"""The records of `__transaction_state`: encodes and decodes transactions in the versions that Kafka 4.3 writes."""

from __future__ import annotations

from collections import defaultdict

from minibroker.broker.coordination.coordinator_logs import Entry, entry
from minibroker.broker.transactions.transaction import OWN_EPOCHS, State, Transaction
from minibroker.protocol.messages.transaction_records import TransactionLogKey, TransactionLogValue

FLEXIBLE_VERSION = 1  # written from transaction version 1 on


def transaction_entry(transaction: Transaction, transaction_version: int = OWN_EPOCHS) -> Entry:
    """Return the record of a transactional id's current state."""
    version = FLEXIBLE_VERSION if transaction_version >= 1 else 0
    return entry(TransactionLogKey(transactional_id=transaction.transactional_id), value_of(transaction), version)


def tombstone(transactional_id: str) -> Entry:
    """Return the record that deletes a transactional id."""
    return entry(TransactionLogKey(transactional_id=transactional_id))


def value_of(transaction: Transaction) -> TransactionLogValue:
    """Return the record's value; without a transaction its list of partitions is null, as in Kafka."""
    return TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None if transaction.state is State.EMPTY else _grouped(transaction),
        transaction_last_update_timestamp_ms=transaction.last_update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.client_version,
    )


def _grouped(transaction: Transaction) -> list[TransactionLogValue.PartitionsSchema]:
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(transaction.partitions):
        by_topic[topic].append(partition)
    return [TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in by_topic.items()]


def transaction_of(key: TransactionLogKey, value: TransactionLogValue) -> Transaction:
    """Return the transaction of a record. Raises ValueError for an unknown state."""
    return Transaction(
        transactional_id=key.transactional_id,
        producer_id=value.producer_id,
        timeout_ms=value.transaction_timeout_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        producer_epoch=value.producer_epoch,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        state=State(value.transaction_status),
        partitions=frozenset(
            (each.topic, partition) for each in value.transaction_partitions or () for partition in each.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        client_version=value.client_transaction_version,
    )
