"""Producer ids, and the sequence numbers that keep a producer's batches in order and single.

Every literal is what Apache Kafka 4.4 answers.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

from conformance.wire.batches import batch
from conformance.wire.conftest import NewTopic
from conformance.wire.connection import Connection
from conformance.wire.requests import Outcome, end_offset, produce, repeated
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.transactions import InitProducerIdRequest

NOW_MS = int(time.time() * 1000)
LAST_SEQUENCE = (1 << 31) - 1
PRODUCER_IDS = itertools.count(1 << 40)  # far above those that a broker gives
OUT_OF_ORDER = Outcome(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log_start_offset=0)
OLD_EPOCH = Outcome(ErrorCode.INVALID_PRODUCER_EPOCH, log_start_offset=0)


class Producer:
    """Writes batches of one producer id to one partition."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection = connection
        self._topic = topic
        self._producer_id = next(PRODUCER_IDS)

    def write(self, sequence: int, count: int = 1, *, epoch: int = 0, timestamp: int = NOW_MS) -> Outcome:
        records = batch(
            [b"value"] * count,
            timestamp=timestamp,
            producer_id=self._producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        return produce(self._connection, self._topic, records)


def appended(offset: int) -> Outcome:
    return Outcome(0, offset, log_start_offset=0)


def duplicate(offset: int) -> Outcome:
    """The time is the batch's largest timestamp, whatever the topic's timestamp type is."""
    return Outcome(0, offset, log_append_time_ms=NOW_MS, log_start_offset=0)


@pytest.fixture
def producer(connection: Connection, name: str) -> Producer:
    return Producer(connection, name)


def init_producer_id(connection: Connection, version: int, **fields: Any) -> tuple[int, int, int]:
    """Error code, producer id and epoch."""
    request = InitProducerIdRequest(**{"transactional_id": None, "transaction_timeout_ms": 60_000, **fields})
    answer = repeated(
        lambda: connection.ask(request, version),
        lambda answer: answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    )
    return answer.error_code, answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize("version", range(6))
def test_every_producer_gets_its_own_id_and_epoch_0(connection: Connection, version: int) -> None:
    first, second = (init_producer_id(connection, version) for _ in range(2))
    assert (first[0], first[2]) == (second[0], second[2]) == (0, 0)
    assert first[1] < second[1]


def test_a_producer_that_sends_its_id_gets_another(connection: Connection) -> None:
    code, given, epoch = init_producer_id(connection, 4)
    assert code == 0
    renewed = init_producer_id(connection, 4, producer_id=given, producer_epoch=epoch)
    assert renewed == (0, given + 1, 0)


WRONG = {
    "an id without an epoch": {"producer_id": 5, "producer_epoch": -1},
    "an epoch without an id": {"producer_id": -1, "producer_epoch": 5},
    "an empty transactional id": {"transactional_id": ""},
}


@pytest.mark.parametrize("fields", WRONG.values(), ids=WRONG)
def test_an_invalid_init_producer_id_is_rejected(connection: Connection, fields: dict[str, Any]) -> None:
    assert init_producer_id(connection, 4, **fields) == (ErrorCode.INVALID_REQUEST, -1, -1)


def test_consecutive_batches_are_accepted(producer: Producer) -> None:
    assert [producer.write(0, 3), producer.write(3, 2), producer.write(5)] == [appended(0), appended(3), appended(5)]


def test_a_duplicate_is_answered_with_its_first_offset(producer: Producer, connection: Connection, name: str) -> None:
    producer.write(0, 3)
    producer.write(3, 2)
    assert producer.write(3, 2) == duplicate(3)
    assert producer.write(0, 3) == duplicate(0)
    assert producer.write(0, 3, timestamp=NOW_MS + 1) == duplicate(0)
    assert end_offset(connection, name) == 5


def test_the_last_five_batches_are_recognized_as_duplicates(producer: Producer) -> None:
    for sequence in range(7):
        assert producer.write(sequence) == appended(sequence)
    assert [producer.write(sequence) for sequence in range(7)] == [OUT_OF_ORDER] * 2 + [
        duplicate(s) for s in range(2, 7)
    ]


@pytest.mark.parametrize(("sequence", "count"), [(4, 1), (100, 1), (0, 2), (0, 4), (1, 2), (2, 2)])
def test_a_sequence_gap_or_overlap_is_rejected(producer: Producer, sequence: int, count: int) -> None:
    producer.write(0, 3)
    assert producer.write(sequence, count) == OUT_OF_ORDER
    assert producer.write(3) == appended(3)


@pytest.mark.parametrize("sequence", [0, 3, LAST_SEQUENCE])
def test_an_unknown_producer_may_start_at_any_sequence(producer: Producer, sequence: int) -> None:
    assert producer.write(sequence) == appended(0)


def test_sequences_wrap_to_0(producer: Producer) -> None:
    assert producer.write(LAST_SEQUENCE - 1) == appended(0)
    assert producer.write(LAST_SEQUENCE, 3) == appended(1)
    assert producer.write(1) == OUT_OF_ORDER
    assert producer.write(2) == appended(4)


def test_a_new_producer_epoch_starts_at_0_and_fences_the_old_one(producer: Producer) -> None:
    assert producer.write(0) == appended(0)
    assert producer.write(1, epoch=1) == OUT_OF_ORDER
    assert producer.write(0, epoch=1) == appended(1)
    assert producer.write(1) == OLD_EPOCH
    assert producer.write(0) == OLD_EPOCH
    assert producer.write(0, epoch=1) == duplicate(1)
    assert producer.write(1, epoch=1) == appended(2)


def test_a_producer_has_its_own_sequence_in_each_partition(connection: Connection, new_topic: NewTopic) -> None:
    name = new_topic(2)
    records = batch([b"v"], timestamp=NOW_MS, producer_id=next(PRODUCER_IDS), producer_epoch=0, base_sequence=0)
    assert [produce(connection, name, records, partition=partition) for partition in (0, 1)] == [appended(0)] * 2


def test_a_rejected_batch_does_not_change_the_sequence(producer: Producer, connection: Connection, name: str) -> None:
    producer.write(0)
    assert produce(connection, name, b"").error_code != 0
    assert producer.write(1) == appended(1)
