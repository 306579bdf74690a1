"""What only librdkafka's own functions reach: logical offsets, the end of a partition, and newer admin requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from tests.clients.confluent import LOG, Confluent
from tests.clients.interface import PATIENCE_S, Record
from tests.running import RunningBroker

T = 1_600_000_000_000
# The second one has the largest timestamp.
RECORDS = [Record(b"k", b"%d" % index, timestamp_ms=T + since) for index, since in enumerate((0, 9, 5))]


@pytest.fixture
def filled(broker: RunningBroker, topic: str) -> str:
    """A topic with the three records."""
    with Confluent().producer(broker.bootstrap_servers) as producer:
        producer.send(topic, RECORDS)
    return topic


@pytest.fixture
def admin(broker: RunningBroker) -> Iterator[AdminClient]:
    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers}, logger=LOG)
    yield client
    client.poll(0)  # brings what it had to log


def result(futures: Mapping[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(PATIENCE_S)


@pytest.mark.parametrize(("start", "expected"), [(OFFSET_BEGINNING, [0, 1, 2]), (OFFSET_END, [])])
def test_logical_offsets_and_partition_end_events_are_supported(
    broker: RunningBroker, filled: str, start: int, expected: list[int]
) -> None:
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "nobody",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,
    }
    consumer = Consumer(settings, logger=LOG)
    try:
        consumer.assign([TopicPartition(filled, 0, start)])
        messages = consumer.consume(len(expected) + 1, timeout=PATIENCE_S)
    finally:
        consumer.close()
    *records, end = messages
    assert [record.offset() for record in records] == expected
    assert (end.error().code(), end.offset()) == (KafkaError._PARTITION_EOF, 3)


def test_a_consumer_continues_with_a_recreated_topic(broker: RunningBroker, filled: str, complaints: list[str]) -> None:
    complaints.append("(?i)out of range")  # the old topic's offset is none of the new one
    with Confluent().consumer(broker.bootstrap_servers, filled, wait_ms=1000 * PATIENCE_S) as consumer:
        consumer.read(3)
        with Confluent().admin(broker.bootstrap_servers) as admin:
            admin.delete_topic(filled)
            admin.create_topic(filled, 1, {})
        with Confluent().producer(broker.bootstrap_servers) as producer:
            producer.send(filled, [Record(b"k", b"anew")])
        (read,) = consumer.read(1)
        assert (read.offset, read.record.value) == (0, b"anew")


def test_producer_and_consumer_get_the_log_append_time(broker: RunningBroker, topic_name: str) -> None:
    with Confluent().admin(broker.bootstrap_servers) as admin:
        admin.create_topic(topic_name, 1, {"message.timestamp.type": "LogAppendTime"})
    delivered: list[Message] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers}, logger=LOG)
    producer.produce(topic_name, b"v", timestamp=T, on_delivery=lambda error, message: delivered.append(message))
    producer.flush(PATIENCE_S)
    kind, told_ms = delivered[0].timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    with Confluent().consumer(broker.bootstrap_servers, topic_name) as consumer:
        assert consumer.read(1)[0].record.timestamp_ms == told_ms > T


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        (OffsetSpec.earliest(), (0, -1)),
        (OffsetSpec.latest(), (3, -1)),
        (OffsetSpec.max_timestamp(), (1, T + 9)),
        (OffsetSpec.for_timestamp(T + 1), (1, T + 9)),
    ],
)
def test_offsets_are_listed_for_an_admin(
    admin: AdminClient, filled: str, spec: OffsetSpec, found: tuple[int, int]
) -> None:
    listed = result(admin.list_offsets({TopicPartition(filled, 0): spec}))
    assert (listed.offset, listed.timestamp) == found


def test_the_cluster_is_described_to_librdkafka(broker: RunningBroker, admin: AdminClient) -> None:
    described = admin.describe_cluster().result(PATIENCE_S)
    assert [f"{node.host}:{node.port}" for node in described.nodes] == [broker.bootstrap_servers]
    assert described.controller.id == described.nodes[0].id
    assert len(described.cluster_id) == 22


def test_topics_are_described(admin: AdminClient, topic: str) -> None:
    described = result(admin.describe_topics(TopicCollection([topic])))
    (partition,) = described.partitions
    assert (described.name, described.is_internal, partition.id, partition.leader.id) == (topic, False, 0, 1)
    assert [node.id for node in partition.replicas] == [node.id for node in partition.isr] == [1]


def test_configs_are_altered_incrementally(admin: AdminClient, topic: str) -> None:
    def change(name: str, value: str | None, operation: AlterConfigOpType) -> None:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        result(admin.incremental_alter_configs([resource]))

    def described() -> dict[str, str]:
        return {name: entry.value for name, entry in result(admin.describe_configs([resource])).items()}

    resource = ConfigResource(ResourceType.TOPIC, topic)
    change("max.message.bytes", "100", AlterConfigOpType.SET)
    change("cleanup.policy", "compact", AlterConfigOpType.APPEND)
    assert described()["max.message.bytes"] == "100"
    assert set(described()["cleanup.policy"].split(",")) == {"delete", "compact"}
    change("max.message.bytes", None, AlterConfigOpType.DELETE)
    change("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)
    assert described()["max.message.bytes"] == "1048588"
    assert described()["cleanup.policy"] == "compact"


def test_a_changed_config_takes_effect_immediately(broker: RunningBroker, admin: AdminClient, topic: str) -> None:
    entry = ConfigEntry("max.message.bytes", "100", incremental_operation=AlterConfigOpType.SET)
    result(admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])]))
    with Confluent().producer(broker.bootstrap_servers) as producer:
        with pytest.raises(Exception) as caught:
            producer.send(topic, [Record(b"k", b"v" * 100)])
        assert Confluent().error_code(caught.value) == KafkaError.MSG_SIZE_TOO_LARGE
        assert producer.send(topic, [Record(b"k", b"v")]) == [0]
