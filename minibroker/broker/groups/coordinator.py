"""The coordinator: all groups by id, found, made, and folded from `__consumer_offsets` at the start.

What the members of a group do is its kind's business (`classic/`, `consumer/`), what they commit that of `offsets`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from minibroker.broker.coordination.coordinator_logs import NO_PRODUCER, CoordinatorLogSettings
from minibroker.broker.coordination.runtime import ByPartition, CoordinatorRuntime
from minibroker.broker.groups import records
from minibroker.broker.groups.classic.group import ClassicGroup
from minibroker.broker.groups.commits import forget_missing_topics, forget_offsets, forget_topic
from minibroker.broker.groups.consumer.group import ConsumerGroup
from minibroker.broker.groups.consumer.recording import APPLIED
from minibroker.broker.groups.group import Group
from minibroker.broker.groups.offsets import CommittedOffset, CommittedOffsets
from minibroker.broker.metadata.partitions import GROUPS_TOPIC, Topic
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages import group_records
from minibroker.protocol.records.internal import decode_internal
from minibroker.protocol.records.record import Record
from minibroker.protocol.steps import Steps

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster, Node
    from minibroker.broker.control.controller import Controller

log = logging.getLogger("minibroker.groups")

SETTINGS = CoordinatorLogSettings(
    "offsets.topic.num.partitions",
    "offsets.topic.replication.factor",
    "offsets.topic.segment.bytes",
    "offsets.load.buffer.size",
    "offsets.topic.compression.codec",
)


OFFSET_COMMIT_TYPE = group_records.OffsetCommitKey.api_key.to_bytes(2, "big")  # what keys of this type begin with


class GroupCoordinator(CoordinatorRuntime["GroupShard"]):
    """All groups of the cluster, which keep their state in `__consumer_offsets`."""

    def __init__(self, cluster: Cluster, controller: Controller) -> None:
        super().__init__(cluster, controller, GROUPS_TOPIC, SETTINGS)
        self.groups: ByPartition[Group] = ByPartition(self.log)

    def new_shard(self, index: int) -> GroupShard:
        return GroupShard(self, index)

    def topic_deleted(self, topic: Topic) -> Steps[None]:
        yield from super().topic_deleted(topic)
        yield from forget_topic(self, topic)

    # --- which node, which group ------------------------------------------------------------------

    def check_named(self, node: Node, group_id: str) -> None:
        """As `check`, for who belongs to the group: only whoever just commits offsets may do that for the empty id.

        Raises KafkaError: INVALID_GROUP_ID, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        self.check_id(group_id)
        self.check(node, group_id)

    def check_id(self, group_id: str) -> None:
        """Raises KafkaError(INVALID_GROUP_ID) for an id that no group with members can have."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "A group id is not empty.")

    def of_node(self, node: Node) -> list[Group]:
        """The groups that `node` looks after."""
        return [group for group in self.groups.values() if self.node_of(group.group_id) is node]

    def of_members(self, node: Node, group_id: str) -> Group:
        """The group, for those who say that they belong to it.

        Raises KafkaError: INVALID_GROUP_ID, NOT_COORDINATOR, UNKNOWN_MEMBER_ID where there is no group.
        """
        self.check_named(node, group_id)
        if group_id not in self.groups:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return self.groups[group_id]

    def found(self, group_id: str) -> Group:
        """The group, of whatever kind. Raises KafkaError(GROUP_ID_NOT_FOUND)."""
        if group_id not in self.groups:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return self.groups[group_id]

    def classic(self, group_id: str) -> ClassicGroup:
        """The classic group of this id. Raises KafkaError(GROUP_ID_NOT_FOUND)."""
        group = self.found(group_id)
        if not isinstance(group, ClassicGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a classic group.")
        return group

    def consumer_group(self, group_id: str) -> ConsumerGroup:
        """The consumer group of this id (KIP-848). Raises KafkaError(GROUP_ID_NOT_FOUND)."""
        group = self.found(group_id)
        if not isinstance(group, ConsumerGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        return group

    def classic_group(self, group_id: str) -> ClassicGroup:
        """The classic group of this id, made if there is no group: one that has no members, and no protocol type yet.

        Raises KafkaError(GROUP_ID_NOT_FOUND) if the group is of another kind.
        """
        if group_id not in self.groups:
            self.groups[group_id] = ClassicGroup(self, group_id, CommittedOffsets())
        return self.classic(group_id)

    def to_join(self, group_id: str, *, create: bool) -> Group:
        """The group that a classic member joins; with `create`, made if there is none, or an empty one of another kind.

        Raises KafkaError: UNKNOWN_MEMBER_ID if there is none, or what `append` raises.
        """
        group = self.groups.get(group_id)
        if group is not None and (isinstance(group, ClassicGroup) or not group.is_empty):
            return group
        if not create:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        made = ClassicGroup(self, group_id, CommittedOffsets() if group is None else group.offsets)
        self.append(group_id, [*(() if group is None else group.tombstones()), made.entry()])
        if group is not None:
            group.close(ErrorCode.NOT_COORDINATOR)
        self.groups[group_id] = made
        return made

    # --- change ---------------------------------------------------------------------------------

    def commit(self, group_id: str, changes: Sequence[records.Change]) -> None:
        """Record changes of a group, all or nothing, and fold them in as a start would. Raises as `append` does."""
        self.append(group_id, records.entries(changes))
        for key, value in changes:
            REPLAYED[type(key)](self, key, value)

    def delete(self, group: Group) -> None:
        """Delete a group with all its offsets. Raises KafkaError: NON_EMPTY_GROUP, or what `append` raises."""
        group.check_deletion()
        forget_offsets(self, group, group.offsets.partitions())
        self.append(group.group_id, group.tombstones())
        group.close(ErrorCode.NOT_COORDINATOR)
        if group.group_id in self.groups:
            del self.groups[group.group_id]


class GroupShard:
    """The groups of one partition. `_transactional` are those that open transactions commit offsets of, by producer id.

    While the log is read, most records say again what has been committed for a partition: of those only the last is
    decoded. Nothing else in the log depends on them, but transactions on what was committed before.
    """

    def __init__(self, coordinator: GroupCoordinator, index: int) -> None:
        self._coordinator = coordinator
        self._index = index
        self._offsets: dict[bytes, Record] = {}
        self._transactional: dict[int, set[str]] = {}

    def replay(self, record: Record, producer_id: int) -> None:
        if producer_id != NO_PRODUCER:
            self._replay_pending(record, producer_id)
        elif record.key is not None and record.key.startswith(OFFSET_COMMIT_TYPE):
            self._offsets[record.key] = record
        else:
            self._fold(record)

    def _fold(self, record: Record) -> None:
        key, value = decode_internal(GROUPS_TOPIC, record.key, record.value)
        apply = REPLAYED.get(type(key.message))
        if apply is not None:
            apply(self._coordinator, key.message, None if value is None else value.message)

    def _replay_pending(self, record: Record, producer_id: int) -> None:
        self._apply_offsets()
        key, value = decode_internal(GROUPS_TOPIC, record.key, record.value)
        if (
            isinstance(key.message, records.OffsetKey)
            and value is not None
            and isinstance(value.message, records.OffsetValue)
        ):
            where = key.message.group, key.message.topic, key.message.partition
            self.pend(producer_id, *where, records.committed_offset(value.message))

    def pend(self, producer_id: int, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        """Fold in an offset that an open transaction commits: the group's once the marker says so (KIP-98)."""
        group = self._coordinator.groups.get(group_id) or self._coordinator.classic_group(group_id)
        group.offsets.pending.setdefault(producer_id, {})[topic, partition] = committed
        self._transactional.setdefault(producer_id, set()).add(group_id)

    def transaction_ended(self, producer_id: int, *, committed: bool) -> None:
        self._apply_offsets()
        for group_id in self._transactional.pop(producer_id, ()):
            group = self._coordinator.groups.get(group_id)
            if group is not None:
                group.offsets.settle(producer_id, committed=committed)

    def _apply_offsets(self) -> None:
        """Fold in what was committed since the last time."""
        offsets, self._offsets = self._offsets, {}
        for record in offsets.values():
            try:
                self._fold(record)
            except ValueError as error:
                where = record.offset, self._index
                log.error("the commit at offset %d of partition %d is passed over: %s", *where, error)

    def loaded(self) -> None:
        self._apply_offsets()
        groups = self._coordinator.groups
        for group in groups.of(self._index):
            group.loaded()
        self._coordinator.cluster.clock.call_later(
            0, lambda: forget_missing_topics(self._coordinator, groups.of(self._index))
        )

    def unload(self) -> None:
        for group in self._coordinator.groups.take(self._index):
            group.close(ErrorCode.NOT_COORDINATOR)


def replay_offset(coordinator: GroupCoordinator, key: records.OffsetKey, value: records.OffsetValue | None) -> None:
    """Fold in what a group has committed, or (None) taken back; a group that does nothing else is a classic one."""
    if value is None:
        if key.group in coordinator.groups:
            coordinator.groups[key.group].offsets.apply(key.topic, key.partition, None)
        return
    group = coordinator.groups.get(key.group) or coordinator.classic_group(key.group)
    group.offsets.apply(key.topic, key.partition, records.committed_offset(value))


def replay_classic(
    coordinator: GroupCoordinator, key: group_records.GroupMetadataKey, value: group_records.GroupMetadataValue | None
) -> None:
    """Fold in the record of a classic group. After a tombstone its offsets are left."""
    present = coordinator.groups.get(key.group)
    if value is not None:
        offsets = CommittedOffsets() if present is None else present.offsets
        group = coordinator.groups[key.group] = ClassicGroup(coordinator, key.group, offsets)
        group.restore(value)
    elif isinstance(present, ClassicGroup):
        del coordinator.groups[key.group]
        if present.offsets.by_partition:
            coordinator.groups[key.group] = ClassicGroup(coordinator, key.group, present.offsets)


def replay_consumer(coordinator: GroupCoordinator, key: Any, value: Message | None) -> None:
    """Fold in a record of a consumer group, made if there is none. After its tombstone its offsets are left."""
    group = coordinator.groups.get(key.group_id)
    if not isinstance(group, ConsumerGroup):
        if value is None:
            return
        offsets = CommittedOffsets() if group is None else group.offsets
        group = coordinator.groups[key.group_id] = ConsumerGroup(coordinator, key.group_id, offsets)
    if value is not None or not isinstance(key, group_records.ConsumerGroupMetadataKey):
        APPLIED[type(key)](group, key, value)
        return
    del coordinator.groups[group.group_id]
    if not group.offsets.is_empty:
        coordinator.groups[group.group_id] = ClassicGroup(coordinator, group.group_id, group.offsets)


# What each record does to the coordinator: (coordinator, key, value or None). Others are passed over.
REPLAYED: dict[type[Message], Callable[[GroupCoordinator, Any, Any], None]] = {
    group_records.LegacyOffsetCommitKey: replay_offset,
    group_records.OffsetCommitKey: replay_offset,
    group_records.GroupMetadataKey: replay_classic,
    **dict.fromkeys(APPLIED, replay_consumer),
}
