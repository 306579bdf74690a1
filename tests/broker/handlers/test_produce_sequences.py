"""Produce by idempotent producers: repetitions get their first answer, gaps and old epochs are refused (KIP-98).

The numbers are those that Apache Kafka 4.3 answered in the same situations.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.errors import ErrorCode
from tests.broker.harness import Harness, batch

LARGEST = (1 << 31) - 1
GAP = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
T = 1_700_000_000_000


class Producer:
    """Sends batches of one producer id to the partition 0 of a topic "t"; each gives (error, first offset)."""

    def __init__(self, harness: Harness, producer_id: int = 7) -> None:
        self.harness = harness
        self.producer_id = producer_id

    def send(self, sequence: int, count: int = 1, epoch: int = 0, partition: int = 0) -> tuple[int, int]:
        answer = self.answer(sequence, count, epoch, partition)
        assert answer.log_start_offset == 0
        return answer.error_code, answer.base_offset

    def answer(self, sequence: int, count: int = 1, epoch: int = 0, partition: int = 0) -> Any:
        records = batch(
            *["v"] * count, producer_id=self.producer_id, producer_epoch=epoch, base_sequence=sequence, timestamp=T
        )
        return self.harness.produce_batch("t", records, partition=partition)


@pytest.fixture
def producer(harness: Harness) -> Producer:
    harness.create_topic("t", 2)
    return Producer(harness)


def test_consecutive_sequences_are_appended(producer: Producer) -> None:
    assert [producer.send(0, 3), producer.send(3, 2), producer.send(5)] == [(0, 0), (0, 3), (0, 5)]


def test_a_duplicate_batch_gets_the_original_offset_and_is_not_appended(producer: Producer) -> None:
    producer.harness.produce("t", "other")
    assert [producer.send(0, 3), producer.send(3, 2)] == [(0, 1), (0, 4)]
    assert [producer.send(3, 2), producer.send(0, 3)] == [(0, 4), (0, 1)]
    assert producer.harness.partition("t").log.log_end_offset == 6


def test_a_repeated_batch_is_answered_with_the_originals_time(producer: Producer) -> None:
    assert producer.answer(0).log_append_time_ms == -1
    assert producer.answer(0).log_append_time_ms == T


def test_a_repeated_batch_with_log_append_time_is_answered_with_its_first_time(harness: Harness) -> None:
    harness.create_topic("t", message_timestamp_type="LogAppendTime")
    producer = Producer(harness)
    first = producer.answer(0).log_append_time_ms
    assert first == harness.clock.wall_ms()
    harness.clock.advance(100)
    assert producer.answer(0).log_append_time_ms == first


def test_the_last_five_batches_are_known(producer: Producer) -> None:
    assert [producer.send(sequence) for sequence in range(6)] == [(0, sequence) for sequence in range(6)]
    assert [producer.send(sequence) for sequence in (1, 2, 3, 4, 5)] == [(0, sequence) for sequence in (1, 2, 3, 4, 5)]
    assert producer.send(0) == (GAP, -1)


@pytest.mark.parametrize(("sequence", "count"), [(4, 1), (0, 2), (0, 4), (1, 2), (2, 1), (LARGEST, 1)])
def test_sequence_gaps_and_overlaps_are_rejected(producer: Producer, sequence: int, count: int) -> None:
    producer.send(0, 3)
    assert producer.send(sequence, count) == (GAP, -1)
    assert producer.send(3) == (0, 3)


def test_an_unknown_producer_may_start_at_any_sequence_without_later_gaps(producer: Producer) -> None:
    assert producer.send(3) == (0, 0)
    assert producer.send(4) == (0, 1)
    assert producer.send(6) == (GAP, -1)


def test_sequences_wrap_to_0_even_within_a_batch(producer: Producer) -> None:
    assert producer.send(LARGEST - 1) == (0, 0)
    assert producer.send(LARGEST, 2) == (0, 1)
    assert producer.send(1) == (0, 3)
    assert producer.send(LARGEST, 2) == (0, 1), "a repetition of the batch that wraps"


def test_a_new_producer_epoch_starts_at_sequence_0_and_fences_the_old_one(producer: Producer) -> None:
    producer.send(0, 3)
    assert producer.send(5, epoch=1) == (GAP, -1)
    assert producer.send(0, epoch=1) == (0, 3)
    assert producer.send(3, epoch=0) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
    assert producer.send(0, 3, epoch=0) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
    assert producer.send(0, epoch=1) == (0, 3)
    assert producer.send(1, epoch=1) == (0, 4)


def test_sequences_are_counted_per_partition_and_producer(producer: Producer) -> None:
    producer.send(0, 3)
    assert producer.send(0, partition=1) == (0, 0)
    assert Producer(producer.harness, 8).send(0) == (0, 3)
    assert producer.send(3) == (0, 4)


def test_a_rejected_batch_uses_no_sequence(producer: Producer) -> None:
    broken = batch("v", producer_id=7, producer_epoch=0, base_sequence=0)[:-1] + b"!"
    assert producer.harness.produce_batch("t", broken).error_code == ErrorCode.CORRUPT_MESSAGE
    assert producer.send(0) == (0, 0)


@pytest.mark.parametrize("crash", [False, True])
def test_producer_sequences_survive_a_restart(tmp_path: Path, crash: bool) -> None:
    with Harness(tmp_path) as harness:
        harness.create_topic("t")
        producer = Producer(harness)
        producer.send(0, 3)
        producer.send(3, 2)
        harness.restart(crash=crash)
        assert producer.send(3, 2) == (0, 3)
        assert producer.send(6) == (GAP, -1)
        assert producer.send(5) == (0, 5)
