"""The records of a consumer group, one function each. How they are folded in is in `state`."""

from __future__ import annotations

from collections.abc import Iterable

from minibroker.broker.groups.consumer.assignors.specification import Partitions
from minibroker.broker.groups.consumer.member import ConsumerMember
from minibroker.broker.groups.consumer.subscriptions import ResolvedPattern
from minibroker.broker.groups.group_entries import GroupChange
from minibroker.protocol.messages import group_records as messages

# --- what is written ----------------------------------------------------------------------------


def make_group_epoch_record(group_id: str, epoch: int, metadata_hash: int) -> GroupChange:
    """Return the record of a new group epoch."""
    value = messages.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return GroupChange(messages.ConsumerGroupMetadataKey(group_id=group_id), value)


def make_member_metadata_record(group_id: str, member: ConsumerMember) -> GroupChange:
    """Return the record of a member's metadata: its subscription, client and timeout."""
    key = messages.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    return GroupChange(key, member.make_metadata_value())


def make_current_assignment_record(group_id: str, member: ConsumerMember) -> GroupChange:
    """Return the record of a member's epoch and partitions."""
    key = messages.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return GroupChange(key, member.make_current_assignment_value())


def make_target_assignment_record(group_id: str, member_id: str, partitions: Partitions) -> GroupChange:
    """Return the record of a member's target assignment."""
    kind = messages.ConsumerGroupTargetAssignmentMemberValue
    value = kind(
        topic_partitions=[
            kind.TopicPartition(topic_id=topic_id, partitions=sorted(indexes))
            for topic_id, indexes in sorted(partitions.items())
        ]
    )
    key = messages.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return GroupChange(key, value)


def make_target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> GroupChange:
    """Return the record of the epoch of the target assignment."""
    value = messages.ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=timestamp_ms
    )
    return GroupChange(messages.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def make_pattern_topics_record(group_id: str, pattern: str, resolved_pattern: ResolvedPattern | None) -> GroupChange:
    """Return the record of a pattern's topics, or (None) its tombstone, when nobody subscribes to it any more."""
    key = messages.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern)
    if resolved_pattern is None:
        return GroupChange(key, None)
    value = messages.ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved_pattern.topics),
        version=resolved_pattern.version,
        timestamp=resolved_pattern.timestamp_ms,
    )
    return GroupChange(key, value)


def make_partition_metadata_tombstone(group_id: str) -> GroupChange:
    """Return the tombstone of the partition metadata record, which only brokers before 4.1 wrote."""
    return GroupChange(messages.ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def make_member_tombstones(group_id: str, member_id: str) -> list[GroupChange]:
    """Return the tombstones of a member, in Kafka's order, which Kafka requires when it reads them."""
    return [
        GroupChange(messages.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        GroupChange(messages.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        GroupChange(messages.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def make_group_tombstones(group_id: str, members: Iterable[str], patterns: Iterable[str]) -> list[GroupChange]:
    """Return the tombstones of all records of a group, in Kafka's order."""
    gone = [make_member_tombstones(group_id, member_id) for member_id in members]
    return [
        *(changes[0] for changes in gone),
        *(changes[1] for changes in gone),
        GroupChange(messages.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(changes[2] for changes in gone),
        *(make_pattern_topics_record(group_id, pattern, None) for pattern in patterns),
        make_partition_metadata_tombstone(group_id),
        GroupChange(messages.ConsumerGroupMetadataKey(group_id=group_id), None),
    ]
