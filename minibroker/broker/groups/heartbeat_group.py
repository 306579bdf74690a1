"""What the groups share whose members send heartbeats: their state is a fold over their records, members expire."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from minibroker.broker.groups.consumer.timers import MemberTimers, Purpose
from minibroker.broker.groups.group import Group, GroupContext
from minibroker.broker.groups.group_entries import Change, entries
from minibroker.broker.groups.offsets_of_group import CommittedOffset, CommittedOffsets
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode, KafkaError

log = logging.getLogger("minibroker.groups")

AGAIN_MS = 1000  # after the removal of a member could not be recorded

Member = TypeVar("Member")


class HeartbeatGroup(Group, Generic[Member]):
    """A group with `members` by id. `applied` has the method that folds in each record, by the type of its key."""

    applied: ClassVar[Mapping[type[Message], Callable[[Any, Any, Any], None]]]
    epoch: int

    def __init__(self, context: GroupContext, group_id: str, offsets: CommittedOffsets) -> None:
        super().__init__(context, group_id, offsets)
        self.members: dict[str, Member] = {}
        self.timers = MemberTimers(self.clock)

    @property
    def is_empty(self) -> bool:
        return not self.members

    def expires_since(self, committed: CommittedOffset) -> int | None:
        return committed.commit_timestamp_ms

    def check_deletion(self) -> None:
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def close(self, code: ErrorCode) -> None:
        self.timers.cancel_all()

    @abstractmethod
    def remove(self, members: Sequence[Member]) -> None:
        """Remove members. Raises KafkaError if that cannot be recorded, and nothing has changed."""

    def commit(self, changes: Sequence[Change], replaced: Group | None = None) -> None:
        """Append changes, all or none, and fold them in; this group then takes the place of `replaced`.

        Raises KafkaError with the code for the client, and nothing has changed.
        """
        if not changes:
            return
        gone = () if replaced is None else replaced.tombstones()
        self.context.append(self.group_id, [*gone, *entries(changes)])
        self.context.groups[self.group_id] = self
        before = self.epoch
        for change in changes:
            self.apply(change)
        if self.epoch > before:
            self.context.rebalances[self.type] += 1
        if replaced is not None:
            replaced.close(ErrorCode.REBALANCE_IN_PROGRESS)

    def apply(self, change: Change) -> None:
        """Fold one record in; a tombstone of something unknown changes nothing."""
        self.applied[type(change.key)](self, change.key, change.value)

    def remove_after(
        self,
        member_id: str,
        purpose: Purpose,
        timeout_ms: int,
        reason: str,
        is_late: Callable[[], bool] = lambda: True,
    ) -> None:
        """Remove a member after a time, if it is late then. A timer of the same purpose is restarted."""

        def expired() -> None:
            member = self.members.get(member_id)
            if member is None or not is_late():
                return
            log.info("member %s is put out of group %s: %s", member_id, self.group_id, reason)
            try:
                self.remove([member])
            except KafkaError as error:
                log.error("member %s cannot be put out of group %s: %s", member_id, self.group_id, error)
                self.remove_after(member_id, purpose, AGAIN_MS, reason, is_late)

        self.timers.start(member_id, purpose, timeout_ms, expired)
