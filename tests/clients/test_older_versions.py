"""Clients that speak older versions of the protocol: kafka-python, told which Kafka it has before it."""

from __future__ import annotations

import pytest

from tests.clients.interface import Record
from tests.clients.kafka_python import KafkaPython
from tests.running import RunningBroker

T = 1_600_000_000_000
RECORDS = [Record(b"k%d" % index, b"v%d" % index, (("h", b"1"),), T + index) for index in range(5)]
WITH_MORE_PARTITIONS = (1, 0)
VERSIONS = [(0, 11), (1, 0), (1, 1), (2, 0), (2, 1), (2, 3), (2, 4), (2, 6), (2, 8), (3, 0), (3, 5), (3, 9), (4, 0)]


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: ".".join(map(str, version)))
def test_clients_of_older_kafka_versions_are_supported(
    broker: RunningBroker, topic_name: str, version: tuple[int, int]
) -> None:
    client, servers = KafkaPython(version), broker.bootstrap_servers
    with client.admin(servers) as admin:
        admin.create_topic(topic_name, 2, {"max.message.bytes": "5000"})
        if version >= WITH_MORE_PARTITIONS:
            admin.add_partitions(topic_name, 3)
        assert topic_name in admin.topics()
        assert admin.config(topic_name)["max.message.bytes"] == "5000"
    with client.producer(servers, codec="gzip", idempotent=True) as producer:
        assert producer.send(topic_name, RECORDS, partition=1) == [0, 1, 2, 3, 4]
    with client.consumer(servers, topic_name, [1]) as consumer:
        assert [read.record for read in consumer.read(5)] == RECORDS
        assert consumer.offsets(1) == (0, 5)
        assert consumer.offset_at(T + 3, 1) == 3
    with client.admin(servers) as admin:
        admin.delete_topic(topic_name)
        assert topic_name not in admin.topics()
