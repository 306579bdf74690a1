"""The log of a coordinator, a topic such as `__consumer_offsets`: created, appended to, and read back.

What the records say is the coordinator's business; when they are read, and who may ask, is the `runtime`'s.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from struct import Struct, iter_unpack
from typing import TYPE_CHECKING, NamedTuple, Protocol

from minibroker.broker.metadata.partitions import NO_LEADER, Partition, Topic
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.records.batch import BatchHeader, batches, check_batch, read_header
from minibroker.protocol.records.building import build_batch_in_steps, build_plain_batch
from minibroker.protocol.records.control import ControlType, control_type
from minibroker.protocol.records.payload import records_of
from minibroker.protocol.records.record import Record
from minibroker.protocol.steps import WAITING, Steps, at_once, each

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster
    from minibroker.broker.control.controller import Controller
    from minibroker.storage.log import Log

log = logging.getLogger("minibroker.coordinators")

_INT16 = Struct(">h")

KEY_VERSION = 0  # of every key there is
SMALLEST_INT = -(1 << 31)
NO_PRODUCER = -1

# What a coordinator answers when its log cannot be written to (Kafka's CoordinatorOperationExceptionHelper).
COORDINATOR_CODES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}

Entry = tuple[bytes, bytes | None]  # key and value of a record; None takes back what was said under the key


class CoordinatorLogSettings(NamedTuple):
    """The names of the settings that say how the topic is made, and the number of the codec for what is appended.

    `load_bytes` is the setting for how much is read at a time, `min_isr` that for min.insync.replicas,
    `compression_type` the topic's own codec.
    """

    partition_count: str
    replication_factor: str
    segment_bytes: str
    load_bytes: str
    codec: str | None = None
    min_isr: str | None = None
    compression_type: str = "producer"


class Shard(Protocol):
    """What a coordinator knows from one partition of its topic: a fold over the records."""

    def replay(self, record: Record, producer_id: int) -> None:
        """Fold one record in; `producer_id` is -1 unless it belongs to a transaction, whose end is told later.

        May raise KafkaError or ValueError for a record that says nothing it knows: it is then passed over.
        """

    def transaction_ended(self, producer_id: int, *, committed: bool) -> None:
        """Let all records of this producer's transaction hold from now on, or none of them ever."""

    def loaded(self) -> None:
        """Go on with what the partition holds: it is read to its end. What is appended now is appended by a timer."""

    def unload(self) -> None:
        """Forget all, and tell who waits for it that nobody coordinates it now."""


class CoordinatorLog:
    """The topic `name`. It need not exist: `create` makes it when the first coordinator is asked for, as in Kafka."""

    def __init__(self, cluster: Cluster, controller: Controller, name: str, settings: CoordinatorLogSettings) -> None:
        self._cluster = cluster
        self._controller = controller
        self._settings = settings
        self.name = name

    # --- where ----------------------------------------------------------------------------------

    @property
    def topic(self) -> Topic | None:
        """The topic, once there is one."""
        return self._cluster.image.topics.get(self.name)

    def create(self) -> None:
        """As `create_in_steps`, at once; raises COORDINATOR_NOT_AVAILABLE while somebody else creates the topic."""
        if self.topic is not None:
            return
        if self._controller.is_changing(self.name):
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.name} is being created.")
        at_once(self.create_in_steps())

    def create_in_steps(self) -> Steps[None]:
        """Create the topic unless it is there; wait while somebody else creates it. Raises KafkaError.

        There are at most as many replicas as nodes: one node is enough for every client's tests.
        """
        while self.topic is None and self._controller.is_changing(self.name):
            yield WAITING
        if self.topic is not None:
            return
        names, settings = self._settings, self._cluster.settings
        replicas = min(settings[names.replication_factor], len(self._cluster.nodes))
        overrides = {
            "cleanup.policy": "compact",
            "compression.type": names.compression_type,
            "segment.bytes": str(settings[names.segment_bytes]),
        }
        if names.min_isr is not None:
            overrides["min.insync.replicas"] = str(min(settings[names.min_isr], replicas))
        count = settings[names.partition_count]
        create = self._controller.create_topic_in_steps
        yield from create(self.name, count, replicas, overrides=overrides)

    def partition_of(self, key: str) -> int:
        """The index of the partition that holds the state of `key`: Java's hash of it, spread over all of them."""
        topic = self.topic
        count = self._cluster.settings[self._settings.partition_count] if topic is None else len(topic.partitions)
        return _spread(key) % int(count)

    def partition(self, index: int) -> Partition:
        """The partition, if it can be written to. Raises KafkaError: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR."""
        topic = self.topic
        partition = None if topic is None else topic.partition(index)
        if partition is None or partition.leader_id == NO_LEADER:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"Nobody leads {self.name}-{index}.")
        if partition.log.offline:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, partition.log.offline)
        return partition

    def partition_for(self, key: str) -> Partition:
        """Return the partition that holds the state of `key`, as `partition` does."""
        topic = self._cluster.image.topics.get(self.name)
        if topic is not None:
            partition = topic.partitions[_spread(key) % len(topic.partitions)]
            if partition.leader_id != NO_LEADER and not partition.log.offline:
                return partition
        return self.partition(self.partition_of(key))  # which says what is wrong

    # --- writing --------------------------------------------------------------------------------

    @property
    def codec(self) -> int:
        """The number of the codec for what is appended."""
        name = self._settings.codec
        return 0 if name is None else int(self._cluster.settings[name])

    def batch(self, entries: Sequence[Entry], producer: tuple[int, int] | None = None) -> memoryview:
        """Make a batch as `batch_in_steps` does, at once: of a few entries."""
        if self.codec:
            return at_once(self.batch_in_steps(entries, producer))
        return memoryview(build_plain_batch(entries, self._cluster.clock.wall_ms(), producer=producer))

    def batch_in_steps(self, entries: Iterable[Entry], producer: tuple[int, int] | None = None) -> Steps[memoryview]:
        """Make a batch of the entries, one at least, for `append_batch`: after a crash all are there, or none.

        With a `producer` (id and epoch) they are part of its transaction.
        """
        now_ms = self._cluster.clock.wall_ms()
        records = yield from each(lambda entry: Record(timestamp=now_ms, key=entry[0], value=entry[1]), entries)
        producer_id, epoch = producer or (NO_PRODUCER, NO_PRODUCER)
        batch = yield from build_batch_in_steps(
            records,
            compression=self.codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            transactional=producer is not None,
        )
        return memoryview(batch)

    def append_batch(self, partition: Partition, batch: memoryview, producer: tuple[int, int] | None = None) -> None:
        """Append a batch that was made with the same producer.

        Raises KafkaError with the code for a coordinator's clients; then nothing was appended.
        """
        try:
            self._append(partition, batch, producer)
        except KafkaError as error:
            log.error("%s cannot be appended to: %s", partition, error)
            raise KafkaError(COORDINATOR_CODES.get(error.code, error.code), error.message) from error

    def _append(self, partition: Partition, batch: memoryview, producer: tuple[int, int] | None) -> None:
        partition.check_in_sync()
        if producer is not None:
            partition.log.producers.check_epoch(*producer)
        header = read_header(batch)
        limit = partition.log.settings.max_message_bytes
        if len(batch) > limit:
            message = f"{header.record_count} record(s) make {len(batch)} bytes, {partition} takes batches of {limit}."
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, message)
        partition.append(self._cluster.turn, batch, [header])

    # --- reading --------------------------------------------------------------------------------

    def partitions_here(self) -> Iterator[Partition]:
        """The partitions whose logs are in this process and of use."""
        topic = self.topic
        partitions = () if topic is None else topic.partitions
        return (partition for partition in partitions if partition.is_here and partition.log.in_use)

    def replay(self, partition: Partition, shard: Shard) -> Steps[None]:
        """Tell `shard` all that is in a partition, a step a batch. What is malformed is logged and passed over.

        Raises KafkaError if the log cannot be read on.
        """
        partition.log.write_pending()
        for position, header, data in _batches(partition.log, self._cluster.settings[self._settings.load_bytes]):
            try:
                batch = memoryview(data)[position : position + header.size_bytes]
                check_batch(batch)
                for record in records_of(batch):
                    _tell(partition, header, record, shard)
            except KafkaError as error:
                log.error("%s: the batch at offset %d is passed over: %s", partition, header.base_offset, error)
            yield


def _batches(kept: Log, load_bytes: int) -> Iterator[tuple[int, BatchHeader, bytes]]:
    offset = kept.log_start_offset
    while (region := kept.read(offset, load_bytes, minimum_one=True)) is not None:
        try:
            data = region.file.read(region.position, region.size_bytes)
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        yield from ((position, header, data) for position, header in batches(data))
        offset = region.next_offset


def _tell(partition: Partition, header: BatchHeader, record: Record, shard: Shard) -> None:
    try:
        if not header.is_control:
            shard.replay(record, header.producer_id if header.is_transactional else NO_PRODUCER)
            return
        kind = control_type(record.key)
        if kind in (ControlType.COMMIT, ControlType.ABORT):
            shard.transaction_ended(header.producer_id, committed=kind == ControlType.COMMIT)
    except (KafkaError, ValueError) as error:
        log.error("%s: the record at offset %d is passed over: %s", partition, record.offset, error)


def entry(key: Message, value: Message | None = None, version: int = 0) -> Entry:
    """Key and value as they lie in the log, an int16 before each; without a value, the key's tombstone."""
    start = _INT16.pack(key.api_key)
    return start + key.encode(KEY_VERSION), None if value is None else framed(value, version)


def framed(message: Message, version: int) -> bytes:
    """A value as it lies in the log, its version before it."""
    return _INT16.pack(version) + message.encode(version)


@lru_cache(maxsize=256)  # a commit asks three times, which was a fifth of its cost; a key is 32 KiB at most
def _spread(key: str) -> int:
    """The hash as Kafka makes it positive: of the smallest int there is no counterpart."""
    value = java_hash(key)
    return 0 if value == SMALLEST_INT else abs(value)


def java_hash(text: str) -> int:
    """Java's String.hashCode, an int32: over the UTF-16 code units, each times a power of 31."""
    value = 0
    for (unit,) in iter_unpack(">H", text.encode("utf-16-be")):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value
