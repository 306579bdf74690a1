"""Repair of a data directory with a damaged metadata log, from what is left of it and from the logs' directories.

`SalvagedMetadata` has the readable, consistent records before and after the damage. A directory has the topic's name,
its id in `partition.metadata`, and the partition. So topics are restored with their ids, and partitions with their
records. Topic configs, quotas and credentials are only in the metadata log.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from random import SystemRandom
from typing import NamedTuple

from minibroker.broker.metadata import features
from minibroker.broker.metadata.image import Image, InconsistentMetadata
from minibroker.broker.metadata.metadata_log import METADATA_SETTINGS
from minibroker.broker.metadata.metadata_snapshots import find_newest_snapshot, iterate_record_values_in
from minibroker.broker.metadata.partitions import GROUPS_TOPIC, INTERNAL_TOPICS, METADATA_TOPIC
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import CorruptBatch, KafkaError
from minibroker.protocol.messages import metadata_records as records
from minibroker.protocol.messages.metadata_records import (
    METADATA_TOPIC_ID,
    TOPIC_RESOURCE,
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    RemoveTopicRecord,
)
from minibroker.protocol.primitives import MalformedMessage, format_uuid, make_uuid, parse_uuid
from minibroker.protocol.records.batch import BatchHeader, read_header
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.metadata_values import UnknownMetadata, decode_metadata_record, encode_metadata_record
from minibroker.protocol.records.record import Record
from minibroker.protocol.records.walking import find_next_sound_batch
from minibroker.quantities import format_count
from minibroker.storage.batch_scanning import iterate_headers
from minibroker.storage.checkpoints.checkpoint_texts import (
    CLEANER_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    MalformedCheckpoint,
    TopicPartition,
    format_offset_checkpoint,
    format_partition_metadata,
    parse_offset_checkpoint,
    parse_properties,
    parse_topic_id,
)
from minibroker.storage.directories.log_directory import (
    LOCK,
    OFFSET_CHECKPOINTS,
    is_directory_id,
)
from minibroker.storage.environment import Environment
from minibroker.storage.files import Disk, File
from minibroker.storage.names import (
    CLEAN_SHUTDOWN,
    LOG_SUFFIX,
    QUORUM_STATE,
    STRAY_LOG_SUFFIX,
    format_log_name,
    list_offsets_with_suffix,
    make_future_log_name,
    make_log_name_with_suffix,
    make_segment_name,
    parse_log_name,
)
from minibroker.storage.recovery.recovery import LogDirectoryError, create_log

RECORDS_OF_A_BATCH = 500
UNWRITTEN_PRODUCER_IDS = 1_000_000  # this many may be in use without a batch in any log
METADATA = METADATA_TOPIC, 0


class FoundLog(NamedTuple):
    """The directory of a partition, the topic id in it (None if it cannot be read), and the id of its log directory."""

    path: str
    topic_id: bytes | None
    directory_id: bytes


class MetadataRepair:
    """The repair of the directories at `paths`: `steps` describes it, `apply_planned_repair` does it.

    The directories are locked from the beginning to `close`. Raises `LogDirectoryError` if they cannot be used.
    """

    def __init__(self, disk: Disk, paths: Sequence[str], now_ms: int) -> None:
        self.steps: list[str] = []
        self._disk = disk
        self._paths = list(paths)
        self._now_ms = now_ms
        self._random = SystemRandom()
        self._added: list[Message] = []
        self._ids: list[tuple[str, bytes]] = []  # directories that get a partition.metadata, and its content
        self._locks: list[File] = []
        try:
            self._lock_directories()
            self._node_id, self._logs = self._find_logs()
            self._plan_repair()
        except (OSError, LogDirectoryError) as error:
            self.close()
            raise LogDirectoryError(str(error)) from error

    def close(self) -> None:
        """Unlock the directories."""
        while self._locks:
            self._locks.pop().close()

    # --- what there is --------------------------------------------------------------------------

    def _lock_directories(self) -> None:
        for path in self._paths:
            if not self._disk.exists(f"{path}/{META_PROPERTIES}"):
                raise LogDirectoryError(f"{path} has no {META_PROPERTIES}, and is not a log directory")
            lock = self._disk.lock(f"{path}/{LOCK}")
            if lock is None:
                raise LogDirectoryError(f"log directory {path} is in use by another process")
            self._locks.append(lock)

    def _find_logs(self) -> tuple[int, dict[TopicPartition, FoundLog]]:
        """Return the id of the node, and the log of each partition."""
        node_ids, logs = set(), {}
        for path in self._paths:
            node_id, directory_id = self._read_meta_properties(f"{path}/{META_PROPERTIES}")
            node_ids.add(node_id)
            for name in self._disk.list_names(path):
                key = parse_log_name(name)
                if key is not None and self._disk.is_directory(f"{path}/{name}"):
                    logs[key] = FoundLog(f"{path}/{name}", self._read_topic_id(f"{path}/{name}"), directory_id)
        if len(node_ids) != 1:
            raise LogDirectoryError(f"{', '.join(self._paths)} are of different nodes")
        return node_ids.pop(), logs

    def _read_meta_properties(self, path: str) -> tuple[int, bytes]:
        """Return the node id and the directory id (16 bytes, 0 if unusable). Raises LogDirectoryError."""
        try:
            values = parse_properties(self._disk.read_whole(path))
            directory_id = values.get("directory.id", "")
            usable = is_directory_id(directory_id)
            return int(values["node.id"]), parse_uuid(directory_id) if usable else bytes(16)
        except (MalformedCheckpoint, KeyError, ValueError) as error:
            raise LogDirectoryError(f"{path} cannot be used: {error}") from None

    def _read_topic_id(self, path: str) -> bytes | None:
        """Return the topic id in partition.metadata of a log's directory; None if it is missing or malformed."""
        file = f"{path}/{PARTITION_METADATA}"
        try:
            return parse_topic_id(self._disk.read_whole(file)) if self._disk.exists(file) else None
        except MalformedCheckpoint:
            return None

    # --- what is to be done ---------------------------------------------------------------------

    def _plan_repair(self) -> None:
        """Plan the records to add to the metadata log, and describe in `steps` what will be done."""
        metadata = self._logs.get(METADATA)
        self._salvage = SalvagedMetadata(self._disk, None if metadata is None else metadata.path)
        self.steps += self._salvage.problems
        if metadata is None:
            self.steps.append(f"there is no {METADATA_TOPIC}-0, which says what topics there are")
        else:
            self.steps += self._describe_missing_records_at_end(metadata.path)
        self._plan_all_topics()
        self._anew = bool(self.steps)  # and not only files with ids
        if self._anew:
            self._plan_features_and_producer_id()
            count, added = len(self._salvage.messages), len(self._added)
            if metadata is None:
                self.steps.append(f"{METADATA_TOPIC}-0 is written with {format_count(added, 'new record')}")
            else:
                self.steps.append(
                    f"{METADATA_TOPIC}-0 is rewritten with {format_count(count, 'record')} of the old one and "
                    f"{format_count(added, 'new record')}; the old one is kept in a directory that ends with "
                    f"{STRAY_LOG_SUFFIX}"
                )
        elif metadata is not None and metadata.topic_id != METADATA_TOPIC_ID:
            self._plan_to_write_topic_id(metadata.path, METADATA_TOPIC_ID)
        self.steps += [
            f"{path}/{PARTITION_METADATA} gets the id {format_uuid(topic_id)}" for path, topic_id in self._ids
        ]

    def _describe_missing_records_at_end(self, path: str) -> Iterator[str]:
        """Yield a problem if the metadata log ends before an offset that the checkpoints say it had reached."""
        reached = max(self._read_checkpoint(folder, name).get(METADATA, 0) for folder, name in self._list_checkpoints())
        if self._salvage.next_offset < reached:
            yield f"{path} ends at offset {self._salvage.next_offset}, but had reached {reached}"

    def _plan_all_topics(self) -> None:
        by_topic: dict[str, dict[int, FoundLog]] = {}
        for (name, index), log in sorted(self._logs.items()):
            if name != METADATA_TOPIC:
                by_topic.setdefault(name, {})[index] = log
        for name, logs in by_topic.items():
            topic = self._salvage.image.topics.get(name)
            if topic is None:
                self._plan_topic(name, logs)
                continue
            self._plan_partitions(name, topic.topic_id, len(topic.partitions), logs)
            for log in logs.values():
                older = log.topic_id in self._salvage.removed or self._salvage.has_snapshot
                if log.topic_id is None or log.topic_id != topic.topic_id and not older:
                    self._plan_to_write_topic_id(log.path, topic.topic_id)

    def _plan_topic(self, name: str, logs: dict[int, FoundLog]) -> None:
        """Plan to restore a lost topic, unless it was deleted. If its directories disagree, the majority is right."""
        ids = Counter(log.topic_id for log in logs.values() if log.topic_id is not None)
        for removed in [topic_id for topic_id in ids if topic_id in self._salvage.removed]:
            del ids[removed]
            logs = {index: log for index, log in logs.items() if log.topic_id != removed}
        if not logs:
            return
        topic_id = ids.most_common(1)[0][0] if ids else make_uuid(self._random)
        configs = self._find_topic_configs(name)
        texts = ", ".join(f"{key}={value}" for key, value in configs.items())
        if name not in INTERNAL_TOPICS and not self._salvage.image.get_configs(TOPIC_RESOURCE, name):
            texts = f"{texts or 'no config'}; its other configs, such as retention.ms, are lost and must be set again"
        self.steps.append(f"topic {name} is restored with the id {format_uuid(topic_id)}{texts and ' and '}{texts}")
        self._added.append(records.TopicRecord(name=name, topic_id=topic_id))
        for key, value in configs.items():
            config = records.ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=name, name=key, value=value)
            self._added.append(config)
        self._plan_partitions(name, topic_id, 0, logs)
        for log in logs.values():
            if log.topic_id != topic_id:
                self._plan_to_write_topic_id(log.path, topic_id)

    def _find_topic_configs(self, name: str) -> dict[str, str]:
        """Return the known part of a topic's lost configs: whether it was compacted."""
        if self._salvage.image.get_configs(TOPIC_RESOURCE, name):
            return {}
        cleaned = any(
            key[0] == name
            for folder, checkpoint in self._list_checkpoints()
            if checkpoint == CLEANER_OFFSET_CHECKPOINT
            for key in self._read_checkpoint(folder, checkpoint)
        )
        if name in INTERNAL_TOPICS:
            codec = "producer" if name == GROUPS_TOPIC else "uncompressed"
            return {"cleanup.policy": "compact", "compression.type": codec, "segment.bytes": str(100 << 20)}
        return {"cleanup.policy": "compact"} if cleaned else {}

    def _plan_partitions(self, name: str, topic_id: bytes, recorded_count: int, logs: dict[int, FoundLog]) -> None:
        """Plan the records of partitions from `recorded_count` on: those with a log, and empty ones between."""
        for index in range(recorded_count, max(logs) + 1):
            log = logs.get(index)
            where = "begins empty, as it has no directory" if log is None else f"is {log.path}"
            self.steps.append(f"{name}-{index} {where}")
            partition = records.PartitionRecord(partition_id=index, topic_id=topic_id)
            partition.replicas, partition.isr, partition.leader = [self._node_id], [self._node_id], self._node_id
            partition.leader_epoch = 0 if log is None else self._find_largest_epoch_and_producer_id(log.path)[0]
            partition.partition_epoch = 0
            partition.directories = [bytes(16) if log is None else log.directory_id]
            self._added.append(partition)

    def _plan_features_and_producer_id(self) -> None:
        """Plan the feature levels, which readers need, and the next producer id."""
        if features.METADATA_VERSION not in self._salvage.image.features:
            levels = features.INITIAL.items()
            first = [records.FeatureLevelRecord(name=name, feature_level=level) for name, level in levels]
            self._added[:0] = first
        seen = max(
            (self._find_largest_epoch_and_producer_id(found.path)[1] for found in self._logs.values()), default=-1
        )
        if seen >= self._salvage.image.next_producer_id - UNWRITTEN_PRODUCER_IDS:
            next_id = seen + 1 + UNWRITTEN_PRODUCER_IDS
            owner = records.ProducerIdsRecord(broker_id=self._node_id, broker_epoch=-1, next_producer_id=next_id)
            self._added.append(owner)

    def _find_largest_epoch_and_producer_id(self, path: str) -> tuple[int, int]:
        """Return the largest leader epoch and producer id of the batches in a log; 0 and -1 if there are none."""
        epoch, producer_id = 0, -1
        for base_offset in list_offsets_with_suffix(self._disk.list_names(path), LOG_SUFFIX):
            file = self._disk.open_to_read(f"{path}/{make_segment_name(base_offset)}{LOG_SUFFIX}")
            with suppress(CorruptBatch):
                for _, header in iterate_headers(file, 0, file.size_bytes()):
                    epoch = max(epoch, header.partition_leader_epoch)
                    producer_id = max(producer_id, header.producer_id)
        return epoch, producer_id

    def _plan_to_write_topic_id(self, path: str, topic_id: bytes) -> None:
        """Plan to write the topic id into partition.metadata of the log directory at `path`."""
        self._ids.append((path, topic_id))

    def _list_checkpoints(self) -> list[tuple[str, str]]:
        """Return (directory, name) of each offset checkpoint."""
        return [(path, name) for path in self._paths for name in OFFSET_CHECKPOINTS]

    def _read_checkpoint(self, folder: str, name: str) -> dict[TopicPartition, int]:
        """Return the offsets in a checkpoint, by partition; none if it is damaged, which the next start reports."""
        path = f"{folder}/{name}"
        with suppress(MalformedCheckpoint):
            return parse_offset_checkpoint(self._disk.read_whole(path)) if self._disk.exists(path) else {}
        return {}

    # --- doing it -------------------------------------------------------------------------------

    def apply_planned_repair(self) -> None:
        """Carry out the planned `steps`, so that the next start recovers all logs.

        Raises `OSError`, `LogDirectoryError` or `KafkaError`.
        """
        for path, topic_id in self._ids:
            self._disk.write_whole(f"{path}/{PARTITION_METADATA}", format_partition_metadata(topic_id), sync=True)
        if self._anew:
            self._rewrite_metadata_log()

    def _rewrite_metadata_log(self) -> None:
        old = self._logs.get(METADATA)
        folder = self._paths[0] if old is None else os.path.dirname(old.path)
        unique = self._random.randbytes(16).hex()
        new = f"{folder}/{make_future_log_name(*METADATA, unique)}"  # removed by the next start if this is interrupted
        self._write_new_metadata_log(new, None if old is None else f"{old.path}/{QUORUM_STATE}")
        for path, name in self._list_checkpoints():
            offsets = self._read_checkpoint(path, name)
            if offsets.pop(METADATA, None) is not None:
                self._disk.write_whole(f"{path}/{name}", format_offset_checkpoint(offsets), sync=True)
        for path in self._paths:
            self._disk.remove(f"{path}/{CLEAN_SHUTDOWN}")
            self._disk.sync_directory(path)
        if old is not None:
            self._disk.rename(old.path, f"{folder}/{make_log_name_with_suffix(*METADATA, unique, STRAY_LOG_SUFFIX)}")
        self._disk.rename(new, f"{folder}/{format_log_name(*METADATA)}")
        self._disk.sync_directory(folder)

    def _write_new_metadata_log(self, path: str, quorum_state: str | None) -> None:
        """Write a metadata log to `path`, whose leader epochs continue those of the old one."""
        self._disk.make_directory(path)
        self._disk.write_whole(f"{path}/{PARTITION_METADATA}", format_partition_metadata(METADATA_TOPIC_ID), sync=True)
        if quorum_state is not None and self._disk.exists(quorum_state):
            self._disk.write_whole(f"{path}/{QUORUM_STATE}", self._disk.read_whole(quorum_state), sync=True)
        environment = Environment(self._disk, lambda: self._now_ms, lambda delay_ms, callback: None)
        log = create_log(environment, path, METADATA, METADATA_TOPIC_ID, METADATA_SETTINGS)
        messages = [*self._salvage.messages, *self._added]
        level = self._salvage.image.features.get(features.METADATA_VERSION, features.INITIAL[features.METADATA_VERSION])
        for start in range(0, len(messages), RECORDS_OF_A_BATCH):
            batch = memoryview(
                build_batch(
                    [
                        Record(0, self._now_ms, None, encode_metadata_record(message, level), ())
                        for message in messages[start : start + RECORDS_OF_A_BATCH]
                    ]
                )
            )
            log.append(batch, [read_header(batch)], self._salvage.latest_epoch)
        log.close()


class SalvagedMetadata:
    """The `messages` that are left of the log in `directory` (None if it is missing), and the `image` built from them.

    `problems` describes the damage, a line each. `removed` has the ids of deleted topics, `latest_epoch` is the newest
    leader epoch of a batch. With `has_snapshot`, deletions before the snapshot are unknown.
    """

    def __init__(self, disk: Disk, directory: str | None) -> None:
        """Read the whole log. Raises `OSError`."""
        self.messages: list[Message] = []
        self.image = Image()
        self.problems: list[str] = []
        self.removed: set[bytes] = set()
        self.latest_epoch = 0
        self.next_offset = 0
        self.has_snapshot = False
        self._pending: list[Message] | None = None
        if directory is not None:
            self._read_log(disk, directory)

    def _read_log(self, disk: Disk, directory: str) -> None:
        snapshot = find_newest_snapshot(disk, directory)
        self.has_snapshot = snapshot is not None
        if snapshot is not None:
            self._decode_values_into_messages(snapshot.path, iterate_record_values_in(snapshot.data))
            self.next_offset, self.latest_epoch = snapshot.end_offset, snapshot.leader_epoch
        start = self.next_offset
        for base_offset in list_offsets_with_suffix(disk.list_names(directory), LOG_SUFFIX):
            path = f"{directory}/{make_segment_name(base_offset)}{LOG_SUFFIX}"
            self._decode_values_into_messages(
                path, self._iterate_values(path, disk.read_whole(path), base_offset, start)
            )

    def _iterate_values(self, path: str, data: bytes, base_offset: int, start: int) -> Iterator[tuple[int, bytes]]:
        """Yield (offset, value) of the records from `start` on in the valid batches of a segment."""
        if base_offset > self.next_offset:
            self.problems.append(f"{path}: offsets {self.next_offset} to {base_offset - 1} are missing")
        position, self.next_offset = 0, base_offset
        while position < len(data):
            batch_at = find_next_sound_batch(data, position)
            damaged_bytes = (len(data) if batch_at is None else batch_at) - position
            if damaged_bytes:
                self.problems.append(
                    f"{path}: {damaged_bytes} bytes at {position}, offset {self.next_offset}, are damaged"
                )
            if batch_at is None:
                return
            header = read_header(data, batch_at)
            offset = self._find_credible_offset(path, header, batch_at, damaged_bytes)
            position = batch_at + header.size_bytes
            moved = offset - header.base_offset
            self.next_offset = header.next_offset + moved
            self.latest_epoch = max(self.latest_epoch, header.partition_leader_epoch)
            values = ((at + moved, value) for at, value in iterate_record_values_in(data[batch_at:position]))
            yield from ((at, value) for at, value in values if at >= start)

    def _find_credible_offset(self, path: str, header: BatchHeader, position: int, damaged_bytes: int) -> int:
        """Return the batch's base offset, or the expected one if it is damaged: no checksum protects it."""
        missing = header.base_offset - self.next_offset
        if 0 < missing <= damaged_bytes:
            self.problems.append(f"{path}: offsets {self.next_offset} to {header.base_offset - 1} are missing")
        elif missing:
            said = f"the offset of the batch at {position} is damaged: {header.base_offset}"
            self.problems.append(f"{path}: {said}, where {self.next_offset} is next")
            return self.next_offset
        return header.base_offset

    def _decode_values_into_messages(self, path: str, values: Iterator[tuple[int, bytes]]) -> None:
        for offset, value in values:
            try:
                for message in self._list_messages_that_become_valid(decode_metadata_record(value)):
                    self.image.apply_record(message)
                    self.messages.append(message)
                    if isinstance(message, RemoveTopicRecord):
                        self.removed.add(message.topic_id)
            except (InconsistentMetadata, UnknownMetadata, MalformedMessage, KafkaError) as error:
                self.problems.append(f"{path}: the record at offset {offset} is left out: {error}")

    def _list_messages_that_become_valid(self, message: Message) -> list[Message]:
        """Return the messages that become valid with a record; those of a transaction whose end is lost never do."""
        pending = self._pending
        if isinstance(message, BeginTransactionRecord):
            self._pending = []
        elif isinstance(message, EndTransactionRecord | AbortTransactionRecord):
            self._pending = None
            return pending if pending is not None and isinstance(message, EndTransactionRecord) else []
        elif pending is None:
            return [message]
        else:
            pending.append(message)
        return []
