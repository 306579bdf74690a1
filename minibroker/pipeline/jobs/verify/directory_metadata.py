"""Reads topics, partitions and configs from the metadata log in a log directory, as far as it can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from minibroker.pipeline.directory.reading_disk import DISK
from minibroker.pipeline.jobs.verify.log_blocks import LogFile
from minibroker.pipeline.jobs.verify.record_checks import Unreadable, payload_of, read_records
from minibroker.protocol.declare import Message
from minibroker.protocol.messages.metadata_records import (
    ConfigRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from minibroker.protocol.primitives import MalformedMessage
from minibroker.protocol.records.batch import MAGIC
from minibroker.protocol.records.metadata_values import UnknownMetadata, read_frame

METADATA = "__cluster_metadata-0"
ALWAYS_COMPACTED = ("__consumer_offsets", "__transaction_state")
TOPIC_RESOURCE = 2
_KINDS: dict[int, type[Message]] = {
    kind.api_key: kind for kind in (ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord)
}

TopicPartition = tuple[str, int]


@dataclass
class DirectoryMetadata:
    """The topics of a cluster: ids, partitions, and configs that were set. All are empty without a metadata log."""

    ids: dict[str, bytes] = field(default_factory=dict)
    partitions: set[TopicPartition] = field(default_factory=set)
    configs: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def compacted(self) -> set[str]:
        """The names of the topics with `compact` in their `cleanup.policy`."""
        found = {topic for topic, configs in self.configs.items() if "compact" in configs.get("cleanup.policy", "")}
        return found | set(ALWAYS_COMPACTED)

    def take(self, message: Message) -> None:
        """Apply a record."""
        apply: dict[type[Message], Callable[..., None]] = {
            TopicRecord: self._create,
            RemoveTopicRecord: self._remove,
            PartitionRecord: self._add_partition,
            ConfigRecord: self._configure,
        }
        apply[type(message)](message)

    def _create(self, record: TopicRecord) -> None:
        self._forget(record.name)
        self.ids[record.name] = record.topic_id

    def _remove(self, record: RemoveTopicRecord) -> None:
        for name in [name for name, topic_id in self.ids.items() if topic_id == record.topic_id]:
            self._forget(name)

    def _forget(self, name: str) -> None:
        self.ids.pop(name, None)
        self.configs.pop(name, None)
        self.partitions = {each for each in self.partitions if each[0] != name}

    def _add_partition(self, record: PartitionRecord) -> None:
        for name, topic_id in self.ids.items():
            if topic_id == record.topic_id:
                self.partitions.add((name, record.partition_id))

    def _configure(self, record: ConfigRecord) -> None:
        if record.resource_type != TOPIC_RESOURCE:
            return
        configs = self.configs.setdefault(record.resource_name, {})
        if record.value is None:
            configs.pop(record.name, None)
        else:
            configs[record.name] = record.value


def read_metadata(root: Path | str) -> DirectoryMetadata:
    """Read the newest snapshot of the metadata log in a log directory, and then the whole log. Raises `OSError`.

    Skip parts that cannot be read: they become findings elsewhere.
    """
    found = DirectoryMetadata()
    directory = f"{root}/{METADATA}"
    try:
        names = sorted(DISK.names(directory))
    except FileNotFoundError:
        return found
    snapshots = [name for name in names if name.endswith(".checkpoint")][-1:]
    for name in (*snapshots, *(name for name in names if name.endswith(".log"))):
        for value in _values(f"{directory}/{name}"):
            with suppress(UnknownMetadata, MalformedMessage):
                api_key, version, position = read_frame(value)
                if api_key in _KINDS:
                    found.take(_KINDS[api_key].decode(value, version, position))
    return found


def _values(path: str) -> Iterator[bytes]:
    file = LogFile(path)
    try:
        for block in file.blocks():
            is_data = block.sound & (block.headers.magic == MAGIC) & ~block.headers.is_control
            for index in np.flatnonzero(is_data).tolist():
                try:
                    records = list(read_records(payload_of(block, index), block.headers.header(index)))
                except Unreadable:
                    continue
                yield from (record.value for record in records if record.value)
    finally:
        file.close()
