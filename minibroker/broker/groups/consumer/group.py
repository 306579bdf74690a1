"""A consumer group: a fold over its records, and what may be done to it from outside.

What its members ask for is decided elsewhere in this folder; whoever decides writes records, and `apply` folds them in,
while the broker runs as at its start.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from minibroker.broker.coordination.coordinator_logs import Entry
from minibroker.broker.groups.consumer import classic_members, expiring, recording
from minibroker.broker.groups.consumer.assignors.specification import Partitions
from minibroker.broker.groups.consumer.member import ConsumerMember
from minibroker.broker.groups.consumer.subscriptions import ResolvedPattern
from minibroker.broker.groups.consumer.timers import MemberTimers
from minibroker.broker.groups.group import Caller, CheckPartition, Group, GroupContext, GroupType, Respond
from minibroker.broker.groups.offsets import CommittedOffset, CommittedOffsets
from minibroker.broker.groups.records import entries
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
)

CONSUMER_PROTOCOL = "consumer"
FIRST_EPOCH = 1
NEVER_LOOKED = -1
FIRST_COMMIT_WITH_MEMBER_EPOCHS = 9


class State(StrEnum):
    """By the names that ConsumerGroupDescribe and ListGroups have for them."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerGroup(Group):
    """One consumer group.

    `epoch` counts the changes of its members and topics, `assignment_epoch` is that for which `target` was made, at
    `assignment_timestamp_ms` (0: never). `patterns` has the topics of each pattern that members subscribe to.
    `metadata_hash` stands for the topics as they were when they were last looked at, which was after
    `looked_at_commit` of the metadata, as `resolved_commit` is that after which patterns were last matched, which may
    be going on (`is_resolving`). `owners` says which member has, or has still to give up, each partition.
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
        self.looked_at_commit = NEVER_LOOKED
        self.resolved_commit = NEVER_LOOKED
        self.is_resolving = False
        self.timers = MemberTimers(self.clock)

    # --- what every kind of group answers ---------------------------------------------------------

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

    # --- requests of members that speak the classic protocol ------------------------------------------

    def join(self, caller: Caller, request: JoinGroupRequest, respond: Respond) -> None:
        classic_members.join(self, caller, request, respond)

    def sync(self, request: SyncGroupRequest, respond: Respond) -> None:
        classic_members.sync(self, request, respond)

    def heartbeat(self, request: HeartbeatRequest) -> None:
        classic_members.heartbeat(self, request)

    def leave(self, members: Sequence[LeaveGroupRequest.MemberIdentity]) -> list[LeaveGroupResponse.MemberResponse]:
        return classic_members.leave(self, members)

    # --- what may be done with its offsets ------------------------------------------------------------

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, version: int
    ) -> CheckPartition | None:
        if epoch < 0 and not self.members:
            return None
        if transactional and epoch < 0 and not member_id and instance_id is None:
            return None  # TxnOffsetCommit may come without a member
        member = self.known_member(member_id)
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
        member = self.known_member(member_id or "")
        if epoch != member.epoch:
            code, name = _epoch_words(member)
            message = f"The received {name} {epoch} does not match the expected member epoch {member.epoch}."
            raise KafkaError(code, message)

    def check_offset_deletion(self) -> None:
        """What it is not subscribed to may go at any time."""

    def expires_since(self, committed: CommittedOffset) -> int | None:
        return committed.commit_timestamp_ms

    def check_deletion(self) -> None:
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def tombstones(self) -> list[Entry]:
        return entries(recording.group_gone(self))

    def loaded(self) -> None:
        expiring.begin_sessions(self)

    def close(self, code: ErrorCode) -> None:
        self.timers.cancel_all()

    # --- look-up --------------------------------------------------------------------------------

    def known_member(self, member_id: str) -> ConsumerMember:
        """The member of this id. Raises KafkaError(UNKNOWN_MEMBER_ID)."""
        member = self.members.get(member_id)
        if member is None:
            message = f"Member {member_id} is not a member of group {self.group_id}."
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, message)
        return member

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """The member with this instance id, also while it is away for a while."""
        member_id = None if instance_id is None else self.static.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def is_taken(self, topic_id: bytes, partition: int) -> bool:
        """Whether a member has the partition, or has still to give it up."""
        return (topic_id, partition) in self.owners

    # --- the fold -------------------------------------------------------------------------------

    def set_member(self, member: ConsumerMember) -> None:
        """Take a member in, or what has changed of it."""
        self._disown(member.member_id)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        for partitions in (member.assigned, member.pending_revocation):
            for topic_id, epochs in partitions.items():
                for partition in epochs:
                    self.owners[topic_id, partition] = member.member_id

    def remove_member(self, member_id: str) -> None:
        """Let go of a member, if it is one."""
        self._disown(member_id)
        member = self.members.pop(member_id, None)
        instance_id = None if member is None else member.instance_id
        if instance_id is not None and self.static.get(instance_id) == member_id:
            del self.static[instance_id]

    def _disown(self, member_id: str) -> None:
        """While a log is replayed a partition may have gone to the next member before its last one is told to go."""
        member = self.members.get(member_id)
        for partitions in () if member is None else (member.assigned, member.pending_revocation):
            for topic_id, epochs in partitions.items():
                for partition in epochs:
                    if self.owners.get((topic_id, partition)) == member_id:
                        del self.owners[topic_id, partition]


def _epoch_words(member: ConsumerMember) -> tuple[ErrorCode, str]:
    """The code for a wrong epoch, and what the member's protocol calls the epoch."""
    if member.classic is None:
        return ErrorCode.STALE_MEMBER_EPOCH, "member epoch"
    return ErrorCode.ILLEGAL_GENERATION, "generation id"


def _check_since(member: ConsumerMember, epoch: int) -> CheckPartition:
    """A commit of an older epoch is good for what the member has had since then at least (KIP-1251)."""
    code, name = _epoch_words(member)

    def check(topic: str, topic_id: bytes, partition: int) -> None:
        since = member.owned_since(topic_id, partition)
        if since is None:
            raise KafkaError(code, f"Partition {topic}-{partition} is not assigned or pending revocation for member.")
        if epoch < since:
            message = f"Received {name} {epoch} is older than assignment epoch {since} for partition "
            raise KafkaError(code, f"{message}{topic}-{partition}.")

    return check
