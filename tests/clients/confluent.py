"""confluent-kafka, which is librdkafka: the client of most languages that are not Java."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

from tests.clients.interface import PATIENCE_S, Read, Record

# Its log lines come here, so that tests can see that there is nothing to complain about.
LOG = logging.getLogger("librdkafka")
# Settings of a consumer that reads to the end: an empty fetch tells of it, which by default waits for half a second.
TO_THE_END = {"enable.partition.eof": True, "fetch.wait.max.ms": 10}


class ConfluentProducer:
    def __init__(self, producer: confluent_kafka.Producer) -> None:
        self._producer = producer

    def send(self, topic: str, records: Sequence[Record], partition: int = 0) -> list[int]:
        outcomes: list[int | confluent_kafka.KafkaError] = []
        for record in records:
            self._producer.produce(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=partition,
                timestamp=record.timestamp_ms,
                on_delivery=lambda error, message: outcomes.append(error or message.offset()),
            )
        assert self._producer.flush(PATIENCE_S) == 0, "not everything was delivered in time"
        failed = next((outcome for outcome in outcomes if isinstance(outcome, confluent_kafka.KafkaError)), None)
        if failed is not None:
            raise confluent_kafka.KafkaException(failed)
        return [outcome for outcome in outcomes if isinstance(outcome, int)]


class ConfluentConsumer:
    def __init__(self, consumer: confluent_kafka.Consumer, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic

    def assign(self, partitions: Sequence[int], offset: int | None) -> None:
        # Not OFFSET_BEGINNING: who asks for that before it knows the leader waits half a second to ask again.
        first = [self.offsets(partition)[0] if offset is None else offset for partition in partitions]
        self._consumer.assign([self._at(*start) for start in zip(first, partitions, strict=True)])

    def read(self, count: int) -> list[Read]:
        found: list[Read] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < count:
            assert time.monotonic() < deadline, f"only {len(found)} of {count} records came"
            for message in self._consumer.consume(count - len(found), timeout=1):
                if message.error():
                    raise confluent_kafka.KafkaException(message.error())
                found.append(Read(message.partition(), message.offset(), _record(message)))
        return found

    def seek(self, offset: int, partition: int = 0) -> None:
        self._consumer.seek(self._at(offset, partition))

    def offsets(self, partition: int = 0) -> tuple[int, int]:
        first, end = self._consumer.get_watermark_offsets(self._at(0, partition), timeout=PATIENCE_S)
        return first, end

    def offset_at(self, timestamp_ms: int, partition: int = 0) -> int | None:
        (found,) = self._consumer.offsets_for_times([self._at(timestamp_ms, partition)], timeout=PATIENCE_S)
        return None if found.offset == confluent_kafka.OFFSET_END else found.offset

    def _at(self, offset: int, partition: int) -> confluent_kafka.TopicPartition:
        return confluent_kafka.TopicPartition(self._topic, partition, offset)


class ConfluentAdmin:
    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(configs))
        self._wait(self._admin.create_topics([topic]))

    def delete_topic(self, name: str) -> None:
        self._wait(self._admin.delete_topics([name]))

    def add_partitions(self, name: str, total: int) -> None:
        self._wait(self._admin.create_partitions([NewPartitions(name, total)]))

    def topics(self) -> list[str]:
        return list(self._admin.list_topics(timeout=PATIENCE_S).topics)

    def config(self, topic: str) -> Mapping[str, str]:
        described = self._wait(self._admin.describe_configs([ConfigResource("topic", topic)]))
        return {name: entry.value for name, entry in described.items()}

    def _wait(self, futures: Mapping[Any, Any]) -> Any:
        (future,) = futures.values()
        return future.result(PATIENCE_S)


class Confluent:
    name = "confluent-kafka"

    def can_write(self, record: Record) -> bool:
        return True

    @contextmanager
    def producer(
        self,
        servers: str,
        *,
        codec: str = "none",
        acks: int | str = "all",
        idempotent: bool = False,
        limit_bytes: int = 1_000_000,
    ) -> Iterator[ConfluentProducer]:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": servers,
                "compression.type": codec,
                "acks": acks,
                "enable.idempotence": idempotent,
                "message.max.bytes": limit_bytes,
            },
            logger=LOG,
        )
        yield ConfluentProducer(producer)
        producer.poll(0)  # brings what it had to log

    @contextmanager
    def consumer(
        self,
        servers: str,
        topic: str,
        partitions: Sequence[int] = (0,),
        *,
        offset: int | None = None,
        wait_ms: int = 500,
    ) -> Iterator[ConfluentConsumer]:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "nobody",  # it insists on a name, and does nothing with it when partitions are assigned
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": wait_ms,
                "socket.timeout.ms": wait_ms + 1000 * PATIENCE_S,
                "check.crcs": True,
            },
            logger=LOG,
        )
        try:
            assigned = ConfluentConsumer(consumer, topic)
            assigned.assign(partitions, offset)
            yield assigned
        finally:
            consumer.close()

    @contextmanager
    def admin(self, servers: str) -> Iterator[ConfluentAdmin]:
        admin = AdminClient({"bootstrap.servers": servers}, logger=LOG)
        yield ConfluentAdmin(admin)
        admin.poll(0)  # brings what it had to log

    def error_code(self, error: Exception) -> int:
        assert isinstance(error, confluent_kafka.KafkaException)
        code: int = error.args[0].code()
        return code


def _record(message: confluent_kafka.Message) -> Record:
    headers = tuple((name, value) for name, value in message.headers() or ())
    return Record(message.key(), message.value(), headers, message.timestamp()[1])
