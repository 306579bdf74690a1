"""The readable and consistent records of a damaged metadata log, before and after the damage.

`metadata_repair` restores what is missing from the directories of the partitions.
"""

from __future__ import annotations

from collections.abc import Iterator

from minibroker.broker.metadata.image import Image, InconsistentMetadata
from minibroker.broker.metadata.metadata_snapshots import newest_snapshot, values_in
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    RemoveTopicRecord,
)
from minibroker.protocol.primitives import MalformedMessage
from minibroker.protocol.records.batch import BatchHeader, read_header
from minibroker.protocol.records.metadata_values import UnknownMetadata, decode_metadata
from minibroker.protocol.records.walking import next_sound_batch
from minibroker.storage.files import Disk
from minibroker.storage.names import LOG_SUFFIX, offsets_with, segment_name


class Salvage:
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
            self._read(disk, directory)

    def _read(self, disk: Disk, directory: str) -> None:
        snapshot = newest_snapshot(disk, directory)
        self.has_snapshot = snapshot is not None
        if snapshot is not None:
            self._take(snapshot.path, values_in(snapshot.data))
            self.next_offset, self.latest_epoch = snapshot.end_offset, snapshot.leader_epoch
        start = self.next_offset
        for base_offset in offsets_with(disk.names(directory), LOG_SUFFIX):
            path = f"{directory}/{segment_name(base_offset)}{LOG_SUFFIX}"
            self._take(path, self._values(path, disk.read_whole(path), base_offset, start))

    def _values(self, path: str, data: bytes, base_offset: int, start: int) -> Iterator[tuple[int, bytes]]:
        """Yield (offset, value) of the records from `start` on in the valid batches of a segment."""
        if base_offset > self.next_offset:
            self.problems.append(f"{path}: offsets {self.next_offset} to {base_offset - 1} are missing")
        position, self.next_offset = 0, base_offset
        while position < len(data):
            found = next_sound_batch(data, position)
            damaged_bytes = (len(data) if found is None else found) - position
            if damaged_bytes:
                self.problems.append(
                    f"{path}: {damaged_bytes} bytes at {position}, offset {self.next_offset}, are damaged"
                )
            if found is None:
                return
            header = read_header(data, found)
            offset = self._offset_of(path, header, found, damaged_bytes)
            position = found + header.size_bytes
            moved = offset - header.base_offset
            self.next_offset = header.next_offset + moved
            self.latest_epoch = max(self.latest_epoch, header.partition_leader_epoch)
            values = ((at + moved, value) for at, value in values_in(data[found:position]))
            yield from ((at, value) for at, value in values if at >= start)

    def _offset_of(self, path: str, header: BatchHeader, position: int, damaged_bytes: int) -> int:
        """Return the offset of a batch. No checksum protects it, so it counts only if the one before allows it."""
        missing = header.base_offset - self.next_offset
        if 0 < missing <= damaged_bytes:
            self.problems.append(f"{path}: offsets {self.next_offset} to {header.base_offset - 1} are missing")
        elif missing:
            said = f"the offset of the batch at {position} is damaged: {header.base_offset}"
            self.problems.append(f"{path}: {said}, where {self.next_offset} is next")
            return self.next_offset
        return header.base_offset

    def _take(self, path: str, values: Iterator[tuple[int, bytes]]) -> None:
        for offset, value in values:
            try:
                for message in self._release_messages(decode_metadata(value)):
                    self.image.apply(message)
                    self.messages.append(message)
                    if isinstance(message, RemoveTopicRecord):
                        self.removed.add(message.topic_id)
            except (InconsistentMetadata, UnknownMetadata, MalformedMessage, KafkaError) as error:
                self.problems.append(f"{path}: the record at offset {offset} is left out: {error}")

    def _release_messages(self, message: Message) -> list[Message]:
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
