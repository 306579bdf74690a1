"""Writing: where records go, what is repeated, and what is reported. Formats and codecs are tested with the command."""

from __future__ import annotations

import pytest

from minibroker.client.blocking import Client
from minibroker.client.client_errors import ClientError
from minibroker.client.connection_settings import ClientSettings
from minibroker.client.producer_identity import ProducerIdentity
from minibroker.client.record_fetching import RecordReader
from minibroker.client.record_producing import BATCH_RECORDS, ProduceOutcome, RecordWriter
from minibroker.protocol.records.record import Record
from minibroker.testing import Broker


def written(
    broker: Broker, *values: bytes, partition: int | None = None, timeout_ms: int = 5000
) -> list[ProduceOutcome]:
    outcomes: list[ProduceOutcome] = []
    settings = {"bootstrap.servers": broker.bootstrap_servers, "default.api.timeout.ms": "2000"}
    with Client(ClientSettings(settings)) as client:
        writer = RecordWriter(client, "t", outcomes.append, timeout_ms=timeout_ms)
        for value in values:
            writer.add_record(Record(-1, 0, None, value), partition)
        writer.flush()
    return outcomes


def test_a_retriable_error_is_retried(kafka: Broker) -> None:
    kafka.faults.add(api="Produce", topic="t", error="NOT_LEADER_OR_FOLLOWER", times=2)
    assert written(kafka, b"a", b"b") == [ProduceOutcome(0, 2, 0)]


def test_a_persistent_retriable_error_is_reported_after_the_timeout(kafka: Broker) -> None:
    kafka.faults.add(api="Produce", topic="t", error="NOT_ENOUGH_REPLICAS")
    (outcome,) = written(kafka, b"a", b"b", timeout_ms=300)
    assert outcome[:3] == (0, 2, None)
    assert outcome.error  # the last one: the broker's, or that there was no answer in the time that was left


def test_a_non_retriable_error_is_reported_immediately(kafka: Broker) -> None:
    kafka.faults.add(api="Produce", topic="t", error="TOPIC_AUTHORIZATION_FAILED", times=1)
    (outcome,) = written(kafka, b"a", timeout_ms=60_000)
    assert "TOPIC_AUTHORIZATION_FAILED" in str(outcome.error)


def test_an_unknown_partition_is_reported(kafka: Broker) -> None:
    (outcome,) = written(kafka, b"a", partition=7)
    assert "t-7 does not exist" in str(outcome.error)


def test_many_records_are_sent_in_several_batches_in_order(kafka: Broker) -> None:
    values = [b"%d" % number for number in range(BATCH_RECORDS + 5)]
    assert written(kafka, *values) == [ProduceOutcome(0, BATCH_RECORDS, 0), ProduceOutcome(0, 5, BATCH_RECORDS)]
    assert [record.value for record in kafka.records("t")] == values


def test_an_idempotent_producer_writes_no_duplicate_after_a_lost_response(kafka: Broker) -> None:
    outcomes: list[ProduceOutcome] = []
    with Client(ClientSettings({"bootstrap.servers": kafka.bootstrap_servers})) as client:
        writer = RecordWriter(client, "t", outcomes.append, identity=ProducerIdentity(client))
        for value in (b"a", b"b"):
            kafka.faults.add(api="Produce", topic="t", close="after", times=1)
            writer.add_record(Record(-1, 0, None, value))
            writer.flush()
    assert outcomes == [ProduceOutcome(0, 1, 0), ProduceOutcome(0, 1, 1)]
    assert [record.value for record in kafka.records("t")] == [b"a", b"b"]


def test_a_second_producer_of_a_transactional_id_fences_the_first(kafka: Broker) -> None:
    outcomes: list[ProduceOutcome] = []
    with Client(ClientSettings({"bootstrap.servers": kafka.bootstrap_servers})) as client:
        first = ProducerIdentity(client, "x")
        writer = RecordWriter(client, "t", outcomes.append, identity=first)
        writer.add_record(Record(-1, 0, None, b"a"))
        writer.flush()
        ProducerIdentity(client, "x")
        with pytest.raises(ClientError, match="transaction x: (PRODUCER_FENCED|INVALID_PRODUCER_EPOCH)"):
            first.end_transaction(commits=True)
        assert list(RecordReader(client, {("t", 0): 0}).poll(0)) == []
