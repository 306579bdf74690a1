"""A consumer group: the requests of its members that speak the classic protocol, the members' timeouts, their removal.

In a group that migrates, some members speak the classic protocol. A JoinGroup is to them what a heartbeat is to the
others: it says what the member wants and has, and brings it a step nearer to its target. REBALANCE_IN_PROGRESS tells
them to join again, and SyncGroup brings their assignment.

The requests of the other members are in `heartbeat`, the state in `state`, how it changes in `updating`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from minibroker.broker.delayed_operations import Promise
from minibroker.broker.groups.classic.members import make_join_group_error
from minibroker.broker.groups.consumer import classic_metadata, migration
from minibroker.broker.groups.consumer.assignors.specification import Partitions
from minibroker.broker.groups.consumer.member import (
    ClassicMember,
    ClassicProtocol,
    ConsumerMember,
    MemberState,
    remove_epochs_from_partitions,
)
from minibroker.broker.groups.consumer.state import CONSUMER_PROTOCOL, ConsumerGroupState
from minibroker.broker.groups.consumer.updating import ConsumerGroupUpdate
from minibroker.broker.groups.group import Caller
from minibroker.broker.groups.reconciling_group import TimerPurpose
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.legible import format_first_names
from minibroker.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from minibroker.protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from minibroker.protocol.primitives import MalformedMessage

log = logging.getLogger("minibroker.groups")

UNKNOWN_MEMBER = ""
FIRST_WITH_MEMBER_ID_REQUIRED = 4  # KIP-394

MemberIdentity = LeaveGroupRequest.MemberIdentity
LeftMember = LeaveGroupResponse.MemberResponse


class ConsumerGroup(ConsumerGroupState):
    """One consumer group."""

    # --- JoinGroup --------------------------------------------------------------------------------

    def join_member(self, caller: Caller, request: JoinGroupRequest, promise: Promise[JoinGroupResponse]) -> None:
        """Add a member that speaks the classic protocol, or reconcile it with its target. Raises KafkaError."""
        migration.check_classic_member_allowed(self)
        is_new = request.member_id == UNKNOWN_MEMBER
        member_id = str(self.make_uuid()) if is_new else request.member_id
        update = ConsumerGroupUpdate(self)
        self.check_room_for_member(member_id, request.group_instance_id)
        self._check_classic_protocols(member_id, request)
        if is_new and request.group_instance_id is None and caller.version >= FIRST_WITH_MEMBER_ID_REQUIRED:
            promise.resolve(make_join_group_error(ErrorCode.MEMBER_ID_REQUIRED, member_id))
            return
        subscription = _decode_subscription(request)
        static = self.find_static_member(request.group_instance_id)
        before = self._find_or_make_member(update, member_id, request, is_new=is_new)
        after = _apply_join_group(before, caller, request, subscription)
        subscription_changed = update.record_member_and_compare_subscription(before, after)
        update.begin_epoch_if_changed(members_changed=subscription_changed)
        owned = classic_metadata.get_owned_partitions(subscription, self.context.cluster.image)
        if static is not None and migration.must_downgrade_without_members(self, {static.member_id}):
            after = self._downgrade_to_classic(update, after, owned, subscription_changed=subscription_changed)
        else:
            update.make_target_assignment_if_due()
            after = update.reconcile_member(after, owned, subscription_changed=subscription_changed)
            update.append_changes()
            self.restart_session_timeout(member_id)
            self._schedule_sync_timeout(after)
        promise.resolve(
            JoinGroupResponse(
                generation_id=after.epoch,
                protocol_type=CONSUMER_PROTOCOL,
                protocol_name=request.protocols[0].name,
                member_id=member_id,
            )
        )

    def _downgrade_to_classic(
        self,
        update: ConsumerGroupUpdate,
        member: ConsumerMember,
        owned_partitions: Partitions,
        *,
        subscription_changed: bool,
    ) -> ConsumerMember:
        """Become a classic group, as all members speak the classic protocol now; return the joining member.

        If the group's epoch has no target, the member stays in its own epoch, and the group rebalances.
        """
        rebalances = update.assignment_epoch < update.epoch
        if not rebalances:
            member = update.reconcile_member(member, owned_partitions, subscription_changed=subscription_changed)
        reason = f"{member.instance_id} speaks the classic protocol now"
        migration.downgrade_group(self, update.members.values(), update.target, reason, rebalances=rebalances)
        return member

    def _check_classic_protocols(self, member_id: str, request: JoinGroupRequest) -> None:
        """Check that all members with the classic protocol support one of the protocols."""
        classic = [member.classic for member in self.members.values() if member.classic is not None]
        common = [
            protocol.name
            for protocol in request.protocols
            if all(any(protocol.name == each.name for each in member.protocols) for member in classic)
        ]
        if request.protocol_type != CONSUMER_PROTOCOL or not common:
            message = f"Member {member_id}'s protocols are not supported."
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, message)

    def _find_or_make_member(
        self, update: ConsumerGroupUpdate, member_id: str, request: JoinGroupRequest, *, is_new: bool
    ) -> ConsumerMember:
        """Return the member as it was before this request; a static one that is back has its new id already."""
        instance_id = request.group_instance_id
        if instance_id is None:
            return self.members.get(member_id) or ConsumerMember(member_id)
        if not is_new:
            return self.get_member(member_id, instance_id)
        static = self.find_static_member(instance_id)
        if static is None:
            return ConsumerMember(member_id)
        self.timers.cancel_timers(static.member_id)
        return update.replace_static_member(static, member_id)

    # --- SyncGroup, Heartbeat ---------------------------------------------------------------------

    def sync_member(self, request: SyncGroupRequest, promise: Promise[SyncGroupResponse]) -> None:
        """Answer a member with its assignment. Raises KafkaError."""
        member, classic = self._find_classic_member(request)
        first = classic.protocols[0]
        if request.protocol_type not in (None, CONSUMER_PROTOCOL) or request.protocol_name not in (None, first.name):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if self._must_rejoin_for_target(member) and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._schedule_join_timeout(member)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self.timers.cancel_timers(member.member_id, TimerPurpose.SYNC)
        self.restart_session_timeout(member.member_id)
        image = self.context.cluster.image
        promise.resolve(
            SyncGroupResponse(
                protocol_type=request.protocol_type,
                protocol_name=request.protocol_name,
                assignment=classic_metadata.encode_assignment(
                    remove_epochs_from_partitions(member.assigned), image, first.metadata
                ),
            )
        )

    def handle_member_heartbeat(self, request: HeartbeatRequest) -> None:
        """Keep a member's session alive. Raises KafkaError; REBALANCE_IN_PROGRESS tells it to join again."""
        member, _ = self._find_classic_member(request)
        self.restart_session_timeout(member.member_id)
        if (
            self._must_rejoin_for_target(member)
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not self._waits_for_revocations_of_others(member))
        ):
            self._schedule_join_timeout(member)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def _must_rejoin_for_target(self, member: ConsumerMember) -> bool:
        """Return whether the member must join again, as there is a newer target, or its JoinGroup would make one.

        Heartbeats of the new protocol make targets. In a group that may not go back, and where nobody sends them, Kafka
        makes none until anybody joins, and the partitions of those who left stay unread.
        """
        if member.epoch < self.assignment_epoch:
            return True
        is_left_to_classic = all(each.classic is not None for each in self.members.values())
        return is_left_to_classic and ConsumerGroupUpdate(self).is_assignment_due

    def _waits_for_revocations_of_others(self, member: ConsumerMember) -> bool:
        """Return whether another member still has a partition of this member's target."""
        target = self.target.get(member.member_id, {})
        return any(
            self.is_partition_owned(topic_id, partition)
            for topic_id, partitions in target.items()
            for partition in partitions - member.assigned.get(topic_id, {}).keys()
        )

    def _find_classic_member(
        self, request: SyncGroupRequest | HeartbeatRequest
    ) -> tuple[ConsumerMember, ClassicMember]:
        """Return the member of a request; it must speak the classic protocol and know its epoch. Raises KafkaError."""
        member = self.get_member(request.member_id, request.group_instance_id)
        if member.classic is None:
            message = f"Member {request.member_id} does not use the classic protocol."
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, message)
        if member.epoch != request.generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        return member, member.classic

    # --- LeaveGroup -------------------------------------------------------------------------------

    def remove_leaving_members(self, members: Sequence[MemberIdentity]) -> list[LeftMember]:
        """Remove members of either protocol; return an answer for each. Raises KafkaError."""
        answers, leaving = [], {}
        for identity in members:
            answer = LeftMember(member_id=identity.member_id, group_instance_id=identity.group_instance_id)
            answers.append(answer)
            try:
                member = self._find_leaving_member(identity)
                leaving[member.member_id] = member
            except KafkaError as error:
                answer.error_code = error.code
        self.remove_members(list(leaving.values()))
        return answers

    def _find_leaving_member(self, identity: MemberIdentity) -> ConsumerMember:
        """Return the member. An administrator who removes a static member may know its instance id only."""
        instance_id = identity.group_instance_id
        if instance_id is None or identity.member_id != UNKNOWN_MEMBER:
            return self.get_member(identity.member_id, instance_id)
        member = self.find_static_member(instance_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    # --- removal ----------------------------------------------------------------------------------

    def remove_members(self, members: Sequence[ConsumerMember]) -> None:
        """Remove members, and begin another epoch: the next heartbeat of any other member assigns their partitions.

        The group may become a classic one: see `migration`. Raises KafkaError if that cannot be recorded, and nothing
        has changed.
        """
        if not members:
            return
        gone = {member.member_id for member in members}
        staying = [member for member_id, member in self.members.items() if member_id not in gone]
        if staying and migration.must_downgrade_without_members(self, gone):
            reason = f"{format_first_names(gone)} left, who spoke the new protocol"
            migration.downgrade_group(self, staying, self.target, reason, rebalances=True)
            return
        update = ConsumerGroupUpdate(self)
        update.remove_members(members)
        update.begin_epoch_if_changed(members_changed=True)
        if not staying:
            update.make_empty_target_assignment()
        update.append_changes()
        for member in members:
            self.timers.cancel_timers(member.member_id)

    # --- timeouts ---------------------------------------------------------------------------------

    def restart_timers_after_load(self) -> None:
        for member in list(self.members.values()):
            self.restart_session_timeout(member.member_id)
            if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
                self.schedule_revocation_timeout(member, "partitions")

    def get_session_timeout_ms(self, member_id: str) -> int:
        classic = self.members[member_id].classic
        return super().get_session_timeout_ms(member_id) if classic is None else classic.session_timeout_ms

    def schedule_rebalance_timeout(self, before: ConsumerMember, after: ConsumerMember) -> None:
        """Start the rebalance timeout of a member that must revoke partitions since this change, or cancel it."""
        if after == before:
            return
        if after.state is MemberState.UNREVOKED_PARTITIONS:
            self.schedule_revocation_timeout(after, "partitions")
        else:
            self.timers.cancel_timers(after.member_id, TimerPurpose.REVOCATION)

    def _schedule_join_timeout(self, member: ConsumerMember) -> None:
        """Start the rebalance timeout of a member that must join again; remove the member at its end."""
        if not self.timers.is_timer_running(member.member_id, TimerPurpose.JOIN):
            reason = f"it did not join again within {member.rebalance_timeout_ms} ms"
            self.start_timer_to_remove_member(member.member_id, TimerPurpose.JOIN, member.rebalance_timeout_ms, reason)

    def _schedule_sync_timeout(self, member: ConsumerMember) -> None:
        """Start the rebalance timeout of a member that must ask for its assignment; remove the member at its end."""
        self.timers.cancel_timers(member.member_id, TimerPurpose.JOIN)
        reason = f"it did not sync within {member.rebalance_timeout_ms} ms"
        self.start_timer_to_remove_member(member.member_id, TimerPurpose.SYNC, member.rebalance_timeout_ms, reason)


# --- what a JoinGroup says --------------------------------------------------------------------------


def _decode_subscription(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    """Return the member's subscription: that of its first protocol. Raises KafkaError(INCONSISTENT_GROUP_PROTOCOL)."""
    try:
        return classic_metadata.decode_subscription(request.protocols[0].metadata)
    except MalformedMessage as error:
        message = f"The subscription in the protocol {request.protocols[0].name} cannot be read: {error}"
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, message) from None


def _apply_join_group(
    member: ConsumerMember, caller: Caller, request: JoinGroupRequest, subscription: ConsumerProtocolSubscription
) -> ConsumerMember:
    """Return the member, updated with the request's subscription, client and timeouts."""
    protocols = (ClassicProtocol(each.name, bytes(each.metadata)) for each in request.protocols)
    timeout_ms = request.rebalance_timeout_ms
    return member._replace(
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        topic_names=frozenset(subscription.topics),
        topic_regex="",
        rebalance_timeout_ms=request.session_timeout_ms if timeout_ms < 0 else timeout_ms,
        classic=ClassicMember(request.session_timeout_ms, tuple(protocols)),
    )
