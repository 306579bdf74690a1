"""The check that a transactional batch belongs to an open transaction (KIP-890).

Newer clients do not add partitions; here the broker adds them. For older clients, it asks the coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from minibroker.broker.transactions.transaction import OWN_EPOCHS, TopicPartition
from minibroker.broker.turn import write_pending_appends
from minibroker.protocol.errors import ErrorCode, KafkaError, UnverifiedBatch

if TYPE_CHECKING:
    from minibroker.broker.metadata.partitions import Partition
    from minibroker.broker.transactions.transaction_coordinator import TransactionCoordinator
    from minibroker.broker.turn import AppendWait
    from minibroker.protocol.records.batch import BatchHeader

FIRST_PRODUCE_WITH_ABORTABLE: Final = 11
FIRST_PRODUCE_THAT_JOINS: Final = 12
VERIFICATION: Final = "transaction.partition.verification.enable"

# Clients retry this error. It replaces errors of the coordinator that a Produce must not return.
RETRIED_AS: Final = ErrorCode.NOT_ENOUGH_REPLICAS
RETRIED: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)


def add_or_verify_partition(
    transactions: TransactionCoordinator,
    transactional_id: str,
    producer: tuple[int, int],
    partition: Partition,
    *,
    may_add: bool,
) -> AppendWait | None:
    """Add the partition to the producer's transaction, or, without `may_add`, check that it is part of it.

    Return what to wait for before the client is answered, or None if nothing was written. Raises KafkaError with the
    coordinator's code, but INVALID_PRODUCER_EPOCH for a fenced producer, as in Kafka; so is one whose epoch the
    partition knows to be past, whoever has the transactional id by now.
    """
    partition.log.producers.check_producer_epoch(*producer)
    named = partition.topic.name, partition.index
    try:
        return _add_or_verify_partition_locally(transactions, transactional_id, producer, named, may_add=may_add)
    except KafkaError as error:
        if error.code != ErrorCode.PRODUCER_FENCED:
            raise
        raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message) from error


def _add_or_verify_partition_locally(
    transactions: TransactionCoordinator,
    transactional_id: str,
    producer: tuple[int, int],
    partition: TopicPartition,
    *,
    may_add: bool,
) -> AppendWait | None:
    """Do as `add_or_verify_partition` at the coordinator in this process, with its own error codes."""
    node = transactions.find_coordinator_node(transactional_id)
    if node is None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"Nobody coordinates {transactional_id}.")
    transactions.check_is_coordinator(node, transactional_id)
    if may_add:
        transactions.add_partitions(transactional_id, producer, [partition], OWN_EPOCHS)
        wait = transactions.make_durability_wait(transactional_id)
        write_pending_appends(
            wait
        )  # a transaction that is in the log but unknown to its coordinator would stay open for ever
        return wait._replace(pending=None)
    if transactions.cluster.settings[VERIFICATION]:
        transactions.check_partition_in_transaction(transactional_id, producer, partition)
    return None


def verify_produced_batch(
    transactions: TransactionCoordinator,
    partition: Partition,
    header: BatchHeader,
    transactional_id: str,
    api_version: int,
) -> AppendWait | None:
    """Check that a transactional batch may be appended: its transaction is open in the log or at the coordinator.

    Return what to wait for before the batch is acknowledged, or None; with a wait, the batch's sequence must pass
    `check_first_sequence`. Raises UnverifiedBatch with the code for a Produce of `api_version`.
    """
    if partition.log.producers.is_in_transaction(header):
        return None
    joins = api_version >= FIRST_PRODUCE_THAT_JOINS
    producer = header.producer_id, header.producer_epoch
    try:
        joined = add_or_verify_partition(transactions, transactional_id, producer, partition, may_add=joins)
    except KafkaError as error:
        raise _translate_error_for_version(error, api_version) from error
    return None if joined is None else joined._replace(translated_codes={})  # a producer gets the log's own error code


def _translate_error_for_version(error: KafkaError, api_version: int) -> UnverifiedBatch:
    """Return the error as a Produce of this version reports it: a retriable code, or INVALID_TXN_STATE."""
    code = error.code
    if code in RETRIED or (code == ErrorCode.CONCURRENT_TRANSACTIONS and api_version < FIRST_PRODUCE_THAT_JOINS):
        message = (
            f"Unable to verify the partition has been added to the transaction. Underlying error: {error.code.name}"
        )
        return UnverifiedBatch(RETRIED_AS, message)
    if code == ErrorCode.TRANSACTION_ABORTABLE and api_version < FIRST_PRODUCE_WITH_ABORTABLE:
        return UnverifiedBatch(ErrorCode.INVALID_TXN_STATE, "Partition was not added to the transaction")
    return UnverifiedBatch(error.code, error.message)
