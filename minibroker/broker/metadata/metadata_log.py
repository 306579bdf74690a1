"""The metadata log, `__cluster_metadata-0`: writes and replays Kafka's metadata records.

`records/metadata_values.py` of the protocol has the format of the records' values. `image` applies the records.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from minibroker.broker.metadata.features import LOWEST_METADATA_VERSION
from minibroker.broker.metadata.image import InconsistentMetadata
from minibroker.broker.metadata.metadata_snapshots import (
    BOOTSTRAP,
    find_kraft_version,
    find_newest_snapshot,
    find_snapshot_incompleteness,
    iterate_record_values_in,
)
from minibroker.broker.metadata.quorum_state import (
    NOBODY,
    MalformedQuorumState,
    QuorumState,
    parse_quorum_state,
)
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.messages.control_records import LeaderChangeMessage
from minibroker.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from minibroker.protocol.primitives import MalformedMessage
from minibroker.protocol.records.batch import read_header
from minibroker.protocol.records.building import build_batch, build_batch_in_steps
from minibroker.protocol.records.control import make_control_record
from minibroker.protocol.records.metadata_values import UnknownMetadata, decode_metadata_record, encode_metadata_record
from minibroker.protocol.records.record import Record
from minibroker.protocol.steps import Steps, apply_to_items_in_steps
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.names import QUORUM_STATE

if TYPE_CHECKING:
    from minibroker.storage.files import Disk
    from minibroker.storage.log import Log

log = logging.getLogger("minibroker.metadata")

METADATA_SETTINGS = LogSettings(retention_ms=-1)  # without snapshots of ours, nothing of it may ever go

READ_BYTES = 8 << 20
NO_EPOCH = -1
ABORT_REASON = "Controller failover"  # Kafka's words


class MetadataError(Exception):
    """The metadata log cannot be used; the message is one line that says where."""


class MetadataLog:
    """The log of partition 0 of `__cluster_metadata`: replayed once, then led and appended to.

    `lead` begins `leader_epoch` with `leader_id` as the elected leader of `voters`; `kraft_version` is 1 if Kafka has
    written the voters to the log.
    """

    def __init__(self, storage: Log, disk: Disk) -> None:
        self.storage = storage
        self.leader_epoch = NO_EPOCH
        self.leader_id = NOBODY
        self.voters: tuple[int, ...] = ()
        self.kraft_version = 0
        self._disk = disk
        self._snapshot_epoch = NO_EPOCH
        self._pending: list[tuple[int, Message]] | None = None  # the records of an open transaction

    @property
    def is_new(self) -> bool:
        """Return whether nothing was ever written here: the log ends at offset 0."""
        return self.storage.log_end_offset == 0

    # --- reading --------------------------------------------------------------------------------

    def replay_all_records(self, apply_record: Callable[[Message], None]) -> None:
        """Pass all records to `apply_record`, which may raise InconsistentMetadata. Raises MetadataError.

        The newest snapshot replaces all records before its end. Records of a transaction (KIP-868) are passed when it
        is committed, and never if it was aborted or has not ended.
        """
        start = self._replay_snapshot(apply_record)
        if start < self.storage.log_start_offset:
            raise self._make_metadata_error(
                start, f"the log begins at {self.storage.log_start_offset}, and no snapshot ends there"
            )
        self._apply_records(self.storage.directory, self._iterate_record_values(start), apply_record)

    def read_bootstrap_records(self) -> list[Message]:
        """Return the first records of a new log, from Kafka's format command, if any. Raises MetadataError."""
        path = f"{os.path.dirname(self.storage.directory)}/{BOOTSTRAP}"
        try:
            if not self._disk.exists(path):
                return []
            data = self._disk.read_whole(path)
        except OSError as error:
            raise MetadataError(f"{path} cannot be read: {error}") from error
        reason = find_snapshot_incompleteness(data)
        if reason is not None:
            raise MetadataError(f"{path} cannot be used: {reason}")
        messages: list[Message] = []
        self._apply_records(path, iterate_record_values_in(data), messages.append)
        return messages

    def _replay_snapshot(self, apply_record: Callable[[Message], None]) -> int:
        """Replay the newest snapshot, if there is one; return the offset behind it, at which the log continues."""
        try:
            snapshot = find_newest_snapshot(self._disk, self.storage.directory)
        except OSError as error:
            raise MetadataError(f"{self.storage.directory} cannot be read: {error}") from error
        if snapshot is None:
            return 0
        if snapshot.end_offset > self.storage.log_end_offset:
            raise self._make_metadata_error(
                self.storage.log_end_offset, f"the log ends before the snapshot {snapshot.path}"
            )
        self._apply_records(snapshot.path, self._iterate_record_values_in(snapshot.data), apply_record)
        self._snapshot_epoch = snapshot.leader_epoch
        return snapshot.end_offset

    def _iterate_record_values(self, start: int) -> Iterator[tuple[int, bytes]]:
        """Yield (offset, value) of all records from `start` on, without control batches. Raises KafkaError."""
        offset = start
        while (region := self.storage.read(offset, READ_BYTES, minimum_one=True)) is not None:
            data = region.file.read(region.position, region.size_bytes)
            yield from ((at, value) for at, value in self._iterate_record_values_in(data) if at >= start)
            offset = region.next_offset

    def _iterate_record_values_in(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield (offset, value) of the records in complete batches, and note the level of kraft.version."""
        self.kraft_version = find_kraft_version(data, self.kraft_version)
        yield from iterate_record_values_in(data)

    def _apply_records(
        self, path: str, values: Iterable[tuple[int, bytes]], apply_record: Callable[[Message], None]
    ) -> None:
        """Decode and apply the records of `path`, once their transactions have ended."""
        offset = 0
        try:
            for offset, value in values:
                for at, message in self._list_records_that_become_valid(offset, decode_metadata_record(value)):
                    offset = at
                    apply_record(message)
        except (UnknownMetadata, MalformedMessage, InconsistentMetadata, KafkaError) as error:
            raise MetadataError(f"{path} cannot be used, offset {offset}: {error}") from error

    def _list_records_that_become_valid(self, offset: int, message: Message) -> Iterable[tuple[int, Message]]:
        """Return the records that become valid: this one, none yet, or those of the transaction that it ends."""
        if isinstance(message, BeginTransactionRecord):
            if self._pending is not None:
                raise InconsistentMetadata("a transaction begins within another")
            self._pending = []
        elif isinstance(message, EndTransactionRecord | AbortTransactionRecord):
            if self._pending is None:
                raise InconsistentMetadata("a transaction ends that has not begun")
            ended, self._pending = self._pending, None
            return ended if isinstance(message, EndTransactionRecord) else ()
        elif self._pending is None:
            return ((offset, message),)
        else:
            self._pending.append((offset, message))
        return ()

    # --- writing --------------------------------------------------------------------------------

    def begin_leader_epoch(self, node_id: int, now_ms: int) -> None:
        """Begin a new leader epoch, as an elected voter does. Raises MetadataError or KafkaError.

        An open transaction of an earlier controller is aborted.
        """
        state = self._read_quorum_state()
        known = (state.leader_epoch, self.storage.leader_epoch, self._snapshot_epoch, 0)
        self.leader_epoch = max(known) + 1
        self.kraft_version = max(self.kraft_version, state.version)
        state = state._replace(version=self.kraft_version).make_state_after_election(node_id, self.leader_epoch)
        self.leader_id, self.voters = node_id, state.voters or (node_id,)
        try:
            self._disk.write_whole(self._quorum_path, state.encode_as_json(), sync=False)
        except OSError as error:
            raise MetadataError(f"{self._quorum_path} cannot be written: {error}") from error
        voters = [LeaderChangeMessage.Voter(voter_id=voter) for voter in self.voters]
        granting = [LeaderChangeMessage.Voter(voter_id=node_id)]
        change = LeaderChangeMessage(leader_id=node_id, voters=voters, granting_voters=granting)
        self._append_records([make_control_record(change, timestamp=now_ms)], control=True)
        if self._pending is not None:
            self._pending = None
            self.append_messages([AbortTransactionRecord(reason=ABORT_REASON)], now_ms, LOWEST_METADATA_VERSION)

    def append_messages(self, messages: Iterable[Message], now_ms: int, metadata_version: int) -> None:
        """Write the records at this level of metadata.version as one batch; a crash keeps all of them or none."""
        self._append_records(
            Record(0, now_ms, None, encode_metadata_record(message, metadata_version), ()) for message in messages
        )

    def build_batch_in_steps(
        self, messages: Iterable[Message], now_ms: int, metadata_version: int
    ) -> Steps[memoryview]:
        """Build the batch that `append_messages` would write, for `append_batch`."""
        written = yield from apply_to_items_in_steps(
            lambda message: Record(0, now_ms, None, encode_metadata_record(message, metadata_version), ()), messages
        )
        return memoryview((yield from build_batch_in_steps(written)))

    def append_batch(self, batch: memoryview) -> None:
        """Write a batch of `build_batch_in_steps`; a crash keeps all of it or nothing."""
        self.storage.append(batch, [read_header(batch)], self.leader_epoch)

    def _append_records(self, records: Iterable[Record], *, control: bool = False) -> None:
        written = list(records)
        if written:
            self.append_batch(memoryview(build_batch(written, control=control)))

    @property
    def _quorum_path(self) -> str:
        return f"{self.storage.directory}/{QUORUM_STATE}"

    def _read_quorum_state(self) -> QuorumState:
        """Read the file; if it is damaged, return an empty state, as the log has the epochs too."""
        try:
            if self._disk.exists(self._quorum_path):
                return parse_quorum_state(self._disk.read_whole(self._quorum_path))
        except OSError as error:
            raise MetadataError(f"{self._quorum_path} cannot be read: {error}") from error
        except MalformedQuorumState as error:
            log.warning("%s cannot be used: %s", self._quorum_path, error)
        return QuorumState()

    def _make_metadata_error(self, offset: int, reason: object) -> MetadataError:
        return MetadataError(f"{self.storage.directory} cannot be used, offset {offset}: {reason}")
