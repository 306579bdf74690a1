"""The records of transactions: which of them may be written, and what readers learn of them.

Every literal is what Apache Kafka 4.4 answers. How a transaction begins and ends is in `test_transactions.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from conformance.wire.batches import batch, read_batches
from conformance.wire.conftest import NewTopic
from conformance.wire.connection import Connection
from conformance.wire.requests import LATEST, end_offset, produce_request
from conformance.wire.transactional import (
    INVALID_STATE,
    MAPPING,
    OLD_EPOCH,
    OWN_EPOCHS,
    TRANSACTIONAL_BIT,
    TransactionalProducer,
    committed_read,
    settle,
    settled,
)
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.log_offsets import ListOffsetsRequest
from minibroker.protocol.messages.transactions import DescribeTransactionsRequest

# --- Produce ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "code"), [(3, INVALID_STATE), (10, INVALID_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)]
)
def test_a_partition_not_added_to_the_transaction_is_rejected(
    producer: TransactionalProducer, name: str, version: int, code: int
) -> None:
    assert producer.write(name, version=version) == code


@pytest.mark.parametrize("version", [12, 13])
def test_partitions_of_newer_clients_are_added_to_the_transaction_automatically(
    producer: TransactionalProducer, name: str, version: int
) -> None:
    assert producer.write(name, version=version) == 0
    assert producer.write(name, version=version) == 0
    assert producer.end(OWN_EPOCHS) == 0
    settle(producer)
    assert committed_read(producer.connection, name).last_stable_offset == 3


@pytest.mark.parametrize("version", [9, 11, 12])
def test_a_transactional_produce_with_another_producer_id_or_epoch_is_rejected(
    producer: TransactionalProducer, name: str, version: int
) -> None:
    ours = producer.producer_id
    producer.goes_on_as(ours, 1)
    assert producer.write(name, version=version) == OLD_EPOCH
    producer.goes_on_as(ours + 1_000_000, 0)
    assert producer.write(name, version=version) == MAPPING


@pytest.mark.parametrize("version", [9, 11, 12])
def test_an_epoch_older_than_that_of_the_partition_is_rejected(
    producer: TransactionalProducer, connection: Connection, name: str, version: int
) -> None:
    ours = producer.producer_id
    assert producer.write(name, version=12) == 0
    assert producer.end(OWN_EPOCHS) == 0
    settle(producer)
    other = TransactionalProducer(connection)
    assert other.init() == 0 and other.producer_id != ours
    other.goes_on_as(ours, 0)  # as after its transactional id has moved to another producer id
    assert other.write(name, version=version) == OLD_EPOCH
    other.goes_on_as(ours, 1)
    assert other.write(name, version=version) == MAPPING


def test_a_non_transactional_batch_is_rejected_during_a_transaction(producer: TransactionalProducer, name: str) -> None:
    producer.add((name, 0))
    assert producer.write(name) == 0
    assert producer.write(name, transactional=False) == INVALID_STATE


@pytest.mark.parametrize(
    ("version", "code"),
    [(11, 0), (12, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), (13, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)],
)
def test_a_new_producer_may_be_required_to_start_with_sequence_0(
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
def test_a_batch_repeated_after_its_transaction_ended_is_rejected(
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
def test_a_missing_transactional_id_rejects_all_batches_of_the_request(
    producer: TransactionalProducer, new_topic: NewTopic, version: int
) -> None:
    name = new_topic(partitions=2)
    if version < 12:
        producer.add((name, 0))
    plain = batch([b"value"], timestamp=1_700_000_000_000)
    request = produce_request(name, (0, plain), (1, records_of(producer)))
    assert codes_of(producer, request, version) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert end_offset(producer.connection, name) == 0


UNAUTHORIZED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
TRANSACTIONAL_MARKER = TRANSACTIONAL_BIT | 1 << 5


def one_batch_to(
    producer: TransactionalProducer, name: str, records: bytes, *, partition: int = 0, acks: int = -1, version: int = 9
) -> int:
    """The code, with the producer's transactional id."""
    request = produce_request(name, (partition, records), acks=acks)
    request.transactional_id = producer.transactional_id
    return int(settled(lambda: codes_of(producer, request, version)[0]))


@pytest.mark.parametrize("version", [9, 12])
def test_a_missing_transactional_id_is_reported_before_the_batch_is_validated(
    producer: TransactionalProducer, name: str, version: int
) -> None:
    """Its partition may not even be there."""
    sound = records_of(producer)
    refused = {
        "sound": produce_request(name, (0, sound)),
        "unknown topic": produce_request("no-such-topic", (0, sound)),
        "unknown partition": produce_request(name, (9, sound)),
        "acks": produce_request(name, (0, sound), acks=7),
        "no producer": produce_request(name, (0, records_of(producer, producer_id=-1, producer_epoch=-1))),
        "unknown producer": produce_request(name, (0, records_of(producer, producer_id=1 << 40))),
        "two batches": produce_request(name, (0, sound * 2)),
        "checksum": produce_request(name, (0, records_of(producer, crc=1))),
        "control batch": produce_request(name, (0, records_of(producer, attributes=TRANSACTIONAL_MARKER))),
    }
    codes = {case: codes_of(producer, request, version) for case, request in refused.items()}
    assert codes == dict.fromkeys(refused, [UNAUTHORIZED])
    assert end_offset(producer.connection, name) == 0


@pytest.mark.parametrize("version", [9, 12])
def test_the_producer_is_validated_before_the_records(producer: TransactionalProducer, name: str, version: int) -> None:
    stranger = {"producer_id": producer.producer_id + 1_000_000}
    wrong = {
        "control batch": {"attributes": TRANSACTIONAL_MARKER},
        "checksum": {"crc": 1},
        "count": {"count": 7},
        "sequence": {"base_sequence": -1},
        "base offset": {"base_offset": 3},
    }
    codes = {
        case: one_batch_to(producer, name, records_of(producer, **stranger, **fields), version=version)
        for case, fields in wrong.items()
    }
    assert codes == dict.fromkeys(wrong, MAPPING)
    assert one_batch_to(producer, name, records_of(producer, **stranger), acks=7, version=version) == MAPPING
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert one_batch_to(producer, name, records_of(producer, **stranger), partition=9, version=version) == unknown
    assert end_offset(producer.connection, name) == 0


@pytest.mark.parametrize(
    ("version", "epoch", "code"),
    [(9, 0, INVALID_STATE), (11, 0, ErrorCode.TRANSACTION_ABORTABLE), (9, 1, OLD_EPOCH), (12, 1, OLD_EPOCH)],
)
def test_a_batch_of_no_open_transaction_is_answered_without_the_log_start_offset(
    producer: TransactionalProducer, name: str, version: int, epoch: int, code: int
) -> None:
    request = produce_request(name, (0, records_of(producer, producer_epoch=epoch)))
    request.transactional_id = producer.transactional_id
    (answer,) = producer.connection.ask(request, version).responses[0].partition_responses
    assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (code, -1, -1)


def test_a_first_batch_is_validated_before_its_sequence(producer: TransactionalProducer, name: str) -> None:
    unnumbered = records_of(producer, base_sequence=-1)
    assert one_batch_to(producer, name, unnumbered, version=12) == ErrorCode.INVALID_RECORD
    broken = records_of(producer, base_sequence=3, crc=1)
    assert one_batch_to(producer, name, broken, version=12) == ErrorCode.CORRUPT_MESSAGE
    assert end_offset(producer.connection, name) == 0


@pytest.mark.parametrize("version", [9, 12])
def test_records_of_a_valid_producer_are_validated(producer: TransactionalProducer, name: str, version: int) -> None:
    """And newer clients' partition is part of the transaction, whatever comes of them."""
    if version < 12:
        producer.add((name, 0))
    control = records_of(producer, attributes=TRANSACTIONAL_MARKER)
    assert one_batch_to(producer, name, control, version=version) == ErrorCode.INVALID_RECORD
    broken = records_of(producer, crc=1)
    assert one_batch_to(producer, name, broken, version=version) == ErrorCode.CORRUPT_MESSAGE
    request = DescribeTransactionsRequest(transactional_ids=[producer.transactional_id])
    (state,) = producer.connection.ask(request, 0).transaction_states
    assert [(topic.topic, topic.partitions) for topic in state.topics] == [(name, [0])]
    assert (
        one_batch_to(producer, name, records_of(producer), acks=7, version=version) == ErrorCode.INVALID_REQUIRED_ACKS
    )
    assert end_offset(producer.connection, name) == 0


@pytest.mark.parametrize("version", [9, 12])
def test_a_transactional_batch_without_a_producer_id_is_in_no_transaction(
    producer: TransactionalProducer, new_topic: NewTopic, version: int
) -> None:
    name = new_topic(partitions=2)
    nobody = records_of(producer, producer_id=-1, producer_epoch=-1, base_sequence=-1)
    assert one_batch_to(producer, name, nobody, version=version) == 0
    request = produce_request(name, (0, nobody), (1, nobody))
    request.transactional_id = "nobody-has-begun-this"
    assert codes_of(producer, request, version) == [0, 0]
    answer = committed_read(producer.connection, name)
    assert (answer.last_stable_offset, answer.high_watermark) == (2, 2)
    assert not answer.aborted_transactions
    assert [one.attributes for one in read_batches(answer.records)] == [TRANSACTIONAL_BIT] * 2
    asked = DescribeTransactionsRequest(transactional_ids=[producer.transactional_id])
    assert producer.connection.ask(asked, 0).transaction_states[0].topics == []


@pytest.mark.parametrize("version", [9, 12])
def test_all_batches_of_a_request_must_have_one_producer(
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
def test_an_unknown_partition_does_not_fail_the_others_of_a_produce_request(
    producer: TransactionalProducer, name: str, version: int
) -> None:
    if version < 12:
        producer.add((name, 0))
    request = produce_request(name, (7, records_of(producer)), (0, records_of(producer)))
    request.transactional_id = producer.transactional_id
    assert sorted(codes_of(producer, request, version)) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert end_offset(producer.connection, name) == 1


# --- reading ------------------------------------------------------------------------------------


def test_read_committed_fetches_return_the_aborted_transactions(producer: TransactionalProducer, name: str) -> None:
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


def test_the_latest_read_committed_offset_is_the_last_stable_offset(producer: TransactionalProducer, name: str) -> None:
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
