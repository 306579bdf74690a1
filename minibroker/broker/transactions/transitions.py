"""The transitions of a transaction: pure functions from one `Transaction` to the next, by Kafka's rules.

Each raises KafkaError where Kafka rejects the request. The coordinator writes the result and the markers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from minibroker.broker.transactions.transaction import (
    AT_REST,
    ENDING,
    LAST_CLIENT_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    OWN_EPOCHS,
    TopicPartition,
    Transaction,
    TransactionState,
)
from minibroker.protocol.errors import ErrorCode, KafkaError

NewProducerId = Callable[[], int]
ExpectedIdAndEpoch = (
    tuple[int, int] | None
)  # the current producer id and epoch of a producer that wants to continue (KIP-360)


# --- InitProducerId -----------------------------------------------------------------------------


def initialize_producer(
    transaction: Transaction, timeout_ms: int, expected: ExpectedIdAndEpoch, now_ms: int, new_producer_id: NewProducerId
) -> Transaction:
    """Return the transaction of a producer that starts, or continues after an error; a new epoch fences the old one.

    Raises KafkaError: PRODUCER_FENCED, CONCURRENT_TRANSACTIONS while a transaction is ending.
    """
    check_expected_producer(transaction, expected)
    after = transaction.transition_to(TransactionState.EMPTY, now_ms)
    after.partitions, after.start_ms, after.timeout_ms = frozenset(), NO_TIME, timeout_ms
    if transaction.has_exhausted_epochs and (expected is None or expected[1] == transaction.producer_epoch):
        after.producer_id, after.previous_producer_id = new_producer_id(), transaction.producer_id
        after.producer_epoch = 0
        after.last_producer_epoch = NO_EPOCH if expected is None else transaction.producer_epoch
    else:
        after.producer_epoch, after.last_producer_epoch = _get_bumped_epochs(transaction, expected)
    return after


def check_expected_producer(transaction: Transaction, expected: ExpectedIdAndEpoch) -> None:
    """Check the producer id and epoch that a producer expects to have.

    Raises KafkaError: PRODUCER_FENCED if another producer has the id, CONCURRENT_TRANSACTIONS if markers are missing.
    """
    if expected is not None and transaction.producer_epoch != NO_EPOCH:
        producer_id, epoch = expected
        repeated = producer_id == transaction.previous_producer_id and epoch >= LAST_CLIENT_EPOCH
        if producer_id != transaction.producer_id and not repeated:
            raise _make_producer_fenced_error(transaction, epoch)
    if transaction.state in ENDING:
        raise _make_concurrent_transactions_error(transaction)


def _get_bumped_epochs(transaction: Transaction, expected: ExpectedIdAndEpoch) -> tuple[int, int]:
    """Return the next producer epoch, and the one before if the producer expects a certain epoch, else -1."""
    current = transaction.producer_epoch
    if expected is None:
        return current + 1, NO_EPOCH
    if current == NO_EPOCH or expected[1] == current:
        return current + 1, current
    if expected[1] == transaction.last_producer_epoch:
        return current, transaction.last_producer_epoch  # a retry, as the answer was lost
    raise _make_producer_fenced_error(transaction, expected[1])


# --- partitions ---------------------------------------------------------------------------------


def add_partitions_to_transaction(
    transaction: Transaction,
    producer: tuple[int, int],
    partitions: Iterable[TopicPartition],
    client_version: int,
    now_ms: int,
) -> Transaction:
    """Return the transaction with these partitions, begun if none is open; the same object if it has them already.

    Raises KafkaError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
    """
    _check_not_ending(transaction, producer)
    wanted = transaction.partitions.union(partitions)
    if transaction.state is TransactionState.ONGOING and len(wanted) == len(transaction.partitions):
        return transaction
    after = transaction.transition_to(TransactionState.ONGOING, now_ms)
    if transaction.state in AT_REST:
        after.start_ms = now_ms
    after.partitions, after.client_version = wanted, client_version
    return after


def check_partition_in_transaction(
    transaction: Transaction, producer: tuple[int, int], partition: TopicPartition
) -> None:
    """Check that the partition is in the open transaction (KIP-890, part 1).

    Raises KafkaError as `add_partitions_to_transaction`, and TRANSACTION_ABORTABLE.
    """
    _check_not_ending(transaction, producer)
    if partition not in transaction.partitions:
        raise KafkaError(
            ErrorCode.TRANSACTION_ABORTABLE, f"{partition[0]}-{partition[1]} is in no transaction of this producer."
        )


def _check_not_ending(transaction: Transaction, producer: tuple[int, int]) -> None:
    """Check that `producer` has the current id and epoch, and the transaction is not being ended."""
    _check_producer(transaction, producer)
    if transaction.state in ENDING:
        raise _make_concurrent_transactions_error(transaction)


def _check_producer(transaction: Transaction, producer: tuple[int, int]) -> None:
    """Check that `producer` has the transaction's current id and epoch."""
    producer_id, epoch = producer
    if producer_id != transaction.producer_id:
        raise _make_wrong_producer_id_error(transaction, producer_id)
    if epoch != transaction.producer_epoch:
        raise _make_producer_fenced_error(transaction, epoch)


# --- EndTxn -------------------------------------------------------------------------------------


def end_transaction(
    transaction: Transaction,
    producer: tuple[int, int],
    commit: bool,
    client_version: int,
    now_ms: int,
    new_producer_id: NewProducerId,
) -> Transaction:
    """Return the transaction in PrepareCommit or PrepareAbort; unchanged, if a retry finds it ended as requested.

    Raises KafkaError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE.
    """
    if client_version >= OWN_EPOCHS:
        return _end_transaction_with_epoch_bump(transaction, producer, commit, client_version, now_ms, new_producer_id)
    _check_producer(transaction, producer)
    if transaction.state is TransactionState.ONGOING:
        return _transition_to_prepare_commit_or_abort(transaction, commit, client_version, now_ms)
    _check_ended_with_outcome(transaction, commit)
    return transaction


def _end_transaction_with_epoch_bump(
    transaction: Transaction,
    producer: tuple[int, int],
    commit: bool,
    client_version: int,
    now_ms: int,
    new_producer_id: NewProducerId,
) -> Transaction:
    """Do as `end_transaction`, for KIP-890, part 2: the epoch tells a retry from the end of the next transaction.

    A transaction without partitions can be aborted, but not committed.
    """
    again = _is_retry_of_end_txn(transaction, producer)
    if producer[0] != transaction.producer_id and not again:
        raise _make_wrong_producer_id_error(transaction, producer[0])
    current = producer[1] == transaction.producer_epoch and transaction.state not in ENDING
    if not current and not (again and transaction.state in ENDING | AT_REST - {TransactionState.EMPTY}):
        raise _make_producer_fenced_error(transaction, producer[1])
    if again:
        _check_ended_with_outcome(transaction, commit)
        return transaction
    if transaction.state in AT_REST:
        if commit:
            raise _make_invalid_state_error(transaction, commit)
        transaction = transaction.copy()
        transaction.start_ms = now_ms
    next_producer_id = new_producer_id() if transaction.has_exhausted_epochs else NO_PRODUCER_ID
    return _transition_to_prepare_commit_or_abort(transaction, commit, client_version, now_ms, next_producer_id)


def _is_retry_of_end_txn(transaction: Transaction, producer: tuple[int, int]) -> bool:
    """Return whether this is a retry: it has the previous epoch, or the previous id if the epochs ran out."""
    producer_id, epoch = producer
    if producer_id == transaction.producer_id:
        return transaction.producer_epoch == epoch + 1
    return (
        producer_id == transaction.previous_producer_id
        and epoch == LAST_CLIENT_EPOCH
        and transaction.producer_epoch == 0
    )


def _check_ended_with_outcome(transaction: Transaction, commit: bool) -> None:
    """Check that the transaction has ended with this outcome. Raises KafkaError."""
    if transaction.state not in OUTCOMES[commit]:
        raise _make_invalid_state_error(transaction, commit)
    if transaction.state in ENDING:
        raise _make_concurrent_transactions_error(transaction)


OUTCOMES: Final = {
    True: {TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT},
    False: {TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT},
}


def _transition_to_prepare_commit_or_abort(
    transaction: Transaction, commit: bool, client_version: int, now_ms: int, next_producer_id: int = NO_PRODUCER_ID
) -> Transaction:
    after = transaction.transition_to(
        TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT, now_ms
    )
    after.client_version, after.next_producer_id = client_version, next_producer_id
    if client_version >= OWN_EPOCHS:
        after.last_producer_epoch = transaction.producer_epoch
        after.producer_epoch = transaction.producer_epoch + 1
    return after


def transition_to_fenced_abort(
    transaction: Transaction, client_version: int, now_ms: int, new_producer_id: NewProducerId
) -> Transaction:
    """Return an ongoing transaction in PrepareAbort, with a new epoch that fences its producer."""
    if client_version >= OWN_EPOCHS:
        next_producer_id = new_producer_id() if transaction.has_exhausted_epochs else NO_PRODUCER_ID
        return _transition_to_prepare_commit_or_abort(transaction, False, client_version, now_ms, next_producer_id)
    bumped = _transition_to_prepare_commit_or_abort(transaction, False, client_version, now_ms)
    bumped.producer_epoch, bumped.last_producer_epoch = transaction.producer_epoch + 1, NO_EPOCH
    return bumped


def complete_transaction(transaction: Transaction, now_ms: int) -> Transaction:
    """Return the transaction after its markers are written."""
    state = (
        TransactionState.COMPLETE_COMMIT
        if transaction.state is TransactionState.PREPARE_COMMIT
        else TransactionState.COMPLETE_ABORT
    )
    after = transaction.transition_to(state, now_ms)
    after.partitions = frozenset()
    if transaction.next_producer_id != NO_PRODUCER_ID:
        after.producer_id, after.previous_producer_id = transaction.next_producer_id, transaction.producer_id
        after.next_producer_id = NO_PRODUCER_ID
        after.producer_epoch = 0
    return after


def choose_next_producer_id_and_epoch(transaction: Transaction) -> tuple[int, int]:
    """Return the producer id and epoch for the producer's next transaction."""
    if transaction.next_producer_id != NO_PRODUCER_ID:
        return transaction.next_producer_id, 0
    return transaction.producer_id, transaction.producer_epoch


# --- errors -------------------------------------------------------------------------------------


def _make_wrong_producer_id_error(transaction: Transaction, producer_id: int) -> KafkaError:
    message = f"{transaction.transactional_id} belongs to producer {transaction.producer_id}, not to {producer_id}."
    return KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, message)


def _make_producer_fenced_error(transaction: Transaction, epoch: int) -> KafkaError:
    message = f"Epoch {epoch} of {transaction.transactional_id} is not the current one, {transaction.producer_epoch}."
    return KafkaError(ErrorCode.PRODUCER_FENCED, message)


def _make_concurrent_transactions_error(transaction: Transaction) -> KafkaError:
    message = f"{transaction.transactional_id} is in {transaction.state.api_name}: its markers are being written."
    return KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, message)


def _make_invalid_state_error(transaction: Transaction, commit: bool) -> KafkaError:
    wish = "committed" if commit else "aborted"
    message = f"{transaction.transactional_id} is in {transaction.state.api_name} and cannot be {wish}."
    return KafkaError(ErrorCode.INVALID_TXN_STATE, message)
