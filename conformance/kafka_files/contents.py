"""Everything that clients can see of topics, through librdkafka: what two brokers on one directory must agree on.

Which broker is asked, and when, is the tests' business.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, OffsetSpec, ResourceType

PATIENCE_S = 60


class Record(NamedTuple):
    """A record as a consumer gets it. `timestamp` is (type, ms): 1 is the producer's time, 2 the log's."""

    offset: int
    leader_epoch: int
    timestamp: tuple[int, int]
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Partition(NamedTuple):
    """`records` are all of them; `committed` are the offsets that a reader of committed transactions sees."""

    start_offset: int
    end_offset: int
    records: tuple[Record, ...]
    committed: tuple[int, ...]


class Topic(NamedTuple):
    """`configs` are those of the topic itself."""

    topic_id: str
    configs: dict[str, str]
    partitions: tuple[Partition, ...]


def client(bootstrap_servers: str, **settings: str | int | bool) -> dict[str, Any]:
    """The settings of a client that does not tell of the brokers which the tests end."""
    return {"bootstrap.servers": bootstrap_servers, "log_level": 0, **settings}


def contents(bootstrap_servers: str) -> dict[str, Topic]:
    """All topics by name."""
    admin = AdminClient(client(bootstrap_servers))
    names = sorted(admin.list_topics(timeout=PATIENCE_S).topics)
    if not names:
        return {}
    described = admin.describe_topics(TopicCollection(names), request_timeout=PATIENCE_S)
    counts = {name: len(future.result().partitions) for name, future in described.items()}
    offsets = _offsets(admin, counts)
    configs = _configs(admin, names)
    records = {level: _records(bootstrap_servers, offsets, level) for level in ("read_uncommitted", "read_committed")}
    return {
        name: Topic(
            str(described[name].result().topic_id),
            configs[name],
            tuple(
                Partition(
                    *offsets[name, index],
                    tuple(records["read_uncommitted"][name, index]),
                    tuple(record.offset for record in records["read_committed"][name, index]),
                )
                for index in range(counts[name])
            ),
        )
        for name in names
    }


Offsets = Mapping[tuple[str, int], tuple[int, int]]


def _offsets(admin: AdminClient, counts: Mapping[str, int]) -> Offsets:
    """Where each (topic, partition) begins and ends."""
    partitions = [TopicPartition(name, index) for name, count in counts.items() for index in range(count)]
    start, end = (_listed(admin, partitions, spec) for spec in (OffsetSpec.earliest(), OffsetSpec.latest()))
    return {key: (start[key], end[key]) for key in start}


def _listed(admin: AdminClient, partitions: list[TopicPartition], spec: OffsetSpec) -> dict[tuple[str, int], int]:
    """An offset of each partition, once all have their leaders: Kafka elects them after its first answers."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        futures = admin.list_offsets({partition: spec for partition in partitions}, request_timeout=PATIENCE_S)
        try:
            return {(key.topic, key.partition): future.result().offset for key, future in futures.items()}
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _configs(admin: AdminClient, names: Iterable[str]) -> dict[str, dict[str, str]]:
    futures = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in names])
    return {
        resource.name: {
            entry.name: entry.value
            for entry in future.result().values()
            if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        }
        for resource, future in futures.items()
    }


def _records(bootstrap_servers: str, offsets: Offsets, isolation: str) -> dict[tuple[str, int], list[Record]]:
    settings = {"group.id": "unused", "enable.auto.commit": False, "enable.partition.eof": True, "check.crcs": True}
    settings["fetch.wait.max.ms"] = 10  # the end is seen when a fetch brings nothing
    consumer = Consumer(client(bootstrap_servers, **settings, **{"isolation.level": isolation}))
    found: dict[tuple[str, int], list[Record]] = {key: [] for key in offsets}
    consumer.assign([TopicPartition(topic, index, start) for (topic, index), (start, _) in offsets.items()])
    unread = set(offsets)
    while unread:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, f"nothing comes of {sorted(unread)}"
        key = message.topic(), message.partition()
        error = message.error()
        if error is None:
            found[key].append(_record(message))
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            unread.discard(key)
    consumer.close()
    return found


def _record(message: Message) -> Record:
    headers: list[tuple[str, Any]] = message.headers() or []
    epoch = -1 if message.leader_epoch() is None else message.leader_epoch()
    return Record(message.offset(), epoch, message.timestamp(), message.key(), message.value(), tuple(headers))
