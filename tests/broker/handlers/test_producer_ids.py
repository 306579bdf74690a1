"""InitProducerId and what an idempotent producer then relies on: repetitions, gaps, epochs, restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.coordinators import coordinator_of
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.transactions import InitProducerIdRequest
from tests.broker.harness import Harness, batch, served_versions

VERSIONS = served_versions(InitProducerIdRequest)
WITH_PRODUCER = 3
T = 1_700_000_000_000
LARGEST_SEQUENCE = 2_147_483_647


def init(harness: Harness, version: int = VERSIONS[-1], *, node: int = 1, **fields: Any) -> tuple[int, int, int]:
    """(error, producer id, epoch)."""
    response = harness.request(InitProducerIdRequest(transactional_id=None, **fields), version, node=node)
    return response.error_code, response.producer_id, response.producer_epoch


def init_transactional(harness: Harness, transactional_id: str, timeout_ms: int, version: int, **more: Any) -> Any:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    return harness.request(request, version, **more)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_request_gets_an_id_of_its_own(harness: Harness, version: int) -> None:
    assert [init(harness, version) for _ in range(3)] == [(0, 0, 0), (0, 1, 0), (0, 2, 0)]


def test_an_id_is_never_given_out_twice_by_whatever_node_or_after_whatever_stop(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        ids = [init(harness, node=node)[1] for node in (1, 2, 1)]
        harness.restart()
        ids.append(init(harness)[1])
        harness.restart(crash=True)
        ids.append(init(harness)[1])
        assert len(set(ids)) == len(ids)


def test_ids_go_on_beyond_a_recorded_block(harness: Harness) -> None:
    assert [init(harness)[1] for _ in range(1002)] == list(range(1002))


@pytest.mark.parametrize("timeout_ms", [0, -1, 2_000_000_000])
def test_the_timeout_says_nothing_without_a_transactional_id(harness: Harness, timeout_ms: int) -> None:
    assert init(harness, transaction_timeout_ms=timeout_ms)[0] == ErrorCode.NONE


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= WITH_PRODUCER])
def test_a_producer_that_tells_its_id_gets_another(harness: Harness, version: int) -> None:
    _, producer_id, _ = init(harness)
    assert init(harness, version, producer_id=producer_id, producer_epoch=0) == (0, producer_id + 1, 0)


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= WITH_PRODUCER])
@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 0)])
def test_an_id_without_an_epoch_or_the_reverse_is_refused(
    harness: Harness, version: int, producer_id: int, epoch: int
) -> None:
    refused = ErrorCode.INVALID_REQUEST, -1, -1
    assert init(harness, version, producer_id=producer_id, producer_epoch=epoch) == refused


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("transactional_id", "timeout_ms", "code"),
    [
        ("", 60_000, ErrorCode.INVALID_REQUEST),
        ("tx", 0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("tx", -1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("tx", 900_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("tx", 900_000, ErrorCode.UNSUPPORTED_VERSION),
        ("tx", 1, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_transactions_are_refused_after_kafkas_own_checks(
    harness: Harness, version: int, transactional_id: str, timeout_ms: int, code: ErrorCode
) -> None:
    response = init_transactional(harness, transactional_id, timeout_ms, version)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (code, -1, -1)
    assert init(harness)[1] == 0


def test_a_transactional_id_belongs_to_its_coordinator(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        coordinator = coordinator_of(harness.cluster, "tx").node_id
        codes = {node: init_transactional(harness, "tx", 1000, 5, node=node).error_code for node in (1, 2)}
        assert codes == {
            coordinator: ErrorCode.UNSUPPORTED_VERSION,
            3 - coordinator: ErrorCode.NOT_COORDINATOR,
        }


# --- sequences ----------------------------------------------------------------------------------


class Producer:
    """An idempotent producer to partition 0 of "t": `send` gives (error, first offset, append time)."""

    def __init__(self, harness: Harness, topic: str = "t") -> None:
        self.harness = harness
        self.topic = topic
        _, self.producer_id, self.epoch = init(harness)

    def send(self, sequence: int, count: int = 1, *, timestamp: int = T, version: int = 9) -> tuple[int, int, int]:
        records = batch(
            *["v"] * count,
            timestamp=timestamp,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
        )
        answer = self.harness.produce_batch(self.topic, records, version=version)
        return answer.error_code, answer.base_offset, answer.log_append_time_ms

    def accepted(self, sequence: int, count: int = 1) -> int:
        code, offset, _ = self.send(sequence, count)
        assert code == ErrorCode.NONE
        return offset


@pytest.fixture
def producer(harness: Harness) -> Producer:
    harness.create_topic("t")
    return Producer(harness)


GAP = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, -1)


@pytest.mark.parametrize("version", range(3, 10))
def test_a_batch_sent_again_is_answered_with_its_first_offset_and_not_appended(
    producer: Producer, version: int
) -> None:
    assert producer.accepted(0, 3) == 0
    assert producer.accepted(3) == 3
    assert producer.send(0, 3, version=version) == (ErrorCode.NONE, 0, T)
    assert producer.harness.partition("t").log.log_end_offset == 4


def test_a_repetition_is_told_by_its_sequences_alone(producer: Producer) -> None:
    producer.accepted(0, 3)
    assert producer.send(0, 3, timestamp=T + 7) == (ErrorCode.NONE, 0, T)


@pytest.mark.parametrize(("sequence", "count"), [(4, 1), (2, 1), (0, 2), (0, 4), (1, 2)])
def test_a_gap_or_an_overlap_is_refused(producer: Producer, sequence: int, count: int) -> None:
    producer.accepted(0, 3)
    assert producer.send(sequence, count) == GAP
    assert producer.accepted(3) == 3


@pytest.mark.parametrize("version", range(3, 10))
def test_a_gap_is_refused_in_every_version(producer: Producer, version: int) -> None:
    producer.accepted(0)
    assert producer.send(2, version=version) == GAP


def test_a_repetition_is_known_among_the_last_five_batches(producer: Producer) -> None:
    for sequence in range(6):
        producer.accepted(sequence)
    assert producer.send(1) == (ErrorCode.NONE, 1, T)
    assert producer.send(0) == GAP


def test_an_unknown_producer_begins_with_any_sequence(producer: Producer) -> None:
    assert producer.accepted(40) == 0
    assert producer.accepted(41) == 1


def test_sequences_go_on_from_0_after_the_largest(producer: Producer) -> None:
    producer.accepted(LARGEST_SEQUENCE - 1, 3)
    assert producer.accepted(1) == 3


def test_sequences_belong_to_a_partition(harness: Harness) -> None:
    harness.create_topic("t", 2)
    producer = Producer(harness)
    producer.accepted(0)
    records = batch("v", producer_id=producer.producer_id, producer_epoch=0, base_sequence=0)
    assert harness.produce_batch("t", records, partition=1).base_offset == 0


def test_a_newer_epoch_begins_at_0_and_ends_the_older_one(producer: Producer) -> None:
    producer.accepted(0)
    producer.epoch = 1
    assert producer.send(5) == GAP
    assert producer.accepted(0) == 1
    producer.epoch = 0
    assert producer.send(1) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1, -1)
    assert producer.send(0) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1, -1)


def test_a_repetition_tells_the_append_time_that_the_batch_got(harness: Harness) -> None:
    harness.create_topic("t", message_timestamp_type="LogAppendTime")
    producer = Producer(harness)
    first = producer.send(0)
    assert first == (ErrorCode.NONE, 0, harness.clock.wall_ms())
    harness.clock.advance(5000)
    assert producer.send(0) == first


@pytest.mark.parametrize("crash", [False, True])
def test_sequences_outlive_a_restart(producer: Producer, crash: bool) -> None:
    producer.accepted(0, 3)
    producer.harness.restart(crash=crash)
    assert producer.send(5) == GAP
    assert producer.send(0, 3) == (ErrorCode.NONE, 0, T)
    assert producer.accepted(3) == 3
