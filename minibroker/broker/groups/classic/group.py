"""A classic group: its generation, its members, and what may be done to it from outside.

How it gets from one generation to the next is in `rebalance`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from minibroker.broker.groups import records
from minibroker.broker.groups.classic.members import Member
from minibroker.broker.groups.classic.states import FOLLOWING, State
from minibroker.broker.groups.classic.subscriptions import CONSUMER_PROTOCOL, subscribed_topics
from minibroker.broker.groups.group import CheckPartition, Group, GroupType
from minibroker.broker.groups.offsets import CommittedOffset, CommittedOffsets
from minibroker.broker.state_topics import Entry
from minibroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from minibroker.broker.groups.coordinator import GroupCoordinator

NO_GENERATION = -1


class ClassicGroup(Group):
    """One classic group. One without a `protocol_type` has never had members, and only commits offsets.

    `members` are in the order in which they came. `static` has the member id of each instance id. `topics` are those
    that its members read, None if that is not known.
    """

    type = GroupType.CLASSIC

    def __init__(self, coordinator: GroupCoordinator, group_id: str, offsets: CommittedOffsets) -> None:
        super().__init__(group_id, offsets)
        self.coordinator = coordinator
        self.state = State.EMPTY
        self.state_since_ms: int | None = coordinator.cluster.clock.wall_ms()
        self.generation = 0
        self.kind: str | None = None
        self.protocol: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static: dict[str, str] = {}
        self.topics: frozenset[str] | None = None

    # --- what every kind of group answers ---------------------------------------------------------

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def protocol_type(self) -> str:
        return self.kind or ""

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    def is_subscribed_to(self, topic: str) -> bool:
        return self.kind == CONSUMER_PROTOCOL if self.topics is None else topic in self.topics

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, version: int
    ) -> CheckPartition | None:
        if epoch < 0 and self.state is State.EMPTY:
            return None
        if epoch >= 0 or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            if epoch != self.generation:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        elif not transactional and self.state is not State.EMPTY:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if not transactional and self.state is State.COMPLETING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        return None

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """A classic group's offsets are fetched by whoever asks."""

    def check_offset_deletion(self) -> None:
        if self.state is not State.EMPTY and self.kind != CONSUMER_PROTOCOL:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def check_deletion(self) -> None:
        if self.state is not State.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def expires_since(self, committed: CommittedOffset) -> int | None:
        if self.kind is None:
            return committed.commit_timestamp_ms
        if self.state is State.EMPTY:
            return committed.commit_timestamp_ms if self.state_since_ms is None else self.state_since_ms
        known = self.kind == CONSUMER_PROTOCOL and self.topics is not None
        return committed.commit_timestamp_ms if known and self.state is State.STABLE else None

    def tombstones(self) -> list[Entry]:
        return [records.group_metadata_entry(self.group_id, None)]

    def loaded(self) -> None:
        pass

    def close(self, code: ErrorCode) -> None:
        self.become(State.DEAD)

    # --- members --------------------------------------------------------------------------------

    def check_member(self, member_id: str, instance_id: str | None) -> None:
        """Whether this is a member. Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        if instance_id is not None:
            present = self.static.get(instance_id)
            if present is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if present != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    def add(self, member: Member) -> None:
        """Take a member in; the first is the leader."""
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def candidates(self) -> set[str]:
        """The protocols that all members understand."""
        counts = Counter(protocol.name for member in self.members.values() for protocol in member.protocols)
        return {name for name, count in counts.items() if count == len(self.members)}

    def learn_topics(self) -> None:
        """Find out what its members read, now that they or the protocol are others."""
        self.topics = subscribed_topics(self)

    # --- state ----------------------------------------------------------------------------------

    def become(self, state: State) -> None:
        """Pass on to a state that may follow on the present one."""
        if state not in FOLLOWING[self.state]:
            raise AssertionError(f"{self} cannot become {state}")
        self.state = state
        self.state_since_ms = self.coordinator.cluster.clock.wall_ms()
