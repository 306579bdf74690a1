"""Transactional producers of each library, told the same: to write, to take offsets along, to commit or to abort.

What must be seen of it is in `test_transactions.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import confluent_kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.structs import OffsetAndMetadata as AioOffset
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata, TopicPartition

from tests.clients.confluent import LOG, TO_THE_END
from tests.clients.interface import PATIENCE_S

TIMEOUT_MS = 60_000


class Producer(Protocol):
    """A producer with a transactional id that has introduced itself."""

    def transaction(self, topic: str, values: Sequence[bytes], *, commit: bool, partition: int = 0) -> None:
        """One transaction with these records. Raises the library's own error."""

    def copy(self, group: str, source: str, offset: int, target: str, value: bytes) -> None:
        """One transaction with a record, and the offset that the group is to go on with in partition 0 of `source`."""


class ConfluentTransactions:
    """librdkafka's."""

    def __init__(self, servers: str, transactional_id: str) -> None:
        self._servers = servers
        config = {"bootstrap.servers": servers, "transactional.id": transactional_id, "retry.backoff.ms": 10}
        self._producer = confluent_kafka.Producer(config, logger=LOG)
        self._producer.init_transactions(PATIENCE_S)

    def transaction(self, topic: str, values: Sequence[bytes], *, commit: bool, partition: int = 0) -> None:
        self._producer.begin_transaction()
        for value in values:
            self._producer.produce(topic, value, partition=partition)
        self._producer.flush(PATIENCE_S)
        if commit:
            self._producer.commit_transaction(PATIENCE_S)
        else:
            self._producer.abort_transaction(PATIENCE_S)

    def copy(self, group: str, source: str, offset: int, target: str, value: bytes) -> None:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self._servers, "group.id": group}, logger=LOG)
        self._producer.begin_transaction()
        self._producer.produce(target, value, partition=0)
        offsets = [confluent_kafka.TopicPartition(source, 0, offset)]
        self._producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), PATIENCE_S)
        self._producer.commit_transaction(PATIENCE_S)
        consumer.close()


class AioTransactions:
    """aiokafka's, with a loop of its own."""

    def __init__(self, servers: str, transactional_id: str, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._producer = runner.run(self._started(servers, transactional_id))

    async def _started(self, servers: str, transactional_id: str) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=transactional_id)
        await producer.start()
        return producer

    def transaction(self, topic: str, values: Sequence[bytes], *, commit: bool, partition: int = 0) -> None:
        self._runner.run(asyncio.wait_for(self._transaction(topic, values, commit, partition), PATIENCE_S))

    async def _transaction(self, topic: str, values: Sequence[bytes], commit: bool, partition: int) -> None:
        await self._producer.begin_transaction()
        for value in values:
            await self._producer.send_and_wait(topic, value, partition=partition)
        if commit:
            await self._producer.commit_transaction()
        else:
            await self._producer.abort_transaction()

    def copy(self, group: str, source: str, offset: int, target: str, value: bytes) -> None:
        async def run() -> None:
            async with self._producer.transaction():
                await self._producer.send_and_wait(target, value, partition=0)
                offsets = {AioPartition(source, 0): AioOffset(offset, "")}
                await self._producer.send_offsets_to_transaction(offsets, group)

        self._runner.run(asyncio.wait_for(run(), PATIENCE_S))

    def close(self) -> None:
        self._runner.run(self._producer.stop())


class KafkaPythonTransactions:
    """kafka-python's."""

    def __init__(self, servers: str, transactional_id: str) -> None:
        self._servers = servers
        self._producer = KafkaProducer(
            bootstrap_servers=servers, transactional_id=transactional_id, acks="all", enable_idempotence=True
        )
        self._producer.init_transactions()

    def transaction(self, topic: str, values: Sequence[bytes], *, commit: bool, partition: int = 0) -> None:
        self._producer.begin_transaction()
        futures = [self._producer.send(topic, value, partition=partition) for value in values]
        for future in futures:
            future.get(PATIENCE_S)
        if commit:
            self._producer.commit_transaction()
        else:
            self._producer.abort_transaction()

    def copy(self, group: str, source: str, offset: int, target: str, value: bytes) -> None:
        self._producer.begin_transaction()
        self._producer.send(target, value, partition=0).get(PATIENCE_S)
        offsets = {TopicPartition(source, 0): OffsetAndMetadata(offset, "", -1)}
        self._producer.send_offsets_to_transaction(offsets, group)
        self._producer.commit_transaction()

    def close(self) -> None:
        self._producer.close()


@contextmanager
def confluent(servers: str, transactional_id: str) -> Iterator[Producer]:
    yield ConfluentTransactions(servers, transactional_id)


@contextmanager
def aio(servers: str, transactional_id: str) -> Iterator[Producer]:
    with asyncio.Runner() as runner:
        producer = AioTransactions(servers, transactional_id, runner)
        try:
            yield producer
        finally:
            producer.close()


@contextmanager
def kafka_python(servers: str, transactional_id: str) -> Iterator[Producer]:
    producer = KafkaPythonTransactions(servers, transactional_id)
    try:
        yield producer
    finally:
        producer.close()


LIBRARIES = {"confluent-kafka": confluent, "aiokafka": aio, "kafka-python": kafka_python}

# --- reading committed records ------------------------------------------------------------------


def read_by_confluent(servers: str, topic: str, *, committed: bool) -> list[bytes]:
    """All values of partition 0 that a reader of this isolation level is shown."""
    level = "read_committed" if committed else "read_uncommitted"
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "none", "isolation.level": level, **TO_THE_END},
        logger=LOG,
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    values = []
    while True:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        if message.error() is not None:
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
            consumer.close()
            return values
        values.append(message.value() or b"")


def read_by_aio(servers: str, topic: str, *, committed: bool) -> list[bytes]:
    """Read as `read_by_confluent` does."""

    async def run() -> list[bytes]:
        level = "read_committed" if committed else "read_uncommitted"
        consumer = AIOKafkaConsumer(bootstrap_servers=servers, isolation_level=level)
        await consumer.start()
        partition = AioPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        values: list[bytes] = []
        try:
            while await consumer.position(partition) < (await consumer.end_offsets([partition]))[partition]:
                found = await consumer.getmany(partition, timeout_ms=500)
                values += [message.value or b"" for message in found.get(partition, ())]
        finally:
            await consumer.stop()
        return values

    return asyncio.run(asyncio.wait_for(run(), PATIENCE_S))


def read_by_kafka_python(servers: str, topic: str, *, committed: bool) -> list[bytes]:
    """Read as `read_by_confluent` does."""
    level = "read_committed" if committed else "read_uncommitted"
    consumer = KafkaConsumer(bootstrap_servers=servers, isolation_level=level, enable_auto_commit=False)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    values: list[bytes] = []
    while consumer.position(partition) < consumer.end_offsets([partition])[partition]:
        values += [message.value or b"" for message in consumer.poll(500).get(partition, ())]
    consumer.close()
    return values


READERS = {"confluent-kafka": read_by_confluent, "aiokafka": read_by_aio, "kafka-python": read_by_kafka_python}
