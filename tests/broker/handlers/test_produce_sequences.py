"""Produce by idempotent producers (KIP-98): over time, and over restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.errors import ErrorCode
from tests.broker.harness import Harness, batch

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


def test_a_repeated_batch_with_log_append_time_is_answered_with_its_first_time(harness: Harness) -> None:
    harness.create_topic("t", message_timestamp_type="LogAppendTime")
    producer = Producer(harness)
    first = producer.answer(0).log_append_time_ms
    assert first == harness.clock.wall_ms()
    harness.clock.advance(100)
    assert producer.answer(0).log_append_time_ms == first


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
