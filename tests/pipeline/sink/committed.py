"""What a topic holds as a second client reads it, confluent-kafka, whose code is none of ours."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.confluent import TO_THE_END

PATIENCE_S: Final = 30


class Read(NamedTuple):
    """A record as it was read; `headers` None where there are none."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: list[tuple[str, bytes | None]] | None


def create_topic(servers: str, topic: str, partitions: int = 1, **config: str) -> None:
    """Make a topic; settings have `_` for `.`."""
    settings = {name.replace("_", "."): value for name, value in config.items()}
    admin = AdminClient({"bootstrap.servers": servers})  # which must outlive its answers
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(PATIENCE_S)


def read(servers: str, topic: str, isolation: str = "read_committed") -> list[Read]:
    """All records of a topic up to where a reader of this isolation gets now, by partition and offset."""
    settings: dict[str, Any] = {
        "bootstrap.servers": servers,
        "group.id": "reader",
        "isolation.level": isolation,
        **TO_THE_END,
        "enable.auto.commit": False,
    }
    consumer = confluent_kafka.Consumer(settings)
    try:
        partitions = consumer.list_topics(topic, PATIENCE_S).topics[topic].partitions
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in partitions])
        return sorted(_until_the_ends(consumer, len(partitions)))
    finally:
        consumer.close()


def values(servers: str, topic: str, isolation: str = "read_committed") -> list[bytes | None]:
    """The values of all records, in the order of `read`."""
    return [record.value for record in read(servers, topic, isolation)]


def _until_the_ends(consumer: confluent_kafka.Consumer, partitions: int) -> list[Read]:
    found, ended = [], set()
    while len(ended) < partitions:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, f"no record and no end of a partition within {PATIENCE_S} s"
        error = message.error()
        if error is not None:
            assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
            ended.add(message.partition())
            continue
        fields = (message.key(), message.value(), message.timestamp()[1], message.headers())
        found.append(Read(message.partition() or 0, message.offset() or 0, *fields))  # type: ignore[arg-type]
    return found
