"""What the groups share whose members send heartbeats: their state is a fold over their records, members expire.

In consumer groups and streams groups, members are also reconciled with a target, epoch by epoch (KIP-848, KIP-1071),
may be static, and name their epoch in commits.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, StrEnum
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from minibroker.broker.clock import Clock, Timer
from minibroker.broker.configs.group_settings import get_group_config
from minibroker.broker.groups.group import CheckPartition, Group, GroupContext
from minibroker.broker.groups.group_entries import GroupChange, encode_group_changes
from minibroker.broker.groups.offsets_of_group import CommittedOffset, CommittedOffsets
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode, KafkaError

FIRST_EPOCH = 1
NEVER = -1
FIRST_COMMIT_WITH_MEMBER_EPOCHS = 9
log = logging.getLogger("minibroker.groups")
AGAIN_MS = 1000  # after the removal of a member could not be recorded


class TimerPurpose(Enum):
    """What a timer waits for."""

    SESSION = "to be heard of"
    REVOCATION = "to give up partitions"
    JOIN = "to join again, with the classic protocol"
    SYNC = "to ask for its assignment, with the classic protocol"


class MemberTimers:
    """The timers of one group's members, by member and purpose: at most one of each runs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timers: dict[tuple[str, TimerPurpose], Timer] = {}

    def start_timer(
        self, member_id: str, purpose: TimerPurpose, delay_ms: float, call_on_expiry: Callable[[], None]
    ) -> None:
        """Call `call_on_expiry` after the delay; a timer that runs already is restarted."""
        self.cancel_timers(member_id, purpose)

        def call_expired() -> None:
            del self._timers[member_id, purpose]
            call_on_expiry()

        self._timers[member_id, purpose] = self._clock.call_later(delay_ms, call_expired)

    def is_timer_running(self, member_id: str, purpose: TimerPurpose) -> bool:
        """Return whether a timer for this purpose is running for the member."""
        return (member_id, purpose) in self._timers

    def cancel_timers(self, member_id: str, *purposes: TimerPurpose) -> None:
        """Cancel the member's timers for these purposes, or all."""
        for purpose in purposes or TimerPurpose:
            timer = self._timers.pop((member_id, purpose), None)
            if timer is not None:
                timer.cancel()

    def cancel_all(self) -> None:
        """Cancel the timers of all members."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()


class GroupState(StrEnum):
    """The states, by their names in ListGroups and in descriptions. Only streams groups can be not ready."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class EpochMember(Protocol):
    """A member with epochs, as recorded."""

    @property
    def member_id(self) -> str: ...

    @property
    def instance_id(self) -> str | None: ...

    @property
    def epoch(self) -> int: ...

    @property
    def rebalance_timeout_ms(self) -> int: ...

    def is_reconciled_to(self, epoch: int) -> bool: ...


AnyMember = TypeVar("AnyMember")
Member = TypeVar("Member", bound=EpochMember)


class HeartbeatGroup(Group, Generic[AnyMember]):
    """A group with `members` by id. `applied` has the method that folds in each record, by the type of its key."""

    applied: ClassVar[Mapping[type[Message], Callable[[Any, Any, Any], None]]]
    epoch: int

    def __init__(self, context: GroupContext, group_id: str, offsets: CommittedOffsets) -> None:
        super().__init__(context, group_id, offsets)
        self.members: dict[str, AnyMember] = {}
        self.timers = MemberTimers(self.clock)

    @property
    def is_empty(self) -> bool:
        return not self.members

    def check_room_for_member(self, member_id: str) -> None:
        """Check that one more member may join, or this one is in already. Raises KafkaError(GROUP_MAX_SIZE_REACHED)."""
        limit = self.context.cluster.settings[f"group.{self.type}.max.size"]
        if len(self.members) >= limit and member_id not in self.members:
            message = f"The {self.type} group has reached its maximum capacity of {limit} members."
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)

    def get_offset_retention_start_ms(self, committed_offset: CommittedOffset) -> int | None:
        """Return when the offset was committed."""
        return committed_offset.commit_timestamp_ms

    def check_may_be_deleted(self) -> None:
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def close_with_error(self, code: ErrorCode) -> None:
        self.timers.cancel_all()

    @abstractmethod
    def remove_members(self, members: Sequence[AnyMember]) -> None:
        """Remove members. Raises KafkaError if that cannot be recorded, and nothing has changed."""

    def append_changes(self, changes: Sequence[GroupChange], replaced_group: Group | None = None) -> None:
        """Append changes, all or none, and apply them; this group then takes the place of `replaced_group`.

        Raises KafkaError with the code for the client, and nothing has changed.
        """
        if not changes:
            return
        gone = () if replaced_group is None else replaced_group.make_tombstones()
        self.context.append_entries(self.group_id, [*gone, *encode_group_changes(changes)])
        self.context.groups[self.group_id] = self
        before = self.epoch
        for change in changes:
            self.apply_record_change(change)
        if self.epoch > before:
            self.context.rebalances[self.type] += 1
        if replaced_group is not None:
            replaced_group.close_with_error(ErrorCode.REBALANCE_IN_PROGRESS)

    def apply_record_change(self, change: GroupChange) -> None:
        """Apply a record to the group; a tombstone of something unknown changes nothing."""
        self.applied[type(change.key)](self, change.key, change.value)

    def restart_session_timeout(self, member_id: str) -> None:
        """Restart the timer after which a member without heartbeats is removed."""
        timeout_ms = self.get_session_timeout_ms(member_id)
        reason = f"it was not heard of for {timeout_ms} ms"
        self.start_timer_to_remove_member(member_id, TimerPurpose.SESSION, timeout_ms, reason)

    def get_session_timeout_ms(self, member_id: str) -> int:
        """Return after how long without a heartbeat a member is removed."""
        timeout_ms: int = get_group_config(self.context.cluster, self.group_id, f"{self.type}.session.timeout.ms")
        return timeout_ms

    def start_timer_to_remove_member(
        self,
        member_id: str,
        purpose: TimerPurpose,
        timeout_ms: int,
        reason: str,
        is_late: Callable[[], bool] = lambda: True,
    ) -> None:
        """Remove a member after the timeout if `is_late` returns true then; replace a running timer of this purpose."""

        def remove_late_member() -> None:
            member = self.members.get(member_id)
            if member is None or not is_late():
                return
            log.info("member %s is put out of group %s: %s", member_id, self.group_id, reason)
            try:
                self.remove_members([member])
            except KafkaError as error:
                log.error("member %s cannot be put out of group %s: %s", member_id, self.group_id, error)
                self.start_timer_to_remove_member(member_id, purpose, AGAIN_MS, reason, is_late)

        self.timers.start_timer(member_id, purpose, timeout_ms, remove_late_member)


class ReconcilingGroup(HeartbeatGroup[Member]):
    """A group with a target for its members.

    `epoch` counts the changes of what the target is made for; `assignment_epoch` is the epoch for which it was made, at
    `assignment_timestamp_ms` (0: never). `metadata_hash` stands for the topics at the last look at them, after
    `looked_at_commit` of the metadata. `static` has the member with each instance id.
    """

    def __init__(self, context: GroupContext, group_id: str, offsets: CommittedOffsets) -> None:
        super().__init__(context, group_id, offsets)
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        self.static: dict[str, str] = {}
        self.looked_at_commit = NEVER

    @property
    def state_name(self) -> str:
        if not self.members:
            return GroupState.EMPTY
        if not self.is_ready_for_target:
            return GroupState.NOT_READY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    @property
    def is_ready_for_target(self) -> bool:
        """Whether a target assignment can be made; a streams group needs a validated topology for one."""
        return True

    # --- its offsets --------------------------------------------------------------------------------

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, version: int
    ) -> CheckPartition | None:
        """Check that this member may commit now; in an older epoch, return a function that checks each partition."""
        if epoch < 0 and not self.members:
            return None
        if transactional and epoch < 0 and not member_id and instance_id is None:
            return None  # TxnOffsetCommit may come without a member
        member = self.get_member(member_id)
        if not transactional and self.uses_member_epochs(member) and version < FIRST_COMMIT_WITH_MEMBER_EPOCHS:
            message = f"OffsetCommit version 9 or above must be used by members using the {self.type} group protocol"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)
        if epoch == member.epoch:
            return None
        code, name = self.get_wrong_epoch_code_and_epoch_name(member)
        if epoch > member.epoch:
            message = f"Received {name} {epoch} is newer than current member epoch {member.epoch}."
            raise KafkaError(code, message)
        return self.make_check_of_older_epoch(member, epoch)

    @abstractmethod
    def make_check_of_older_epoch(self, member: Member, epoch: int) -> CheckPartition:
        """Return a function that checks that the member has had a partition since this older epoch (KIP-1251)."""

    def check_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        if member_id is None and epoch < 0:
            return
        member = self.get_member(member_id or "")
        if epoch != member.epoch:
            code, name = self.get_wrong_epoch_code_and_epoch_name(member)
            message = f"The received {name} {epoch} does not match the expected member epoch {member.epoch}."
            raise KafkaError(code, message)

    def check_offsets_may_be_deleted(self) -> None:
        """Let offsets be deleted at any time."""

    def uses_member_epochs(self, member: Member) -> bool:
        """Return whether the member speaks the protocol of the group's type, which has member epochs."""
        return True

    def get_wrong_epoch_code_and_epoch_name(self, member: Member) -> tuple[ErrorCode, str]:
        """Return the error code for a wrong epoch, and the name of the epoch in the error message."""
        if self.uses_member_epochs(member):
            return ErrorCode.STALE_MEMBER_EPOCH, "member epoch"
        return ErrorCode.ILLEGAL_GENERATION, "generation id"

    # --- look-up --------------------------------------------------------------------------------

    def get_member(self, member_id: str, instance_id: str | None = None) -> Member:
        """Return the member of this id. Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        if instance_id is not None:
            return self._get_static_member(member_id, instance_id)
        member = self.members.get(member_id)
        if member is None:
            message = f"Member {member_id} is not a member of group {self.group_id}."
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, message)
        return member

    def _get_static_member(self, member_id: str, instance_id: str) -> Member:
        member = self.find_static_member(instance_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if member.member_id != member_id:
            name = f"Static member {member_id} with instance id {instance_id}"
            raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, f"{name} was fenced by member {member.member_id}.")
        return member

    def check_room_for_member(self, member_id: str, instance_id: str | None = None) -> None:
        if instance_id not in self.static:
            super().check_room_for_member(member_id)

    def find_static_member(self, instance_id: str | None) -> Member | None:
        """Return the member with this instance id, even while it is away; None if there is none."""
        member_id = None if instance_id is None else self.static.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    # --- members come and go ----------------------------------------------------------------------

    def add_or_replace_member(self, member: Member) -> None:
        """Add a member, or replace what it was."""
        self.forget_partitions_owned_by_member(member.member_id)
        before = self.members.get(member.member_id)
        if before is not None and before.instance_id != member.instance_id:
            self._forget_static_instance(before)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        self.record_owned_partitions(member)

    def remove_member(self, member_id: str) -> None:
        """Remove a member, if it is one."""
        self.forget_partitions_owned_by_member(member_id)
        member = self.members.pop(member_id, None)
        if member is not None:
            self._forget_static_instance(member)

    def _forget_static_instance(self, member: Member) -> None:
        """Forget that the member has its instance id, unless that is another member's by now."""
        if member.instance_id is not None and self.static.get(member.instance_id) == member.member_id:
            del self.static[member.instance_id]

    @abstractmethod
    def record_owned_partitions(self, member: Member) -> None:
        """Add what the member owns, or has still to revoke, to the group's table of owners."""

    @abstractmethod
    def forget_partitions_owned_by_member(self, member_id: str) -> None:
        """Remove a member from the table of owners; a next owner, whose record may come first, stays."""

    def schedule_revocation_timeout(self, member: Member, purpose: str) -> None:
        """Remove a member that has not given up its partitions or tasks (`purpose`) within its rebalance timeout."""

        def has_same_epoch() -> bool:
            present = self.members.get(member.member_id)
            return present is not None and present.epoch == member.epoch

        timeout_ms = member.rebalance_timeout_ms
        reason = f"it did not give up {purpose} within {timeout_ms} ms"
        self.start_timer_to_remove_member(member.member_id, TimerPurpose.REVOCATION, timeout_ms, reason, has_same_epoch)
