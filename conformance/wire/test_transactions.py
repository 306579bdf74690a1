"""Transactions, request by request: ids and epochs, partitions, ends, offsets, and what readers are told.

Every literal is what Apache Kafka 4.3 answers.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from conformance.wire.batches import batch
from conformance.wire.conftest import NewTopic
from conformance.wire.connection import Connection
from conformance.wire.groups import find_coordinator
from conformance.wire.requests import LATEST, end_offset, produce_request, repeated
from conformance.wire.transactional import TRANSACTIONAL_BIT, TransactionalProducer, committed_read
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.log_offsets import ListOffsetsRequest
from minibroker.protocol.messages.offsets import OffsetFetchRequest
from minibroker.protocol.messages.transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)

GROUPS = itertools.count()
OWN_EPOCHS = 5  # the version of EndTxn with which each transaction gets an epoch of its own
FENCED, MAPPING = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING
OLD_EPOCH, INVALID_STATE = ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE


@pytest.fixture
def name(new_topic: NewTopic) -> str:
    return new_topic()


@pytest.fixture
def producer(connection: Connection) -> TransactionalProducer:
    made = TransactionalProducer(connection)
    assert made.init() == 0
    return made


@pytest.fixture
def group(connection: Connection) -> str:
    made = f"transactional-{next(GROUPS)}"
    find_coordinator(connection, made)
    return made


# --- InitProducerId -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_each_instance_gets_the_next_epoch(connection: Connection, version: int) -> None:
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
def test_an_id_or_timeout_that_cannot_be_is_refused(
    connection: Connection, version: int, transactional_id: str | None, timeout_ms: int, code: int
) -> None:
    producer = TransactionalProducer(connection)
    if transactional_id is not None:
        producer.transactional_id = transactional_id
    assert producer.init(version, timeout_ms) == code


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_producer_that_goes_on_gets_the_next_epoch_once(producer: TransactionalProducer, version: int) -> None:
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
def test_an_ongoing_transaction_is_aborted_first(producer: TransactionalProducer, name: str, version: int) -> None:
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
def test_partitions_are_added_all_or_none(producer: TransactionalProducer, name: str, version: int) -> None:
    unknown, not_attempted = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    assert producer.add((name, 0), ("nobody-has-this", 0), version=version) == [not_attempted, unknown]
    assert producer.write(name) == INVALID_STATE
    assert producer.add((name, 0), version=version) == [0]
    assert producer.add((name, 0), version=version) == [0]
    assert producer.write(name) == 0


@pytest.mark.parametrize("version", range(4))
def test_others_add_no_partitions(producer: TransactionalProducer, name: str, version: int) -> None:
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


# --- Produce ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "code"), [(3, INVALID_STATE), (10, INVALID_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)]
)
def test_a_partition_that_was_not_added_is_refused(
    producer: TransactionalProducer, name: str, version: int, code: int
) -> None:
    assert producer.write(name, version=version) == code


@pytest.mark.parametrize("version", [12, 13])
def test_newer_clients_have_their_partitions_added(producer: TransactionalProducer, name: str, version: int) -> None:
    assert producer.write(name, version=version) == 0
    assert producer.write(name, version=version) == 0
    assert producer.end(OWN_EPOCHS) == 0
    settle(producer)
    assert committed_read(producer.connection, name).last_stable_offset == 3


@pytest.mark.parametrize("version", [9, 11, 12])
def test_who_is_not_the_producer_of_the_id_is_refused(producer: TransactionalProducer, name: str, version: int) -> None:
    ours = producer.producer_id
    producer.goes_on_as(ours, 1)
    assert producer.write(name, version=version) == OLD_EPOCH
    producer.goes_on_as(ours + 1_000_000, 0)
    assert producer.write(name, version=version) == MAPPING


def test_what_is_in_no_transaction_is_refused_while_one_is_open(producer: TransactionalProducer, name: str) -> None:
    producer.add((name, 0))
    assert producer.write(name) == 0
    assert producer.write(name, transactional=False) == INVALID_STATE


@pytest.mark.parametrize(
    ("version", "code"),
    [(11, 0), (12, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), (13, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)],
)
def test_a_partition_that_does_not_know_the_producer_may_want_its_first_batch_first(
    producer: TransactionalProducer, name: str, version: int, code: int
) -> None:
    if version < 12:
        producer.add((name, 0))
    producer.sequences[name, 0] = 3
    assert producer.write(name, version=version) == code
    assert end_offset(producer.connection, name) == (1 if code == 0 else 0)


@pytest.mark.parametrize(
    ("version", "code"), [(10, INVALID_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE), (12, OLD_EPOCH)]
)
def test_a_batch_is_not_repeated_after_its_transaction(
    producer: TransactionalProducer, name: str, version: int, code: int
) -> None:
    if version < 12:
        producer.add((name, 0))
    epoch = producer.epoch
    assert producer.write(name, version=version) == 0
    producer.sequences[name, 0] = 0
    assert producer.write(name, version=version) == 0, "while its transaction is open it is known again"
    assert producer.end(OWN_EPOCHS if version >= 12 else 4) == 0
    settle(producer)
    producer.goes_on_as(producer.producer_id, epoch)
    producer.sequences[name, 0] = 0
    assert producer.write(name, version=version) == code
    assert end_offset(producer.connection, name) == 2


def records_of(producer: TransactionalProducer, **fields: int) -> bytes:
    told = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch, "base_sequence": 0}
    return batch([b"value"], timestamp=1_700_000_000_000, **{"attributes": TRANSACTIONAL_BIT, **told, **fields})


def codes_of(producer: TransactionalProducer, request: Any, version: int) -> list[int]:
    answer = producer.connection.ask(request, version)
    return [each.error_code for topic in answer.responses for each in topic.partition_responses]


@pytest.mark.parametrize("version", [9, 12])
def test_without_a_transactional_id_nothing_of_a_request_with_a_transaction_is_appended(
    producer: TransactionalProducer, new_topic: NewTopic, version: int
) -> None:
    name = new_topic(partitions=2)
    if version < 12:
        producer.add((name, 0))
    plain = batch([b"value"], timestamp=1_700_000_000_000)
    request = produce_request(name, (0, plain), (1, records_of(producer)))
    assert codes_of(producer, request, version) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert end_offset(producer.connection, name) == 0


@pytest.mark.parametrize("version", [9, 12])
def test_the_batches_of_a_request_have_one_producer(
    producer: TransactionalProducer, new_topic: NewTopic, version: int
) -> None:
    name = new_topic(partitions=2)
    if version < 12:
        producer.add((name, 0))
    stranger = records_of(producer, producer_id=producer.producer_id + 1_000_000)
    request = produce_request(name, (0, records_of(producer)), (1, stranger))
    request.transactional_id = producer.transactional_id
    assert codes_of(producer, request, version) == [MAPPING] * 2
    assert end_offset(producer.connection, name) == 0


@pytest.mark.parametrize("version", [9, 12])
def test_a_partition_that_is_not_there_does_not_keep_the_others_from_being_written(
    producer: TransactionalProducer, name: str, version: int
) -> None:
    if version < 12:
        producer.add((name, 0))
    request = produce_request(name, (7, records_of(producer)), (0, records_of(producer)))
    request.transactional_id = producer.transactional_id
    assert sorted(codes_of(producer, request, version)) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert end_offset(producer.connection, name) == 1


# --- EndTxn -------------------------------------------------------------------------------------


def settle(producer: TransactionalProducer) -> None:
    """Wait until the producer's transaction has ended."""
    request = DescribeTransactionsRequest(transactional_ids=[producer.transactional_id])

    def state() -> str:
        return str(producer.connection.ask(request, 0).transaction_states[0].transaction_state)

    repeated(state, lambda state: not state.startswith("Prepare"))


@pytest.mark.parametrize("version", range(5))
def test_a_transaction_ends_once_and_may_be_told_so_again(
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
def test_others_end_nothing(producer: TransactionalProducer, name: str, version: int) -> None:
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
def test_each_transaction_has_an_epoch_of_its_own(producer: TransactionalProducer, name: str, commit: bool) -> None:
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


# --- offsets ------------------------------------------------------------------------------------


def offset_of(connection: Connection, group: str, topic: str, *, stable: bool) -> tuple[int, int]:
    """(error code, offset)."""
    Asked = OffsetFetchRequest.OffsetFetchRequestGroup
    wanted = Asked(group_id=group, topics=[Asked.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])])
    answer = connection.ask(OffsetFetchRequest(groups=[wanted], require_stable=stable), 8).groups[0]
    partition = answer.topics[0].partitions[0]
    return partition.error_code, partition.committed_offset


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", range(6))
def test_offsets_appear_with_the_commit(
    producer: TransactionalProducer, name: str, group: str, version: int, commit: bool
) -> None:
    connection = producer.connection
    if version < 5:
        assert producer.add_offsets(group) == 0
    assert producer.commit_offset(group, name, 7, version=version) == 0
    assert offset_of(connection, group, name, stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert offset_of(connection, group, name, stable=False) == (0, -1)
    assert producer.end(commit=commit) == 0
    expected = (0, 7 if commit else -1)
    assert repeated(lambda: offset_of(connection, group, name, stable=True), lambda seen: seen[0] == 0) == expected


@pytest.mark.parametrize(
    ("version", "code"), [(0, INVALID_STATE), (3, INVALID_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE)]
)
def test_offsets_of_a_group_that_was_not_added_are_refused(
    producer: TransactionalProducer, name: str, group: str, version: int, code: int
) -> None:
    assert producer.commit_offset(group, name, 7, version=version) == code


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"generation_id": 3, "member_id": "m"}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id": 3}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "m"}, 0),
    ],
)
def test_a_group_that_is_not_known_has_no_generations(
    producer: TransactionalProducer, name: str, group: str, version: int, fields: dict[str, Any], code: int
) -> None:
    producer.add_offsets(group)
    assert producer.commit_offset(group, name, 7, version=version, **fields) == code


@pytest.mark.parametrize("version", [0, 3, 4, 5])
def test_who_is_not_the_producer_of_the_id_commits_no_offsets(
    producer: TransactionalProducer, name: str, group: str, version: int
) -> None:
    ours = producer.producer_id
    producer.add_offsets(group)
    producer.goes_on_as(ours, 1)
    assert producer.commit_offset(group, name, 7, version=version) == OLD_EPOCH
    producer.goes_on_as(ours + 1_000_000, 0)
    assert producer.commit_offset(group, name, 7, version=version) == MAPPING


@pytest.mark.parametrize("version", [3, 5])
def test_whose_transaction_it_is_is_asked_before_whose_group(
    producer: TransactionalProducer, name: str, group: str, version: int
) -> None:
    producer.add_offsets(group)
    producer.goes_on_as(producer.producer_id, 1)
    asked = {"generation_id": 3, "member_id": "m", "version": version}
    assert producer.commit_offset(group, name, 7, **asked) == OLD_EPOCH


@pytest.mark.parametrize("version", [3, 4, 5])
def test_offsets_of_an_unknown_topic_are_refused(producer: TransactionalProducer, group: str, version: int) -> None:
    producer.add_offsets(group)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producer.commit_offset(group, "nobody-has-this", 7, version=version) == unknown


# --- reading ------------------------------------------------------------------------------------


def test_readers_of_committed_records_are_told_what_to_skip(producer: TransactionalProducer, name: str) -> None:
    connection = producer.connection
    for commit in (False, True):
        producer.add((name, 0))
        assert producer.write(name, 3) == 0
        answer = committed_read(connection, name)
        assert (answer.last_stable_offset, answer.high_watermark) == ((0, 3) if not commit else (4, 7))
        assert producer.end(commit=commit) == 0
        settle(producer)
    answer = committed_read(connection, name)
    assert (answer.last_stable_offset, answer.high_watermark) == (8, 8)
    aborted = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions]
    assert aborted == [(producer.producer_id, 0)]


def test_the_latest_offset_of_committed_records_is_the_last_stable_one(
    producer: TransactionalProducer, name: str
) -> None:
    producer.add((name, 0))
    producer.write(name, 3)
    offsets = [list_offset_of(producer.connection, name, isolation) for isolation in (0, 1)]
    assert offsets == [3, 0]
    producer.end()
    settle(producer)
    assert [list_offset_of(producer.connection, name, isolation) for isolation in (0, 1)] == [4, 4]


def list_offset_of(connection: Connection, topic: str, isolation_level: int) -> int:
    Asked = ListOffsetsRequest.ListOffsetsTopic
    partition = Asked.ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation_level, topics=[Asked(name=topic, partitions=[partition])]
    )
    return int(connection.ask(request, 7).topics[0].partitions[0].offset)


# --- what administrators are told ---------------------------------------------------------------


def test_a_transaction_is_described(producer: TransactionalProducer, name: str) -> None:
    producer.add((name, 0))
    request = DescribeTransactionsRequest(transactional_ids=[producer.transactional_id, "nobody-has-begun-this", ""])
    ours, unknown, empty = producer.connection.ask(request, 0).transaction_states
    assert (ours.error_code, ours.transaction_state, ours.transaction_timeout_ms) == (0, "Ongoing", 60_000)
    assert (ours.producer_id, ours.producer_epoch) == (producer.producer_id, producer.epoch)
    assert [(topic.topic, topic.partitions) for topic in ours.topics] == [(name, [0])]
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert empty.error_code == ErrorCode.INVALID_REQUEST


def listed(producer: TransactionalProducer, version: int = 2, **fields: Any) -> tuple[int, list[str], list[str]]:
    """(code, unknown filters, states) of those with the producer's transactional id."""
    answer = producer.connection.ask(ListTransactionsRequest(**fields), version)
    states = [
        each.transaction_state
        for each in answer.transaction_states
        if each.transactional_id == producer.transactional_id
    ]
    return answer.error_code, list(answer.unknown_state_filters), states


def test_transactions_are_listed_by_filters(producer: TransactionalProducer, name: str) -> None:
    assert listed(producer) == (0, [], ["Empty"])
    producer.add((name, 0))
    assert listed(producer, state_filters=["Ongoing"]) == (0, [], ["Ongoing"])
    assert listed(producer, state_filters=["Empty"]) == (0, [], [])
    assert listed(producer, state_filters=["Nonsense"]) == (0, ["Nonsense"], [])
    assert listed(producer, state_filters=["Nonsense", "Ongoing"]) == (0, ["Nonsense"], ["Ongoing"])
    assert listed(producer, producer_id_filters=[producer.producer_id]) == (0, [], ["Ongoing"])
    assert listed(producer, producer_id_filters=[producer.producer_id + 1_000_000]) == (0, [], [])
    assert listed(producer, duration_filter=3_600_000) == (0, [], [])
    assert listed(producer, duration_filter=0)[2] in ([], ["Ongoing"])  # by the millisecond
    assert listed(producer, transactional_id_pattern="tx-.*") == (0, [], ["Ongoing"])
    assert listed(producer, transactional_id_pattern="x-.*") == (0, [], [])
    assert listed(producer, transactional_id_pattern="(") == (ErrorCode.INVALID_REGULAR_EXPRESSION, [], [])


def test_the_producers_of_a_partition_are_described(producer: TransactionalProducer, name: str) -> None:
    producer.add((name, 0))
    producer.write(name, 3)
    Asked = DescribeProducersRequest.TopicRequest

    def described(topic: str) -> Any:
        request = DescribeProducersRequest(topics=[Asked(name=topic, partition_indexes=[0])])
        return producer.connection.ask(request, 0).topics[0].partitions[0]

    (entry,) = described(name).active_producers
    assert (entry.producer_id, entry.producer_epoch) == (producer.producer_id, producer.epoch)
    assert (entry.last_sequence, entry.coordinator_epoch, entry.current_txn_start_offset) == (2, -1, 0)
    producer.end()
    settle(producer)
    (entry,) = described(name).active_producers
    assert (entry.last_sequence, entry.coordinator_epoch, entry.current_txn_start_offset) == (2, 0, -1)
    assert described("nobody-has-this").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
