"""Records as a test sees them: put into the log as a client would, and read from it with all that it knows of them.

The log itself is storage's business; waiting for records is here, as it is how a test reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.messages.topics import CreateTopicsRequest
from minibroker.protocol.records.batch import MAX_SEQUENCE, BatchHeader
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.formats import batches_in, records_in
from minibroker.protocol.records.record import Record
from minibroker.quantities import Duration
from minibroker.testing.filling import NewTopic
from minibroker.testing.inside import ask
from minibroker.testing.waiting import Expired

if TYPE_CHECKING:
    from minibroker.broker.metadata.partitions import Partition
    from minibroker.testing.embedded import Embedded
    from minibroker.testing.waiting import Watch

READ_BYTES = 1 << 20
SHOWN_RECORDS = 20
SHOWN_BYTES = 100  # of a key or a value
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

    @property
    def counts(self) -> bool:
        """Whether a reader of what is committed is given it."""
        return self.transaction in (None, "committed")

    def __str__(self) -> str:
        """For people: where it lies, and what of it is not as in most records."""
        said = f"{self.topic}-{self.partition} offset {self.offset}: key {_shown(self.key)}, value {_shown(self.value)}"
        if self.headers:
            said += ", headers " + ", ".join(f"{name}={_shown(value)}" for name, value in self.headers)
        return said if self.transaction is None else f"{said}, transaction {self.transaction}"


def _shown(data: bytes | None) -> str:
    """The beginning of a key or a value."""
    if data is None:
        return "null"
    return f"{data!r}" if len(data) <= SHOWN_BYTES else f"{data[:SHOWN_BYTES]!r}... ({len(data)} bytes)"


def listed(records: Sequence[SeenRecord]) -> str:
    """Records for people, a line each; of many the first."""
    lines = [f"\n  {each}" for each in records[:SHOWN_RECORDS]]
    more = len(records) - SHOWN_RECORDS
    return "".join([*lines, f"\n  ({more} more)"] if more > 0 else lines)


def encoded(text: Text) -> bytes | None:
    """Bytes of a text in UTF-8; bytes and None stay. Raises TypeError for what is none of them."""
    if text is None or isinstance(text, bytes):
        return text
    if isinstance(text, str):
        return text.encode()
    raise TypeError(f"keys and values of records are text, bytes or None, not {text!r}")


def header_pairs(headers: Headers) -> tuple[tuple[str, bytes | None], ...]:
    """The headers as a record has them."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((key, encoded(value)) for key, value in pairs)


class Records:
    """The records in topics, as a test writes and awaits them, on the broker's loop."""

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
            # The answer to who asks first says that there is no such topic, also when that is no longer so.
            first = {ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            _raise(made.topics[0].error_code, topic, first if topic in cluster.image.topics else set())
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
        """All records of a topic, one partition after the other; none if there is no such topic.

        Raises KafkaError for a partition that a topic does not have.
        """
        found = self._broker.running.cluster.image.topics.get(topic)
        if found is not None and partition is not None and found.partition(partition) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {topic}-{partition}")
        return [
            record
            for each in self._partitions(topic)
            if partition is None or each.index == partition
            for record in _records_of(each, 0)
        ]

    def _partitions(self, topic: str) -> list[Partition]:
        """Return the partitions that have a log here."""
        found = self._broker.running.cluster.image.topics.get(topic)
        return [] if found is None else [each for each in found.partitions if each.is_here]

    def _ends(self, topic: str) -> dict[int, int]:
        return {each.index: each.log.log_end_offset for each in self._partitions(topic)}

    def _at_most(self, topic: str) -> int:
        """No more records than this are in the topic: to see that there are too few, none has to be read."""
        return sum(each.log.log_end_offset - each.log.log_start_offset for each in self._partitions(topic))

    async def expect(self, topic: str, count: int, timeout: Duration, committed: bool) -> list[SeenRecord]:
        """The first `count` records of a topic, once there are so many. Raises Expired."""

        def there() -> list[SeenRecord]:
            if self._at_most(topic) < count:
                return []
            found = [each for each in self.read(topic) if each.counts or not committed]
            return found if len(found) >= count else []

        def expired() -> str:
            found = self.read(topic)
            uncounted = sum(not each.counts for each in found) if committed else 0
            besides = f", and {uncounted} of open or aborted transactions" if uncounted else ""
            there_are = f"there are {len(found) - uncounted}{besides}"
            return f"{count} records were expected in {topic}, and {there_are}{listed(found)}"

        if count == 0:
            return []
        return (await self._watch.until(there, timeout, expired))[:count]

    async def nothing_for(self, topic: str, during: Duration) -> None:
        """Wait, and see that no record comes to the topic meanwhile. Raises AssertionError as soon as one does."""
        before = self._ends(topic)

        def came() -> list[SeenRecord]:
            return [new for each in self._partitions(topic) for new in _records_of(each, before.get(each.index, 0))]

        try:
            new = await self._watch.until(came, during, lambda: "")
        except Expired:
            return
        raise AssertionError(f"nothing was to be produced to {topic}, but these were:{listed(new)}")


def _produce_request(topic: str, partition: int, records: list[Record]) -> ProduceRequest:
    data = ProduceRequest.TopicProduceData
    batch = memoryview(build_batch(records))
    partitions = [data.PartitionProduceData(index=partition, records=batch)]
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data(name=topic, partition_data=partitions)])


def _raise(code: int, subject: str, unless: set[ErrorCode]) -> None:
    if code and code not in unless:
        raise KafkaError(ErrorCode(code), subject)


def _records_of(partition: Partition, first: int) -> Iterator[SeenRecord]:
    """Its records from the offset `first` on."""
    log = partition.log
    offset = first = max(first, log.log_start_offset)
    while (region := log.read(offset, READ_BYTES)) is not None:
        data = region.read()
        for position, header in batches_in(data):
            yield from _seen(partition, header, data, position, first)
        offset = region.next_offset


def _seen(partition: Partition, header: BatchHeader, data: bytes, position: int, start: int) -> Iterator[SeenRecord]:
    if header.is_control:
        return
    for record in records_in(data, position):
        if record.offset >= start:
            yield _seen_record(partition, header, record)


def _seen_record(partition: Partition, header: BatchHeader, record: Record) -> SeenRecord:
    sequence = -1
    if header.base_sequence >= 0:
        sequence = (header.base_sequence + record.offset - header.base_offset) & MAX_SEQUENCE
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
    """Return what became of the transaction that a record is of."""
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
