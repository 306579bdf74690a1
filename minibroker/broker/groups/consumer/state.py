"""A consumer group as its records say: epochs, members, target assignment, topics of patterns.

Changes are appended as records first (`updating`, `recording`). `apply` folds each into the group, as at a start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from minibroker.broker.coordination.coordinator_logs import Entry
from minibroker.broker.groups.consumer import recording
from minibroker.broker.groups.consumer.assignors.specification import Partitions
from minibroker.broker.groups.consumer.member import LEAVING_EPOCH, ConsumerMember
from minibroker.broker.groups.consumer.subscriptions import ResolvedPattern
from minibroker.broker.groups.group import Caller, CheckPartition, Group, GroupContext, GroupType
from minibroker.broker.groups.offsets import CommittedOffset, CommittedOffsets
from minibroker.broker.groups.records import Change, entries
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages import group_records as messages

CONSUMER_PROTOCOL = "consumer"
FIRST_EPOCH = 1
NO_ASSIGNMENT_EPOCH = -1
NEVER = -1
FIRST_COMMIT_WITH_MEMBER_EPOCHS = 9


class State(StrEnum):
    """The states, by their names in ConsumerGroupDescribe and ListGroups."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerGroupState(Group):
    """The state of a consumer group.

    `epoch` counts the changes of its members and topics. `assignment_epoch` is the epoch for which `target` was made,
    at `assignment_timestamp_ms` (0: never). `patterns` has the topics of each pattern that members subscribe to.
    `metadata_hash` stands for the topics at the last look at them, after `looked_at_commit` of the metadata. After
    `resolved_commit` the patterns were last matched; `is_resolving` says that they are being matched now. As in Kafka
    they match what `last_caller` may describe. `owners` has the member that owns each partition, or has still to revoke
    it.
    """

    type = GroupType.CONSUMER

    def __init__(self, context: GroupContext, group_id: str, offsets: CommittedOffsets) -> None:
        super().__init__(context, group_id, offsets)
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.has_partition_metadata = False
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static: dict[str, str] = {}
        self.target: dict[str, Partitions] = {}
        self.patterns: dict[str, ResolvedPattern] = {}
        self.owners: dict[tuple[bytes, int], str] = {}
        self.looked_at_commit = NEVER
        self.resolved_commit = NEVER
        self.is_resolving = False
        self.last_caller: Caller | None = None

    @property
    def state_name(self) -> str:
        if not self.members:
            return State.EMPTY
        if self.epoch > self.assignment_epoch:
            return State.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return State.STABLE
        return State.RECONCILING

    @property
    def protocol_type(self) -> str:
        return CONSUMER_PROTOCOL

    @property
    def is_empty(self) -> bool:
        return not self.members

    def is_subscribed_to(self, topic: str) -> bool:
        by_name = any(topic in member.topic_names for member in self.members.values())
        return by_name or any(topic in pattern.topics for pattern in self.patterns.values())

    # --- its offsets --------------------------------------------------------------------------------

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, version: int
    ) -> CheckPartition | None:
        if epoch < 0 and not self.members:
            return None
        if transactional and epoch < 0 and not member_id and instance_id is None:
            return None  # TxnOffsetCommit may come without a member
        member = self.check_member(member_id)
        if not transactional and member.classic is None and version < FIRST_COMMIT_WITH_MEMBER_EPOCHS:
            message = "OffsetCommit version 9 or above must be used by members using the consumer group protocol"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)
        if epoch == member.epoch:
            return None
        code, name = _epoch_words(member)
        if epoch > member.epoch:
            message = f"Received {name} {epoch} is newer than current member epoch {member.epoch}."
            raise KafkaError(code, message)
        return _check_since(member, epoch)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        if member_id is None and epoch < 0:
            return
        member = self.check_member(member_id or "")
        if epoch != member.epoch:
            code, name = _epoch_words(member)
            message = f"The received {name} {epoch} does not match the expected member epoch {member.epoch}."
            raise KafkaError(code, message)

    def check_offset_deletion(self) -> None:
        """Allow it at any time."""

    def expires_since(self, committed: CommittedOffset) -> int | None:
        return committed.commit_timestamp_ms

    # --- its end --------------------------------------------------------------------------------

    def check_deletion(self) -> None:
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def tombstones(self) -> list[Entry]:
        return entries(recording.group_gone(self.group_id, self.members, self.patterns))

    # --- look-up --------------------------------------------------------------------------------

    def check_member(self, member_id: str, instance_id: str | None = None) -> ConsumerMember:
        """Return the member of this id. Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        if instance_id is not None:
            return self._check_static(member_id, instance_id)
        member = self.members.get(member_id)
        if member is None:
            message = f"Member {member_id} is not a member of group {self.group_id}."
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, message)
        return member

    def _check_static(self, member_id: str, instance_id: str) -> ConsumerMember:
        member = self.static_member(instance_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if member.member_id != member_id:
            name = f"Static member {member_id} with instance id {instance_id}"
            raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, f"{name} was fenced by member {member.member_id}.")
        return member

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """Return the member with this instance id, even while it is away; None if there is none."""
        member_id = None if instance_id is None else self.static.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def is_taken(self, topic_id: bytes, partition: int) -> bool:
        """Whether a member owns the partition, or has still to revoke it."""
        return (topic_id, partition) in self.owners

    # --- the fold -------------------------------------------------------------------------------

    def commit(self, changes: Sequence[Change], replaced: Group | None = None) -> None:
        """Append changes, all or none, and fold them in; this group then takes the place of `replaced`.

        Raises KafkaError with the code for the client, and nothing has changed.
        """
        if not changes:
            return
        gone = () if replaced is None else replaced.tombstones()
        self.context.append(self.group_id, [*gone, *entries(changes)])
        self.context.groups[self.group_id] = self
        for change in changes:
            self.apply(change)
        if replaced is not None:
            replaced.close(ErrorCode.REBALANCE_IN_PROGRESS)

    def apply(self, change: Change) -> None:
        """Fold one record in; a tombstone of something unknown changes nothing."""
        APPLIED[type(change.key)](self, change.key, change.value)

    def _apply_epoch(self, key: Message, value: Any) -> None:
        self.epoch = value.epoch
        self.metadata_hash = value.metadata_hash

    def _apply_partition_metadata(self, key: Message, value: Any) -> None:
        self.has_partition_metadata = value is not None

    def _apply_member_metadata(self, key: messages.ConsumerGroupMemberMetadataKey, value: Any) -> None:
        if value is None:
            self.remove_member(key.member_id)
        else:
            member = self.members.get(key.member_id) or ConsumerMember(key.member_id)
            self.set_member(member.with_metadata(value))

    def _apply_target_epoch(self, key: Message, value: Any) -> None:
        self.assignment_epoch = NO_ASSIGNMENT_EPOCH if value is None else value.assignment_epoch
        self.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp

    def _apply_target(self, key: messages.ConsumerGroupTargetAssignmentMemberKey, value: Any) -> None:
        if value is None:
            self.target.pop(key.member_id, None)
        else:
            self.target[key.member_id] = {each.topic_id: frozenset(each.partitions) for each in value.topic_partitions}

    def _apply_assignment(self, key: messages.ConsumerGroupCurrentMemberAssignmentKey, value: Any) -> None:
        member = self.members.get(key.member_id)
        if value is not None:
            self.set_member((member or ConsumerMember(key.member_id)).with_assignment(value))
        elif member is not None:
            gone = LEAVING_EPOCH
            self.set_member(member._replace(epoch=gone, previous_epoch=gone, assigned={}, pending_revocation={}))

    def _apply_pattern(self, key: messages.ConsumerGroupRegularExpressionKey, value: Any) -> None:
        if value is None:
            self.patterns.pop(key.regular_expression, None)
        else:
            resolved = ResolvedPattern(frozenset(value.topics), value.version, value.timestamp)
            self.patterns[key.regular_expression] = resolved

    def set_member(self, member: ConsumerMember) -> None:
        """Add a member, or replace what it was."""
        self._disown(member.member_id)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        for partitions in (member.assigned, member.pending_revocation):
            for topic_id, epochs in partitions.items():
                for partition in epochs:
                    self.owners[topic_id, partition] = member.member_id

    def remove_member(self, member_id: str) -> None:
        """Remove a member, if it is one."""
        self._disown(member_id)
        member = self.members.pop(member_id, None)
        instance_id = None if member is None else member.instance_id
        if instance_id is not None and self.static.get(instance_id) == member_id:
            del self.static[instance_id]

    def _disown(self, member_id: str) -> None:
        """Take its partitions from a member; in a compacted log the next owner of one may come first, and keeps it."""
        member = self.members.get(member_id)
        for partitions in () if member is None else (member.assigned, member.pending_revocation):
            for topic_id, epochs in partitions.items():
                for partition in epochs:
                    if self.owners.get((topic_id, partition)) == member_id:
                        del self.owners[topic_id, partition]


APPLIED: Mapping[type[Message], Callable[[ConsumerGroupState, Any, Any], None]] = {
    messages.ConsumerGroupMetadataKey: ConsumerGroupState._apply_epoch,
    messages.ConsumerGroupPartitionMetadataKey: ConsumerGroupState._apply_partition_metadata,
    messages.ConsumerGroupMemberMetadataKey: ConsumerGroupState._apply_member_metadata,
    messages.ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroupState._apply_target_epoch,
    messages.ConsumerGroupTargetAssignmentMemberKey: ConsumerGroupState._apply_target,
    messages.ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroupState._apply_assignment,
    messages.ConsumerGroupRegularExpressionKey: ConsumerGroupState._apply_pattern,
}


def _epoch_words(member: ConsumerMember) -> tuple[ErrorCode, str]:
    """Return the code for a wrong epoch, and the name of the epoch in the member's protocol."""
    if member.classic is None:
        return ErrorCode.STALE_MEMBER_EPOCH, "member epoch"
    return ErrorCode.ILLEGAL_GENERATION, "generation id"


def _check_since(member: ConsumerMember, epoch: int) -> CheckPartition:
    """Return the check of a commit in an older epoch: the member has owned the partition since then (KIP-1251)."""
    code, name = _epoch_words(member)

    def check(topic: str, topic_id: bytes, partition: int) -> None:
        since = member.owned_since(topic_id, partition)
        if since is None:
            raise KafkaError(code, f"Partition {topic}-{partition} is not assigned or pending revocation for member.")
        if epoch < since:
            message = f"Received {name} {epoch} is older than assignment epoch {since} for partition "
            raise KafkaError(code, f"{message}{topic}-{partition}.")

    return check
