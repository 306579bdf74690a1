"""Offsets that groups without members commit, told and changed by each client library, also after a kill."""

from __future__ import annotations

import asyncio
from pathlib import Path

import kafka
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from kafka.admin import KafkaAdminClient
from kafka.errors import NoError
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as PythonPartition

from tests.clients.confluent import Confluent
from tests.clients.interface import PATIENCE_S
from tests.clients.ports import free_ports
from tests.running import RunningBroker, running_broker

# What kafka-python commits with for these: OffsetCommit 0, 1, 2, 3, 5, 6, 7 and 8.
KAFKAS = [(0, 8, 1), (0, 8, 2), (0, 9), (0, 11), (2, 0), (2, 1), (2, 3), (4, 0)]


@pytest.mark.parametrize("version", KAFKAS, ids=lambda version: ".".join(map(str, version)))
def test_a_client_of_any_kafka_version_commits_and_fetches_offsets(
    broker: RunningBroker, topic: str, version: tuple[int, ...], complaints: list[str]
) -> None:
    complaints.append("have you committed any offsets yet")  # of version 0, whose answer there is an error
    place = PythonPartition(topic, 0)
    for expected in (None, 7, 9):
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id=f"group-of-{topic}",
            enable_auto_commit=False,
            api_version=version,
        )
        try:
            consumer.assign([place])
            assert consumer.committed(place) == expected
            consumer.commit({place: OffsetAndMetadata(7 if expected is None else 9, "", -1)})
        finally:
            consumer.close()


def test_kafka_python_lists_changes_and_deletes_offsets_of_groups(broker: RunningBroker, topic: str) -> None:
    place, groups = PythonPartition(topic, 0), [f"{topic}-{number}" for number in range(2)]
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    try:
        for number, group in enumerate(groups):
            offset = OffsetAndMetadata(5 + number, "note", 0)
            assert admin.alter_group_offsets(group, {place: offset}) == {place: NoError}
        told = admin.list_group_offsets(groups)
        assert {group: offsets[place] for group, offsets in told.items()} == {
            groups[0]: OffsetAndMetadata(5, "note", 0),
            groups[1]: OffsetAndMetadata(6, "note", 0),
        }
        assert admin.delete_group_offsets(groups[0], [place]) == {place: NoError}
        assert admin.list_group_offsets({groups[0]: None}) == {groups[0]: {}}
    finally:
        admin.close()


async def aiokafka_commits(servers: str, group: str, topic: str) -> None:
    consumer = AIOKafkaConsumer(bootstrap_servers=servers, group_id=group, enable_auto_commit=False)
    await consumer.start()
    try:
        place = AioPartition(topic, 0)
        consumer.assign([place])
        assert await consumer.committed(place) is None
        await consumer.commit({place: (7, "note")})
        assert await consumer.committed(place) == 7
    finally:
        await consumer.stop()


async def aiokafka_tells(servers: str, group: str) -> dict[int, tuple[int, str]]:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        found = await admin.list_consumer_group_offsets(group)
        return {place.partition: (each.offset, each.metadata) for place, each in found.items()}
    finally:
        await admin.close()


def test_aiokafka_commits_and_reads_offsets(broker: RunningBroker, topic: str) -> None:
    group = f"group-of-{topic}"
    with asyncio.Runner() as runner:
        runner.run(asyncio.wait_for(aiokafka_commits(broker.bootstrap_servers, group, topic), PATIENCE_S))
        told = runner.run(asyncio.wait_for(aiokafka_tells(broker.bootstrap_servers, group), PATIENCE_S))
    assert told == {0: (7, "note")}


def told_by_confluent(servers: str, group: str) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    answers = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    found = answers[group].result(PATIENCE_S).topic_partitions
    return {each.partition: each.offset for each in found if each.error is None}


def test_confluent_kafka_lists_and_changes_offsets_of_groups(broker: RunningBroker, topic: str) -> None:
    group = f"group-of-{topic}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    wanted = [ConfluentPartition(topic, 0, 5), ConfluentPartition(topic, 9, 5)]
    answers = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)])
    changed = answers[group].result(PATIENCE_S).topic_partitions
    assert [each.error and each.error.name() for each in changed] == [None, "UNKNOWN_TOPIC_OR_PART"]
    assert told_by_confluent(broker.bootstrap_servers, group) == {0: 5}


def test_committed_offsets_survive_a_kill(tmp_path: Path, complaints: list[str]) -> None:
    complaints += ["Disconnected", "Connect to", "brokers are down", "Connection refused"]
    with running_broker(tmp_path, f"listeners=PLAINTEXT://127.0.0.1:{free_ports()}") as broker:
        servers = broker.bootstrap_servers
        with Confluent().admin(servers) as admin:
            admin.create_topic("t", 1, {})
        consumer = Consumer(
            {"bootstrap.servers": servers, "group.id": "g", "enable.auto.commit": False, "log_level": 0}
        )
        try:
            for offset in (5, 3, 8):
                consumer.commit(offsets=[ConfluentPartition("t", 0, offset)], asynchronous=False)
                broker.kill()
                broker.start()
                assert told_by_confluent(servers, "g") == {0: offset}
        finally:
            consumer.close()
