"""Two clients that work while others send nonsense, and look at each answer they get.

One is librdkafka: it writes numbers and reads them back. The other speaks the protocol itself, one request at a time.
"""

from __future__ import annotations

import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from minibroker.protocol.declare import Message
from minibroker.protocol.messages.cluster import ApiVersionsRequest
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.groups import FindCoordinatorRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.messages.topics import CreateTopicsRequest
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.formats import iterate_batches_in_any_format, iterate_records_in_any_format
from minibroker.protocol.records.record import Record
from tests.broker.harness import answer_in, frame_of

PATIENCE_S = 60
TOGETHER = 20  # records that librdkafka writes at once
PAUSE_S = 0.02  # between two rounds: they shall see what others do, and not be the load themselves


class Neighbour(ABC):
    """A client at work: `done` counts the answers that were right, `failures` tells the others."""

    name = ""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.done = 0
        self.failures: list[str] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Finish the round that has begun."""
        self._stopped.set()
        self._thread.join(2 * PATIENCE_S)
        if self._thread.is_alive():
            self.failures.append("no answer to what was asked last")

    def _run(self) -> None:
        try:
            self.work()
        except Exception as error:
            self.failures.append(f"{type(error).__name__}: {error} (after {self.done} answers)")

    @abstractmethod
    def work(self) -> None:
        """Ask for something, and check the answer, again and again until `goes_on` is false."""

    @property
    def goes_on(self) -> bool:
        """Whether there shall be another round, after a pause."""
        return not self._stopped.wait(PAUSE_S)


class Librdkafka(Neighbour):
    """Writes numbers, idempotently, and reads each at the offset that is its number."""

    name = "librdkafka"

    def work(self) -> None:
        problems: list[KafkaError] = []
        settings = {"bootstrap.servers": self.bootstrap, "client.id": "worker", "error_cb": problems.append}
        producer = Producer({**settings, "enable.idempotence": True, "linger.ms": 0})
        consumer = Consumer({**settings, "group.id": "worker", "enable.auto.commit": False})
        producer.list_topics("worker-a", PATIENCE_S)
        consumer.assign([TopicPartition("worker-a", 0, 0)])
        written = 0
        try:
            while self.goes_on and not self.failures:
                for number in range(written, written + TOGETHER):
                    producer.produce("worker-a", str(number), on_delivery=self._delivered)
                if producer.flush(PATIENCE_S):
                    self.failures.append(f"no acknowledgement for {PATIENCE_S} s")
                self._read(consumer, written, written + TOGETHER)
                written += TOGETHER
                self.failures += [str(problem) for problem in problems]
        finally:
            consumer.close()

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is not None or message.offset() != int(message.value()):
            self.failures.append(f"{message.value()} was written at {message.offset()}: {error}")
        else:
            self.done += 1

    def _read(self, consumer: Consumer, start: int, stop: int) -> None:
        for number in range(start, stop):
            message = consumer.poll(PATIENCE_S)
            if message is None or message.error() or (message.offset(), message.value()) != (number, b"%d" % number):
                said = message and (message.offset(), message.value(), message.error())
                self.failures.append(f"{said} where record {number} should be")
                return
            self.done += 1


class Plain(Neighbour):
    """Asks one thing after the other on one connection, and knows what each answer must be."""

    name = "plain"

    def work(self) -> None:
        host, _, port = self.bootstrap.rpartition(":")
        with socket.create_connection((host, int(port)), PATIENCE_S) as self._socket:
            topic = CreateTopicsRequest.CreatableTopic(name="worker-b", num_partitions=1, replication_factor=1)
            self._ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
            while self._ask(FindCoordinatorRequest(key="worker-b"), 2).error_code:
                self._stopped.wait(0.05)
            number = 0
            while self.goes_on and not self.failures:
                self._round(number)
                number += 1

    def _round(self, number: int) -> None:
        offset = self._ask(_written(number), 9).responses[0].partition_responses[0]
        self._check("Produce", (offset.error_code, offset.base_offset), (0, number))
        fetched = self._ask(_fetched(number), 11).responses[0].partitions[0]
        data = bytes(fetched.records)
        records = [
            record
            for position, _ in iterate_batches_in_any_format(data)
            for record in iterate_records_in_any_format(data, position)
        ]
        self._check("Fetch", [(record.offset, record.value) for record in records], [(number, b"%d" % number)])
        (known,) = self._ask(_metadata(), 9).topics
        self._check("Metadata", (known.name, known.error_code, len(known.partitions)), ("worker-b", 0, 1))
        committed = self._ask(_commit(number), 7).topics[0].partitions[0]
        self._check("OffsetCommit", committed.error_code, 0)
        found = self._ask(_committed(), 5).topics[0].partitions[0]
        self._check("OffsetFetch", (found.error_code, found.committed_offset), (0, number))
        self._check("ApiVersions", self._ask(ApiVersionsRequest(), 0).error_code, 0)

    def _check(self, what: str, had: object, wanted: object) -> None:
        if had != wanted:
            self.failures.append(f"{what} answered {had} and not {wanted}")

    def _ask(self, request: Message, version: int) -> Any:
        self._socket.sendall(frame_of(request, version, self.done, "worker"))
        prefix = self._exactly(4)
        frame = prefix + self._exactly(int.from_bytes(prefix, "big"))
        correlation_id, answer = answer_in(frame, request.api_key, version)
        if correlation_id != self.done:
            raise AssertionError(f"answer {correlation_id} to request {self.done}")
        self.done += 1
        return answer

    def _exactly(self, count: int) -> bytes:
        received = self._socket.recv(count, socket.MSG_WAITALL)
        if len(received) < count:
            raise ConnectionError("the broker closed the connection")
        return received


def _written(number: int) -> ProduceRequest:
    batch = memoryview(build_batch([Record(timestamp=int(time.time() * 1000), value=b"%d" % number)]))
    data = ProduceRequest.TopicProduceData
    written = data(name="worker-b", partition_data=[data.PartitionProduceData(index=0, records=batch)])
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[written])


def _fetched(number: int) -> FetchRequest:
    topic = FetchRequest.FetchTopic
    partition = topic.FetchPartition(partition=0, fetch_offset=number, partition_max_bytes=1 << 20)
    return FetchRequest(max_wait_ms=30_000, min_bytes=1, topics=[topic(topic="worker-b", partitions=[partition])])


def _metadata() -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="worker-b")])


def _commit(number: int) -> OffsetCommitRequest:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=number)
    return OffsetCommitRequest(group_id="worker-b", topics=[topic(name="worker-b", partitions=[partition])])


def _committed() -> OffsetFetchRequest:
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="worker-b", partition_indexes=[0])
    return OffsetFetchRequest(group_id="worker-b", topics=[topic])


@contextmanager
def neighbours(bootstrap: str) -> Iterator[list[Neighbour]]:
    """The two, at work until the block ends."""
    working = [Librdkafka(bootstrap), Plain(bootstrap)]
    for each in working:
        each.start()
    try:
        yield working
    finally:
        for each in working:
            each.stop()
