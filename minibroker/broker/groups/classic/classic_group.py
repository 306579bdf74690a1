"""A classic group: the requests of its members, and what may be done to it from outside.

How it gets from one generation to the next is in `rebalance`, who belongs to it in `members`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from minibroker.broker.coordination.coordinator_logs import Entry
from minibroker.broker.delayed_operations import Promise
from minibroker.broker.groups.classic.classic_states import ClassicState
from minibroker.broker.groups.classic.members import (
    CONSUMER_PROTOCOL,
    Member,
    list_protocols,
    make_join_group_error,
    measure_protocol_bytes,
)
from minibroker.broker.groups.classic.rebalance import RebalancingGroup
from minibroker.broker.groups.group import Caller, CheckPartition, GroupType
from minibroker.broker.groups.group_entries import encode_group_metadata_entry
from minibroker.broker.groups.offsets_of_group import CommittedOffset
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.legible import format_first_names
from minibroker.protocol.messages.groups import (
    DescribeGroupsResponse,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from minibroker.protocol.primitives import MAX_STRING_BYTES

log = logging.getLogger("minibroker.groups")

KEPT_ALIVE_BY_COMMITS = (ClassicState.STABLE, ClassicState.PREPARING_REBALANCE)
MAX_SIZE = "group.max.size"
RECORDS_OF_PROTOCOLS = 4  # as large as the largest records, may be what the members of a group bring
UNKNOWN_MEMBER = ""
FIRST_WITH_MEMBER_ID_REQUIRED = 4  # KIP-394
FIRST_WITH_SKIPPED_ASSIGNMENT = 9  # KIP-814
# A new member cannot send heartbeats while its first JoinGroup waits; its first session is longer.
NEW_MEMBER_TIMEOUT_MS = 5 * 60 * 1000

MemberIdentity = LeaveGroupRequest.MemberIdentity
LeftMember = LeaveGroupResponse.MemberResponse


PromisedJoin = Promise[JoinGroupResponse]


class ClassicGroup(RebalancingGroup):
    """One classic group. One without a `kind` has never had members, and only commits offsets."""

    type = GroupType.CLASSIC

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def protocol_type(self) -> str:
        return self.kind or ""

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicState.EMPTY

    def is_subscribed_to(self, topic: str) -> bool:
        return self.kind == CONSUMER_PROTOCOL if self.topics is None else topic in self.topics

    # --- JoinGroup --------------------------------------------------------------------------------

    def join_member(self, caller: Caller, request: JoinGroupRequest, promise: PromisedJoin) -> None:
        """Add a member, or let it join again.

        Raises KafkaError: the client gets its code, with the member id that it sent.
        """
        names = [protocol.name for protocol in request.protocols]
        instance_id = request.group_instance_id
        if not self._has_room_for_member(request.member_id) or not self._has_memory_for_protocols(request):
            self.remove_member(request.member_id)
            promise.resolve(make_join_group_error(ErrorCode.GROUP_MAX_SIZE_REACHED))
            self.complete_join_if_all_joined()
        elif not self._supports_a_protocol(request.protocol_type, names):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif request.member_id != UNKNOWN_MEMBER:
            self._join_with_member_id(caller, request, promise)
        elif instance_id is not None and instance_id in self.static:
            self._replace_static_member(self.members[self.static[instance_id]], caller, request, promise)
        elif instance_id is not None or caller.version < FIRST_WITH_MEMBER_ID_REQUIRED:
            self._add_new_member(caller, request, self._make_member_id(caller, request), promise)
        else:
            self._require_member_id(caller, request, promise)

    def _has_room_for_member(self, member_id: str) -> bool:
        """Return whether the group has fewer members than `group.max.size`, or has this one already.

        During a rebalance those who have joined count, so that the last to come are left out if the limit was lowered.
        """
        limit: int = self.context.cluster.settings[MAX_SIZE]
        if self.state is ClassicState.EMPTY:
            return True
        if self.state is ClassicState.PREPARING_REBALANCE:
            return member_id in self.joining or len(self.joining) < limit
        return member_id in self.members or len(self.members) < limit

    def _has_memory_for_protocols(self, request: JoinGroupRequest) -> bool:
        """Return whether the protocols of all members, with those of this request, stay below the memory limit.

        The record of a group has the metadata of one protocol, so members with several may bring more than it holds.
        """
        limit_bytes = RECORDS_OF_PROTOCOLS * self.context.cluster.settings["message.max.bytes"]
        known = self.members.get(self.static.get(request.group_instance_id or "", request.member_id))
        before_bytes = 0 if known is None else measure_protocol_bytes(known.protocols)
        added_bytes = measure_protocol_bytes(request.protocols) - before_bytes
        return added_bytes <= 0 or self.protocol_bytes + added_bytes <= limit_bytes

    def _supports_a_protocol(self, protocol_type: str, names: list[str]) -> bool:
        """Return whether the members have this protocol type, and all support one of these protocols."""
        if self.state is ClassicState.EMPTY:
            return bool(protocol_type and names)
        return self.kind == protocol_type and self.have_common_protocol(names)

    def _require_member_id(self, caller: Caller, request: JoinGroupRequest, promise: PromisedJoin) -> None:
        """Refuse a join without an id, and give out one to join again with: no member is left if the answer is lost."""
        member_id = self._make_member_id(caller, request)
        self.add_pending_member(member_id, request.session_timeout_ms)
        promise.resolve(make_join_group_error(ErrorCode.MEMBER_ID_REQUIRED, member_id))

    def _make_member_id(self, caller: Caller, request: JoinGroupRequest) -> str:
        """Return a new id, made as in Kafka: the instance id or the client id, and a UUID.

        Raises KafkaError(UNKNOWN_SERVER_ERROR), as Kafka answers, for an id that is too long for an answer.
        """
        name = caller.client_id if request.group_instance_id is None else request.group_instance_id
        member_id = f"{name}-{self.make_uuid()}"
        if len(member_id.encode()) > MAX_STRING_BYTES:
            message = f"A member id begins with the name {name}, which leaves no room for a UUID."
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message)
        return member_id

    def _add_new_member(self, caller: Caller, request: JoinGroupRequest, member_id: str, promise: PromisedJoin) -> None:
        """Add a new member, and rebalance."""
        member = Member(
            member_id,
            request.group_instance_id,
            caller.client_id,
            caller.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            list_protocols(request),
        )
        member.is_new = True
        if not self.members:
            self.kind = request.protocol_type
        self.has_new_member = self.state is ClassicState.PREPARING_REBALANCE and self.is_first_rebalance
        self.add_member(member)
        self.joining[member_id] = promise
        self.restart_session_timeout(member, NEW_MEMBER_TIMEOUT_MS)
        self.begin_or_complete_rebalance(f"{member_id} joins ({_get_join_reason(request)})")

    def _join_with_member_id(self, caller: Caller, request: JoinGroupRequest, promise: PromisedJoin) -> None:
        """Let a client join with an id that was given out, or a member join again."""
        if request.member_id in self.pending:
            if request.group_instance_id is not None:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "A static member is not given an id to join with.")
            self._add_new_member(caller, request, request.member_id, promise)
            return
        try:
            member = self.get_member(request.member_id, request.group_instance_id)
        except KafkaError as error:
            promise.resolve(make_join_group_error(error.code, request.member_id))
            return
        self._rejoin_member(member, request, promise)

    def _rejoin_member(self, member: Member, request: JoinGroupRequest, promise: PromisedJoin) -> None:
        """Let a member join again: it follows a rebalance, it forces one, or it has missed an answer."""
        unchanged = member.protocols == list_protocols(request)
        is_leader = member.member_id == self.leader_id
        missed_answer = self.state is ClassicState.COMPLETING_REBALANCE or (
            self.state is ClassicState.STABLE and not is_leader
        )
        if unchanged and missed_answer:
            promise.resolve(self.make_join_group_response(member.member_id))
            return
        # The leader of a stable group may always force a rebalance: it may have found other partitions, say.
        self._update_member(member, request)
        self.answer_join_group(
            member.member_id, make_join_group_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        )
        self.joining[member.member_id] = promise
        self.begin_or_complete_rebalance(f"{member.member_id} joins again ({_get_join_reason(request)})")

    def _update_member(self, member: Member, request: JoinGroupRequest) -> None:
        self.update_member(member, list_protocols(request), request.rebalance_timeout_ms, request.session_timeout_ms)

    # --- JoinGroup of a static member that is back (KIP-345) --------------------------------------

    def _replace_static_member(
        self, old_member: Member, caller: Caller, request: JoinGroupRequest, promise: PromisedJoin
    ) -> None:
        """Let a restarted static member take its place again, under a new id.

        A stable group stays in its generation if nothing else has changed, so that a quick restart disturbs nobody.
        """
        leader_id = self.leader_id
        member = self.replace_static_member(old_member, self._make_member_id(caller, request))
        log.info("group %s: %s takes the place of %s", self.group_id, member.member_id, old_member.member_id)
        self._update_member(member, request)
        self.restart_session_timeout(member)
        self.joining[member.member_id] = promise
        reason = f"static member {member.instance_id} is back ({_get_join_reason(request)})"
        if self.state is not ClassicState.STABLE:
            # The leader of an incomplete generation knows the old id, and would assign nothing to the new one.
            self.begin_or_complete_rebalance(reason)
        elif self.select_protocol() == self.protocol:
            self._rejoin_without_rebalance(caller, member, old_member, leader_id)
        else:
            self.begin_rebalance(reason)

    def _rejoin_without_rebalance(
        self, caller: Caller, member: Member, old_member: Member, leader_id: str | None
    ) -> None:
        """Answer a restarted static member, once its new id is recorded; `leader_id` was the leader's id before."""

        def answer_join_when_recorded(failure: KafkaError | None) -> None:
            if self.state is ClassicState.DEAD:
                return  # The write failed and the group was loaded again; its waiting requests were answered.
            if failure is not None:
                self._restore_replaced_member(member, old_member, leader_id, failure)
                return
            if caller.version >= FIRST_WITH_SKIPPED_ASSIGNMENT:
                answer = self.make_join_group_response(
                    member.member_id, skip_assignment=member.member_id == self.leader_id
                )
            else:
                # It may not assign anything, and does not if the answer names another leader.
                answer = self.make_join_group_response(member.member_id)
                answer.leader, answer.members = leader_id or "", []
            self.answer_join_group(member.member_id, answer)

        self.append_group_metadata_durably(answer_join_when_recorded)

    def _restore_replaced_member(
        self, member: Member, old_member: Member, leader_id: str | None, failure: KafkaError
    ) -> None:
        """Undo the replacement of a static member whose new id could not be recorded, and refuse its JoinGroup."""
        joined = self.joining.pop(member.member_id, None)
        if member.member_id in self.members:
            self.update_member(
                member, old_member.protocols, old_member.rebalance_timeout_ms, old_member.session_timeout_ms
            )
            self.restart_session_timeout(self.replace_static_member(member, old_member.member_id))
        if joined is not None:
            joined.resolve(
                JoinGroupResponse(
                    generation_id=self.generation,
                    protocol_type=self.kind,
                    protocol_name=self.protocol,
                    leader=leader_id or "",
                    error_code=failure.code,
                )
            )

    # --- SyncGroup, Heartbeat, LeaveGroup ---------------------------------------------------------

    def sync_member(self, request: SyncGroupRequest, promise: Promise[SyncGroupResponse]) -> None:
        """Answer a member with its assignment, at once or when the leader has sent it. Raises KafkaError."""
        member = self._get_member_of_generation(request.generation_id, request.member_id, request.group_instance_id)
        if _is_reported_and_different(request.protocol_type, self.kind) or _is_reported_and_different(
            request.protocol_name, self.protocol
        ):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if self.state is ClassicState.PREPARING_REBALANCE:
            raise self._make_rebalance_in_progress_error()
        self.mark_member_synced(member.member_id)
        if self.state is ClassicState.STABLE:
            promise.resolve(self.make_sync_group_response(member))
            return
        self.answer_sync_group(member.member_id, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        self.syncing[member.member_id] = promise
        if member.member_id == self.leader_id:
            self.apply_assignments({given.member_id: given.assignment for given in request.assignments})

    def handle_member_heartbeat(self, request: HeartbeatRequest) -> None:
        """Keep a member's session alive. Raises KafkaError: REBALANCE_IN_PROGRESS tells it to join again."""
        self.restart_session_timeout(
            self._get_member_of_generation(request.generation_id, request.member_id, request.group_instance_id)
        )
        if self.state is ClassicState.PREPARING_REBALANCE:
            raise self._make_rebalance_in_progress_error()

    def _get_member_of_generation(self, generation: int, member_id: str, instance_id: str | None) -> Member:
        """Return the member. Raises KafkaError as `get_member`, and ILLEGAL_GENERATION for another generation."""
        member = self.get_member(member_id, instance_id)
        if generation != self.generation:
            message = f"generation {generation}, and the group's is {self.generation}"
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, message)
        return member

    def _make_rebalance_in_progress_error(self) -> KafkaError:
        return KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, f"the group is {self.state}")

    def remove_leaving_members(self, members: Sequence[MemberIdentity]) -> list[LeftMember]:
        """Remove members, with one rebalance for all; return an answer for each."""
        answers = [self._remove_leaving_member(member) for member in members]
        gone = [answer.member_id for answer in answers if answer.error_code == ErrorCode.NONE]
        if gone:
            self.rebalance_after_removal(f"{format_first_names(gone)} left")
        return answers

    def remove_member_waiting_to_join(self, promise: PromisedJoin) -> None:
        """Remove the member whose JoinGroup waits to be answered by `promise`: it takes too much memory."""
        for member_id, waiting in self.joining.items():
            if waiting is promise:
                self.remove_member(member_id)
                self.rebalance_after_removal(f"{member_id} is given up")
                return

    def _remove_leaving_member(self, member: MemberIdentity) -> LeftMember:
        answer = LeftMember(member_id=member.member_id, group_instance_id=member.group_instance_id)
        try:
            self.remove_member(self._find_id_of_leaving_member(member))
            log.info("group %s: %s leaves: %s", self.group_id, member.member_id, member.reason or "reason not provided")
        except KafkaError as error:
            answer.error_code = error.code
        return answer

    def _find_id_of_leaving_member(self, member: MemberIdentity) -> str:
        """Return the id of the member. An administrator who removes a static member may know its instance id only."""
        if member.member_id == UNKNOWN_MEMBER:
            member_id = self.static.get(member.group_instance_id or "")
            if member.group_instance_id is None or member_id is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            return member_id
        if member.member_id not in self.pending:
            self.get_member(member.member_id, member.group_instance_id)
        return member.member_id

    # --- its offsets ------------------------------------------------------------------------------

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, version: int
    ) -> CheckPartition | None:
        """Raise KafkaError unless this member may commit now; return None, as it may commit every partition."""
        if epoch < 0 and self.state is ClassicState.EMPTY:
            return None
        if epoch >= 0 or member_id or instance_id is not None:
            member = self._get_member_of_generation(epoch, member_id, instance_id)
            if not transactional and self.state in KEPT_ALIVE_BY_COMMITS:
                self.restart_session_timeout(member)
        elif not transactional and self.state is not ClassicState.EMPTY:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"the group has members, and is {self.state_name}")
        if not transactional and self.state is ClassicState.COMPLETING_REBALANCE:
            raise self._make_rebalance_in_progress_error()
        return None

    def check_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        """Let every client fetch the group's offsets."""

    def check_offsets_may_be_deleted(self) -> None:
        if self.state is not ClassicState.EMPTY and self.kind != CONSUMER_PROTOCOL:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def get_offset_retention_start_ms(self, committed_offset: CommittedOffset) -> int | None:
        """Return when the offset was committed or the group became empty; None while members may read the topic."""
        if self.kind is None:
            return committed_offset.commit_timestamp_ms
        if self.state is ClassicState.EMPTY:
            return committed_offset.commit_timestamp_ms if self.state_since_ms is None else self.state_since_ms
        known = self.kind == CONSUMER_PROTOCOL and self.topics is not None
        return committed_offset.commit_timestamp_ms if known and self.state is ClassicState.STABLE else None

    # --- administration ---------------------------------------------------------------------------

    def describe_group(self) -> DescribeGroupsResponse.DescribedGroup:
        """Return the group as DescribeGroups shows it; the members' metadata only while it is stable."""
        stable = self.state is ClassicState.STABLE
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
                    member_metadata=member.get_metadata(self.protocol) if stable else b"",
                    member_assignment=member.assignment,
                )
                for member in self.members.values()
            ],
        )

    def check_may_be_deleted(self) -> None:
        if self.state is not ClassicState.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def make_tombstones(self) -> list[Entry]:
        return [encode_group_metadata_entry(self.group_id, None)]

    # --- its beginning and end --------------------------------------------------------------------

    def restart_timers_after_load(self) -> None:
        for member in self.members.values():
            self.restart_session_timeout(member)
        limit: int = self.context.cluster.settings[MAX_SIZE]
        if len(self.members) > limit:
            reason = f"it has {len(self.members)} members, and {limit} are allowed"
            self.clock.call_later(0, lambda: self.begin_or_complete_rebalance(reason))

    def close_with_error(self, code: ErrorCode) -> None:
        self.cancel_phase_timer()
        for member_id in list(self.pending):
            self.forget_pending_member(member_id)
        for member in self.members.values():
            member.cancel_session_timer()
            self.answer_join_group(member.member_id, make_join_group_error(code, member.member_id))
            self.answer_sync_group(member.member_id, SyncGroupResponse(error_code=code))
        self.transition_to(ClassicState.DEAD)


def _get_join_reason(request: JoinGroupRequest) -> str:
    """Return the client's reason for joining (KIP-800), or a text that it gave none."""
    return request.reason or "not provided"


def _is_reported_and_different(reported: str | None, known: str | None) -> bool:
    """Return whether a client reports a value that differs from the known one; False if either is missing."""
    return reported is not None and known is not None and reported != known
