"""The coordinator: finds and makes groups by id, and folds the records of `__consumer_offsets` into them.

What the members of a group ask for is in `classic/` and `consumer/`, what they commit in `offsets_of_group`. Offsets
that nobody wants any longer are forgotten here.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from minibroker.broker.coordination.coordinator_logs import NO_PRODUCER, CoordinatorLogSettings
from minibroker.broker.coordination.runtime import CoordinatorRuntime, ValuesByPartition
from minibroker.broker.groups import group_entries
from minibroker.broker.groups.classic.classic_group import ClassicGroup
from minibroker.broker.groups.consumer.consumer_group import ConsumerGroup
from minibroker.broker.groups.group import Group, GroupType
from minibroker.broker.groups.offsets_of_group import CommittedOffset, CommittedOffsets
from minibroker.broker.groups.share.share_group import ShareGroup
from minibroker.broker.groups.streams.creation_failures import TopicCreationFailures
from minibroker.broker.groups.streams.streams_group import StreamsGroup
from minibroker.broker.metadata.partitions import GROUPS_TOPIC, Topic
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages import group_records, share_group_records, streams_group_records
from minibroker.protocol.records.batch import HEADER_BYTES
from minibroker.protocol.records.internal import decode_internal_record
from minibroker.protocol.records.record import Record
from minibroker.protocol.steps import Steps, split_into_portions

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster
    from minibroker.broker.control.controller import Controller
    from minibroker.broker.metadata.nodes import Node

log = logging.getLogger("minibroker.groups")

AnyGroup = TypeVar("AnyGroup", bound=Group)
ReplayRecord = Callable[["GroupCoordinator", Any, Any], None]

SETTINGS: Final = CoordinatorLogSettings(
    "offsets.topic.num.partitions",
    "offsets.topic.replication.factor",
    "offsets.topic.segment.bytes",
    "offsets.load.buffer.size",
    "offsets.topic.compression.codec",
)


RECORD_OVERHEAD_BYTES: Final = 24  # lengths, offset and timestamp of a record, at most

# The bytes that keys of these records begin with.
OFFSET_COMMIT_TYPE: Final = group_records.OffsetCommitKey.api_key.to_bytes(2, "big")
GROUP_TYPES: Final = tuple(
    key.api_key.to_bytes(2, "big")
    for key in (
        group_records.GroupMetadataKey,
        group_records.ConsumerGroupMetadataKey,
        streams_group_records.StreamsGroupMetadataKey,
    )
)  # those whose groups have offsets


class GroupCoordinator(CoordinatorRuntime["GroupShard"]):
    """All groups of the cluster. Their state is in `__consumer_offsets`."""

    def __init__(self, cluster: Cluster, controller: Controller) -> None:
        super().__init__(cluster, controller, GROUPS_TOPIC, SETTINGS)
        self.groups: ValuesByPartition[Group] = ValuesByPartition(self.log.get_partition_index)
        self.rebalances: Counter[GroupType] = Counter()
        self.creation_failures = TopicCreationFailures(cluster.clock)

    def make_shard(self, index: int) -> GroupShard:
        return GroupShard(self, index)

    def on_topic_deleted(self, topic: Topic) -> Steps[None]:
        yield from super().on_topic_deleted(topic)
        yield from delete_offsets_of_topic(self, topic)

    # --- which node, which group ------------------------------------------------------------------

    def check_is_coordinator_and_group_id(self, node: Node, group_id: str) -> None:
        """Check the node as `check_is_coordinator` does, and the id, which may be empty only in requests for offsets.

        Raises KafkaError: INVALID_GROUP_ID, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        self.check_group_id(group_id)
        self.check_is_coordinator(node, group_id)

    def check_group_id(self, group_id: str) -> None:
        """Check that the id is not empty. Raises KafkaError(INVALID_GROUP_ID)."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)

    def get_group_for_member_request(self, node: Node, group_id: str) -> Group:
        """Return the group that a member's request names, after the checks of coordinator and id.

        Raises KafkaError: INVALID_GROUP_ID, NOT_COORDINATOR, UNKNOWN_MEMBER_ID if there is no group.
        """
        self.check_is_coordinator_and_group_id(node, group_id)
        if group_id not in self.groups:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return self.groups[group_id]

    def get_group(self, group_id: str) -> Group:
        """Return the group of this id, of any type. Raises KafkaError(GROUP_ID_NOT_FOUND)."""
        if group_id not in self.groups:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return self.groups[group_id]

    def get_classic_group(self, group_id: str) -> ClassicGroup:
        """Return the classic group of this id. Raises KafkaError(GROUP_ID_NOT_FOUND)."""
        return self._find_group_of_type(ClassicGroup, group_id)

    def get_consumer_group(self, group_id: str) -> ConsumerGroup:
        """Return the consumer group of this id (KIP-848). Raises KafkaError(GROUP_ID_NOT_FOUND)."""
        return self._find_group_of_type(ConsumerGroup, group_id)

    def get_share_group(self, group_id: str) -> ShareGroup:
        """Return the share group of this id (KIP-932). Raises KafkaError(GROUP_ID_NOT_FOUND)."""
        return self._find_group_of_type(ShareGroup, group_id)

    def get_streams_group(self, group_id: str) -> StreamsGroup:
        """Return the streams group of this id (KIP-1071). Raises KafkaError(GROUP_ID_NOT_FOUND)."""
        return self._find_group_of_type(StreamsGroup, group_id)

    def check_group_exists(self, group_id: str, kind: str) -> None:
        """Raise KafkaError(GROUP_ID_NOT_FOUND), with the kind of group in its message, unless there is a group.

        As in Kafka, only an answer to a heartbeat names the kind.
        """
        if group_id not in self.groups:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{kind} group {group_id} not found.")

    def _find_group_of_type(self, group_type: type[AnyGroup], group_id: str) -> AnyGroup:
        group = self.get_group(group_id)
        if not isinstance(group, group_type):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a {group_type.type} group.")
        return group

    def find_or_make_classic_group(self, group_id: str) -> ClassicGroup:
        """Return the classic group of this id; if there is no group, make one without members and protocol type.

        Raises KafkaError(GROUP_ID_NOT_FOUND) for a group of another type.
        """
        if group_id not in self.groups:
            self.groups[group_id] = ClassicGroup(self, group_id, CommittedOffsets())
        return self.get_classic_group(group_id)

    def find_group_to_join(self, group_id: str, *, create: bool) -> Group:
        """Return the group that a classic member joins; with `create`, make it, also in place of an empty one.

        An empty share group stays, with its offsets.

        Raises KafkaError: UNKNOWN_MEMBER_ID if there is none, or as `append_entries`.
        """
        group = self.groups.get(group_id)
        if group is not None and (
            isinstance(group, ClassicGroup) or group.type is GroupType.SHARE or not group.is_empty
        ):
            return group
        if not create:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        made = ClassicGroup(self, group_id, CommittedOffsets() if group is None else group.offsets)
        self.append_entries(
            group_id, [*(() if group is None else group.make_tombstones()), made.encode_group_metadata_entry()]
        )
        if group is not None:
            group.close_with_error(ErrorCode.NOT_COORDINATOR)
        self.groups[group_id] = made
        return made

    # --- change ---------------------------------------------------------------------------------

    def delete_group(self, group: Group) -> None:
        """Delete a group with all its offsets. Raises KafkaError: NON_EMPTY_GROUP, or as `append_entries`."""
        group.check_may_be_deleted()
        delete_offsets_in_batches(self, group, group.offsets.list_partitions())
        self.append_entries(group.group_id, group.make_tombstones())
        group.close_with_error(ErrorCode.NOT_COORDINATOR)
        if group.group_id in self.groups:
            del self.groups[group.group_id]


class GroupShard:
    """The groups of one partition of the topic.

    `_transactional` has the groups in whose offsets an open transaction takes part, by producer id. Most records of a
    log are commits that later ones supersede. `_offsets` keeps the last one of each key, and only that is decoded, when
    a transaction or the end of a group depends on it, or at the end of the log.
    """

    def __init__(self, coordinator: GroupCoordinator, index: int) -> None:
        self._coordinator = coordinator
        self._index = index
        self._offsets: dict[bytes, Record] = {}
        self._transactional: dict[int, set[str]] = {}

    def replay_record(self, record: Record, producer_id: int) -> None:
        if producer_id != NO_PRODUCER:
            self._replay_pending_offset(record, producer_id)
        elif record.key is not None and record.key.startswith(OFFSET_COMMIT_TYPE):
            self._offsets[record.key] = record
        else:
            if record.value is None and record.key is not None and record.key.startswith(GROUP_TYPES):
                self._apply_replayed_offsets()  # whether the group has any decides what is left of it
            self._replay_record(record)

    def _replay_record(self, record: Record) -> None:
        key, value = decode_internal_record(GROUPS_TOPIC, record.key, record.value)
        apply = REPLAYED.get(type(key.message))
        if apply is not None:
            apply(self._coordinator, key.message, None if value is None else value.message)

    def _replay_pending_offset(self, record: Record, producer_id: int) -> None:
        self._apply_replayed_offsets()
        key, value = decode_internal_record(GROUPS_TOPIC, record.key, record.value)
        if (
            isinstance(key.message, group_entries.OffsetKey)
            and value is not None
            and isinstance(value.message, group_entries.OffsetValue)
        ):
            where = key.message.group, key.message.topic, key.message.partition
            self.add_pending_offset(producer_id, *where, group_entries.parse_committed_offset(value.message))

    def add_pending_offset(
        self, producer_id: int, group_id: str, topic: str, partition: int, committed_offset: CommittedOffset
    ) -> None:
        """Add an offset that an open transaction commits: it is committed when the transaction is (KIP-98)."""
        group = self._coordinator.groups.get(group_id) or self._coordinator.find_or_make_classic_group(group_id)
        group.offsets.pending.setdefault(producer_id, {})[topic, partition] = committed_offset
        self._transactional.setdefault(producer_id, set()).add(group_id)

    def apply_transaction_end(self, producer_id: int, *, committed: bool) -> None:
        self._apply_replayed_offsets()
        for group_id in self._transactional.pop(producer_id, ()):
            group = self._coordinator.groups.get(group_id)
            if group is not None:
                group.offsets.apply_or_drop_pending_offsets(producer_id, committed=committed)

    def _apply_replayed_offsets(self) -> None:
        """Apply the committed offsets that were replayed since the last call."""
        offsets, self._offsets = self._offsets, {}
        for record in offsets.values():
            try:
                self._replay_record(record)
            except ValueError as error:
                where = record.offset, self._index
                log.error("the commit at offset %d of partition %d is passed over: %s", *where, error)

    def start_timers_after_load(self) -> None:
        self._apply_replayed_offsets()
        groups = self._coordinator.groups
        for group in groups.list_values_of_partition(self._index):
            group.restart_timers_after_load()
        self._coordinator.cluster.clock.call_later(
            0, lambda: delete_offsets_of_missing_topics(self._coordinator, groups.list_values_of_partition(self._index))
        )

    def discard_state(self) -> None:
        for group in self._coordinator.groups.remove_values_of_partition(self._index):
            group.close_with_error(ErrorCode.NOT_COORDINATOR)


def delete_offsets_of_group(coordinator: GroupCoordinator, group: Group, partitions: Iterable[tuple[str, int]]) -> None:
    """Delete a group's committed offsets of each (topic, partition), all or none.

    Raises KafkaError with the code for the client.
    """
    gone = list(partitions)
    coordinator.append_entries(
        group.group_id, [group_entries.encode_offset_entry(group.group_id, *each, None) for each in gone]
    )
    for topic, partition in gone:
        group.offsets.apply_offset(topic, partition, None)


def delete_offsets_in_batches(
    coordinator: GroupCoordinator, group: Group, partitions: Iterable[tuple[str, int]]
) -> None:
    """Delete offsets as `delete_offsets_of_group` does, in as many batches as they need.

    What is gone when it fails is gone.
    """
    gone = list(partitions)
    if not gone:
        return
    topic = coordinator.log
    limit_bytes = (
        topic.get_partition(topic.get_partition_index(group.group_id)).log.settings.max_message_bytes - HEADER_BYTES
    )
    longest_bytes = max(len(group_entries.encode_offset_entry(group.group_id, *each, None)[0]) for each in gone)
    count = max(1, limit_bytes // (longest_bytes + RECORD_OVERHEAD_BYTES))
    for start in range(0, len(gone), count):
        delete_offsets_of_group(coordinator, group, gone[start : start + count])


def delete_offsets_of_missing_topics(coordinator: GroupCoordinator, groups: Iterable[Group]) -> None:
    """Delete the offsets of topics that were deleted while these groups were not loaded, or just before a crash.

    Nor does it come to its end if the broker crashes before.
    """
    for group in groups:
        missing = [
            each
            for each in group.offsets.list_partitions()
            if not _is_offset_of_existing_topic(coordinator, group, *each)
        ]
        _delete_offsets_or_log_error(coordinator, group, missing)


def _is_offset_of_existing_topic(coordinator: GroupCoordinator, group: Group, name: str, partition: int) -> bool:
    """Return whether the topic of the offset exists, and not only a later one of the same name."""
    topic = coordinator.cluster.image.topics.get(name)
    committed = group.offsets.find_offset(name, partition)
    return topic is not None and (committed is None or committed.may_belong_to_topic(topic.topic_id))


def delete_offsets_of_topic(coordinator: GroupCoordinator, topic: Topic) -> Steps[None]:
    """Delete what all groups have committed for a deleted topic, and what else they know about it."""
    for group in coordinator.groups.iterate_present_values():
        try:
            group.remove_topic(topic.topic_id)
        except KafkaError as error:
            log.error("%s keeps the deleted topic %s: %s", group, topic.name, error)
        partitions = group.offsets.list_topic_partitions(topic.name, topic.topic_id)
        for portion in split_into_portions(partitions):
            _delete_offsets_or_log_error(coordinator, group, [(topic.name, partition) for partition in portion])
            yield
        yield


def _delete_offsets_or_log_error(
    coordinator: GroupCoordinator, group: Group, partitions: list[tuple[str, int]]
) -> None:
    try:
        delete_offsets_in_batches(coordinator, group, partitions)
    except KafkaError as error:
        names = ", ".join(sorted({topic for topic, _ in partitions}))
        log.error("%s keeps its offsets of deleted topics (%s): %s", group, names, error)


def replay_offset_record(
    coordinator: GroupCoordinator, key: group_entries.OffsetKey, value: group_entries.OffsetValue | None
) -> None:
    """Apply a committed offset or its tombstone; an unknown group is created as a classic one."""
    if value is None:
        if key.group in coordinator.groups:
            coordinator.groups[key.group].offsets.apply_offset(key.topic, key.partition, None)
        return
    group = coordinator.groups.get(key.group) or coordinator.find_or_make_classic_group(key.group)
    group.offsets.apply_offset(key.topic, key.partition, group_entries.parse_committed_offset(value))


def replay_classic_group_record(
    coordinator: GroupCoordinator, key: group_records.GroupMetadataKey, value: group_records.GroupMetadataValue | None
) -> None:
    """Apply the record of a classic group; a tombstone deletes it, but not its offsets."""
    present = coordinator.groups.get(key.group)
    if value is not None:
        offsets = CommittedOffsets() if present is None else present.offsets
        group = coordinator.groups[key.group] = ClassicGroup(coordinator, key.group, offsets)
        group.restore_from_record(value)
    elif isinstance(present, ClassicGroup):
        del coordinator.groups[key.group]
        if not present.offsets.is_empty:
            coordinator.groups[key.group] = ClassicGroup(coordinator, key.group, present.offsets)


def make_function_replaying_group_records(
    group_class: type[ConsumerGroup] | type[StreamsGroup], tombstone_key_class: type[Message]
) -> ReplayRecord:
    """Return the function that applies replayed records of a group of this class, and creates the group if need be.

    After its tombstone, a null value of a key `tombstone_key_class`, its offsets are left.
    """

    def replay_group_record(coordinator: GroupCoordinator, key: Any, value: Message | None) -> None:
        group = coordinator.groups.get(key.group_id)
        if not isinstance(group, group_class):
            if value is None:
                return
            offsets = CommittedOffsets() if group is None else group.offsets
            group = coordinator.groups[key.group_id] = group_class(coordinator, key.group_id, offsets)
        if value is not None or not isinstance(key, tombstone_key_class):
            group.apply_record_change(group_entries.GroupChange(key, value))
            return
        del coordinator.groups[group.group_id]
        if not group.offsets.is_empty:
            coordinator.groups[group.group_id] = ClassicGroup(coordinator, group.group_id, group.offsets)

    return replay_group_record


def replay_share_group_record(coordinator: GroupCoordinator, key: Any, value: Message | None) -> None:
    """Apply the record of a share group, which is created if need be, and deleted by its tombstone."""
    group = coordinator.groups.get(key.group_id)
    if not isinstance(group, ShareGroup):
        if value is None:
            return
        group = coordinator.groups[key.group_id] = ShareGroup(coordinator, key.group_id)
    if value is None and isinstance(key, share_group_records.ShareGroupMetadataKey):
        del coordinator.groups[group.group_id]
    else:
        group.apply_record_change(group_entries.GroupChange(key, value))


# How each record is folded in, by the type of its key. Others are ignored.
REPLAYED: dict[type[Message], ReplayRecord] = {
    group_records.LegacyOffsetCommitKey: replay_offset_record,
    group_records.OffsetCommitKey: replay_offset_record,
    group_records.GroupMetadataKey: replay_classic_group_record,
    **dict.fromkeys(
        ConsumerGroup.applied,
        make_function_replaying_group_records(ConsumerGroup, group_records.ConsumerGroupMetadataKey),
    ),
    **dict.fromkeys(ShareGroup.applied, replay_share_group_record),
    **dict.fromkeys(
        StreamsGroup.applied,
        make_function_replaying_group_records(StreamsGroup, streams_group_records.StreamsGroupMetadataKey),
    ),
}
