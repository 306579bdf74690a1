"""What one client writes, every client reads: all codecs, keys, headers, nulls, empty and large values."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from minibroker.protocol.records.batch import iterate_batches
from minibroker.protocol.records.compression import Compression
from tests.clients.conftest import CLIENTS
from tests.clients.interface import CODECS, Client, Record
from tests.running import RunningBroker

T = 1_600_000_000_000
ANY_BYTES = bytes(range(256))
NOISE = random.Random(1).randbytes(200_000)

SAMPLES = [
    Record(b"key", b"value", timestamp_ms=T),
    Record(None, b"without a key", timestamp_ms=T + 5),
    Record(b"without a value", None, timestamp_ms=T - 7),
    Record(None, None, timestamp_ms=T + 6),
    Record(b"", b"", timestamp_ms=T + 7),
    Record(ANY_BYTES, ANY_BYTES, timestamp_ms=1),
    Record(b"h", b"headers", (("one", b"1"), ("two", ANY_BYTES), ("empty", b""))),
    Record(b"h", b"headers twice", (("name", b"first"), ("name", b"second"), ("name", b"first"))),
    Record(b"h", b"headers of nothing", (("null", None), ("", b"no name"), ("ключ", "значение".encode()))),
    Record(b"large", b"compressible " * 30_000),
    Record(b"noise", NOISE),
    Record(b"k" * 70_000, b"a large key"),
]


def codecs_on_disk(directory: Path, topic: str) -> set[int]:
    """The codecs of all batches in the topic's first partition."""
    segments = (directory / "data" / f"{topic}-0").glob("*.log")
    return {header.compression for segment in segments for _, header in iterate_batches(segment.read_bytes())}


@pytest.mark.parametrize("codec", CODECS)
def test_every_client_reads_the_records_of_each_other(
    broker: RunningBroker, topic: str, client: Client, codec: str
) -> None:
    records = [record for record in SAMPLES if client.can_write(record)]
    with client.producer(broker.bootstrap_servers, codec=codec) as producer:
        assert producer.send(topic, records) == list(range(len(records)))
    assert Compression[codec.upper()] in codecs_on_disk(broker.directory, topic)
    for reader in CLIENTS:
        with reader.consumer(broker.bootstrap_servers, topic) as consumer:
            found = [(read.offset, read.record) for read in consumer.read(len(records))]
            assert found == list(enumerate(records)), reader.name


@pytest.mark.parametrize("codec", CODECS[1:])
def test_every_client_reads_records_that_the_broker_compressed(
    broker: RunningBroker, topic_name: str, codec: str
) -> None:
    records = [record for record in SAMPLES if all(client.can_write(record) for client in CLIENTS)]
    writer = CLIENTS[0]
    with writer.admin(broker.bootstrap_servers) as admin:
        admin.create_topic(topic_name, 1, {"compression.type": codec})
    with writer.producer(broker.bootstrap_servers) as producer:
        producer.send(topic_name, records)
    assert codecs_on_disk(broker.directory, topic_name) == {Compression[codec.upper()]}
    for reader in CLIENTS:
        with reader.consumer(broker.bootstrap_servers, topic_name) as consumer:
            assert [read.record for read in consumer.read(len(records))] == records, reader.name


def test_more_records_than_fit_in_one_response_are_consumed(broker: RunningBroker, topic: str, client: Client) -> None:
    records = [Record(b"%d" % index, NOISE[index:] * 4) for index in range(24)]
    with client.producer(broker.bootstrap_servers) as producer:
        for record in records:
            producer.send(topic, [record])
    with client.consumer(broker.bootstrap_servers, topic) as consumer:
        for index, record in enumerate(records):
            (read,) = consumer.read(1)
            assert (read.offset, read.record) == (index, record)
