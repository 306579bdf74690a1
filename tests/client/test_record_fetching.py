"""Reading without a group: which records are found, and when partitions are at their end."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from minibroker.client.blocking import Client
from minibroker.client.client_errors import ClientError
from minibroker.client.connection_settings import ClientSettings
from minibroker.client.record_fetching import RecordReader, read_last_records
from minibroker.testing import Broker


def client_of(broker: Broker) -> Client:
    return Client(ClientSettings({"bootstrap.servers": broker.bootstrap_servers, "default.api.timeout.ms": "5000"}))


def values(reader: RecordReader) -> list[bytes | None]:
    """All values up to the end."""
    found = []
    while not reader.is_at_end:
        found += [each.record.value for each in reader.poll(0)]
    return found


def test_records_of_aborted_and_open_transactions_are_omitted(kafka: Broker) -> None:
    plain = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "x"})
    producer.init_transactions()
    for value, ended in (("a", producer.abort_transaction), ("b", producer.commit_transaction), ("c", None)):
        producer.begin_transaction()
        producer.produce("t", value, partition=0)
        producer.flush()
        plain.produce("t", f"beside {value}", partition=0)
        plain.flush()
        if ended is not None:
            ended()
    with client_of(kafka) as client:
        assert values(RecordReader(client, {("t", 0): 0})) == [b"beside a", b"b", b"beside b"]
        everything = [b"a", b"beside a", b"b", b"beside b", b"c", b"beside c"]
        assert values(RecordReader(client, {("t", 0): 0}, read_committed=False)) == everything
    producer.abort_transaction()
    with client_of(kafka) as client:
        assert values(RecordReader(client, {("t", 0): 0})) == [b"beside a", b"b", b"beside b", b"beside c"]


def test_reading_can_start_within_a_batch(kafka: Broker) -> None:
    with_batch = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 1000})
    for value in ("a", "b", "c"):
        with_batch.produce("t", value, partition=0)
    with_batch.flush()
    with client_of(kafka) as client:
        reader = RecordReader(client, {("t", 0): 1})
        assert values(reader) == [b"b", b"c"]
        kafka.produce("t", b"d")
        assert [each.record.value for each in reader.poll(1000)] == [b"d"]


def test_a_reader_finds_a_moved_leader_and_reports_a_missing_offset(kafka: Broker) -> None:
    kafka.produce("t", b"a")
    kafka.faults.add(api="Fetch", topic="t", error="NOT_LEADER_OR_FOLLOWER", times=2)
    with client_of(kafka) as client:
        assert values(RecordReader(client, {("t", 0): 0})) == [b"a"]
        with pytest.raises(ClientError, match="reading t-0 at 9: OFFSET_OUT_OF_RANGE"):
            list(RecordReader(client, {("t", 0): 9}).poll(0))


def numbered(kafka: Broker, count: int, partition: int = 0) -> None:
    for number in range(count):
        kafka.produce("t", b"%d" % number, partition=partition, timestamp_ms=1000 * number + partition)


def test_a_reader_with_end_offsets_returns_no_records_beyond_them(kafka: Broker) -> None:
    kafka.create_topic("t", partitions=3)
    for partition in range(3):
        numbered(kafka, 4, partition)
    with client_of(kafka) as client:
        reader = RecordReader(client, {("t", 0): 1, ("t", 1): 2, ("t", 2): 4}, {("t", 0): 3, ("t", 1): 2})
        found = [(each.partition[1], each.record.offset) for each in reader.poll(0)]
        for partition in range(3):
            kafka.produce("t", b"later", partition=partition)
        assert found + [(each.partition[1], each.record.offset) for each in reader.poll(0)] == [(0, 1), (0, 2)]
        assert reader.is_at_end
        assert list(reader.poll(0)) == []


def test_a_partition_can_be_added_to_a_reader(kafka: Broker) -> None:
    kafka.create_topic("t", partitions=2)
    numbered(kafka, 1, 1)
    with client_of(kafka) as client:
        reader = RecordReader(client, {("t", 0): 0})
        assert values(reader) == []
        reader.add_partitions({("t", 1): 0})
        assert values(reader) == [b"0"]
        assert reader.positions == {("t", 0): 0, ("t", 1): 1}


def test_the_last_records_are_found_despite_gaps_in_the_offsets(kafka: Broker) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "x"})
    numbered(kafka, 3)
    producer.init_transactions()
    for _ in range(20):  # each takes two offsets, and no record is visible
        producer.begin_transaction()
        producer.produce("t", b"aborted", partition=0)
        producer.flush()
        producer.abort_transaction()
    kafka.produce("t", b"end")
    with client_of(kafka) as client:
        for count in (1, 2, 3, 4, 100):
            found = read_last_records(client, {("t", 0): 0}, {("t", 0): 44}, count)
            assert [each.record.value for each in found] == [b"0", b"1", b"2", b"end"][-count:]
        assert [each.record.offset for each in read_last_records(client, {("t", 0): 1}, {("t", 0): 3}, 9)] == [1, 2]


def test_the_last_records_of_all_partitions_are_sorted_by_timestamp(kafka: Broker) -> None:
    kafka.create_topic("t", partitions=2)
    for partition in (0, 1):
        numbered(kafka, 4, partition)
    both = {("t", 0): 0, ("t", 1): 0}
    with client_of(kafka) as client:
        found = read_last_records(client, both, {("t", 0): 4, ("t", 1): 3}, 3)
        assert [(each.partition[1], each.record.offset) for each in found] == [(0, 2), (1, 2), (0, 3)]
