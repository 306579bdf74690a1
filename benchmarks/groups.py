"""How long the first consumer of a group waits for its first record, and what a commit costs.

The consumers are real clients in this process; commits come from the C client, all for one group without members.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Callable
from importlib.util import find_spec
from statistics import median
from typing import Any

import exchanges
import wire
from programs import Failed, Unavailable
from report import Case, Column, Sample, Section
from servers import Server, Target

GROUPS_PER_SAMPLE = 3
FIRST_RECORD_TARGET_MS = 200
PATIENCE_S = 30
COMMIT_COLUMNS = (
    Column("rate", "requests/s", higher_is_better=True),
    Column("p50_us", "p50, us"),
    Column("p99_us", "p99, us"),
    Column("server_us", "server us each"),
)
FIRST_RECORD_COLUMNS = (Column("first_ms", "first record, ms"),)

FirstRecord = Callable[[str, str, str], float]  # bootstrap, group, topic -> seconds
_group_numbers = itertools.count(1)


def sections(seconds: float) -> list[Section]:
    """Rows of three groups each, and rows of `seconds` each."""
    clients: list[tuple[str, str, FirstRecord]] = [
        ("confluent-kafka", "confluent_kafka", _confluent),
        ("confluent-kafka, group.protocol=consumer", "confluent_kafka", _confluent_next_generation),
        ("kafka-python", "kafka", _kafka_python),
        ("aiokafka", "aiokafka", lambda *where: asyncio.run(_aiokafka(*where))),
    ]
    commits = [(1, 1), (50, 1), (1, 100)]
    return [
        Section(
            "groups",
            "Groups: from subscribe to the first record, one consumer of a new group",
            FIRST_RECORD_COLUMNS,
            [_first_record_case(*client) for client in clients],
        ),
        Section(
            "commits",
            "Commits: OffsetCommit v7, epoll client",
            COMMIT_COLUMNS,
            [_commit_case(connections, partitions, seconds) for connections, partitions in commits],
        ),
    ]


def new_group(server: Server) -> str:
    group = f"benchmark-{os.getpid()}-{next(_group_numbers)}"
    with wire.Client(server) as client:
        client.wait_for_coordinator(group)
    return group


def _first_record_case(name: str, package: str, first_record: FirstRecord) -> Case:
    def measure(target: Target) -> Sample:
        if find_spec(package) is None:
            raise Unavailable(f"{package} is not installed")
        server = target.server
        with wire.topic(server) as topic:
            with wire.Client(server) as client:
                client.produce(topic, wire.batch([b"x"]))
            bootstrap = f"{server.host}:{server.port}"
            taken = [first_record(bootstrap, new_group(server), topic) for _ in range(GROUPS_PER_SAMPLE)]
        return {"first_ms": median(taken) * 1000}

    return Case(name, measure, {"first_ms": FIRST_RECORD_TARGET_MS})


def _commit_case(connections: int, partitions: int, seconds: float) -> Case:
    def measure(target: Target) -> Sample:
        with wire.topic(target.server, partitions) as topic:
            request = wire.commit_request(new_group(target.server), topic, partitions)
            error_at = wire.commit_error_at(topic, partitions)
            ran = exchanges.run(target.server, request, error_at, seconds, connections)
        return {
            "rate": ran["requests"] / ran["seconds"],
            "p50_us": ran["p50_us"],
            "p99_us": ran["p99_us"],
            "server_us": ran["server_cpu_seconds"] / ran["requests"] * 1e6,
        }

    return Case(f"{connections:>2} connections, {partitions:>3} partitions", measure)


# --- clients ------------------------------------------------------------------------------------


def _confluent(bootstrap: str, group: str, topic: str, **more: Any) -> float:
    from confluent_kafka import Consumer

    config = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 3}
    consumer = Consumer({**config, **more})
    try:
        begun_at = time.perf_counter()
        consumer.subscribe([topic])
        message = consumer.poll(PATIENCE_S)
        taken = time.perf_counter() - begun_at
        if message is None or message.error() is not None:
            raise Failed(f"no record: {message and message.error()}")
        return taken
    finally:
        consumer.close()


def _confluent_next_generation(bootstrap: str, group: str, topic: str) -> float:
    return _confluent(bootstrap, group, topic, **{"group.protocol": "consumer"})


def _kafka_python(bootstrap: str, group: str, topic: str) -> float:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest")
    try:
        begun_at = time.perf_counter()
        consumer.subscribe([topic])
        give_up_at = begun_at + PATIENCE_S
        while not consumer.poll(timeout_ms=1000):
            if time.perf_counter() > give_up_at:
                raise Failed("no record")
        return time.perf_counter() - begun_at
    finally:
        consumer.close()


async def _aiokafka(bootstrap: str, group: str, topic: str) -> float:
    from aiokafka import AIOKafkaConsumer

    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest")
    begun_at = time.perf_counter()
    consumer.subscribe([topic])
    await consumer.start()
    try:
        await asyncio.wait_for(consumer.getone(), PATIENCE_S)
        return time.perf_counter() - begun_at
    finally:
        await consumer.stop()
