"""aiokafka: asyncio, with its own protocol code in C. Each object has an event loop that runs while it is used."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, for_code

from tests.clients.interface import PATIENCE_S, Read, Record


class AioProducer:
    def __init__(self, runner: asyncio.Runner, producer: AIOKafkaProducer) -> None:
        self._runner = runner
        self._producer = producer

    def send(self, topic: str, records: Sequence[Record], partition: int = 0) -> list[int]:
        return self._runner.run(asyncio.wait_for(self._send(topic, records, partition), PATIENCE_S))

    async def _send(self, topic: str, records: Sequence[Record], partition: int) -> list[int]:
        futures = [
            await self._producer.send(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=partition,
                timestamp_ms=record.timestamp_ms,
            )
            for record in records
        ]
        answers = [await future for future in futures]
        return [-1 if answer is None else answer.offset for answer in answers]  # None: with acks 0 nothing is known


class AioConsumer:
    def __init__(self, runner: asyncio.Runner, consumer: AIOKafkaConsumer, topic: str) -> None:
        self._runner = runner
        self._consumer = consumer
        self._topic = topic

    def read(self, count: int) -> list[Read]:
        return self._runner.run(asyncio.wait_for(self._read(count), PATIENCE_S))

    async def _read(self, count: int) -> list[Read]:
        messages = [await self._consumer.getone() for _ in range(count)]
        return [Read(message.partition, message.offset, _record(message)) for message in messages]

    def seek(self, offset: int, partition: int = 0) -> None:
        self._consumer.seek(TopicPartition(self._topic, partition), offset)

    def offsets(self, partition: int = 0) -> tuple[int, int]:
        asked = TopicPartition(self._topic, partition)
        first = self._runner.run(self._consumer.beginning_offsets([asked]))
        end = self._runner.run(self._consumer.end_offsets([asked]))
        return first[asked], end[asked]

    def offset_at(self, timestamp_ms: int, partition: int = 0) -> int | None:
        asked = TopicPartition(self._topic, partition)
        found = self._runner.run(self._consumer.offsets_for_times({asked: timestamp_ms}))[asked]
        return None if found is None else found.offset


class AioAdmin:
    def __init__(self, runner: asyncio.Runner, admin: AIOKafkaAdminClient) -> None:
        self._runner = runner
        self._admin = admin

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        topic = NewTopic(name, partitions, 1, topic_configs=dict(configs))
        self._check(self._runner.run(self._admin.create_topics([topic])).topic_errors)

    def delete_topic(self, name: str) -> None:
        self._check(self._runner.run(self._admin.delete_topics([name])).topic_error_codes)

    def add_partitions(self, name: str, total: int) -> None:
        self._check(self._runner.run(self._admin.create_partitions({name: NewPartitions(total)})).topic_errors)

    def topics(self) -> list[str]:
        return list(self._runner.run(self._admin.list_topics()))

    def config(self, topic: str) -> Mapping[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (response,) = self._runner.run(self._admin.describe_configs([resource]))
        ((*_, entries),) = response.resources
        return {name: value for name, value, *_ in entries}

    def _check(self, errors: Any) -> None:
        """It hands back codes where the others raise."""
        for _, code, *_ in errors:
            if code:
                raise for_code(code)


class Aio:
    name = "aiokafka"

    def can_write(self, record: Record) -> bool:
        return record.key is not None or record.value is not None

    @contextmanager
    def producer(
        self,
        servers: str,
        *,
        codec: str = "none",
        acks: int | str = "all",
        idempotent: bool = False,
        limit_bytes: int = 1_000_000,
    ) -> Iterator[AioProducer]:
        async def start() -> AIOKafkaProducer:
            producer = AIOKafkaProducer(
                bootstrap_servers=servers,
                compression_type=None if codec == "none" else codec,
                acks=acks,
                enable_idempotence=idempotent,
                max_request_size=limit_bytes,
                max_batch_size=500_000,
            )
            await producer.start()
            return producer

        with asyncio.Runner() as runner:
            producer = runner.run(start())
            try:
                yield AioProducer(runner, producer)
            finally:
                runner.run(producer.stop())

    @contextmanager
    def consumer(
        self,
        servers: str,
        topic: str,
        partitions: Sequence[int] = (0,),
        *,
        offset: int | None = None,
        wait_ms: int = 500,
    ) -> Iterator[AioConsumer]:
        assigned = [TopicPartition(topic, partition) for partition in partitions]

        async def start() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=servers,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                fetch_max_wait_ms=wait_ms,
                request_timeout_ms=wait_ms + 1000 * PATIENCE_S,
            )
            await consumer.start()
            consumer.assign(assigned)
            for partition in assigned if offset is not None else ():
                consumer.seek(partition, offset)
            return consumer

        with asyncio.Runner() as runner:
            consumer = runner.run(start())
            try:
                yield AioConsumer(runner, consumer, topic)
            finally:
                runner.run(consumer.stop())

    @contextmanager
    def admin(self, servers: str) -> Iterator[AioAdmin]:
        async def start() -> AIOKafkaAdminClient:
            admin = AIOKafkaAdminClient(bootstrap_servers=servers)
            await admin.start()
            return admin

        with asyncio.Runner() as runner:
            admin = runner.run(start())
            try:
                yield AioAdmin(runner, admin)
            finally:
                runner.run(admin.close())

    def error_code(self, error: Exception) -> int:
        assert isinstance(error, KafkaError)
        code: int = error.errno
        return code


def _record(message: Any) -> Record:
    return Record(message.key, message.value, tuple(message.headers), message.timestamp)
