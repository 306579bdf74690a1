"""Transactions, request by request: ids and epochs, the partitions that are added, and how transactions end.

Every literal is what Apache Kafka 4.4 answers. The records are in `test_transactional_records.py`, offsets in
`test_transactional_offsets.py`.
"""

from __future__ import annotations

import pytest

from conformance.wire.connection import Connection
from conformance.wire.transactional import (
    FENCED,
    INVALID_STATE,
    MAPPING,
    OLD_EPOCH,
    OWN_EPOCHS,
    TransactionalProducer,
    committed_read,
    settle,
)
from minibroker.protocol.errors import ErrorCode

# --- InitProducerId -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_each_producer_instance_gets_the_next_epoch(connection: Connection, version: int) -> None:
    first = TransactionalProducer(connection)
    second = TransactionalProducer(connection, first.transactional_id)
    assert (first.init(version), first.epoch) == (0, 0)
    assert (second.init(version), second.epoch, second.producer_id) == (0, 1, first.producer_id)


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize(
    ("transactional_id", "timeout_ms", "code"),
    [
        ("", 60_000, ErrorCode.INVALID_REQUEST),
        (None, 0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (None, -1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (None, 900_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (None, 900_000, 0),
    ],
)
def test_an_invalid_transactional_id_or_timeout_is_rejected(
    connection: Connection, version: int, transactional_id: str | None, timeout_ms: int, code: int
) -> None:
    producer = TransactionalProducer(connection)
    if transactional_id is not None:
        producer.transactional_id = transactional_id
    assert producer.init(version, timeout_ms) == code


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_producer_that_sends_its_id_and_epoch_gets_the_next_epoch_once(
    producer: TransactionalProducer, version: int
) -> None:
    before = producer.producer_id, producer.epoch
    assert (producer.init(version, again=True), producer.epoch) == (0, 1)
    producer.goes_on_as(*before)  # as if it had not heard the answer
    assert (producer.init(version, again=True), producer.epoch) == (0, 1)
    assert (producer.init(version, again=True), producer.epoch) == (0, 2)
    producer.goes_on_as(*before)
    assert producer.init(version, again=True) == (FENCED if version >= 4 else OLD_EPOCH)
    producer.goes_on_as(before[0] + 1_000_000, 2)
    assert producer.init(version, again=True) == (FENCED if version >= 4 else OLD_EPOCH)


@pytest.mark.parametrize("version", [4, 5])
def test_an_ongoing_transaction_is_aborted_before_the_next_epoch(
    producer: TransactionalProducer, name: str, version: int
) -> None:
    assert producer.add((name, 0)) == [0]
    assert producer.write(name) == 0
    newer = TransactionalProducer(producer.connection, producer.transactional_id)
    assert newer.init(version, wait=False) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert (newer.init(version), newer.epoch) == (0, 2)
    assert producer.write(name) == OLD_EPOCH
    assert producer.end() == FENCED
    assert committed_read(producer.connection, name).last_stable_offset == 2


# --- AddPartitionsToTxn -------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_to_a_transaction_all_or_none(
    producer: TransactionalProducer, name: str, version: int
) -> None:
    unknown, not_attempted = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    assert producer.add((name, 0), ("nobody-has-this", 0), version=version) == [not_attempted, unknown]
    assert producer.write(name) == INVALID_STATE
    assert producer.add((name, 0), version=version) == [0]
    assert producer.add((name, 0), version=version) == [0]
    assert producer.write(name) == 0


@pytest.mark.parametrize("version", range(4))
def test_only_the_current_producer_can_add_partitions(producer: TransactionalProducer, name: str, version: int) -> None:
    ours = producer.producer_id, producer.epoch
    for epoch in (-1, 1):
        producer.goes_on_as(ours[0], epoch)
        assert producer.add((name, 0), version=version) == [FENCED if version >= 2 else OLD_EPOCH]
    producer.goes_on_as(ours[0] + 1_000_000, 0)
    assert producer.add((name, 0), version=version) == [MAPPING]
    producer.transactional_id = "nobody-has-begun-this"
    assert producer.add((name, 0), version=version) == [MAPPING]
    producer.transactional_id = ""
    assert producer.add((name, 0), version=version) == [ErrorCode.INVALID_REQUEST]


# --- EndTxn -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
def test_a_transaction_ends_once_and_a_repeated_end_succeeds(
    producer: TransactionalProducer, name: str, version: int
) -> None:
    assert producer.end(version) == INVALID_STATE
    assert producer.end(version, commit=False) == INVALID_STATE
    for commit in (True, False):
        producer.add((name, 0))
        assert producer.write(name) == 0
        assert producer.end(version, commit=commit) == 0
        assert producer.end(version, commit=commit) == 0
        assert producer.end(version, commit=not commit) == INVALID_STATE


@pytest.mark.parametrize("version", range(6))
def test_only_the_current_producer_can_end_a_transaction(
    producer: TransactionalProducer, name: str, version: int
) -> None:
    producer.add((name, 0))
    ours = producer.producer_id
    for epoch in (-1, 1):
        producer.goes_on_as(ours, epoch)
        assert producer.end(version) == (FENCED if version >= 2 else OLD_EPOCH)
    producer.goes_on_as(ours + 1_000_000, 0)
    assert producer.end(version) == MAPPING
    producer.transactional_id = "nobody-has-begun-this"
    assert producer.end(version) == MAPPING
    producer.transactional_id = ""
    assert producer.end(version) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_can_be_repeated_only_with_the_same_outcome_in_transaction_version_2(
    producer: TransactionalProducer, name: str, commit: bool
) -> None:
    ours = producer.producer_id
    assert producer.write(name, version=12) == 0
    assert (producer.end(OWN_EPOCHS, commit=commit), producer.epoch) == (0, 1)
    producer.goes_on_as(ours, 0)  # as if it had not heard the answer
    assert producer.end(OWN_EPOCHS, commit=not commit) == INVALID_STATE
    assert (producer.end(OWN_EPOCHS, commit=commit), producer.epoch) == (0, 1)
    assert producer.end(OWN_EPOCHS) == INVALID_STATE  # the next transaction has nothing to commit
    assert (producer.end(OWN_EPOCHS, commit=False), producer.epoch) == (0, 2)
    settle(producer)
    assert producer.write(name, version=12) == 0
    producer.goes_on_as(ours, 1)
    assert producer.end(OWN_EPOCHS, commit=False) == FENCED


@pytest.mark.parametrize("before", ["nothing", "commit", "abort"])
def test_an_empty_transaction_can_only_be_aborted_in_transaction_version_2(
    producer: TransactionalProducer, name: str, before: str
) -> None:
    if before != "nothing":
        assert producer.write(name, version=12) == 0
        assert producer.end(OWN_EPOCHS, commit=before == "commit") == 0
        settle(producer)
    epoch = producer.epoch
    assert producer.write("nobody-has-this", version=12) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for ended in (1, 2):
        assert producer.end(OWN_EPOCHS) == INVALID_STATE
        assert (producer.end(OWN_EPOCHS, commit=False), producer.epoch) == (0, epoch + ended)
        settle(producer)


@pytest.mark.parametrize("before", ["nothing", "commit", "abort"])
def test_a_transaction_whose_partitions_were_rejected_cannot_be_ended(
    producer: TransactionalProducer, name: str, before: str
) -> None:
    if before != "nothing":
        assert producer.add((name, 0)) == [0]
        assert producer.end(commit=before == "commit") == 0  # of no records
        settle(producer)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producer.add((name, 0), ("nobody-has-this", 0)) == [ErrorCode.OPERATION_NOT_ATTEMPTED, unknown]
    for commit in (True, False):
        repeats = before == ("commit" if commit else "abort")
        assert producer.end(commit=commit) == (0 if repeats else INVALID_STATE)
