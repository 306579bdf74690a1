"""The coordinator: all groups by id, found, made, and folded from `__consumer_offsets` at the start.

What the members of a group do is its kind's business (`classic/`, `consumer/`), what they commit that of `offsets`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from minibroker.broker.coordination.coordinator_logs import NO_PRODUCER, Entry, StateTopic, StateTopicSettings
from minibroker.broker.groups import records
from minibroker.broker.groups.classic.group import ClassicGroup
from minibroker.broker.groups.classic.recording import membership_entry
from minibroker.broker.groups.classic.replaying import replay_group_metadata
from minibroker.broker.groups.commits import forget_missing_topics, forget_offsets, forget_topic
from minibroker.broker.groups.consumer import replaying as consumer_replaying
from minibroker.broker.groups.consumer.group import ConsumerGroup
from minibroker.broker.groups.consumer.recording import Change, entries
from minibroker.broker.groups.group import Group
from minibroker.broker.groups.offsets import CommittedOffsets
from minibroker.broker.groups.transactional import TransactionalOffsets
from minibroker.broker.metadata.partitions import GROUPS_TOPIC, Partition, Topic
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages import group_records
from minibroker.protocol.records.internal import decode_internal
from minibroker.protocol.records.record import Record
from minibroker.protocol.steps import Steps

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster, Node
    from minibroker.broker.requests.turn import Wait

log = logging.getLogger("minibroker.groups")

SETTINGS = StateTopicSettings(
    "offsets.topic.num.partitions",
    "offsets.topic.replication.factor",
    "offsets.topic.segment.bytes",
    "offsets.load.buffer.size",
    "offsets.topic.compression.codec",
)


OFFSET_COMMIT_TYPE = group_records.OffsetCommitKey.api_key.to_bytes(2, "big")  # what keys of this type begin with


class GroupCoordinator:
    """All groups of the cluster. Each is looked after by the node that leads its partition of `__consumer_offsets`."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.topic = StateTopic(cluster, GROUPS_TOPIC, SETTINGS, self._reload)
        self.groups: dict[str, Group] = {}
        self.transactional = TransactionalOffsets(self)
        self._unreadable: set[int] = set()

    # --- start ----------------------------------------------------------------------------------

    def load(self) -> None:
        """Fold all partitions of the topic, and begin the sessions of the members that were there."""
        for partition in self.topic.partitions_here():
            self._load(partition)
        for group in list(self.groups.values()):
            group.loaded()
        self.cluster.clock.call_later(0, lambda: forget_missing_topics(self))

    def _load(self, partition: Partition) -> None:
        replay = _Replay(self, partition.index)
        try:
            self.topic.replay(partition, replay)
            replay.apply_offsets()
        except KafkaError as error:
            log.critical("the groups in %s are not served until the next start: %s", partition, error)
            self._unreadable.add(partition.index)

    def _reload(self, partition: Partition) -> None:
        """Read a partition again. The members of its groups find out by NOT_COORDINATOR, and join again."""
        for group in self._groups_in(partition):
            del self.groups[group.group_id]
            group.close(ErrorCode.NOT_COORDINATOR)
        self.transactional.forget(partition.index)
        self._load(partition)
        for group in self._groups_in(partition):
            group.loaded()

    def _groups_in(self, partition: Partition) -> list[Group]:
        return [each for each in self.groups.values() if self.topic.partition_of(each.group_id) == partition.index]

    def replay(self, record: Record) -> None:
        """Fold one record in. Raises KafkaError or ValueError for one that says nothing that is known."""
        key, value = decode_internal(GROUPS_TOPIC, record.key, record.value)
        apply = REPLAYED.get(type(key.message))
        if apply is not None:
            apply(self, key.message, None if value is None else value.message)

    # --- which node, which group ------------------------------------------------------------------

    def node_of(self, group_id: str) -> Node | None:
        """The node that looks after a group, None while nobody does."""
        return self.topic.node_of(group_id)

    def check(self, node: Node, group_id: str) -> None:
        """Whether a group of this id can be, and `node` looks after it.

        Raises KafkaError: INVALID_GROUP_ID, NOT_COORDINATOR.
        """
        self.check_id(group_id)
        self.check_node(node, group_id)

    def check_id(self, group_id: str) -> None:
        """Raises KafkaError(INVALID_GROUP_ID) for an id that no group with members can have."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "A group id is not empty.")

    def check_node(self, node: Node, group_id: str) -> None:
        """As `check`, where Kafka also takes the empty id: of those that commit offsets and belong to no group."""
        if self.node_of(group_id) is not node or self.topic.partition_of(group_id) in self._unreadable:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"Node {node.node_id} does not coordinate group {group_id}.")

    def of_node(self, node: Node) -> list[Group]:
        """The groups that `node` looks after."""
        return [group for group in self.groups.values() if self.node_of(group.group_id) is node]

    def of_members(self, node: Node, group_id: str) -> Group:
        """The group, for those who say that they belong to it.

        Raises KafkaError: INVALID_GROUP_ID, NOT_COORDINATOR, UNKNOWN_MEMBER_ID where there is no group.
        """
        self.check(node, group_id)
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
        self.append(group_id, [*(() if group is None else group.tombstones()), membership_entry(made)])
        if group is not None:
            group.close(ErrorCode.NOT_COORDINATOR)
        self.groups[group_id] = made
        return made

    def new_uuid(self) -> UUID:
        """A random one, of version 4."""
        return UUID(bytes=self.cluster.random.randbytes(16), version=4)

    # --- change ---------------------------------------------------------------------------------

    def append(self, group_id: str, entries: Iterable[Entry]) -> None:
        """Record what has been decided on a group, all or nothing; it is applied after that.

        Raises KafkaError with the code for the client.
        """
        self.topic.append(self.topic.partition_of(group_id), entries)

    def commit(self, group_id: str, changes: Sequence[Change]) -> None:
        """Record changes of a group, all or nothing, and fold them in as a start would. Raises as `append` does."""
        self.append(group_id, entries(changes))
        for key, value in changes:
            REPLAYED[type(key)](self, key, value)

    def when_kept(self, group_id: str, then: Callable[[KafkaError | None], None]) -> None:
        """Call `then` once what was appended for a group may be told to a client; mostly at once."""
        self.topic.when_kept(self.topic.partition_of(group_id), then)

    def wait(self, group_id: str) -> Wait:
        """The promise to be kept before a client is told what was appended for a group. Raises KafkaError."""
        return self.topic.wait(self.topic.partition_of(group_id))

    def delete(self, group: Group) -> None:
        """Delete a group with all its offsets. Raises KafkaError: NON_EMPTY_GROUP, or what `append` raises."""
        group.check_deletion()
        forget_offsets(self, group, group.offsets.partitions())
        self.append(group.group_id, group.tombstones())
        group.close(ErrorCode.NOT_COORDINATOR)
        self.groups.pop(group.group_id, None)

    def topic_deleted(self, topic: Topic) -> Steps[None]:
        """Somebody has deleted a topic: its offsets go, or with the topic of the groups all that is known of them."""
        if topic.name != self.topic.name:
            yield from forget_topic(self, topic)
        else:
            groups, self.groups = self.groups, {}
            self.transactional.clear()
            self._unreadable.clear()
            for group in groups.values():
                group.close(ErrorCode.NOT_COORDINATOR)


class _Replay:
    """One partition as it is folded: what belongs to a transaction holds from its end on, or never.

    Most records say again what has been committed for a partition: of those only the last is decoded. Nothing else in
    the log depends on them, but transactions on what was committed before.
    """

    def __init__(self, coordinator: GroupCoordinator, index: int) -> None:
        self._coordinator = coordinator
        self._index = index
        self._offsets: dict[bytes, Record] = {}

    def record(self, record: Record, producer_id: int) -> None:
        if producer_id == NO_PRODUCER:
            if record.key is not None and record.key.startswith(OFFSET_COMMIT_TYPE):
                self._offsets[record.key] = record
            else:
                self._coordinator.replay(record)
            return
        self.apply_offsets()
        key, value = decode_internal(GROUPS_TOPIC, record.key, record.value)
        if (
            isinstance(key.message, records.OffsetKey)
            and value is not None
            and isinstance(value.message, records.OffsetValue)
        ):
            where = key.message.group, key.message.topic, key.message.partition
            offset = records.committed_offset(value.message)
            self._coordinator.transactional.pend(self._index, producer_id, *where, offset)

    def apply_offsets(self) -> None:
        """Fold in what was committed since the last time."""
        offsets, self._offsets = self._offsets, {}
        for record in offsets.values():
            try:
                self._coordinator.replay(record)
            except ValueError as error:
                log.error(
                    "the commit at offset %d of partition %d is passed over: %s", record.offset, self._index, error
                )

    def transaction_ended(self, producer_id: int, *, committed: bool) -> None:
        self.apply_offsets()
        self._coordinator.transactional.ended(self._index, producer_id, committed=committed)


def replay_offset(coordinator: GroupCoordinator, key: records.OffsetKey, value: records.OffsetValue | None) -> None:
    """Fold in what a group has committed, or (None) taken back; a group that does nothing else is a classic one."""
    if value is None:
        if key.group in coordinator.groups:
            coordinator.groups[key.group].offsets.apply(key.topic, key.partition, None)
        return
    group = coordinator.groups.get(key.group) or coordinator.classic_group(key.group)
    group.offsets.apply(key.topic, key.partition, records.committed_offset(value))


# What each record does to the coordinator: (coordinator, key, value or None). Others are passed over.
REPLAYED: dict[type[Message], Callable[[GroupCoordinator, Any, Any], None]] = {
    group_records.LegacyOffsetCommitKey: replay_offset,
    group_records.OffsetCommitKey: replay_offset,
    group_records.GroupMetadataKey: replay_group_metadata,
    **consumer_replaying.REPLAYED,
}
