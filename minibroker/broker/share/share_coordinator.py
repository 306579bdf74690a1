"""The share coordinator: the delivery states of all share partitions, kept in `__share_group_state` (KIP-932).

A share partition is a group's view of a partition. Its key is `group:topic id:partition`, and the node that leads the
key's partition of the topic keeps its state. The leader of the partition itself asks for it and sends what has changed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from minibroker.broker.coordination.coordinator_logs import CoordinatorLogSettings, encode_record_entry
from minibroker.broker.coordination.runtime import CoordinatorRuntime, ValuesByPartition
from minibroker.broker.metadata.partitions import SHARE_STATE_TOPIC, Partition, Topic
from minibroker.broker.share.runs import StateBatch
from minibroker.broker.share.states import (
    UNSET,
    ShareKey,
    ShareState,
    combine_state_batches,
    parse_share_snapshot,
    parse_state_batches,
)
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from minibroker.protocol.records.internal import decode_internal_record
from minibroker.protocol.records.record import Record
from minibroker.protocol.steps import Steps

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster
    from minibroker.broker.control.controller import Controller

log = logging.getLogger("minibroker.share")

SETTINGS: Final = CoordinatorLogSettings(
    "share.coordinator.state.topic.num.partitions",
    "share.coordinator.state.topic.replication.factor",
    "share.coordinator.state.topic.segment.bytes",
    "share.coordinator.load.buffer.size",
    "share.coordinator.state.topic.compression.codec",
    min_isr="share.coordinator.state.topic.min.isr",
    cleanup_policy="delete",
)


class ShareCoordinator(CoordinatorRuntime["ShareShard"]):
    """The states of all share partitions."""

    def __init__(self, cluster: Cluster, controller: Controller) -> None:
        super().__init__(cluster, controller, SHARE_STATE_TOPIC, SETTINGS)
        self.states: ValuesByPartition[tuple[ShareKey, ShareState]] = ValuesByPartition(self.log.get_partition_index)

    def make_shard(self, index: int) -> ShareShard:
        return ShareShard(self, index)

    def on_topic_deleted(self, topic: Topic) -> Steps[None]:
        """Forget the states of a deleted topic's partitions, and all of them with the coordinators' own topic."""
        yield from super().on_topic_deleted(topic)
        failure: KafkaError | None = None
        for key, _ in self.states.iterate_present_values():
            if key.topic_id == topic.topic_id:
                try:
                    self.delete_share_state(key)
                except KafkaError as error:
                    failure = error
            yield
        if failure is not None:
            log.error("%s keeps states of the deleted topic %s: %s", self.log.name, topic.name, failure)

    # --- the states -------------------------------------------------------------------------------

    def find_share_state(self, key: ShareKey) -> ShareState | None:
        """Return the state of a share partition, or None. Raises KafkaError if it is not loaded."""
        self.get_shard_of_coordinator_key(key.coordinator_key)
        found = self.states.get(key.coordinator_key)
        return None if found is None else found[1]

    def initialize_share_state(self, key: ShareKey, state_epoch: int, start_offset: int) -> None:
        """Begin the state of a share partition at an offset; -1 leaves that to its first reader.

        Raises KafkaError: FENCED_STATE_EPOCH, or as `append_entries`.
        """
        present = self.find_share_state(key)
        if present is not None and present.state_epoch > state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        snapshot_epoch = 0 if present is None else present.snapshot_epoch + 1
        complete_count = UNSET if start_offset == UNSET else 0
        now_ms = self.cluster.clock.wall_ms()
        self._append_share_snapshot(
            key, ShareState(snapshot_epoch, state_epoch, 0, start_offset, complete_count, now_ms)
        )

    def read_share_state(self, key: ShareKey, leader_epoch: int) -> ShareState:
        """Return the state for the partition's leader, and record its leader epoch.

        Raises KafkaError: FENCED_LEADER_EPOCH, INVALID_REQUEST before `initialize_share_state`, or as `append_entries`.
        """
        state = self.find_share_state(key)
        if state is None:
            message = "Read operation on uninitialized share partition not allowed."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        if leader_epoch not in (UNSET, state.leader_epoch):
            if leader_epoch < state.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            self._append_share_update(key, state, leader_epoch, UNSET, state.complete_count, ())
        return state

    def write_share_state(
        self,
        key: ShareKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        complete_count: int,
        batches: Sequence[StateBatch],
    ) -> None:
        """Append changes of a share partition's state; -1 as an epoch or start offset leaves that as it was.

        Raises KafkaError: FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH, INVALID_REQUEST before `initialize_share_state`, or
        as `append_entries`.
        """
        state = self.find_share_state(key)
        if state is None:
            message = "Write operation on uninitialized share partition not allowed."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        if leader_epoch != UNSET and leader_epoch < state.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        if state_epoch != UNSET and state_epoch < state.state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        self._append_share_update(key, state, leader_epoch, start_offset, complete_count, batches)

    def delete_share_state(self, key: ShareKey) -> None:
        """Delete the state of a share partition, if there is one. Raises KafkaError as `append_entries`."""
        if self.find_share_state(key) is not None:
            self.append_entries(key.coordinator_key, [encode_record_entry(_make_snapshot_key(key))])
            del self.states[key.coordinator_key]

    # --- records ----------------------------------------------------------------------------------

    def _append_share_update(
        self,
        key: ShareKey,
        state: ShareState,
        leader_epoch: int,
        start_offset: int,
        complete_count: int,
        batches: Iterable[StateBatch],
    ) -> None:
        """Append an update record, or after many of them a snapshot, and apply it."""
        batches = tuple(batches)
        after = state.make_updated_state(leader_epoch, start_offset, complete_count, batches)
        if after.updates > self.cluster.settings["share.coordinator.snapshot.update.records.per.snapshot"]:
            self._append_share_snapshot(key, after._replace(snapshot_epoch=state.snapshot_epoch + 1))
            return
        value = ShareUpdateValue(
            snapshot_epoch=state.snapshot_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=complete_count,
            state_batches=[
                ShareUpdateValue.StateBatch(
                    first_offset=first, last_offset=last, delivery_state=kind, delivery_count=count
                )
                for first, last, kind, count in combine_state_batches(batches, start_offset)
            ],
        )
        record_key = ShareUpdateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)
        self.append_entries(key.coordinator_key, [encode_record_entry(record_key, value)])
        self.states[key.coordinator_key] = key, after

    def _append_share_snapshot(self, key: ShareKey, state: ShareState) -> None:
        now_ms = self.cluster.clock.wall_ms()
        offset = self.append_entries(
            key.coordinator_key, [encode_record_entry(_make_snapshot_key(key), state.make_snapshot_record(now_ms))]
        )
        self.states[key.coordinator_key] = key, state._replace(updates=0, snapshot_offset=offset, snapshot_ms=now_ms)

    # --- upkeep -----------------------------------------------------------------------------------

    def prune_share_state_records(self, partition: Partition) -> None:
        """Delete what later snapshots replace; a state that is seldom written gets a new snapshot first.

        Raises KafkaError if nothing could be deleted now.
        """
        now_ms = self.cluster.clock.wall_ms()
        oldest_ms = now_ms - self.cluster.settings["share.coordinator.cold.partition.snapshot.interval.ms"]
        for key, state in self.states.list_values_of_partition(partition.index):
            if state.snapshot_ms < oldest_ms:
                self._append_share_snapshot(key, state._replace(snapshot_epoch=state.snapshot_epoch + 1))
        kept = partition.log
        offset = min(
            (state.snapshot_offset for _, state in self.states.list_values_of_partition(partition.index)),
            default=kept.high_watermark,
        )
        if kept.log_start_offset < offset <= kept.high_watermark:
            kept.delete_records_before(offset)
            partition.wake_all_waiters()


def _make_snapshot_key(key: ShareKey) -> ShareSnapshotKey:
    return ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)


class ShareShard:
    """The states of one partition of the topic."""

    def __init__(self, coordinator: ShareCoordinator, index: int) -> None:
        self._coordinator = coordinator
        self._index = index

    def replay_record(self, record: Record, producer_id: int) -> None:
        found, value = decode_internal_record(SHARE_STATE_TOPIC, record.key, record.value)
        message = found.message
        assert isinstance(message, ShareSnapshotKey | ShareUpdateKey)
        key, states = ShareKey(message.group_id, message.topic_id, message.partition), self._coordinator.states
        if value is None:
            if isinstance(message, ShareSnapshotKey) and key.coordinator_key in states:
                del states[key.coordinator_key]
        elif isinstance(value.message, ShareSnapshotValue):
            states[key.coordinator_key] = key, parse_share_snapshot(value.message, record.offset)
        elif isinstance(value.message, ShareUpdateValue):
            said = value.message
            before = (
                states[key.coordinator_key][1] if key.coordinator_key in states else ShareState(said.snapshot_epoch)
            )
            batches = parse_state_batches(said.state_batches)
            after = before.make_updated_state(
                said.leader_epoch, said.start_offset, said.delivery_complete_count, batches
            )
            states[key.coordinator_key] = key, after

    def apply_transaction_end(self, producer_id: int, *, committed: bool) -> None:
        """Do nothing: no transaction writes here."""

    def start_timers_after_load(self) -> None:
        """Do nothing: leaders ask for the states."""

    def discard_state(self) -> None:
        self._coordinator.states.remove_values_of_partition(self._index)
