"""The methods for topics and records: write records as a client would, and read them with all details of the log."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.messages.topics import CreateTopicsRequest
from minibroker.protocol.records.batch import MAX_SEQUENCE, BatchHeader
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.formats import batches_in, records_in
from minibroker.protocol.records.record import Record
from minibroker.quantities import Duration
from minibroker.testing.embedded_broker import text_of_setting
from minibroker.testing.filling import topics_from
from minibroker.testing.loops import awaited, blocking, immediate
from minibroker.testing.own_requests import ask
from minibroker.testing.wait_verbs import WaitVerbs
from minibroker.testing.waiting import DEFAULT_SILENCE, DEFAULT_TIMEOUT, Expired

if TYPE_CHECKING:
    from minibroker.broker.assembly import Broker
    from minibroker.broker.cluster import Node
    from minibroker.broker.metadata.partitions import Partition

READ_BYTES = 1 << 20
SHOWN_RECORDS = 20
SHOWN_BYTES = 100  # of a key or a value
FILL_RECORDS = 100  # in a batch, so that large values stay below max.message.bytes
VERSION_BY_NAME = 12  # of Produce; 13 names topics by their ids
Text = bytes | str | None
Headers = Mapping[str, Text] | Iterable[tuple[str, Text]]


@dataclass(frozen=True)
class SeenRecord:
    """A record as it is stored in the log.

    `timestamp_ms` is -1 in message format 0, which has none; `timestamp_type` is "create" or "append". `transaction` is
    None outside of transactions, or else "committed", "aborted" or "open". `sequence` is -1 without a producer id.
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
        """Return the value as text. Raises UnicodeDecodeError."""
        return None if self.value is None else self.value.decode()

    @property
    def counts(self) -> bool:
        """Return whether a consumer with `isolation.level=read_committed` gets it."""
        return self.transaction in (None, "committed")

    def __str__(self) -> str:
        """Describe the record in a line."""
        said = f"{self.topic}-{self.partition} offset {self.offset}: key {_shown(self.key)}, value {_shown(self.value)}"
        if self.headers:
            said += ", headers " + ", ".join(f"{name}={_shown(value)}" for name, value in self.headers)
        return said if self.transaction is None else f"{said}, transaction {self.transaction}"


def _shown(data: bytes | None) -> str:
    """Describe a key or a value, shortened to `SHOWN_BYTES`."""
    if data is None:
        return "null"
    return f"{data!r}" if len(data) <= SHOWN_BYTES else f"{data[:SHOWN_BYTES]!r}... ({len(data)} bytes)"


def listed(records: Sequence[SeenRecord]) -> str:
    """Describe records, one in a line, up to `SHOWN_RECORDS`."""
    lines = [f"\n  {each}" for each in records[:SHOWN_RECORDS]]
    more = len(records) - SHOWN_RECORDS
    return "".join([*lines, f"\n  ({more} more)"] if more > 0 else lines)


def encoded(text: Text) -> bytes | None:
    """Encode a text in UTF-8; return bytes and None as they are. Raises TypeError for other types."""
    if text is None or isinstance(text, bytes):
        return text
    if isinstance(text, str):
        return text.encode()
    raise TypeError(f"keys and values of records are text, bytes or None, not {text!r}")


def header_pairs(headers: Headers) -> tuple[tuple[str, bytes | None], ...]:
    """Return headers in the form of a record. Raises TypeError."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((key, encoded(value)) for key, value in pairs)


class RecordVerbs(WaitVerbs):
    """Topics and records. Each method raises KafkaError where a client would get an error."""

    @blocking
    async def create_topic(self, /, name: str, partitions: int | None = None, **config: object) -> None:
        """Create a topic. Its configs are keyword arguments, with underscores for dots: `retention_ms=1000`."""
        configs = {key.replace("_", "."): text_of_setting(value) for key, value in config.items()}
        await _create(self.running.cluster, name, partitions, configs)

    acreate_topic = awaited(create_topic)

    @blocking
    async def fill(self, source: Mapping[str, Any] | str | Path) -> None:
        """Create topics with records: {"orders": ["first", {"key": "k", "value": {"id": 2}}]}, or a file of them.

        The file is .yaml, .json or .jsonl. A topic that exists, and has no options here, gets more records. Raises
        FillError, OSError.
        """
        for topic in topics_from(source):
            there = topic.name in self.running.cluster.image.topics
            if not there or topic.partitions is not None or topic.config:
                await _create(self.running.cluster, topic.name, topic.partitions, topic.config)
            now_ms = self.moving_clock.wall_ms()
            for partition in sorted({record.partition for record in topic.records}):
                records = [each.record(now_ms) for each in topic.records if each.partition == partition]
                for start in range(0, len(records), FILL_RECORDS):
                    await _append(self.running.cluster, topic.name, partition, records[start : start + FILL_RECORDS])

    afill = awaited(fill)

    @blocking
    async def produce(
        self,
        topic: str,
        *values: Text,
        key: Text = None,
        partition: int = 0,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> int:
        """Append a record for each value to a partition, as one batch; return the first offset.

        A missing topic is created. `timestamp_ms` is the broker's time by default. Raises ValueError without a value.
        """
        if not values:
            raise ValueError("there is nothing to produce")
        at_ms = self.moving_clock.wall_ms() if timestamp_ms is None else timestamp_ms
        pairs = header_pairs(headers)
        records = [Record(-1, at_ms, encoded(key), encoded(value), pairs) for value in values]
        return await _append(self.running.cluster, topic, partition, records)

    aproduce = awaited(produce)

    @immediate
    def records(self, topic: str, partition: int | None = None) -> list[SeenRecord]:
        """Return all records of a topic, one partition after the other, those of open and aborted transactions too.

        Without the topic there are none. Raises KafkaError for a partition that the topic does not have.
        """
        found = self.running.cluster.image.topics.get(topic)
        if found is not None and partition is not None and found.partition(partition) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {topic}-{partition}")
        return [
            record
            for each in _partitions(self.running.cluster, topic)
            if partition is None or each.index == partition
            for record in _records_of(each, 0)
        ]

    @blocking
    async def expect(
        self, topic: str, count: int = 1, timeout: Duration = DEFAULT_TIMEOUT, *, committed: bool = True
    ) -> list[SeenRecord]:
        """Wait until the topic has `count` records, and return these.

        Records of open and aborted transactions count only if `committed` is False. Raises Expired, an AssertionError.
        """

        def there() -> list[SeenRecord]:
            if _at_most(self.running.cluster, topic) < count:
                return []
            found = [each for each in self.records(topic) if each.counts or not committed]
            return found if len(found) >= count else []

        def expired() -> str:
            found = self.records(topic)
            uncounted = sum(not each.counts for each in found) if committed else 0
            besides = f", and {uncounted} of open or aborted transactions" if uncounted else ""
            there_are = f"there are {len(found) - uncounted}{besides}"
            return f"{count} records were expected in {topic}, and {there_are}{listed(found)}"

        if count == 0:
            return []
        return (await self.watch.until(there, timeout, expired))[:count]

    aexpect = awaited(expect)

    @blocking
    async def assert_nothing_produced(self, topic: str, during: Duration = DEFAULT_SILENCE) -> None:
        """Wait for a time. Raises AssertionError as soon as a record is appended to the topic."""
        cluster = self.running.cluster
        ends = {each.index: each.log.log_end_offset for each in _partitions(cluster, topic)}

        def came() -> list[SeenRecord]:
            partitions = _partitions(self.running.cluster, topic)
            return [new for each in partitions for new in _records_of(each, ends.get(each.index, 0))]

        try:
            new = await self.watch.until(came, during, lambda: "")
        except Expired:
            return
        raise AssertionError(f"nothing was to be produced to {topic}, but these were:{listed(new)}")

    aassert_nothing_produced = awaited(assert_nothing_produced)


# --- requests of the test kit's own ---------------------------------------------------------------


async def _create(cluster: Broker, topic: str, partitions: int | None, config: Mapping[str, str]) -> None:
    """Create a topic. Raises KafkaError."""
    wanted = CreateTopicsRequest.CreatableTopic(
        name=topic,
        num_partitions=-1 if partitions is None else partitions,
        replication_factor=-1,
        configs=[
            CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(name=name, value=value)
            for name, value in config.items()
        ],
    )
    answer = await ask(cluster, _any_node(cluster), CreateTopicsRequest(topics=[wanted], timeout_ms=30_000))
    created = answer.topics[0]
    _check(created.error_code, created.error_message or topic)


async def _append(cluster: Broker, topic: str, partition: int, records: list[Record]) -> int:
    """Append the records as one batch, to a topic that is created if need be; return the first offset.

    Raises KafkaError.
    """
    node = _any_node(cluster)
    if topic not in cluster.image.topics:
        asked = [MetadataRequest.MetadataRequestTopic(name=topic)]
        created = await ask(cluster, node, MetadataRequest(topics=asked, allow_auto_topic_creation=True))
        # As in Kafka, the answer to the request that creates a topic has an error.
        expected = {ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        _check(created.topics[0].error_code, topic, expected if topic in cluster.image.topics else set())
    found = cluster.image.topics.get(topic)
    index = None if found is None else found.partition(partition)
    leader = node if index is None else cluster.nodes.get(index.leader_id, node)
    answer = await ask(cluster, leader, _produce_request(topic, partition, records), VERSION_BY_NAME)
    appended = answer.responses[0].partition_responses[0]
    _check(appended.error_code, appended.error_message or f"{topic}-{partition}")
    offset: int = appended.base_offset
    return offset


def _any_node(cluster: Broker) -> Node:
    for node in cluster.nodes.values():
        return node
    raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "all nodes are away")


def _produce_request(topic: str, partition: int, records: list[Record]) -> ProduceRequest:
    data = ProduceRequest.TopicProduceData
    batch = memoryview(build_batch(records))
    partitions = [data.PartitionProduceData(index=partition, records=batch)]
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data(name=topic, partition_data=partitions)])


def _check(code: int, message: str, expected: Collection[ErrorCode] = ()) -> None:
    if code and code not in expected:
        raise KafkaError(ErrorCode(code), message)


# --- reading the log ------------------------------------------------------------------------------


def _partitions(cluster: Broker, topic: str) -> list[Partition]:
    """Return the partitions of a topic that have a log here."""
    found = cluster.image.topics.get(topic)
    return [] if found is None else [each for each in found.partitions if each.is_here]


def _at_most(cluster: Broker, topic: str) -> int:
    """Return a count that the records of a topic do not exceed, without reading any."""
    return sum(each.log.log_end_offset - each.log.log_start_offset for each in _partitions(cluster, topic))


def _records_of(partition: Partition, first: int) -> Iterator[SeenRecord]:
    """Yield the records from the offset `first` on."""
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
    """Return "open", "aborted" or "committed" for a record in a transaction, else None."""
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
