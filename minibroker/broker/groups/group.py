"""What the coordinator, the committed offsets and the administrators ask of a group, whatever its kind.

How members join and leave is each kind's own business, in `classic/` and `consumer/`.

A kind of group is a subclass of `Group`, with a folder of its own and

- an entry in `coordinator.REPLAYED` for each of its records, which folds one record (or its tombstone) into the
  coordinator: the same function that changes the group while the broker runs, or at least with the same outcome;
- `loaded()`, which is called once after a start, when all records are in: sessions begin anew, nothing is waited for
  yet. What is appended from here on must be appended by a timer (`clock.call_later`);
- the order append, then apply: a record that cannot be appended changes nothing, and its KafkaError has the code for
  the client (`GroupCoordinator.append`);
- all time from `cluster.clock`, every timer cancelled in `close`.

The offsets belong to the group's id, not to its kind: a group that takes the place of another takes over its `offsets`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
)

if TYPE_CHECKING:
    from minibroker.broker.coordination.coordinator_logs import Entry
    from minibroker.broker.groups.callers import Caller
    from minibroker.broker.groups.offsets import CommittedOffset, CommittedOffsets

# (topic, topic id of 16 bytes, partition): raises KafkaError for a partition that must not be committed.
CheckPartition = Callable[[str, bytes, int], None]


class GroupType(StrEnum):
    """The kinds of groups, by the names that ListGroups has for them (KIP-848)."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class Group(ABC):
    """One group. `offsets` is what it has committed."""

    type: ClassVar[GroupType]

    def __init__(self, group_id: str, offsets: CommittedOffsets) -> None:
        self.group_id = group_id
        self.offsets = offsets

    def __repr__(self) -> str:
        return f"<{self.type} group {self.group_id}: {self.state_name}>"

    @property
    @abstractmethod
    def state_name(self) -> str:
        """The state, as ListGroups and DescribeGroups call it."""

    @property
    @abstractmethod
    def protocol_type(self) -> str:
        """What the members are, "consumer" for consumers; "" for a group that only commits offsets."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether it has no members, so that it may be deleted, and its offsets set from outside."""

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Whether its members read this topic, as far as is known."""

    # --- requests of members that speak the classic protocol ----------------------------------------
    # `respond` takes the response message, now or later. A KafkaError is answered with its code by the caller.

    def join(self, caller: Caller, request: JoinGroupRequest, respond: Callable[[Any], None]) -> None:
        """Let a member join. Raises KafkaError."""
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def sync(self, caller: Caller, request: SyncGroupRequest, respond: Callable[[Any], None]) -> None:
        """Tell a member its assignment. Raises KafkaError."""
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    def heartbeat(self, request: HeartbeatRequest) -> None:
        """Keep a member's session alive. Raises KafkaError."""
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    def leave(self, members: Sequence[LeaveGroupRequest.MemberIdentity]) -> list[LeaveGroupResponse.MemberResponse]:
        """Take members out; each is answered for itself. Raises KafkaError."""
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    # --- what may be done with its offsets ------------------------------------------------------

    @abstractmethod
    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, version: int
    ) -> CheckPartition | None:
        """Whether this member may commit offsets now; what is to be checked of each partition too, or None.

        `epoch` is the generation or the member epoch, -1 from whoever is no member; `version` that of OffsetCommit or
        TxnOffsetCommit. Raises KafkaError with the code of the request. A commit shows that the member is alive.
        """

    @abstractmethod
    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Whether this member may fetch offsets now; -1 from whoever is no member. Raises KafkaError."""

    @abstractmethod
    def check_offset_deletion(self) -> None:
        """Whether offsets of topics that it is not subscribed to may be deleted. Raises KafkaError."""

    @abstractmethod
    def expires_since(self, committed: CommittedOffset) -> int | None:
        """From when on (ms since 1970) `offsets.retention.minutes` counts for this offset; None: it does not expire."""

    # --- its end --------------------------------------------------------------------------------

    @abstractmethod
    def check_deletion(self) -> None:
        """Whether the group may be deleted. Raises KafkaError(NON_EMPTY_GROUP)."""

    @abstractmethod
    def tombstones(self) -> list[Entry]:
        """The records that take back all that was ever recorded of the group, its offsets excepted."""

    @abstractmethod
    def loaded(self) -> None:
        """All records are replayed: begin the sessions of its members."""

    @abstractmethod
    def close(self, code: ErrorCode) -> None:
        """The coordinator no longer looks after it: cancel timers, answer those who wait with `code`."""
