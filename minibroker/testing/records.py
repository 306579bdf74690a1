"""Records as a test sees them: put into the log as a client would, and read from it with all that it knows of them.

The log itself is storage's business; waiting for records is told here, as it is how a test reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.messages.topics import CreateTopicsRequest
from minibroker.protocol.records.batch import BatchHeader
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.formats import batches_in, records_in
from minibroker.protocol.records.record import Record
from minibroker.testing.durations import Duration
from minibroker.testing.filling import NewTopic
from minibroker.testing.inside import ask
from minibroker.testing.waiting import Expired

if TYPE_CHECKING:
    from minibroker.broker.topics import Partition
    from minibroker.testing.embedded import Embedded
    from minibroker.testing.waiting import Watch

READ_BYTES = 1 << 20
FILL_RECORDS = 100  # a batch, so that large values fit max.message.bytes
VERSION_BY_NAME = 12  # of Produce: 13 names topics by their ids
Text = bytes | str | None
Headers = Mapping[str, Text] | Iterable[tuple[str, Text]]


@dataclass(frozen=True)
class SeenRecord:
    """A record as it lies in the log.

    `timestamp_ms` is -1 where format 0 has none; `timestamp_type` is "create" or "append". `transaction` is None for a
    record of none, or else "committed", "aborted" or "open". `sequence` is its own, -1 without a producer id.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int
    timestamp_type: str
    transaction: str | None
    producer_id: int
    producer_epoch: int
    sequence: int
    leader_epoch: int
    magic: int

    @property
    def text(self) -> str | None:
        """The value as text. Raises UnicodeDecodeError."""
        return None if self.value is None else self.value.decode()


def encoded(text: Text) -> bytes | None:
    """Bytes of a text in UTF-8; bytes and None stay."""
    return text.encode() if isinstance(text, str) else text


def header_pairs(headers: Headers) -> tuple[tuple[str, bytes | None], ...]:
    """The headers as a record has them."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((key, encoded(value)) for key, value in pairs)


class Records:
    """What a test does with records, on the broker's loop."""

    def __init__(self, broker: Embedded, watch: Watch) -> None:
        self._broker = broker
        self._watch = watch

    async def append(self, topic: str, partition: int, records: list[Record]) -> int:
        """Append the records as one batch; the offset of the first. The topic is made if it is not there.

        Raises KafkaError.
        """
        cluster = self._broker.running.cluster
        nodes = list(cluster.nodes.values())
        if not nodes:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "all nodes are away")
        if topic not in cluster.image.topics:
            asked = [MetadataRequest.MetadataRequestTopic(name=topic)]
            made = await ask(cluster, nodes[0], MetadataRequest(topics=asked, allow_auto_topic_creation=True))
            _raise(made.topics[0].error_code, topic, {ErrorCode.LEADER_NOT_AVAILABLE})
        found = cluster.image.topics.get(topic)
        index = None if found is None else found.partition(partition)
        leader = nodes[0] if index is None else cluster.nodes.get(index.leader_id, nodes[0])
        answer = await ask(cluster, leader, _produce_request(topic, partition, records), VERSION_BY_NAME)
        said = answer.responses[0].partition_responses[0]
        if said.error_code:
            raise KafkaError(ErrorCode(said.error_code), said.error_message or f"{topic}-{partition}")
        offset: int = said.base_offset
        return offset

    async def create(self, topic: str, partitions: int | None, config: Mapping[str, str]) -> None:
        """Make a topic. Raises KafkaError."""
        cluster = self._broker.running.cluster
        wanted = CreateTopicsRequest.CreatableTopic(
            name=topic,
            num_partitions=-1 if partitions is None else partitions,
            replication_factor=-1,
            configs=[
                CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(name=name, value=value)
                for name, value in config.items()
            ],
        )
        node = next(iter(cluster.nodes.values()), None)
        if node is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "all nodes are away")
        answer = await ask(cluster, node, CreateTopicsRequest(topics=[wanted], timeout_ms=30_000))
        made = answer.topics[0]
        if made.error_code:
            raise KafkaError(ErrorCode(made.error_code), made.error_message or topic)

    async def fill(self, topics: list[NewTopic]) -> None:
        """Make the topics that are not there, and append their records. Raises KafkaError."""
        for topic in topics:
            there = topic.name in self._broker.running.cluster.image.topics
            if not there or topic.partitions is not None or topic.config:
                await self.create(topic.name, topic.partitions, topic.config)
            now_ms = self._broker.moving_clock.wall_ms()
            for partition in sorted({record.partition for record in topic.records}):
                records = [
                    Record(
                        -1,
                        now_ms if each.timestamp_ms is None else each.timestamp_ms,
                        each.key,
                        each.value,
                        each.headers,
                    )
                    for each in topic.records
                    if each.partition == partition
                ]
                for start in range(0, len(records), FILL_RECORDS):
                    await self.append(topic.name, partition, records[start : start + FILL_RECORDS])

    def read(self, topic: str, partition: int | None = None) -> list[SeenRecord]:
        """All records of a topic, one partition after the other; none if there is no such topic."""
        found = self._broker.running.cluster.image.topics.get(topic)
        if found is None:
            return []
        return [
            record
            for each in found.partitions
            if (partition is None or each.index == partition) and each.is_here
            for record in _records_of(each)
        ]

    async def expect(self, topic: str, count: int, timeout: Duration, committed: bool) -> list[SeenRecord]:
        """The first `count` records of a topic, once there are so many. Raises Expired."""

        def there() -> list[SeenRecord]:
            found = [each for each in self.read(topic) if not committed or each.transaction in (None, "committed")]
            return found if len(found) >= count else []

        def expired() -> str:
            found = self.read(topic)
            said = "".join(f"\n  {each}" for each in found[:20])
            return f"{count} records were expected in {topic}, and there are {len(found)}{said}"

        if count == 0:
            return []
        return (await self._watch.until(there, timeout, expired))[:count]

    async def nothing_for(self, topic: str, during: Duration) -> None:
        """Wait, and see that no record comes to the topic meanwhile. Raises AssertionError as soon as one does."""
        before = {(each.partition, each.offset) for each in self.read(topic)}

        def came() -> list[SeenRecord]:
            return [each for each in self.read(topic) if (each.partition, each.offset) not in before]

        try:
            new = await self._watch.until(came, during, lambda: "")
        except Expired:
            return
        raise AssertionError(f"nothing was to be produced to {topic}, but these were: {new[:20]}")


def _produce_request(topic: str, partition: int, records: list[Record]) -> ProduceRequest:
    data = ProduceRequest.TopicProduceData
    batch = memoryview(build_batch(records))
    partitions = [data.PartitionProduceData(index=partition, records=batch)]
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data(name=topic, partition_data=partitions)])


def _raise(code: int, subject: str, unless: set[ErrorCode]) -> None:
    if code and code not in unless:
        raise KafkaError(ErrorCode(code), subject)


def _records_of(partition: Partition) -> Iterator[SeenRecord]:
    log = partition.log
    offset = log.log_start_offset
    while (region := log.read(offset, READ_BYTES)) is not None:
        data = region.read()
        for position, header in batches_in(data):
            yield from _seen(partition, header, data, position, offset)
        offset = region.next_offset


def _seen(partition: Partition, header: BatchHeader, data: bytes, position: int, start: int) -> Iterator[SeenRecord]:
    if header.is_control:
        return
    start = max(start, partition.log.log_start_offset)
    for record in records_in(data, position):
        if record.offset >= start:
            yield _seen_record(partition, header, record)


def _seen_record(partition: Partition, header: BatchHeader, record: Record) -> SeenRecord:
    sequence = -1
    if header.base_sequence >= 0:
        sequence = (header.base_sequence + record.offset - header.base_offset) & 0x7FFFFFFF
    return SeenRecord(
        topic=partition.topic.name,
        partition=partition.index,
        offset=record.offset,
        key=record.key,
        value=record.value,
        headers=tuple((key, value) for key, value in record.headers),
        timestamp_ms=record.timestamp,
        timestamp_type="append" if header.timestamp_type else "create",
        transaction=_transaction(partition, header, record.offset),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        sequence=sequence,
        leader_epoch=header.partition_leader_epoch,
        magic=header.magic,
    )


def _transaction(partition: Partition, header: BatchHeader, offset: int) -> str | None:
    """What became of the transaction that a record is of."""
    if not header.is_transactional:
        return None
    log = partition.log
    begun = log.producers.open_transactions.get(header.producer_id)
    if begun is not None and offset >= begun:
        return "open"
    for aborted in log.aborted_transactions(offset, offset + 1):
        if aborted.producer_id == header.producer_id and aborted.first_offset <= offset <= aborted.last_offset:
            return "aborted"
    return "committed"
