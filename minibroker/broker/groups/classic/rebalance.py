"""How a classic group gets from one generation to the next: who is waited for, for how long, and who is answered.

A rebalance begins when a member comes, goes or changes (`begin_or_complete_rebalance`). All members must join again,
within the longest of their rebalance timeouts. Then the next generation begins without those who have not joined
(`complete_join_phase`): its leader has the same time to send the assignment. The first rebalance of an empty group
waits for `group.initial.rebalance.delay.ms` instead, and again whenever a member has joined meanwhile.

Which state may follow which is in `classic_states`, what the members ask for in `classic_group`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from minibroker.broker.clock import Timer
from minibroker.broker.coordination.coordinator_logs import Entry
from minibroker.broker.groups.classic.classic_states import CAN_REBALANCE, FOLLOWING, ClassicState
from minibroker.broker.groups.classic.members import CONSUMER_PROTOCOL, NOT_SET, Member, Membership
from minibroker.broker.groups.group import Group, GroupContext
from minibroker.broker.groups.group_entries import encode_group_metadata_entry
from minibroker.broker.groups.offsets_of_group import CommittedOffsets
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.legible import format_first_names
from minibroker.protocol.messages.group_records import GroupMetadataValue
from minibroker.protocol.messages.groups import JoinGroupResponse, SyncGroupResponse
from minibroker.protocol.primitives import MalformedMessage

log = logging.getLogger("minibroker.groups")

INITIAL_DELAY = "group.initial.rebalance.delay.ms"


class RebalancingGroup(Membership, Group):
    """A classic group as far as rebalances go: its state, its generation, and the timers of both.

    `protocol` is the one that the generation has agreed on. `topics` are those that its members read, None if that is
    not known. `is_first_rebalance` says that the present rebalance began with an empty group, `has_new_member` that a
    member has joined since. `_deadline` is the end of the time for joining, or for syncing.
    """

    def __init__(self, context: GroupContext, group_id: str, offsets: CommittedOffsets) -> None:
        Membership.__init__(self)
        Group.__init__(self, context, group_id, offsets)
        self.state = ClassicState.EMPTY
        self.state_since_ms: int | None = self.clock.wall_ms()
        self.generation = 0
        self.protocol: str | None = None
        self.topics: frozenset[str] | None = None
        self.is_first_rebalance = False
        self.has_new_member = False
        self._deadline: Timer | None = None

    def transition_to(self, state: ClassicState) -> None:
        """Change to a state that may follow the present one."""
        if state not in FOLLOWING[self.state]:
            raise AssertionError(f"{self} cannot become {state}")
        self.state = state
        self.state_since_ms = self.clock.wall_ms()

    def update_subscribed_topics(self) -> None:
        """Set the topics that members subscribe to, as members or protocol have changed; None if they are unknown.

        The broker reads the metadata of consumers for nothing else, and that of other protocol types not at all.
        """
        self.topics = None
        if self.kind == CONSUMER_PROTOCOL and (self.protocol is not None or not self.members):
            try:
                self.topics = frozenset(
                    each for member in self.members.values() for each in member.list_subscribed_topics(self.protocol)
                )
            except MalformedMessage as error:
                log.warning("what the members of group %s read is not known: %s", self.group_id, error)

    # --- the members join -------------------------------------------------------------------------

    def begin_or_complete_rebalance(self, reason: str) -> None:
        """Begin a rebalance; during one, begin the next generation if all members have joined."""
        if self.state in CAN_REBALANCE:
            self.begin_rebalance(reason)
        else:
            self.complete_join_if_all_joined()

    def begin_rebalance(self, reason: str) -> None:
        """Require all members to join again."""
        if self.state is ClassicState.COMPLETING_REBALANCE:
            self.clear_assignments_and_refuse_syncs(ErrorCode.REBALANCE_IN_PROGRESS)
        self._stop_waiting_for_syncs()
        self.is_first_rebalance = self.state is ClassicState.EMPTY
        self.transition_to(ClassicState.PREPARING_REBALANCE)
        log.info("group %s rebalances after generation %d: %s", self.group_id, self.generation, reason)
        if self.is_first_rebalance:
            delay_ms: int = self.context.cluster.settings[INITIAL_DELAY]
            self._wait_for_initial_members(delay_ms, max(self.rebalance_timeout_ms - delay_ms, 0))
        elif self.have_all_joined:
            self.complete_join_phase()
        else:
            self._start_phase_timer(self.rebalance_timeout_ms, self.complete_join_phase)

    def complete_join_if_all_joined(self) -> None:
        """Begin the next generation if all members have joined; a new group's first one waits for the initial delay."""
        if self.state is ClassicState.PREPARING_REBALANCE and not self.is_first_rebalance and self.have_all_joined:
            self.complete_join_phase()

    def _wait_for_initial_members(self, delay_ms: int, remaining_ms: int) -> None:
        """Wait for `delay_ms`, and again while members come and time remains; then begin the first generation."""

        def is_over() -> None:
            if not self.has_new_member or not remaining_ms:
                self.complete_join_phase()
                return
            self.has_new_member = False
            again_ms = min(self.context.cluster.settings[INITIAL_DELAY], remaining_ms)
            self._wait_for_initial_members(again_ms, max(remaining_ms - delay_ms, 0))

        self._start_phase_timer(delay_ms, is_over)

    def complete_join_phase(self) -> None:
        """Begin the next generation with the members who have joined, and the static ones, who may come back later."""
        self.cancel_phase_timer()
        missed = [
            member_id
            for member_id, member in self.members.items()
            if member_id not in self.joining and member.instance_id is None
        ]
        for member_id in missed:
            self.remove_member(member_id)
        if missed:
            log.info(
                "group %s goes on without %s, which have not joined in time", self.group_id, format_first_names(missed)
            )
        if self.elect_joined_leader() or not self.members:
            self._begin_generation()
        else:
            log.warning("group %s waits on: none of its %d static members has joined", self.group_id, len(self.members))
            self._start_phase_timer(self.rebalance_timeout_ms, self.complete_join_phase)

    def _begin_generation(self) -> None:
        self.generation += 1
        self.context.rebalances[self.type] += 1
        self.protocol = self.select_protocol()
        self.update_subscribed_topics()
        self.unsynced.clear()
        if not self.members:
            self._transition_to_empty()
            return
        self.transition_to(ClassicState.COMPLETING_REBALANCE)
        log.info("group %s is in generation %d with %d members", self.group_id, self.generation, len(self.members))
        for member_id, member in self.members.items():
            self.answer_join_group(member_id, self.make_join_group_response(member_id))
            self.restart_session_timeout(member)
            member.is_new = False
            self.unsynced.add(member_id)
        self._start_phase_timer(self.rebalance_timeout_ms, self._remove_members_without_sync)

    def _transition_to_empty(self) -> None:
        self.transition_to(ClassicState.EMPTY)
        log.info("group %s is empty after generation %d", self.group_id, self.generation)
        try:
            self.append_group_metadata()
        except KafkaError as error:
            # After a start the members of the generation before are waited for again, and time out.
            log.warning("it is not recorded that group %s is empty: %s", self.group_id, error)

    def make_join_group_response(self, member_id: str, *, skip_assignment: bool = False) -> JoinGroupResponse:
        """Return the answer to a JoinGroup in the present generation; the leader's has the list of members."""
        listed = self.members.values() if member_id == self.leader_id else ()
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.kind,
            protocol_name=self.protocol,
            leader=self.leader_id or "",
            skip_assignment=skip_assignment,
            member_id=member_id,
            members=[
                JoinGroupResponse.JoinGroupResponseMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    metadata=member.get_metadata(self.protocol),
                )
                for member in listed
            ],
        )

    # --- the members sync -------------------------------------------------------------------------

    def apply_assignments(self, assignments: Mapping[str, bytes]) -> None:
        """Record the leader's assignment, by member id, then answer the members; those left out get an empty one."""
        generation = self.generation

        def answer_syncs_when_recorded(failure: KafkaError | None) -> None:
            if self.state is not ClassicState.COMPLETING_REBALANCE or self.generation != generation:
                return  # a member has come or gone meanwhile
            if failure is not None:
                self.clear_assignments_and_refuse_syncs(failure.code)
                self.begin_rebalance(f"the assignment of generation {generation} could not be kept: {failure}")
                return
            for member_id, member in self.members.items():
                member.assignment = assignments.get(member_id, b"")
            self.transition_to(ClassicState.STABLE)
            self._answer_waiting_syncs()

        left_out = [member_id for member_id in self.members if member_id not in assignments]
        if left_out:
            log.warning("the leader of group %s assigns nothing to %s", self.group_id, format_first_names(left_out))
        self.append_group_metadata_durably(answer_syncs_when_recorded, assignments)

    def _answer_waiting_syncs(self) -> None:
        for member_id, member in list(self.members.items()):
            if self.answer_sync_group(member_id, self.make_sync_group_response(member)):
                # While its request waited, its session could not expire, and no timer ran.
                self.restart_session_timeout(member)

    def clear_assignments_and_refuse_syncs(self, code: ErrorCode) -> None:
        """Take all assignments back, and answer the waiting SyncGroup requests with an error."""
        for member_id, member in list(self.members.items()):
            member.assignment = b""
            if self.answer_sync_group(member_id, SyncGroupResponse(error_code=code)):
                self.restart_session_timeout(member)

    def make_sync_group_response(self, member: Member) -> SyncGroupResponse:
        """Return the answer to a SyncGroup, with the member's assignment."""
        return SyncGroupResponse(protocol_type=self.kind, protocol_name=self.protocol, assignment=member.assignment)

    def mark_member_synced(self, member_id: str) -> None:
        """Note that a member has asked for its assignment; after the last one, nobody is waited for."""
        self.unsynced.discard(member_id)
        if not self.unsynced:
            self._stop_waiting_for_syncs()

    def _stop_waiting_for_syncs(self) -> None:
        self.unsynced.clear()
        self.cancel_phase_timer()

    def _remove_members_without_sync(self) -> None:
        """Go on without the members that have joined and then not asked for their assignment."""
        silent = list(self.unsynced)
        for member_id in silent:
            self.remove_member(member_id)
        self.begin_rebalance(f"{format_first_names(silent)} joined and did not ask for their assignment")

    # --- members go -------------------------------------------------------------------------------

    def rebalance_after_removal(self, reason: str) -> None:
        """Begin a rebalance, as members were removed; during one, begin the generation if all others have joined."""
        if self.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
            self.begin_rebalance(reason)
        else:
            self.complete_join_if_all_joined()

    # --- time -------------------------------------------------------------------------------------

    def _start_phase_timer(self, timeout_ms: int, callback: Callable[[], None]) -> None:
        """Call `callback` when the time for joining or syncing is up, unless `cancel_phase_timer` comes first."""
        self.cancel_phase_timer()
        self._deadline = self.clock.call_later(timeout_ms, callback)

    def cancel_phase_timer(self) -> None:
        """Cancel the timer of the phase of joining or syncing."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def restart_session_timeout(self, member: Member, timeout_ms: int | None = None) -> None:
        """Restart a member's session, with its session timeout or another one."""
        if member.session is not None:
            member.session.cancel()
        timeout_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        member.session = self.clock.call_later(timeout_ms, lambda: self._expire_member(member))

    def _expire_member(self, member: Member) -> None:
        """Remove a member whose session has expired, unless its request waits here: its answer restarts the session."""
        waits = member.member_id in self.joining or member.member_id in self.syncing
        if waits and not member.is_new:
            return
        log.info("group %s: %s has not been heard of for its session timeout", self.group_id, member.member_id)
        self.remove_member(member.member_id)
        self.rebalance_after_removal(f"{member.member_id} fell silent")

    def add_pending_member(self, member_id: str, timeout_ms: int) -> None:
        """Wait for a member to join with an id that was given out, and hold the next generation back for so long."""

        def expire_pending_member() -> None:
            log.info("group %s: nobody has joined as %s", self.group_id, member_id)
            self.forget_pending_member(member_id)
            if self.state is ClassicState.PREPARING_REBALANCE and self.have_all_joined:
                self.complete_join_phase()

        self.pending[member_id] = self.clock.call_later(timeout_ms, expire_pending_member)

    # --- its record -------------------------------------------------------------------------------

    def encode_group_metadata_entry(self, assignments: Mapping[str, bytes] | None = None) -> Entry:
        """Return the record of the group, with these assignments by member id, or those that it has."""
        value = GroupMetadataValue(
            protocol_type=self.protocol_type,
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader_id,
            current_state_timestamp=NOT_SET if self.state_since_ms is None else self.state_since_ms,
            members=[
                member.make_record_value(
                    self.protocol, member.assignment if assignments is None else assignments.get(member_id, b"")
                )
                for member_id, member in self.members.items()
            ],
        )
        return encode_group_metadata_entry(self.group_id, value)

    def append_group_metadata(self, assignments: Mapping[str, bytes] | None = None) -> None:
        """Append the record of the group. Raises KafkaError with the code for the client."""
        self.context.append_entries(self.group_id, [self.encode_group_metadata_entry(assignments)])

    def append_group_metadata_durably(
        self, callback: Callable[[KafkaError | None], None], assignments: Mapping[str, bytes] | None = None
    ) -> None:
        """Append the record of the group, then call `callback` once it is durable, or with the failure."""
        try:
            self.append_group_metadata(assignments)
            self.context.call_when_durable(self.group_id, callback)
        except KafkaError as error:
            callback(error)

    def restore_from_record(self, value: GroupMetadataValue) -> None:
        """Set the group's members and generation from its record, which the leader's last SyncGroup has written."""
        self.kind = value.protocol_type or None
        self.protocol = value.protocol
        self.generation = value.generation
        self.state = ClassicState.STABLE if value.members else ClassicState.EMPTY
        self.state_since_ms = None if value.current_state_timestamp == NOT_SET else value.current_state_timestamp
        for member in value.members:
            self.add_member(Member.make_from_record(value.protocol, member))
        self.leader_id = value.leader
        self.update_subscribed_topics()
