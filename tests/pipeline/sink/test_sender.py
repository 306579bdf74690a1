"""What each answer to a Produce request leads to, shown with a client that answers by a script."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from minibroker.client.client_errors import ClientError, ErrorReaction
from minibroker.client.cluster_client import PartitionLeader
from minibroker.pipeline.encoder import BatchSettings
from minibroker.pipeline.log_source import TopicPartition
from minibroker.pipeline.sink.sender import ProduceSender
from minibroker.pipeline.sink.sink_settings import SinkSettings
from minibroker.pipeline.sink.sink_transaction import ProducerFenced, ProducerIdentity, RecordRefused, WriteFailed
from minibroker.pipeline.sink.task import RowsConverter
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.records.batch import check_batch
from minibroker.protocol.records.payload import iterate_records_of_batch

ONE = TopicPartition("t", 0)
TWO = TopicPartition("t", 1)
SETTINGS = SinkSettings("nowhere", retry_backoff_ms=0, batches=BatchSettings(batch_records=4, batch_bytes=1 << 20))
OK = int(ErrorCode.NONE)
LOST = "the answer does not arrive"

Step = int | str | dict[TopicPartition, int] | Callable[[TopicPartition], SimpleNamespace]


class ScriptedClient:
    """Answers requests by a script, a step each, and then with success; keeps the batches that it was sent."""

    bootstrap_servers = "nowhere"

    def __init__(self, *script: Step) -> None:
        self.script = list(script)
        self.requests: list[dict[TopicPartition, bytes]] = []
        self.versions: list[int | None] = []
        self.refreshed = 0

    def find_leader(self, partition: TopicPartition) -> PartitionLeader:
        return PartitionLeader(1, 0)

    def forget_leaders_and_coordinators(self) -> None:
        self.refreshed += 1

    def send(self, request: Any, node_id: int, *, lowest: int, highest: int) -> dict[TopicPartition, bytes]:
        sent = {
            TopicPartition(topic.name, each.index): bytes(each.records)
            for topic in request.topic_data
            for each in topic.partition_data
        }
        self.requests.append(sent)
        return sent

    def wait(self, sent: dict[TopicPartition, bytes]) -> SimpleNamespace:
        step = self.script.pop(0) if self.script else OK
        if isinstance(step, str):
            raise ClientError(step, ErrorReaction.FIND_BOTH if step == LOST else ErrorReaction.FATAL)
        answers = [(partition, _answer(step, partition)) for partition in sent]
        topics = [SimpleNamespace(name=partition.topic, partition_responses=[answer]) for partition, answer in answers]
        return SimpleNamespace(responses=topics)

    def batches(self, partition: TopicPartition) -> list[bytes]:
        """Return the batches that a partition got, in order."""
        return [sent[partition] for sent in self.requests if partition in sent]


def _answer(step: Step, partition: TopicPartition) -> SimpleNamespace:
    if callable(step):
        return step(partition)
    code = step.get(partition, OK) if isinstance(step, dict) else step
    return SimpleNamespace(index=partition.partition, error_code=code, error_message=None, record_errors=[])


def rows(count: int, value: bytes = b"value") -> pa.RecordBatch:
    return RowsConverter("t").convert_rows(
        pa.record_batch({"value": pa.array([value + b"%d" % number for number in range(count)])})
    )


def send(
    client: ScriptedClient,
    count: int = 4,
    settings: SinkSettings = SETTINGS,
    identity: ProducerIdentity | None = None,
    partitions: Sequence[TopicPartition] = (ONE,),
) -> None:
    sender = ProduceSender(client, settings, identity or ProducerIdentity(7, 3))  # type: ignore[arg-type]
    sender.send_rows({partition: rows(count) for partition in partitions})


def said(batch: bytes) -> tuple[int, int, int]:
    """Producer id, epoch and base sequence of a batch whose checksum is right."""
    header = check_batch(batch)
    assert header.base_offset == 0
    return header.producer_id, header.producer_epoch, header.base_sequence


def values(batches: list[bytes]) -> list[bytes]:
    return [bytes(record.value or b"") for batch in batches for record in iterate_records_of_batch(batch)]


def test_batches_of_a_partition_are_sent_one_by_one_with_consecutive_sequences() -> None:
    client = ScriptedClient()
    send(client, 10, partitions=(ONE, TWO))
    assert [set(sent) for sent in client.requests] == [{ONE, TWO}] * 3
    assert [said(batch) for batch in client.batches(ONE)] == [(7, 3, 0), (7, 3, 4), (7, 3, 8)]
    assert values(client.batches(TWO)) == [b"value%d" % number for number in range(10)]


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, LOST])
def test_a_retriable_failure_is_retried_unchanged(code: int | str) -> None:
    client = ScriptedClient(code, OK, code)
    send(client, 8)
    first, again, second, second_again = client.batches(ONE)
    assert (first, second) == (again, second_again)
    assert [said(first), said(second)] == [(7, 3, 0), (7, 3, 4)]
    assert client.refreshed == 2


def test_a_failing_partition_does_not_delay_others() -> None:
    client = ScriptedClient({TWO: ErrorCode.LEADER_NOT_AVAILABLE}, {TWO: ErrorCode.LEADER_NOT_AVAILABLE})
    send(client, 8, partitions=(ONE, TWO))
    assert [set(sent) for sent in client.requests] == [{ONE, TWO}, {ONE, TWO}, {TWO}, {TWO}]
    assert values(client.batches(ONE)) == [b"value%d" % number for number in range(8)]


def test_a_duplicate_batch_counts_as_written() -> None:
    client = ScriptedClient(LOST, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    send(client, 5)
    assert [said(batch)[2] for batch in client.batches(ONE)] == [0, 0, 4]


def test_a_too_large_batch_is_split_until_it_fits() -> None:
    client = ScriptedClient(ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.MESSAGE_TOO_LARGE)
    send(client, 8)
    assert [check_batch(batch).record_count for batch in client.batches(ONE)] == [4, 2, 1, 1, 2, 4]
    written = client.batches(ONE)[2:]
    assert [said(batch)[2] for batch in written] == [0, 1, 2, 4]
    assert values(written) == [b"value%d" % number for number in range(8)]


def test_a_single_too_large_record_is_named() -> None:
    with pytest.raises(RecordRefused, match=r"row 0 to t-0, key None: MESSAGE_TOO_LARGE, \d+ bytes"):
        send(ScriptedClient(ErrorCode.MESSAGE_TOO_LARGE), 1)
    small = replace(SETTINGS, max_request_bytes=20)
    with pytest.raises(RecordRefused, match=r"row 0 to t-0, key None: \d+ bytes exceed kafka.max.request.size=20"):
        send(ScriptedClient(), 1, small)


def test_a_record_rejected_by_the_broker_is_named() -> None:
    def refuse(partition: TopicPartition) -> SimpleNamespace:
        error = SimpleNamespace(batch_index=2, batch_index_error_message="no key")
        return SimpleNamespace(index=0, error_code=87, error_message="one or more records", record_errors=[error])

    with pytest.raises(RecordRefused, match="row 2 to t-0, key None: INVALID_RECORD no key"):
        send(ScriptedClient(refuse))


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED])
def test_a_fenced_producer_stops(code: int) -> None:
    client = ScriptedClient(code)
    with pytest.raises(ProducerFenced, match=f"t-0: {ErrorCode(code).name}"):
        send(client)
    assert len(client.requests) == 1


@pytest.mark.parametrize(
    "step", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TRANSACTION_ABORTABLE, 999, "broker: no such version"]
)
def test_a_permanent_error_stops_the_sender_immediately(step: int | str) -> None:
    client = ScriptedClient(step)
    with pytest.raises(WriteFailed, match="TOPIC_AUTHORIZATION_FAILED|TRANSACTION_ABORTABLE|error 999|no such version"):
        send(client)
    assert len(client.requests) == 1


@pytest.mark.parametrize("code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID])
def test_a_producer_whose_sequence_the_broker_lost_fails_the_write(code: ErrorCode) -> None:
    with pytest.raises(WriteFailed, match=f"t-0: {code.name}"):
        send(ScriptedClient(OK, code), 8)


def test_the_sender_gives_up_after_retries_or_timeout_with_the_reason() -> None:
    client = ScriptedClient(*[ErrorCode.NOT_ENOUGH_REPLICAS] * 9)
    with pytest.raises(WriteFailed, match="t-0: not written in 3 attempts .*: NOT_ENOUGH_REPLICAS"):
        send(client, settings=replace(SETTINGS, retries=2))
    assert len(client.requests) == 3
    with pytest.raises(WriteFailed, match="t-0: not written in 1 attempts .*: the answer does not arrive"):
        send(ScriptedClient(*[LOST] * 9), settings=replace(SETTINGS, delivery_timeout_ms=0))


def test_produce_requests_are_limited_in_size() -> None:
    client = ScriptedClient()
    partitions = [TopicPartition("t", number) for number in range(6)]
    send(client, 1, replace(SETTINGS, max_request_bytes=200), partitions=partitions)
    assert len(client.requests) == 3
    assert all(sum(map(len, sent.values())) <= 200 for sent in client.requests)


def test_batches_of_a_sender_that_is_not_idempotent_have_no_producer_id() -> None:
    client = ScriptedClient()
    send(client, identity=ProducerIdentity())
    assert [said(batch) for batch in client.batches(ONE)] == [(-1, -1, -1)]


def test_a_sequence_wraps_to_0() -> None:
    identity = ProducerIdentity(7, 3, sequences={ONE: 0x7FFFFFFD})
    client = ScriptedClient()
    send(client, 6, identity=identity)
    assert [said(batch)[2] for batch in client.batches(ONE)] == [0x7FFFFFFD, 1]
    assert struct.unpack_from(">i", client.batches(ONE)[1], 53) == (1,)
