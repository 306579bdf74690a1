"""How producers are answered: acks, idempotence, sizes, partitions, and topics that are not there yet."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.records.batch import BatchHeader, iterate_batches
from tests.clients.confluent import Confluent
from tests.clients.interface import CODECS, Client, Record
from tests.running import RunningBroker

MAX_MESSAGE_BYTES = 1_048_588  # Kafka's default of max.message.bytes
RECORDS = [Record(b"k%d" % index, b"v%d" % index) for index in range(5)]


def headers_on_disk(directory: Path, topic: str) -> list[BatchHeader]:
    data = (directory / "data" / f"{topic}-0" / f"{0:020}.log").read_bytes()
    return [header for _, header in iterate_batches(data)]


def records_read(client: Client, servers: str, topic: str, count: int) -> list[Record]:
    with client.consumer(servers, topic) as consumer:
        return [read.record for read in consumer.read(count)]


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_all_acks_settings_are_supported(broker: RunningBroker, topic: str, client: Client, acks: int | str) -> None:
    with client.producer(broker.bootstrap_servers, acks=acks) as producer:
        offsets = producer.send(topic, RECORDS) + producer.send(topic, RECORDS)
        assert acks == 0 or offsets == list(range(10))
    assert records_read(client, broker.bootstrap_servers, topic, 10) == RECORDS * 2


@pytest.mark.parametrize("codec", CODECS)
def test_an_idempotent_producer_writes_records(broker: RunningBroker, topic: str, client: Client, codec: str) -> None:
    with client.producer(broker.bootstrap_servers, codec=codec, idempotent=True) as producer:
        assert [producer.send(topic, [record]) for record in RECORDS] == [[0], [1], [2], [3], [4]]
    headers = headers_on_disk(broker.directory, topic)
    assert [header.base_sequence for header in headers] == [0, 1, 2, 3, 4]
    assert len({(header.producer_id, header.producer_epoch) for header in headers}) == 1
    assert headers[0].producer_id >= 0


def test_two_producers_have_different_ids(broker: RunningBroker, topic: str, client: Client) -> None:
    for _ in range(2):
        with client.producer(broker.bootstrap_servers, idempotent=True) as producer:
            producer.send(topic, RECORDS)
    assert len({header.producer_id for header in headers_on_disk(broker.directory, topic)}) == 2


def test_a_value_of_nearly_the_maximum_size_is_accepted(broker: RunningBroker, topic: str, client: Client) -> None:
    value = random.Random(2).randbytes(MAX_MESSAGE_BYTES - 100)
    with client.producer(broker.bootstrap_servers, limit_bytes=2_000_000) as producer:
        assert producer.send(topic, [Record(b"k", value)]) == [0]
    assert records_read(client, broker.bootstrap_servers, topic, 1) == [Record(b"k", value)]


def test_a_too_large_value_is_rejected_by_error_name(
    broker: RunningBroker, topic: str, client: Client, complaints: list[str]
) -> None:
    complaints.append("MessageSizeTooLarge")
    value = random.Random(2).randbytes(MAX_MESSAGE_BYTES)
    with client.producer(broker.bootstrap_servers, limit_bytes=2_000_000) as producer:
        with pytest.raises(Exception) as caught:
            producer.send(topic, [Record(b"k", value)])
        assert client.error_code(caught.value) == ErrorCode.MESSAGE_TOO_LARGE
        assert producer.send(topic, RECORDS) == [0, 1, 2, 3, 4]


def test_a_producer_writes_to_many_partitions(broker: RunningBroker, topic_name: str, client: Client) -> None:
    with client.admin(broker.bootstrap_servers) as admin:
        admin.create_topic(topic_name, 40, {})
    with client.producer(broker.bootstrap_servers) as producer:
        for partition in range(40):
            assert producer.send(topic_name, [Record(b"k", b"%d" % partition)], partition) == [0]
    with client.consumer(broker.bootstrap_servers, topic_name, range(40)) as consumer:
        reads = consumer.read(40)
    assert sorted((read.partition, read.offset, read.record.value) for read in reads) == [
        (partition, 0, b"%d" % partition) for partition in range(40)
    ]


def test_producing_to_a_topic_creates_it(broker: RunningBroker, topic_name: str, client: Client) -> None:
    with client.producer(broker.bootstrap_servers) as producer:
        assert producer.send(topic_name, RECORDS) == [0, 1, 2, 3, 4]
    with Confluent().admin(broker.bootstrap_servers) as admin:
        assert topic_name in admin.topics()
