"""kafka-python: written in Python alone, with fetch sessions, and able to speak as it did to older Kafkas."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from kafka.errors import BrokerResponseError

from tests.clients.interface import PATIENCE_S, Read, Record


class KafkaPythonProducer:
    def __init__(self, producer: KafkaProducer) -> None:
        self._producer = producer

    def send(self, topic: str, records: Sequence[Record], partition: int = 0) -> list[int]:
        futures = [
            self._producer.send(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=partition,
                timestamp_ms=record.timestamp_ms,
            )
            for record in records
        ]
        self._producer.flush(PATIENCE_S)
        return [future.get(PATIENCE_S).offset for future in futures]


class KafkaPythonConsumer:
    def __init__(self, consumer: KafkaConsumer, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic

    def read(self, count: int) -> list[Read]:
        found: list[Read] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < count:
            assert time.monotonic() < deadline, f"only {len(found)} of {count} records came"
            for messages in self._consumer.poll(1000, max_records=count - len(found)).values():
                found += [Read(message.partition, message.offset, _record(message)) for message in messages]
        return found

    def seek(self, offset: int, partition: int = 0) -> None:
        self._consumer.seek(TopicPartition(self._topic, partition), offset)

    def offsets(self, partition: int = 0) -> tuple[int, int]:
        asked = TopicPartition(self._topic, partition)
        return self._consumer.beginning_offsets([asked])[asked], self._consumer.end_offsets([asked])[asked]

    def offset_at(self, timestamp_ms: int, partition: int = 0) -> int | None:
        asked = TopicPartition(self._topic, partition)
        found = self._consumer.offsets_for_times({asked: timestamp_ms})[asked]
        return None if found is None else found.offset


class KafkaPythonAdmin:
    def __init__(self, admin: KafkaAdminClient) -> None:
        self._admin = admin

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        self._admin.create_topics([NewTopic(name, partitions, 1, topic_configs=dict(configs))])

    def delete_topic(self, name: str) -> None:
        self._admin.delete_topics([name])

    def add_partitions(self, name: str, total: int) -> None:
        self._admin.create_partitions({name: NewPartitions(total)})

    def topics(self) -> list[str]:
        return list(self._admin.list_topics())

    def config(self, topic: str) -> Mapping[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        described = self._admin.describe_configs([resource], config_filter="all")["topic"][topic]
        return {name: entry["value"] for name, entry in described.items()}


class KafkaPython:
    """`api_version` has it speak as it did to a Kafka of that version; else it asks the broker."""

    def __init__(self, api_version: tuple[int, int] | None = None) -> None:
        self._api_version = api_version
        self.name = "kafka-python"

    def can_write(self, record: Record) -> bool:
        return (record.key is not None or record.value is not None) and all(
            value is not None for _, value in record.headers
        )

    @contextmanager
    def producer(
        self,
        servers: str,
        *,
        codec: str = "none",
        acks: int | str = "all",
        idempotent: bool = False,
        limit_bytes: int = 1_000_000,
    ) -> Iterator[KafkaPythonProducer]:
        producer = KafkaProducer(
            bootstrap_servers=servers,
            api_version=self._api_version,
            compression_type=None if codec == "none" else codec,
            acks=acks,
            enable_idempotence=idempotent,
            max_request_size=limit_bytes,
            linger_ms=1000,  # flush ends the wait: what is sent together goes in one batch
            batch_size=500_000,
        )
        try:
            yield KafkaPythonProducer(producer)
        finally:
            producer.close()

    @contextmanager
    def consumer(
        self,
        servers: str,
        topic: str,
        partitions: Sequence[int] = (0,),
        *,
        offset: int | None = None,
        wait_ms: int = 500,
    ) -> Iterator[KafkaPythonConsumer]:
        consumer = KafkaConsumer(
            bootstrap_servers=servers,
            api_version=self._api_version,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",  # as librdkafka by default; aiokafka reads uncommitted
            fetch_max_wait_ms=wait_ms,
            request_timeout_ms=wait_ms + 1000 * PATIENCE_S,
        )
        try:
            assigned = [TopicPartition(topic, partition) for partition in partitions]
            consumer.assign(assigned)
            for partition in assigned if offset is not None else ():
                consumer.seek(partition, offset)
            yield KafkaPythonConsumer(consumer, topic)
        finally:
            consumer.close()

    @contextmanager
    def admin(self, servers: str) -> Iterator[KafkaPythonAdmin]:
        admin = KafkaAdminClient(bootstrap_servers=servers, api_version=self._api_version)
        try:
            yield KafkaPythonAdmin(admin)
        finally:
            admin.close()

    def error_code(self, error: Exception) -> int:
        assert isinstance(error, BrokerResponseError)
        code: int = error.errno
        return code


def _record(message: Any) -> Record:
    return Record(message.key, message.value, tuple(message.headers), message.timestamp)
