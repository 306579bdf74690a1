"""The records of a consumer group: what is written when something changes, and how they are folded in.

A change is a key with a value, or with None, which takes back what was said under the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from minibroker.broker.groups.consumer.assignors.specification import Partitions
from minibroker.broker.groups.consumer.member import LEAVING_EPOCH, ConsumerMember
from minibroker.broker.groups.consumer.subscriptions import ResolvedPattern
from minibroker.broker.groups.records import Change
from minibroker.protocol.declare import Message
from minibroker.protocol.messages import group_records as messages

if TYPE_CHECKING:
    from minibroker.broker.groups.consumer.group import ConsumerGroup

NO_ASSIGNMENT_EPOCH = -1


# --- what is written ----------------------------------------------------------------------------


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> Change:
    """The group is in another epoch."""
    value = messages.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return Change(messages.ConsumerGroupMetadataKey(group_id=group_id), value)


def member_metadata(group_id: str, member: ConsumerMember) -> Change:
    """A member is new, or says something else of itself."""
    key = messages.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    return Change(key, member.metadata_value())


def member_assignment(group_id: str, member: ConsumerMember) -> Change:
    """A member has other partitions, or is in another epoch."""
    key = messages.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return Change(key, member.assignment_value())


def member_target(group_id: str, member_id: str, partitions: Partitions) -> Change:
    """A member is to have other partitions."""
    kind = messages.ConsumerGroupTargetAssignmentMemberValue
    value = kind(
        topic_partitions=[
            kind.TopicPartition(topic_id=topic_id, partitions=sorted(indexes))
            for topic_id, indexes in sorted(partitions.items())
        ]
    )
    key = messages.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return Change(key, value)


def target_epoch(group_id: str, epoch: int, timestamp_ms: int) -> Change:
    """The target is that for this epoch."""
    value = messages.ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=timestamp_ms
    )
    return Change(messages.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def pattern_topics(group_id: str, pattern: str, resolved: ResolvedPattern | None) -> Change:
    """A pattern has these topics, or (None) nobody subscribes to it any more."""
    key = messages.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern)
    if resolved is None:
        return Change(key, None)
    value = messages.ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return Change(key, value)


def partition_metadata_gone(group_id: str) -> Change:
    """What brokers before 4.1 recorded of the topics is of no use any more."""
    return Change(messages.ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_gone(group_id: str, member_id: str) -> list[Change]:
    """A member is none any more. The order is Kafka's, which insists on it when it reads the records."""
    return [
        Change(messages.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        Change(messages.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        Change(messages.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_gone(group: ConsumerGroup, members: Iterable[str] | None = None) -> list[Change]:
    """The group is none any more: all that was ever recorded of it, in Kafka's order.

    `members` are those that are recorded when this is, if they are not those that the group knows of.
    """
    group_id = group.group_id
    gone = [member_gone(group_id, member_id) for member_id in (group.members if members is None else members)]
    return [
        *(changes[0] for changes in gone),
        *(changes[1] for changes in gone),
        Change(messages.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(changes[2] for changes in gone),
        *(pattern_topics(group_id, pattern, None) for pattern in group.patterns),
        partition_metadata_gone(group_id),
        Change(messages.ConsumerGroupMetadataKey(group_id=group_id), None),
    ]


# --- how it is folded in --------------------------------------------------------------------------


def apply_group_epoch(group: ConsumerGroup, key: Message, value: Any) -> None:
    group.epoch = value.epoch
    group.metadata_hash = value.metadata_hash


def apply_partition_metadata(group: ConsumerGroup, key: Message, value: Any) -> None:
    group.has_partition_metadata = value is not None


def apply_member_metadata(group: ConsumerGroup, key: messages.ConsumerGroupMemberMetadataKey, value: Any) -> None:
    if value is None:
        group.remove_member(key.member_id)
    else:
        member = group.members.get(key.member_id) or ConsumerMember(key.member_id)
        group.set_member(member.with_metadata(value))


def apply_target_epoch(group: ConsumerGroup, key: Message, value: Any) -> None:
    group.assignment_epoch = NO_ASSIGNMENT_EPOCH if value is None else value.assignment_epoch
    group.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp


def apply_member_target(group: ConsumerGroup, key: messages.ConsumerGroupTargetAssignmentMemberKey, value: Any) -> None:
    if value is None:
        group.target.pop(key.member_id, None)
    else:
        group.target[key.member_id] = {each.topic_id: frozenset(each.partitions) for each in value.topic_partitions}


def apply_member_assignment(
    group: ConsumerGroup, key: messages.ConsumerGroupCurrentMemberAssignmentKey, value: Any
) -> None:
    member = group.members.get(key.member_id)
    if value is not None:
        group.set_member((member or ConsumerMember(key.member_id)).with_assignment(value))
    elif member is not None:
        group.set_member(
            member._replace(epoch=LEAVING_EPOCH, previous_epoch=LEAVING_EPOCH, assigned={}, pending_revocation={})
        )


def apply_pattern_topics(group: ConsumerGroup, key: messages.ConsumerGroupRegularExpressionKey, value: Any) -> None:
    if value is None:
        group.patterns.pop(key.regular_expression, None)
    else:
        group.patterns[key.regular_expression] = ResolvedPattern(
            frozenset(value.topics), value.version, value.timestamp
        )


APPLIED: Mapping[type[Message], Callable[[ConsumerGroup, Any, Any], None]] = {
    messages.ConsumerGroupMetadataKey: apply_group_epoch,
    messages.ConsumerGroupPartitionMetadataKey: apply_partition_metadata,
    messages.ConsumerGroupMemberMetadataKey: apply_member_metadata,
    messages.ConsumerGroupTargetAssignmentMetadataKey: apply_target_epoch,
    messages.ConsumerGroupTargetAssignmentMemberKey: apply_member_target,
    messages.ConsumerGroupCurrentMemberAssignmentKey: apply_member_assignment,
    messages.ConsumerGroupRegularExpressionKey: apply_pattern_topics,
}
