"""Reads topics, partitions and configs from the metadata log in a log directory, as far as it can be read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import minibroker.protocol.messages.metadata_records as messages
from minibroker.pipeline.directory.reading_disk import DISK
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.messages.control_records import LeaderChangeMessage
from minibroker.protocol.primitives import MalformedMessage
from minibroker.protocol.records.batch import MAGIC
from minibroker.protocol.records.control import decode_control_message
from minibroker.protocol.records.internal import GROUPS_TOPIC, TRANSACTIONS_TOPIC
from minibroker.protocol.records.metadata_values import UnknownMetadata, read_metadata_frame
from minibroker.protocol.records.payload import iterate_records_of_batch
from minibroker.protocol.records.record import Record
from minibroker.protocol.records.walking import BatchWalker, FoundBatch
from minibroker.storage.names import LOG_SUFFIX

METADATA = f"{messages.METADATA_TOPIC}-0"
ALWAYS_COMPACTED = (GROUPS_TOPIC, TRANSACTIONS_TOPIC)
_SNAPSHOT_SUFFIX = ".checkpoint"
_KINDS: dict[int, type[Message]] = {
    kind.api_key: kind
    for kind in (
        messages.ConfigRecord,
        messages.PartitionRecord,
        messages.RegisterBrokerRecord,
        messages.RemoveTopicRecord,
        messages.TopicRecord,
        messages.AbortTransactionRecord,
        messages.BeginTransactionRecord,
        messages.EndTransactionRecord,
    )
}

TopicPartition = tuple[str, int]
Configs = dict[str, dict[str, str]]


@dataclass
class ClusterMetadata:
    """The topics of a cluster: ids, partitions, and configs that were set. All are empty without a metadata log.

    `removed` has the ids of deleted topics, `brokers` the numbers of the brokers that have registered, `directories`
    the ids of their log directories. `voters` has the nodes that elect the log's leader. `unreadable` is the number of
    the batches and records that were skipped. `is_torn` says that the log ends in what is no sound batch, as a crash
    may leave it; this is not counted.
    """

    ids: dict[str, bytes] = field(default_factory=dict)
    partitions: set[TopicPartition] = field(default_factory=set)
    configs: Configs = field(default_factory=dict)
    removed: set[bytes] = field(default_factory=set)
    brokers: set[int] = field(default_factory=set)
    directories: set[bytes] = field(default_factory=set)
    voters: set[int] = field(default_factory=set)
    unreadable: int = 0
    is_torn: bool = False
    _names: dict[bytes, str] = field(default_factory=dict)  # by id
    _indexes: dict[str, set[int]] = field(default_factory=dict)  # of the partitions, by topic
    _transaction: list[Message] | None = None

    @property
    def compacted(self) -> set[str]:
        """The names of the topics with `compact` in their `cleanup.policy`."""
        found = {topic for topic, configs in self.configs.items() if "compact" in configs.get("cleanup.policy", "")}
        return found | set(ALWAYS_COMPACTED)

    def add_record(self, message: Message) -> None:
        """Apply a record. Those of a transaction (KIP-868) are applied when it ends."""
        match message:
            case messages.BeginTransactionRecord():
                self._transaction = []
            case messages.AbortTransactionRecord():
                self._transaction = None
            case messages.EndTransactionRecord():
                ended, self._transaction = self._transaction or [], None
                for each in ended:
                    self._apply_record(each)
            case _ if self._transaction is not None:
                self._transaction.append(message)
            case _:
                self._apply_record(message)

    def _apply_record(self, message: Message) -> None:
        match message:
            case messages.TopicRecord(name=name, topic_id=topic_id):
                self._remove_topic(name)
                self.ids[name], self._names[topic_id] = topic_id, name
            case messages.RemoveTopicRecord(topic_id=topic_id) if topic_id in self._names:
                self.removed.add(topic_id)
                self._remove_topic(self._names[topic_id])
            case messages.RegisterBrokerRecord(broker_id=broker_id, log_dirs=directories):
                self.brokers.add(broker_id)
                self.directories |= set(directories)
            case messages.PartitionRecord(topic_id=topic_id, partition_id=index) if topic_id in self._names:
                name = self._names[topic_id]
                self.partitions.add((name, index))
                self._indexes.setdefault(name, set()).add(index)
            case messages.ConfigRecord(resource_type=kind) if kind == messages.TOPIC_RESOURCE:
                self._apply_config(message)

    def _remove_topic(self, name: str) -> None:
        self._names.pop(self.ids.pop(name, b""), None)
        self.configs.pop(name, None)
        self.partitions -= {(name, index) for index in self._indexes.pop(name, ())}

    def _apply_config(self, record: messages.ConfigRecord) -> None:
        configs = self.configs.setdefault(record.resource_name, {})
        if record.value is None:
            configs.pop(record.name, None)
        else:
            configs[record.name] = record.value


def read_metadata(root: Path | str) -> ClusterMetadata:
    """Read the newest snapshot of the metadata log in a log directory, and then the whole log. Raises `OSError`.

    Skip parts that cannot be read.
    """
    found = ClusterMetadata()
    directory = f"{root}/{METADATA}"
    try:
        names = sorted(DISK.list_names(directory))
    except FileNotFoundError:
        return found
    snapshots = [name for name in names if name.endswith(_SNAPSHOT_SUFFIX)][-1:]
    for name in (*snapshots, *(name for name in names if name.endswith(LOG_SUFFIX))):
        found.unreadable += found.is_torn  # a file that others follow
        for record, is_control in iterate_readable_records(DISK.read_whole(f"{directory}/{name}"), found):
            try:
                if is_control:
                    _set_voters(found, record)
                elif record.value:
                    _apply_metadata_record(found, record.value)
            except (UnknownMetadata, MalformedMessage, KafkaError):
                found.unreadable += 1
    return found


def _apply_metadata_record(metadata: ClusterMetadata, value: bytes) -> None:
    api_key, version, position = read_metadata_frame(value)
    if api_key in _KINDS:
        metadata.add_record(_KINDS[api_key].decode(value, version, position))


def _set_voters(metadata: ClusterMetadata, record: Record) -> None:
    message = decode_control_message(record)
    if isinstance(message, LeaderChangeMessage):
        metadata.voters = {voter.voter_id for voter in message.voters}


def iterate_readable_records(data: bytes, metadata: ClusterMetadata) -> Iterator[tuple[Record, bool]]:
    """Yield the records of sound batches, and whether they are control records; count the others in `metadata`."""
    view, position = memoryview(data), 0
    metadata.is_torn = False
    walker = BatchWalker(lambda: lambda at, size_bytes: view[at : at + size_bytes], len(view))
    while position < len(view):
        found = walker.read_batch_or_damage_at(position)
        size_bytes = found.header.size_bytes if isinstance(found, FoundBatch) else found.size_bytes
        metadata.is_torn = position + size_bytes >= len(view)
        if isinstance(found, FoundBatch) and found.is_sound and found.header.magic == MAGIC:
            metadata.is_torn = False
            try:
                for record in iterate_records_of_batch(view, position):
                    yield record, found.header.is_control
            except KafkaError:
                metadata.unreadable += 1
        elif not metadata.is_torn:
            metadata.unreadable += 1
        position += size_bytes
