"""The records of `__transaction_state`: encodes and decodes transactions in the versions that Kafka 4.3 writes."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from struct import Struct
from typing import Final

from minibroker.broker.coordination.coordinator_logs import Entry, encode_record_entry
from minibroker.broker.transactions.transaction import OWN_EPOCHS, TopicPartition, Transaction, TransactionState
from minibroker.protocol.messages.transaction_records import TransactionLogKey, TransactionLogValue

FLEXIBLE_VERSION: Final = 1  # written from transaction version 1 on
PARTITIONS_KEPT: Final = 100  # the most partitions of a transaction whose encoded bytes are cached

_START: Final = Struct(">hqhib")  # version, producer id, epoch, timeout, state
_TIMES: Final = Struct(">qq")  # of the last change, and of the start
_VERSION_BYTES: Final = 2
NO_LIST = NO_TAGS = b"\0"


def encode_transaction(transaction: Transaction, transaction_version: int = OWN_EPOCHS) -> Entry:
    """Return the record of a transactional id's current state."""
    if transaction_version < 1 or len(transaction.partitions) > PARTITIONS_KEPT:
        version = FLEXIBLE_VERSION if transaction_version >= 1 else 0
        return encode_record_entry(
            TransactionLogKey(transactional_id=transaction.transactional_id),
            make_transaction_log_value(transaction),
            version,
        )
    return _encode_transaction_log_key(transaction.transactional_id), _encode_transaction_log_value(transaction)


@lru_cache(maxsize=256)
def _encode_transaction_log_key(transactional_id: str) -> bytes:
    return encode_record_entry(TransactionLogKey(transactional_id=transactional_id))[0]


def _encode_transaction_log_value(transaction: Transaction) -> bytes:
    """Return the encoded value of a transaction's record, packed by its layout, which is faster than the codec."""
    start = _START.pack(
        FLEXIBLE_VERSION,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.timeout_ms,
        transaction.state,
    )
    partitions = NO_LIST if transaction.state is TransactionState.EMPTY else _encode_partitions(transaction.partitions)
    times = _TIMES.pack(transaction.last_update_ms, transaction.start_ms)
    tags = transaction.previous_producer_id, transaction.next_producer_id, transaction.client_version
    return b"".join((start, partitions, times, _encode_tagged_fields(*tags)))


@lru_cache(maxsize=256)
def _encode_partitions(partitions: frozenset[TopicPartition]) -> bytes:
    value = TransactionLogValue(transaction_partitions=_group_partitions_by_topic(partitions)).encode(FLEXIBLE_VERSION)
    return value[_START.size - _VERSION_BYTES : -_TIMES.size - len(NO_TAGS)]


@lru_cache(maxsize=16)
def _encode_tagged_fields(previous_producer_id: int, next_producer_id: int, client_version: int) -> bytes:
    value = TransactionLogValue(
        previous_producer_id=previous_producer_id,
        next_producer_id=next_producer_id,
        client_transaction_version=client_version,
        transaction_partitions=None,
    )
    return value.encode(FLEXIBLE_VERSION)[_START.size - _VERSION_BYTES + len(NO_LIST) + _TIMES.size :]


def encode_transaction_tombstone(transactional_id: str) -> Entry:
    """Return the record that deletes a transactional id."""
    return encode_record_entry(TransactionLogKey(transactional_id=transactional_id))


def make_transaction_log_value(transaction: Transaction) -> TransactionLogValue:
    """Return the record's value; without a transaction its list of partitions is null, as in Kafka."""
    return TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None
        if transaction.state is TransactionState.EMPTY
        else _group_partitions_by_topic(transaction.partitions),
        transaction_last_update_timestamp_ms=transaction.last_update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.client_version,
    )


def _group_partitions_by_topic(partitions: frozenset[TopicPartition]) -> list[TransactionLogValue.PartitionsSchema]:
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        by_topic[topic].append(partition)
    return [TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in by_topic.items()]


def parse_transaction(key: TransactionLogKey, value: TransactionLogValue) -> Transaction:
    """Return the transaction of a record. Raises ValueError for an unknown state."""
    return Transaction(
        transactional_id=key.transactional_id,
        producer_id=value.producer_id,
        timeout_ms=value.transaction_timeout_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        producer_epoch=value.producer_epoch,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        state=TransactionState(value.transaction_status),
        partitions=frozenset(
            (each.topic, partition) for each in value.transaction_partitions or () for partition in each.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        client_version=value.client_transaction_version,
    )
