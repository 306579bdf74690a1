"""Clients that go on while their broker is killed and comes back, and what they were told: the parts of a kill loop.

When the broker is killed, and what must hold afterwards, is in `test_kills.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.confluent import LOG
from tests.clients.interface import PATIENCE_S

TopicPartition = tuple[str, int]

# They come back soon, and never give up.
PERSISTENT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20}
IN_FLIGHT = 300  # records that are not acknowledged yet
LARGEST_BYTES = 400
GROUP = "followers"


def value_of(number: int) -> bytes:
    """The value of a partition's record with this number; their sizes differ, so that batches' and segments' do."""
    return b"%d" % number + b"." * (number * 7919 % LARGEST_BYTES)


class Writer:
    """An idempotent producer that numbers the records of each partition, from 0 on, until `stop` is set.

    `sent` counts them by partition. `acknowledged` has by partition the (offset, number) of each in the order of the
    acknowledgements; `failures` has the errors instead of them.
    """

    def __init__(self, servers: str, partitions: list[TopicPartition], linger_ms: int) -> None:
        self.sent = dict.fromkeys(partitions, 0)
        self.acknowledged: dict[TopicPartition, list[tuple[int, int]]] = {key: [] for key in partitions}
        self.failures: list[str] = []
        self.stop = threading.Event()
        self._producer = confluent_kafka.Producer(
            {
                **PERSISTENT,
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": linger_ms,
                "batch.num.messages": 20,
                "message.timeout.ms": 0,
                "socket.timeout.ms": 1000 * PATIENCE_S,
            },
            logger=LOG,
        )

    def run(self) -> None:
        """Produce until `stop`, and until all that was produced is acknowledged."""
        try:
            while not (self.stop.is_set() or self.failures):
                for topic, partition in self.sent:
                    self._produce(topic, partition)
                while len(self._producer) > IN_FLIGHT and not self.failures:
                    self._producer.poll(0.01)
        except confluent_kafka.KafkaException as error:
            self.failures.append(f"producing has come to an end: {error}")
        left = self._producer.flush(PATIENCE_S)
        if left:
            self.failures.append(f"{left} records were not acknowledged in the end")

    @property
    def told(self) -> int:
        """How many records were acknowledged so far."""
        return sum(map(len, self.acknowledged.values()))

    def _produce(self, topic: str, partition: int) -> None:
        key = topic, partition
        number = self.sent[key]

        def delivered(error: Any, message: confluent_kafka.Message) -> None:
            if error is None:
                self.acknowledged[key].append((message.offset(), number))
            else:
                self.failures.append(f"{topic}-{partition}, record {number}: {error}")

        self._producer.produce(topic, value=value_of(number), partition=partition, on_delivery=delivered)
        self.sent[key] += 1


class Follower:
    """A consumer that reads all partitions from their start, until it has seen as many records as the test expects.

    `seen` counts by partition the records that came in order, which it commits for `GROUP`; `committed` are the offsets
    whose commit was acknowledged, OFFSET_INVALID before; `failures` is what else came.
    """

    def __init__(self, servers: str, partitions: list[TopicPartition]) -> None:
        self.seen = dict.fromkeys(partitions, 0)
        self.committed = dict.fromkeys(partitions, confluent_kafka.OFFSET_INVALID)
        self._commits = False
        self.failures: list[str] = []
        self.expected: Mapping[TopicPartition, int] | None = None
        self._consumer = confluent_kafka.Consumer(
            {
                **PERSISTENT,
                "bootstrap.servers": servers,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "on_commit": self._answered,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 50,
                "fetch.error.backoff.ms": 20,
                "check.crcs": True,
            },
            logger=LOG,
        )
        self._consumer.assign([confluent_kafka.TopicPartition(*key, 0) for key in partitions])

    def run(self) -> None:
        """Read until `expected` is set and reached, or nothing has come for long."""
        idle_s = 0.0
        while self.seen != self.expected and not self.failures and idle_s < PATIENCE_S:
            messages = self._consumer.consume(10_000, timeout=0.1)
            for message in messages:
                self._look_at(message)
            self._commit()
            idle_s = 0.0 if messages or self.expected is None else idle_s + 0.1
        self._consumer.close()

    def _commit(self) -> None:
        if not self._commits:
            self._commits = True
            seen = [confluent_kafka.TopicPartition(*key, offset) for key, offset in self.seen.items()]
            self._consumer.commit(offsets=seen, asynchronous=True)

    def _answered(self, error: Any, partitions: list[confluent_kafka.TopicPartition]) -> None:
        """It may also be told that the broker has gone: then the next commit says more."""
        self._commits = False
        for each in partitions:
            if error is None and each.error is None:
                self.committed[each.topic, each.partition] = each.offset

    def _look_at(self, message: confluent_kafka.Message) -> None:
        key = message.topic(), message.partition()
        if message.error():
            self.failures.append(f"{key}: {message.error()}")
            return
        expected = self.seen[key]
        if (message.offset(), message.value()) != (expected, value_of(expected)):
            self.failures.append(f"{key}: offset {message.offset()} has {message.value()!r}, expected {expected}")
        self.seen[key] += 1


class Remembered:
    """The offsets of `GROUP` that the broker remembers as committed."""

    def __init__(self, servers: str, partitions: list[TopicPartition]) -> None:
        settings = {**PERSISTENT, "bootstrap.servers": servers, "group.id": GROUP}
        self._consumer = confluent_kafka.Consumer(settings, logger=LOG)
        self._asked = [confluent_kafka.TopicPartition(*key) for key in partitions]

    def offsets(self) -> dict[TopicPartition, int]:
        """By partition the offset, OFFSET_INVALID where there is none."""
        found = self._consumer.committed(self._asked, timeout=PATIENCE_S)
        assert [each.error for each in found if each.error is not None] == []
        return {(each.topic, each.partition): each.offset for each in found}


class TopicMaker:
    """Asks for one topic after the other; `made` are those of whose making it was told."""

    def __init__(self, servers: str) -> None:
        self._admin = AdminClient({**PERSISTENT, "bootstrap.servers": servers}, logger=LOG)
        self._asked: dict[str, Future[None]] = {}

    def ask(self) -> None:
        """Ask for another topic of two partitions, and do not wait for the answer."""
        name = f"made-{len(self._asked)}"
        topic = NewTopic(name, num_partitions=2, replication_factor=1, config={"retention.ms": str(len(self._asked))})
        self._asked |= self._admin.create_topics([topic], request_timeout=PATIENCE_S)

    @property
    def made(self) -> set[tuple[str, int]]:
        """(name, number of partitions) of each."""
        return {(name, 2) for name, asked in self._asked.items() if asked.done() and asked.exception() is None}

    def found(self) -> dict[str, int]:
        """By name the number of partitions of each topic that the broker knows."""
        topics = self._admin.list_topics(timeout=PATIENCE_S).topics
        return {name: len(topic.partitions) for name, topic in topics.items()}


@contextmanager
def in_thread(runner: Writer | Follower) -> Iterator[threading.Thread]:
    """A thread that runs it, and that ends with the process if it has not ended before."""
    thread = threading.Thread(target=runner.run, daemon=True)
    thread.start()
    yield thread
