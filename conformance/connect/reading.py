"""What is in a topic, as a reader of committed transactions sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from conformance.kafka_files.contents import client

PATIENCE_S = 60


class Record(NamedTuple):
    """A record without its offset: markers of transactions lie between those of a copy."""

    timestamp: tuple[int, int]
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def values(bootstrap_servers: str, topic: str) -> list[str]:
    """Return the values in the first partition of a topic, or nothing if there is no such topic."""
    return [
        (record.value or b"").decode() for partition in records(bootstrap_servers, topic)[:1] for record in partition
    ]


def end_offset(bootstrap_servers: str, topic: str) -> int:
    """Return where the first partition ends, or 0 if there is no such topic."""
    consumer = Consumer(client(bootstrap_servers, **{"group.id": "unused"}))
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_S)[1]
    except KafkaException:
        return 0
    finally:
        consumer.close()


def records(bootstrap_servers: str, topic: str, starts: Sequence[int] = ()) -> list[list[Record]]:
    """Return the committed records by partition, or nothing if there is no such topic.

    `starts` are the first offsets, of all partitions if it is given; below 0 it is the partition's first.
    """
    settings = {"group.id": "unused", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer(client(bootstrap_servers, **settings, **{"fetch.wait.max.ms": 10}))
    metadata = consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic]
    found: list[list[Record]] = [[] for _ in metadata.partitions]
    first = [max(start, 0) for start in starts] or [0] * len(found)
    consumer.assign([TopicPartition(topic, index, first[index]) for index in metadata.partitions])
    unread = set(metadata.partitions)
    while unread:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, f"nothing comes of {topic}, {sorted(unread)}"
        error, partition = message.error(), message.partition()
        assert partition is not None
        if error is None:
            found[partition].append(_record(message))
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            unread.discard(partition)
    consumer.close()
    return found


def _record(message: Message) -> Record:
    return Record(message.timestamp(), message.key(), message.value(), tuple(message.headers() or []))
