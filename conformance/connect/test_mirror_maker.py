"""MirrorMaker copies topics between Apache Kafka and our broker, both ways at once, and is killed meanwhile.

Each copy has the source's records, each once and in order, its configs, and the offsets of its groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from conformance.conftest import Broker
from conformance.connect.processes import MIRROR_MAKER, JavaProcess, running
from conformance.connect.reading import records
from conformance.kafka_files.contents import client
from conformance.kafka_files.scenario import done
from conformance.kafka_reference import running_kafka
from conformance.spec import CODECS

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(600)]
PARTITIONS = 3
COUNT = 3000  # of the records that are written at a time
FIRST_TIMESTAMP_MS = 1_700_000_000_000
CONFIGS = {"min.cleanable.dirty.ratio": "0.25", "retention.ms": "-1", "max.message.bytes": "2000000"}
INTERNAL = ("checkpoints", "heartbeats", "offset-syncs", "status.storage", "offset.storage", "config.storage")
ONCE_A_SECOND = ("emit.checkpoints", "sync.group.offsets", "refresh.topics", "refresh.groups", "sync.topic.configs")
PROPERTIES = {
    "clusters": "kafka,other",
    "kafka->other.enabled": "true",
    "other->kafka.enabled": "true",
    "topics": "orders",
    "groups": "readers",
    "sync.group.offsets.enabled": "true",
    "sync.topic.acls.enabled": "false",
    "offset.lag.max": "0",
    "replication.factor": "1",
    "kafka.exactly.once.source.support": "enabled",
    "other.exactly.once.source.support": "enabled",
    "dedicated.mode.enable.internal.rest": "true",  # without which a worker does not write exactly once
    "listeners": "http://127.0.0.1:0",
    **{f"{name}.replication.factor": "1" for name in INTERNAL},
    **{f"{name}.topic.replication.factor": "1" for name in INTERNAL[:3]},
    **{f"{name}.interval.seconds": "1" for name in ONCE_A_SECOND},
}


@contextmanager
def mirrored(directory: Path, kafka: Broker, other: Broker) -> Iterator[JavaProcess]:
    """A MirrorMaker between two clusters."""
    addresses = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "other.bootstrap.servers": other.bootstrap_servers,
    }
    process = JavaProcess(directory, MIRROR_MAKER, {**PROPERTIES, **addresses})
    with running(process):
        yield process


def create(broker: Broker) -> None:
    """Create the topic that is copied."""
    admin = AdminClient(client(broker.bootstrap_servers))
    done(admin.create_topics([NewTopic("orders", PARTITIONS, 1, config=CONFIGS)]))


def write(broker: Broker, first: int) -> None:
    """Write records of each codec: some without a key or a value, all with a timestamp, some with headers."""
    for codec in CODECS:
        producer = Producer(client(broker.bootstrap_servers, **{"compression.type": codec, "enable.idempotence": True}))
        for number in range(first, first + COUNT // len(CODECS)):
            producer.produce(
                "orders",
                None if number % 7 == 0 else f"{codec}-{number}".encode(),
                f"key-{number}".encode(),
                number % PARTITIONS,
                timestamp=FIRST_TIMESTAMP_MS + number,
                headers=[("h", b"\x00\xff"), ("null", None)] if number % 5 == 0 else [],
            )
        assert producer.flush() == 0


def commit(broker: Broker) -> None:
    """Commit the group's offsets: at the end of one partition, within another, and none of the third."""
    consumer = Consumer(client(broker.bootstrap_servers, **{"group.id": "readers"}))
    end = consumer.get_watermark_offsets(TopicPartition("orders", 0))[1]
    consumer.commit(offsets=[TopicPartition("orders", 0, end), TopicPartition("orders", 1, 100)], asynchronous=False)
    consumer.close()


def committed(broker: Broker, topic: str) -> list[int]:
    """Return the group's offsets, below 0 where there is none."""
    consumer = Consumer(client(broker.bootstrap_servers, **{"group.id": "readers"}))
    found = consumer.committed([TopicPartition(topic, partition) for partition in range(PARTITIONS)])
    consumer.close()
    return [one.offset for one in found]


def left(broker: Broker, topic: str) -> list[int]:
    """Return how many records the group has not read."""
    return list(map(len, records(broker.bootstrap_servers, topic, committed(broker, topic))))


def configs(broker: Broker, topic: str) -> dict[str, str]:
    """Return those configs of a topic that the source has."""
    admin = AdminClient(client(broker.bootstrap_servers))
    (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return {name: entry.value for name, entry in future.result().items() if name in CONFIGS}


def test_topics_are_mirrored_both_ways_with_configs_and_group_offsets(
    start_broker: Callable[[Path], AbstractContextManager[Broker]], tmp_path: Path
) -> None:
    with (
        running_kafka(tmp_path / "kafka", {"num.partitions": "1"}) as kafka,
        start_broker(tmp_path) as other,
    ):
        ways = ((kafka, other, "kafka.orders"), (other, kafka, "other.orders"))
        for source in (kafka, other):
            create(source)
            write(source, 0)
        with mirrored(tmp_path / "mirror", kafka, other) as process:

            def count(broker: Broker, topic: str) -> int:
                return sum(map(len, records(broker.bootstrap_servers, topic)))

            def have_begun() -> bool:
                return all(count(target, topic) for _, target, topic in ways)

            def are_copied() -> bool:
                return all(count(target, topic) >= count(source, "orders") for source, target, topic in ways)

            def have_offsets() -> bool:
                return all(committed(target, topic)[0] > 0 for _, target, topic in ways)

            process.await_true(have_begun)
            for source in (kafka, other):
                write(source, COUNT)
            process.kill()
            process.start()
            for source in (kafka, other):
                write(source, 2 * COUNT)
            process.await_true(are_copied)
            for source in (kafka, other):
                commit(source)
            process.await_true(have_offsets)
        for source, target, topic in ways:
            assert records(target.bootstrap_servers, topic) == records(source.bootstrap_servers, "orders")
            assert configs(target, topic) == CONFIGS
            at_end, within, unread = left(target, topic)
            assert (at_end, unread) == (0, len(records(source.bootstrap_servers, "orders")[2]))
            assert within >= left(source, "orders")[1]  # MirrorMaker knows where only some offsets are in a copy
