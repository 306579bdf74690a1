"""A classic group: its generation, its members, and what may be done to it from outside.

How it gets from one generation to the next is in `rebalance`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from minibroker.broker.clock import Clock, Timer
from minibroker.broker.coordination.coordinator_logs import Entry
from minibroker.broker.groups import records
from minibroker.broker.groups.classic import joining, leaving, rebalance, sessions, syncing
from minibroker.broker.groups.classic.members import Member, Membership, Respond, join_error
from minibroker.broker.groups.classic.states import FOLLOWING, State, rebalancing, wrong_generation
from minibroker.broker.groups.classic.subscriptions import CONSUMER_PROTOCOL, subscribed_topics
from minibroker.broker.groups.group import CheckPartition, Group, GroupType
from minibroker.broker.groups.offsets import CommittedOffset, CommittedOffsets
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.groups import (
    DescribeGroupsResponse,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from minibroker.broker.groups.callers import Caller
    from minibroker.broker.groups.coordinator import GroupCoordinator

KEPT_ALIVE_BY_COMMITS = (State.STABLE, State.PREPARING_REBALANCE)


class ClassicGroup(Membership, Group):
    """One classic group. One without a `kind` has never had members, and only commits offsets.

    `protocol` is the one that the generation has agreed on. `topics` are those that its members read, None if that is
    not known. `is_first_rebalance` says that the rebalance that goes on began with an empty group, `has_new_member`
    that somebody has come since.
    """

    type = GroupType.CLASSIC

    def __init__(self, coordinator: GroupCoordinator, group_id: str, offsets: CommittedOffsets) -> None:
        Membership.__init__(self)
        Group.__init__(self, group_id, offsets)
        self.coordinator = coordinator
        self.state = State.EMPTY
        self.state_since_ms: int | None = self.clock.wall_ms()
        self.generation = 0
        self.protocol: str | None = None
        self.topics: frozenset[str] | None = None
        self.is_first_rebalance = False
        self.has_new_member = False
        self._joins: Timer | None = None
        self._syncs: Timer | None = None

    @property
    def clock(self) -> Clock:
        return self.coordinator.cluster.clock

    def setting(self, name: str) -> Any:
        """The broker's value of a setting now."""
        return self.coordinator.cluster.settings[name]

    # --- requests ---------------------------------------------------------------------------------

    def join(self, caller: Caller, request: JoinGroupRequest, respond: Respond) -> None:
        joining.join(self, caller, request, respond)

    def sync(self, caller: Caller, request: SyncGroupRequest, respond: Respond) -> None:
        syncing.sync(self, request, respond)

    def heartbeat(self, request: HeartbeatRequest) -> None:
        sessions.heartbeat(self, request.member_id, request.group_instance_id, request.generation_id)

    def leave(self, members: Sequence[LeaveGroupRequest.MemberIdentity]) -> list[LeaveGroupResponse.MemberResponse]:
        return leaving.leave(self, members)

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
            member = self.check_member(member_id, instance_id)
            if epoch != self.generation:
                raise wrong_generation(epoch, self.generation)
            if not transactional and self.state in KEPT_ALIVE_BY_COMMITS:
                self.keep_alive(member)
        elif not transactional and self.state is not State.EMPTY:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"the group has members, and is {self.state_name}")
        if not transactional and self.state is State.COMPLETING_REBALANCE:
            raise rebalancing(self.state)
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
        for member in self.members.values():
            self.keep_alive(member)
        limit = self.setting("group.max.size")
        if len(self.members) > limit:
            reason = f"it has {len(self.members)} members, and {limit} are allowed"
            self.clock.call_later(0, lambda: rebalance.prepare_or_complete(self, reason))

    def close(self, code: ErrorCode) -> None:
        self.stop_waiting_for_joins()
        self.stop_waiting_for_syncs()
        for member_id in list(self.pending):
            self.forget_pending(member_id)
        for member in self.members.values():
            member.end_session()
            self.answer_join(member.member_id, join_error(code, member.member_id))
            self.answer_sync(member.member_id, SyncGroupResponse(error_code=code))
        self.become(State.DEAD)

    # --- time -------------------------------------------------------------------------------------

    def keep_alive(self, member: Member, timeout_ms: int | None = None) -> None:
        """Begin a member's session anew, for its session timeout unless told."""
        sessions.keep_alive(self, member, timeout_ms)

    def expect(self, member_id: str, timeout_ms: int) -> None:
        """Wait for somebody to join with an id that was given out."""
        sessions.expect(self, member_id, timeout_ms)

    def wait_for_joins(self, timeout_ms: int, then: Callable[[], None]) -> None:
        """Call `then` when the time for joining is up."""
        self.stop_waiting_for_joins()
        self._joins = self.clock.call_later(timeout_ms, then)

    def stop_waiting_for_joins(self) -> None:
        if self._joins is not None:
            self._joins.cancel()
            self._joins = None

    def wait_for_syncs(self, timeout_ms: int, then: Callable[[], None]) -> None:
        """Call `then` when the time for syncing is up."""
        self.stop_waiting_for_syncs()
        self._syncs = self.clock.call_later(timeout_ms, then)

    def stop_waiting_for_syncs(self) -> None:
        if self._syncs is not None:
            self._syncs.cancel()
            self._syncs = None

    # --- state ------------------------------------------------------------------------------------

    def described(self) -> DescribeGroupsResponse.DescribedGroup:
        """What DescribeGroups tells of it; while it is not stable, nothing is told of what its members say."""
        stable = self.state is State.STABLE
        return DescribeGroupsResponse.DescribedGroup(
            group_id=self.group_id,
            group_state=self.state_name,
            protocol_type=self.protocol_type,
            protocol_data=(self.protocol or "") if stable else "",
            members=[
                DescribeGroupsResponse.DescribedGroup.DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata(self.protocol) if stable else b"",
                    member_assignment=member.assignment,
                )
                for member in self.members.values()
            ],
        )

    def learn_topics(self) -> None:
        """Find out what its members read, now that they or the protocol are others."""
        self.topics = subscribed_topics(self)

    def become(self, state: State) -> None:
        """Pass on to a state that may follow on the present one."""
        if state not in FOLLOWING[self.state]:
            raise AssertionError(f"{self} cannot become {state}")
        self.state = state
        self.state_since_ms = self.coordinator.cluster.clock.wall_ms()
