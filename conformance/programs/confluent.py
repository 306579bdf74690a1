"""librdkafka through confluent-kafka: writes or reads the records of a specification, as every program here does.

    python3 -m conformance.programs.confluent write|read BOOTSTRAP [PREFIX SPEC]...

The specification's format is in `spec.py`; who calls this with what is in `clients.py`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_CREATE_TIME,
    Consumer,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from conformance.spec import CODECS, PARTITIONS, Headers, Record, read_file, shown

PATIENCE_S = 60
# The last topic is written with acks=1 and without idempotence, the others with both.
TOPICS = {**{codec: codec for codec in CODECS}, "plain": "none"}


def create_topics(bootstrap: str, prefix: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(f"{prefix}-{name}", PARTITIONS, 1, config={"retention.ms": "-1"}) for name in TOPICS]
    for created in admin.create_topics(topics).values():
        created.result(PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    while not have_leaders(admin, [each.topic for each in topics]) and time.monotonic() < deadline:
        time.sleep(0.05)


def have_leaders(admin: AdminClient, topics: list[str]) -> bool:
    """Kafka's brokers learn of a topic after its controller has answered."""
    places = [TopicPartition(topic, partition) for topic in topics for partition in range(PARTITIONS)]
    asked = admin.list_offsets({place: OffsetSpec.latest() for place in places})
    return all(answer.exception(PATIENCE_S) is None for answer in asked.values())


def write(bootstrap: str, topic: str, codec: str, records: list[Record], *, idempotent: bool) -> None:
    """Raises KafkaException for the first record that was not acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "message.max.bytes": 1_048_588,
            "enable.idempotence": idempotent,
            "acks": -1 if idempotent else 1,
            "linger.ms": 20,
        }
    )
    refused = []
    for record in records:
        producer.produce(
            topic,
            record.value,
            record.key,
            record.partition,
            timestamp=record.timestamp or 0,
            headers=list(record.headers),
            on_delivery=lambda error, _: refused.append(error) if error else None,
        )
    left = producer.flush(PATIENCE_S)
    if left or refused:
        raise SystemExit(f"{topic}: {left} records not acknowledged, refused: {refused[:3]}")


def headers_of(message: Message) -> Headers:
    """The client's types allow more than it ever returns."""
    return tuple(cast("list[tuple[str, bytes | None]]", message.headers() or []))


class Reader:
    """Reads all topics at once and notes in words what differs."""

    def __init__(self, bootstrap: str, topics: list[str], records: list[Record]) -> None:
        self._bootstrap = bootstrap
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
        self._expected = {
            (topic, partition): [record for record in records if record.partition == partition]
            for topic in topics
            for partition in range(PARTITIONS)
        }
        self._seen = dict.fromkeys(self._expected, 0)
        self.differences: list[str] = []

    def read(self) -> None:
        """Reads from the first offset to where each partition should end, and asks whether it ends there."""
        self._consumer.assign([TopicPartition(*each, OFFSET_BEGINNING) for each in self._expected])
        missing = sum(map(len, self._expected.values()))
        while missing:
            message = self._consumer.poll(PATIENCE_S)
            if message is None:
                self.differences.append(f"{missing} records did not come, after {self._seen}")
                return
            if message.error():
                raise KafkaException(message.error())
            self._compare(message)
            missing -= 1
        self._consumer.close()
        self._compare_ends()

    def _compare_ends(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        asked = admin.list_offsets({TopicPartition(*each): OffsetSpec.latest() for each in self._expected})
        for end, answer in asked.items():
            records = self._expected[end.topic, end.partition]
            if answer.result(PATIENCE_S).offset != len(records):
                self.differences.append(f"{end}: ends at {answer.result().offset}, expected {len(records)}")

    def _compare(self, message: Message) -> None:
        topic, partition = message.topic(), message.partition()
        assert topic is not None and partition is not None
        where = topic, partition
        place = self._seen[where]
        self._seen[where] += 1
        if message.offset() != place or place >= len(self._expected[where]):
            self.differences.append(f"{where}: offset {message.offset()}, {place} was expected")
            return
        expected = self._expected[where][place]
        kind, timestamp = message.timestamp()
        got = Record(
            partition,
            expected.timestamp if expected.timestamp is None else timestamp,
            message.key(),
            message.value(),
            headers_of(message),
        )
        if got != expected or kind != TIMESTAMP_CREATE_TIME:
            self.differences.append(
                f"{where} offset {place}: expected {shown(expected)}, got {shown(got)}, timestamp type {kind}"
            )


def main(action: str, bootstrap: str, *rest: str) -> int:
    return max(
        write_or_read(action, bootstrap, prefix, spec) for prefix, spec in zip(rest[::2], rest[1::2], strict=True)
    )


def write_or_read(action: str, bootstrap: str, prefix: str, spec: str) -> int:
    """Write or read the topics of a prefix; return the status to exit with."""
    records = read_file(Path(spec))
    if action == "write":
        create_topics(bootstrap, prefix)
        for name, codec in TOPICS.items():
            write(bootstrap, f"{prefix}-{name}", codec, records, idempotent=name != "plain")
        print(f"confluent-kafka: wrote {len(records)} records to each of {len(TOPICS)} topics")
        return 0
    reader = Reader(bootstrap, [f"{prefix}-{name}" for name in TOPICS], records)
    reader.read()
    summary = f"confluent-kafka: read {len(records)} records from each of {len(TOPICS)} topics"
    print("\n".join(reader.differences[:5]) or summary)
    return 1 if reader.differences else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
