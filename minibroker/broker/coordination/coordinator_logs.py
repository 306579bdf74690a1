"""The log of a coordinator, a topic such as `__consumer_offsets`: its creation, appends and replay.

Each coordinator defines its records; the `runtime` decides when they are read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from struct import Struct, iter_unpack
from typing import TYPE_CHECKING, Final, Protocol

from minibroker.broker.metadata.partitions import NO_LEADER, Partition, Topic
from minibroker.named_tuples import NamedTuple
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.records.batch import BatchHeader, check_batch, iterate_batches, read_header
from minibroker.protocol.records.building import build_batch_in_steps, build_plain_batch
from minibroker.protocol.records.control import ControlType, decode_control_type
from minibroker.protocol.records.payload import iterate_records_of_batch
from minibroker.protocol.records.record import Record
from minibroker.protocol.steps import WAITING, Steps, apply_to_items_in_steps, run_all_steps

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster
    from minibroker.broker.control.controller import Controller
    from minibroker.storage.log import Log

log = logging.getLogger("minibroker.coordinators")

_INT16: Final = Struct(">h")

KEY_VERSION: Final = 0  # of all keys
SMALLEST_INT: Final = -(1 << 31)
NO_PRODUCER: Final = -1

# The error of a coordinator for each error of an append to its log (Kafka's CoordinatorOperationExceptionHelper).
COORDINATOR_CODES: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}

Entry = tuple[bytes, bytes | None]  # key and value of a record; None is a tombstone


class CoordinatorLogSettings(NamedTuple):
    """The names of the settings for creating, loading and appending to the topic.

    `load_bytes` is the number of bytes to read at a time, `min_isr` the topic's min.insync.replicas, `codec` the codec
    of appends. `compression_type` and `cleanup_policy` are values of the topic's configs; a topic that is not compacted
    keeps its records until its coordinator deletes them.
    """

    partition_count: str
    replication_factor: str
    segment_bytes: str
    load_bytes: str
    codec: str | None = None
    min_isr: str | None = None
    compression_type: str = "producer"
    cleanup_policy: str = "compact"


class CoordinatorShard(Protocol):
    """The state of a coordinator from one partition of its topic: a fold over the records."""

    def replay_record(self, record: Record, producer_id: int) -> None:
        """Apply a record to the state.

        A record of a transaction has its `producer_id`, else -1; `apply_transaction_end` follows with its marker.
        May raise KafkaError or ValueError for an invalid record, which is then skipped.
        """

    def apply_transaction_end(self, producer_id: int, *, committed: bool) -> None:
        """Commit or discard the records of this producer's transaction."""

    def start_timers_after_load(self) -> None:
        """Start timers and resume unfinished work once the partition is replayed. Append only from a timer."""

    def discard_state(self) -> None:
        """Discard the state, and answer waiting requests with NOT_COORDINATOR."""


class CoordinatorLog:
    """The topic `name`. It need not exist: as in Kafka, it is created when a coordinator is first looked up."""

    def __init__(self, cluster: Cluster, controller: Controller, name: str, settings: CoordinatorLogSettings) -> None:
        self._cluster = cluster
        self._controller = controller
        self._settings = settings
        self.name = name

    # --- where ----------------------------------------------------------------------------------

    @property
    def topic(self) -> Topic | None:
        """Return the topic, or None if it does not exist."""
        return self._cluster.image.topics.get(self.name)

    def create_topic(self) -> None:
        """Create the topic unless it exists, in one step.

        Raises KafkaError: COORDINATOR_NOT_AVAILABLE while another request creates it.
        """
        if self.topic is not None:
            return
        if self._controller.is_topic_changing(self.name):
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.name} is being created.")
        run_all_steps(self.create_topic_in_steps())

    def create_topic_in_steps(self) -> Steps[None]:
        """Create the topic unless it exists; wait while another request creates it. Raises KafkaError.

        It has at most as many replicas as there are nodes, so that one node is enough.
        """
        while self.topic is None and self._controller.is_topic_changing(self.name):
            yield WAITING
        if self.topic is not None:
            return
        names, settings = self._settings, self._cluster.settings
        replicas = min(settings[names.replication_factor], len(self._cluster.nodes))
        overrides = {
            "cleanup.policy": names.cleanup_policy,
            "compression.type": names.compression_type,
            "segment.bytes": str(settings[names.segment_bytes]),
        }
        if names.cleanup_policy == "delete":
            overrides["retention.ms"] = "-1"
        if names.min_isr is not None:
            overrides["min.insync.replicas"] = str(min(settings[names.min_isr], replicas))
        count = settings[names.partition_count]
        create = self._controller.create_topic_in_steps
        yield from create(self.name, count, replicas, overrides=overrides)

    def get_partition_index(self, coordinator_key: str) -> int:
        """Return the index of the partition with the state of `coordinator_key`, by Java's hash of the key."""
        topic = self.topic
        count = self._cluster.settings[self._settings.partition_count] if topic is None else len(topic.partitions)
        return _hash_key_as_kafka(coordinator_key) % int(count)

    def get_partition(self, index: int) -> Partition:
        """Return the partition with this index, whose log is online. Raises KafkaError: NOT_COORDINATOR."""
        topic = self.topic
        partition = None if topic is None else topic.find_partition(index)
        if partition is None or partition.leader_id == NO_LEADER:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if partition.log.offline:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, partition.log.offline)
        return partition

    def get_writable_partition(self, coordinator_key: str) -> Partition:
        """Return the partition with the state of `coordinator_key`. Raises KafkaError as `get_partition`."""
        topic = self._cluster.image.topics.get(self.name)
        if topic is not None:
            partition = topic.partitions[_hash_key_as_kafka(coordinator_key) % len(topic.partitions)]
            if partition.leader_id != NO_LEADER and not partition.log.offline:
                return partition
        return self.get_partition(self.get_partition_index(coordinator_key))  # which raises the error

    # --- writing --------------------------------------------------------------------------------

    @property
    def codec(self) -> int:
        """Return the number of the compression codec of batches that are appended."""
        name = self._settings.codec
        return 0 if name is None else int(self._cluster.settings[name])

    def build_batch(self, entries: Sequence[Entry], producer: tuple[int, int] | None = None) -> memoryview:
        """Build a batch of a few entries for `append_batch`, in the transaction of `producer` (id, epoch), if any."""
        if self.codec:
            return run_all_steps(self.build_batch_in_steps(entries, producer))
        return memoryview(build_plain_batch(entries, self._cluster.clock.wall_ms(), producer=producer))

    def build_batch_in_steps(
        self, entries: Iterable[Entry], producer: tuple[int, int] | None = None
    ) -> Steps[memoryview]:
        """Build a batch of one or more entries for `append_batch`, which a crash keeps as a whole or not at all.

        With a `producer` (id and epoch), the batch is part of its transaction.
        """
        now_ms = self._cluster.clock.wall_ms()
        records = yield from apply_to_items_in_steps(
            lambda entry: Record(timestamp=now_ms, key=entry[0], value=entry[1]), entries
        )
        producer_id, epoch = producer or (NO_PRODUCER, NO_PRODUCER)
        batch = yield from build_batch_in_steps(
            records,
            compression=self.codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            transactional=producer is not None,
        )
        return memoryview(batch)

    def append_batch(
        self,
        partition: Partition,
        batch: memoryview | bytearray,
        producer: tuple[int, int] | None = None,
        header: BatchHeader | None = None,
    ) -> int:
        """Append a batch that was built with the same `producer`; return its first offset. Without `header`, read that.

        Raises KafkaError with the code for a coordinator's clients if nothing was appended.
        """
        try:
            return self._append_batch(partition, batch, producer, header or read_header(batch))
        except KafkaError as error:
            log.error("%s cannot be appended to: %s", partition, error)
            raise KafkaError(COORDINATOR_CODES.get(error.code, error.code), error.message) from error

    def _append_batch(
        self,
        partition: Partition,
        batch: memoryview | bytearray,
        producer: tuple[int, int] | None,
        header: BatchHeader,
    ) -> int:
        """Append a batch as `append_batch` does, but with the error codes of the log."""
        partition.check_min_isr()
        if producer is not None:
            partition.log.producers.check_producer_epoch(*producer)
        limit = partition.log.settings.max_message_bytes
        if len(batch) > limit:
            message = f"{header.record_count} record(s) make {len(batch)} bytes, {partition} takes batches of {limit}."
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, message)
        return partition.append_batches(self._cluster.turn, batch, [header])

    # --- reading --------------------------------------------------------------------------------

    def iterate_local_partitions(self) -> Iterator[Partition]:
        """Yield the partitions whose logs are in this process and online."""
        topic = self.topic
        partitions = () if topic is None else topic.partitions
        return (partition for partition in partitions if partition.has_local_log and partition.log.is_open_and_online)

    def replay_partition(self, partition: Partition, shard: CoordinatorShard) -> Steps[None]:
        """Replay a partition into `shard`, a step per batch; log and skip malformed records.

        Raises KafkaError if the log cannot be read.
        """
        partition.log.write_pending_batches()
        load_bytes = self._cluster.settings[self._settings.load_bytes]
        for position, header, data in iterate_stored_batches(partition.log, partition.log.log_start_offset, load_bytes):
            try:
                batch = memoryview(data)[position : position + header.size_bytes]
                check_batch(batch)
                for record in iterate_records_of_batch(batch):
                    _replay_record(partition, header, record, shard)
            except KafkaError as error:
                log.error("%s: the batch at offset %d is skipped: %s", partition, header.base_offset, error)
            yield


def iterate_stored_batches(
    coordinator_log: Log, offset: int, load_bytes: int
) -> Iterator[tuple[int, BatchHeader, bytes]]:
    """Yield (position, header, data) of each batch from `offset` on, which begins at the position in the data.

    Raises KafkaError if the log cannot be read.
    """
    offset = max(offset, coordinator_log.log_start_offset)
    while (region := coordinator_log.read(offset, load_bytes, minimum_one=True)) is not None:
        try:
            data = region.file.read(region.position, region.size_bytes)
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        yield from ((position, header, data) for position, header in iterate_batches(data))
        offset = region.next_offset


def _replay_record(partition: Partition, header: BatchHeader, record: Record, shard: CoordinatorShard) -> None:
    try:
        if not header.is_control:
            shard.replay_record(record, header.producer_id if header.is_transactional else NO_PRODUCER)
            return
        kind = decode_control_type(record.key)
        if kind in (ControlType.COMMIT, ControlType.ABORT):
            shard.apply_transaction_end(header.producer_id, committed=kind == ControlType.COMMIT)
    except (KafkaError, ValueError) as error:
        log.error("%s: the record at offset %d is skipped: %s", partition, record.offset, error)


def encode_record_entry(key: Message, value: Message | None = None, version: int = 0) -> Entry:
    """Return key and value encoded for the log, each with its int16 prefix; without a value, a tombstone."""
    start = _INT16.pack(key.api_key)
    return start + key.encode(KEY_VERSION), None if value is None else encode_versioned_value(value, version)


def encode_versioned_value(message: Message, version: int) -> bytes:
    """Return a value encoded for the log, with its version as a prefix."""
    return _INT16.pack(version) + message.encode(version)


@lru_cache(maxsize=256)  # a commit needs it three times, which was a fifth of its cost; a key has at most 32 KiB
def _hash_key_as_kafka(key: str) -> int:
    """Return the hash made non-negative as in Kafka: the smallest int, which has no positive counterpart, is 0."""
    value = hash_as_java(key)
    return 0 if value == SMALLEST_INT else abs(value)


def hash_as_java(text: str) -> int:
    """Return Java's String.hashCode, an int32: the sum of UTF-16 code units times powers of 31."""
    value = 0
    for (unit,) in iter_unpack(">H", text.encode("utf-16-be")):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value
