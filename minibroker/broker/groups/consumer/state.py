"""A consumer group as its records say: epochs, members, target assignment, topics of patterns.

Changes are appended as records first (`updating`, `consumer_records`). `apply` folds each into the group, also at a
start.
"""

from __future__ import annotations

from typing import Any

from minibroker.broker.coordination.coordinator_logs import Entry
from minibroker.broker.groups.consumer import consumer_records
from minibroker.broker.groups.consumer.assignors.specification import Partitions
from minibroker.broker.groups.consumer.member import ConsumerMember
from minibroker.broker.groups.consumer.subscriptions import ResolvedPattern
from minibroker.broker.groups.group import Caller, CheckPartition, GroupContext, GroupType
from minibroker.broker.groups.group_entries import encode_group_changes
from minibroker.broker.groups.heartbeats import LEAVING_EPOCH
from minibroker.broker.groups.offsets_of_group import CommittedOffsets
from minibroker.broker.groups.reconciling_group import NEVER, ReconcilingGroup
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.messages import group_records as messages

CONSUMER_PROTOCOL = "consumer"
NO_ASSIGNMENT_EPOCH = -1


class ConsumerGroupState(ReconcilingGroup[ConsumerMember]):
    """The state of a consumer group.

    `epoch` counts the changes of its members and topics. `patterns` has the topics of each pattern that members
    subscribe to. After `resolved_commit` the patterns were last matched; `is_resolving` says that they are being
    matched now. As in Kafka they match what `last_caller` may describe. `owners` has the member that owns each
    partition, or has still to revoke it.
    """

    type = GroupType.CONSUMER

    def __init__(self, context: GroupContext, group_id: str, offsets: CommittedOffsets) -> None:
        super().__init__(context, group_id, offsets)
        self.has_partition_metadata = False
        self.target: dict[str, Partitions] = {}
        self.patterns: dict[str, ResolvedPattern] = {}
        self.owners: dict[tuple[bytes, int], str] = {}
        self.resolved_commit = NEVER
        self.is_resolving = False
        self.last_caller: Caller | None = None

    @property
    def protocol_type(self) -> str:
        return CONSUMER_PROTOCOL

    def is_subscribed_to(self, topic: str) -> bool:
        by_name = any(topic in member.topic_names for member in self.members.values())
        return by_name or any(topic in pattern.topics for pattern in self.patterns.values())

    # --- its offsets --------------------------------------------------------------------------------

    def uses_member_epochs(self, member: ConsumerMember) -> bool:
        return member.classic is None

    def make_check_of_older_epoch(self, member: ConsumerMember, epoch: int) -> CheckPartition:
        """Return a function that raises KafkaError for a partition that the member got after this older epoch."""
        code, name = self.get_wrong_epoch_code_and_epoch_name(member)

        def check_partition_epoch(topic: str, topic_id: bytes, partition: int) -> None:
            since = member.get_owned_since_epoch(topic_id, partition)
            if since is None:
                message = f"Partition {topic}-{partition} is not assigned or pending revocation for member."
                raise KafkaError(code, message)
            if epoch < since:
                message = f"Received {name} {epoch} is older than assignment epoch {since} for partition "
                raise KafkaError(code, f"{message}{topic}-{partition}.")

        return check_partition_epoch

    # --- its end --------------------------------------------------------------------------------

    def make_tombstones(self) -> list[Entry]:
        return encode_group_changes(consumer_records.make_group_tombstones(self.group_id, self.members, self.patterns))

    # --- look-up --------------------------------------------------------------------------------

    def is_partition_owned(self, topic_id: bytes, partition: int) -> bool:
        """Return whether a member owns the partition, or has still to revoke it."""
        return (topic_id, partition) in self.owners

    # --- the fold -------------------------------------------------------------------------------

    def _apply_group_epoch_record(self, key: Message, value: Any) -> None:
        self.epoch = value.epoch
        self.metadata_hash = value.metadata_hash

    def _apply_partition_metadata_record(self, key: Message, value: Any) -> None:
        self.has_partition_metadata = value is not None

    def _apply_member_metadata_record(self, key: messages.ConsumerGroupMemberMetadataKey, value: Any) -> None:
        if value is None:
            self.remove_member(key.member_id)
        else:
            member = self.members.get(key.member_id) or ConsumerMember(key.member_id)
            self.add_or_replace_member(member.with_recorded_metadata(value))

    def _apply_target_epoch_record(self, key: Message, value: Any) -> None:
        self.assignment_epoch = NO_ASSIGNMENT_EPOCH if value is None else value.assignment_epoch
        self.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp

    def _apply_target_assignment_record(self, key: messages.ConsumerGroupTargetAssignmentMemberKey, value: Any) -> None:
        if value is None:
            self.target.pop(key.member_id, None)
        else:
            self.target[key.member_id] = {each.topic_id: frozenset(each.partitions) for each in value.topic_partitions}

    def _apply_current_assignment_record(
        self, key: messages.ConsumerGroupCurrentMemberAssignmentKey, value: Any
    ) -> None:
        member = self.members.get(key.member_id)
        if value is not None:
            self.add_or_replace_member((member or ConsumerMember(key.member_id)).with_recorded_assignment(value))
        elif member is not None:
            gone = LEAVING_EPOCH
            self.add_or_replace_member(
                member._replace(epoch=gone, previous_epoch=gone, assigned={}, pending_revocation={})
            )

    def _apply_pattern_record(self, key: messages.ConsumerGroupRegularExpressionKey, value: Any) -> None:
        if value is None:
            self.patterns.pop(key.regular_expression, None)
        else:
            resolved = ResolvedPattern(frozenset(value.topics), value.version, value.timestamp)
            self.patterns[key.regular_expression] = resolved

    def record_owned_partitions(self, member: ConsumerMember) -> None:
        for partitions in (member.assigned, member.pending_revocation):
            for topic_id, epochs in partitions.items():
                for partition in epochs:
                    self.owners[topic_id, partition] = member.member_id

    def forget_partitions_owned_by_member(self, member_id: str) -> None:
        member = self.members.get(member_id)
        for partitions in () if member is None else (member.assigned, member.pending_revocation):
            for topic_id, epochs in partitions.items():
                for partition in epochs:
                    if self.owners.get((topic_id, partition)) == member_id:
                        del self.owners[topic_id, partition]

    applied = {
        messages.ConsumerGroupMetadataKey: _apply_group_epoch_record,
        messages.ConsumerGroupPartitionMetadataKey: _apply_partition_metadata_record,
        messages.ConsumerGroupMemberMetadataKey: _apply_member_metadata_record,
        messages.ConsumerGroupTargetAssignmentMetadataKey: _apply_target_epoch_record,
        messages.ConsumerGroupTargetAssignmentMemberKey: _apply_target_assignment_record,
        messages.ConsumerGroupCurrentMemberAssignmentKey: _apply_current_assignment_record,
        messages.ConsumerGroupRegularExpressionKey: _apply_pattern_record,
    }
