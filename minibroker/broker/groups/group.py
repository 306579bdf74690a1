"""The interface of a group, whatever its type, and what a group needs of its coordinator.

How members join and leave is in `classic/` and `consumer/`.

A type of group is a subclass of `Group`, with a package of its own and

- an entry in `coordinator.REPLAYED` for each of its records. The entry's function folds one record or tombstone into
  the coordinator, with the same outcome as the change that wrote the record;
- `restart_timers_after_load()`, called once after a start, when all records are folded in. Sessions begin anew. It may
  not append at once, only from a timer (`clock.call_later`);
- the order append, then apply: a record that cannot be appended changes nothing, and its KafkaError has the code for
  the client (`GroupContext.append_entries`);
- all time from `clock`, and every timer cancelled in `close_with_error`.

The offsets belong to the group's id, not to its type: a group that replaces another one takes over its `offsets`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol
from uuid import UUID

from minibroker.broker.security.principals import ANONYMOUS, Principal
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster
    from minibroker.broker.coordination.coordinator_logs import Entry
    from minibroker.broker.delayed_operations import Promise
    from minibroker.broker.groups.offsets_of_group import CommittedOffset, CommittedOffsets

# (topic, topic id of 16 bytes, partition): raises KafkaError for a partition that must not be committed.
CheckPartition = Callable[[str, bytes, int], None]


class GroupType(StrEnum):
    """The types of groups, by their names in ListGroups (KIP-848)."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class Caller(NamedTuple):
    """The client that sent a request, and the version of the request. `client_host` is as in Kafka: "/127.0.0.1"."""

    client_id: str
    client_host: str
    version: int
    principal: Principal = ANONYMOUS

    @property
    def address(self) -> str:
        """The host as it stands in ACLs."""
        return self.client_host.removeprefix("/")


class GroupContext(Protocol):
    """What a group needs of its coordinator: the cluster, the table of groups, and the log.

    `rebalances` counts the rebalances of all groups of a type.
    """

    cluster: Cluster
    rebalances: Counter[GroupType]

    @property
    def groups(self) -> MutableMapping[str, Group]:
        """All groups by id."""

    def append_entries(self, group_id: str, entries: Iterable[Entry]) -> int:
        """Append records of a group, all or none; return the first offset. Raises KafkaError with the client's code."""

    def call_when_durable(self, group_id: str, callback: Callable[[KafkaError | None], None]) -> None:
        """Call `callback` once the group's records are durable, or with the failure. Raises KafkaError."""


class Group(ABC):
    """One group. `offsets` is what it has committed."""

    type: ClassVar[GroupType]

    def __init__(self, context: GroupContext, group_id: str, offsets: CommittedOffsets) -> None:
        self.context = context
        self.clock = context.cluster.clock
        self.group_id = group_id
        self.offsets = offsets

    def __repr__(self) -> str:
        return f"<{self.type} group {self.group_id}: {self.state_name}>"

    @property
    @abstractmethod
    def state_name(self) -> str:
        """The name of the state in ListGroups and DescribeGroups."""

    @property
    @abstractmethod
    def protocol_type(self) -> str:
        """The members' protocol type: "consumer" for consumers, "" for a group that only commits offsets."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether it has no members: then it may be deleted, and anybody may commit offsets."""

    @property
    def may_expire(self) -> bool:
        """Whether the group is deleted when it has neither members nor offsets."""
        return True

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether its members read this topic, as far as the coordinator knows."""

    def make_uuid(self) -> UUID:
        """Return a random UUID of version 4."""
        return UUID(bytes=self.context.cluster.random.randbytes(16), version=4)

    # --- requests of members that speak the classic protocol ----------------------------------------

    def join_member(self, caller: Caller, request: JoinGroupRequest, promise: Promise[JoinGroupResponse]) -> None:
        """Add a member, or let it join again; resolve `promise` with the answer. Raises KafkaError."""
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def sync_member(self, request: SyncGroupRequest, promise: Promise[SyncGroupResponse]) -> None:
        """Resolve `promise` with the member's assignment, once there is one. Raises KafkaError."""
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    def handle_member_heartbeat(self, request: HeartbeatRequest) -> None:
        """Check a member's heartbeat, and keep its session alive. Raises KafkaError."""
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    def remove_leaving_members(
        self, members: Sequence[LeaveGroupRequest.MemberIdentity]
    ) -> list[LeaveGroupResponse.MemberResponse]:
        """Remove members; return an answer for each. Raises KafkaError."""
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    # --- its offsets ---------------------------------------------------------------------------

    @abstractmethod
    def check_offset_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, version: int
    ) -> CheckPartition | None:
        """Check that this member may commit offsets now; return a function that also checks each partition, or None.

        `epoch` is the generation or the member epoch, -1 from a client that is not a member. `version` is that of
        OffsetCommit or TxnOffsetCommit. A commit keeps the member's session alive. Raises KafkaError with the code for
        the client.
        """

    @abstractmethod
    def check_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        """Check that this member may fetch offsets now; `epoch` is -1 from a client that is not a member.

        Raises KafkaError.
        """

    @abstractmethod
    def check_offsets_may_be_deleted(self) -> None:
        """Check that offsets of topics that the group does not read may be deleted. Raises KafkaError."""

    @abstractmethod
    def get_offset_retention_start_ms(self, committed_offset: CommittedOffset) -> int | None:
        """Return since when (ms since 1970) `offsets.retention.minutes` counts; None if the offset does not expire."""

    def remove_topic(self, topic_id: bytes) -> None:  # noqa: B027 - most groups keep nothing else
        """Forget what the group keeps about a deleted topic, besides its offsets. Raises KafkaError."""

    # --- its end --------------------------------------------------------------------------------

    @abstractmethod
    def check_may_be_deleted(self) -> None:
        """Check that the group may be deleted. Raises KafkaError(NON_EMPTY_GROUP)."""

    @abstractmethod
    def make_tombstones(self) -> list[Entry]:
        """Return the tombstones of all records of the group, except those of its offsets."""

    @abstractmethod
    def restart_timers_after_load(self) -> None:
        """Begin the members' sessions, after all records are replayed."""

    @abstractmethod
    def close_with_error(self, code: ErrorCode) -> None:
        """Cancel all timers, and answer all waiting requests with `code`: the coordinator gives the group up."""
