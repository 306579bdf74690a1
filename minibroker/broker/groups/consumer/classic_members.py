"""Members that speak the classic protocol in a consumer group, while the group goes over: JoinGroup and what follows.

A JoinGroup is to them what a heartbeat is to the others: it says what the member wants and has, and brings it a step
nearer to its target. They are told to join again by REBALANCE_IN_PROGRESS, and get their assignment by SyncGroup.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from minibroker.broker.groups.consumer import embedded, expiring, leaving, migration, validation
from minibroker.broker.groups.consumer.member import (
    JOINING_EPOCH,
    ClassicMember,
    ClassicProtocol,
    ConsumerMember,
    MemberState,
    without_epochs,
)
from minibroker.broker.groups.consumer.timers import Purpose
from minibroker.broker.groups.consumer.updating import Update
from minibroker.protocol.errors import ErrorCode, KafkaError
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

if TYPE_CHECKING:
    from minibroker.broker.groups.consumer.group import ConsumerGroup
    from minibroker.broker.groups.group import Caller, Respond

log = logging.getLogger("minibroker.groups")

CONSUMER_PROTOCOL = "consumer"
UNKNOWN_MEMBER = ""
FIRST_WITH_MEMBER_ID_REQUIRED = 4  # KIP-394

Left = LeaveGroupResponse.MemberResponse


# --- JoinGroup --------------------------------------------------------------------------------------


def join(group: ConsumerGroup, caller: Caller, request: JoinGroupRequest, respond: Respond) -> None:
    """Let a member join, or take another step. Raises KafkaError."""
    is_new = request.member_id == UNKNOWN_MEMBER
    member_id = str(group.new_uuid()) if is_new else request.member_id
    update = Update(group)
    update.check_room(member_id)
    _check_protocols(group, member_id, request)
    if is_new and request.group_instance_id is None and caller.version >= FIRST_WITH_MEMBER_ID_REQUIRED:
        respond(JoinGroupResponse(member_id=member_id, error_code=ErrorCode.MEMBER_ID_REQUIRED))
        return
    said = _subscription(request)
    static = group.static_member(request.group_instance_id)
    if static is not None and is_new and migration.goes_back_without(group, {static.member_id}):
        _join_classic_group(group, static, caller, request, said, respond)
        return
    before = _present(update, member_id, request, is_new=is_new)
    after = _as_it_says(before, caller, request, said)
    subscription_changed = update.set_member(before, after)
    update.look_at_topics(changed=subscription_changed)
    update.assign()
    owned = embedded.owned(said, group.context.cluster.image)
    after = update.reconcile(after, owned, subscription_changed=subscription_changed)
    group = update.commit()
    expiring.begin_session(group, member_id)
    expiring.await_sync(group, after)
    respond(
        JoinGroupResponse(
            generation_id=after.epoch,
            protocol_type=CONSUMER_PROTOCOL,
            protocol_name=request.protocols[0].name,
            member_id=member_id,
        )
    )


def _check_protocols(group: ConsumerGroup, member_id: str, request: JoinGroupRequest) -> None:
    """At least one protocol must be one that all members with the classic protocol understand."""
    classic = [member.classic for member in group.members.values() if member.classic is not None]
    common = [
        protocol.name
        for protocol in request.protocols
        if all(any(protocol.name == each.name for each in member.protocols) for member in classic)
    ]
    if request.protocol_type != CONSUMER_PROTOCOL or not common:
        message = f"Member {member_id}'s protocols are not supported."
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, message)


def _subscription(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    """What the member says in all of its protocols. Raises KafkaError(INCONSISTENT_GROUP_PROTOCOL)."""
    try:
        return embedded.subscription(request.protocols[0].metadata)
    except MalformedMessage as error:
        message = f"The subscription in the protocol {request.protocols[0].name} cannot be read: {error}"
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, message) from None


def _present(update: Update, member_id: str, request: JoinGroupRequest, *, is_new: bool) -> ConsumerMember:
    """The member as it was before this request; the one whose place it takes, with its own id."""
    instance_id = request.group_instance_id
    if instance_id is None:
        return update.members.get(member_id) or ConsumerMember(member_id)
    static = update.group.static_member(instance_id)
    if not is_new:
        return _static_member(update.group, member_id, instance_id)
    if static is None:
        return ConsumerMember(member_id)
    replacement = static._replace(member_id=member_id, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)
    update.replace(static, replacement)
    update.group.timers.cancel(static.member_id)
    return replacement


def _as_it_says(
    member: ConsumerMember, caller: Caller, request: JoinGroupRequest, said: ConsumerProtocolSubscription
) -> ConsumerMember:
    protocols = (ClassicProtocol(each.name, bytes(each.metadata)) for each in request.protocols)
    timeout_ms = request.rebalance_timeout_ms
    return member._replace(
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=said.rack_id or member.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        topic_names=frozenset(said.topics),
        topic_regex="",
        rebalance_timeout_ms=request.session_timeout_ms if timeout_ms < 0 else timeout_ms,
        classic=ClassicMember(request.session_timeout_ms, tuple(protocols)),
    )


def _join_classic_group(
    group: ConsumerGroup,
    static: ConsumerMember,
    caller: Caller,
    request: JoinGroupRequest,
    said: ConsumerProtocolSubscription,
    respond: Respond,
) -> None:
    """The last member with the new protocol comes back with the classic one, and the whole group with it."""
    members = {**group.members, static.member_id: _as_it_says(static, caller, request, said)}
    classic = migration.go_back(group, members.values(), f"{request.group_instance_id} speaks the classic protocol now")
    classic.join(caller, request, respond)


# --- SyncGroup, Heartbeat ---------------------------------------------------------------------------


def sync(group: ConsumerGroup, request: SyncGroupRequest, respond: Respond) -> None:
    """Tell a member what it has. Raises KafkaError."""
    member, classic = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
    first = classic.protocols[0]
    if request.protocol_type not in (None, CONSUMER_PROTOCOL) or request.protocol_name not in (None, first.name):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        expiring.await_join(group, member)
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    group.timers.cancel(member.member_id, Purpose.SYNC)
    expiring.begin_session(group, member.member_id)
    image = group.context.cluster.image
    respond(
        SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=embedded.encoded_assignment(without_epochs(member.assigned), image, first.metadata),
        )
    )


def heartbeat(group: ConsumerGroup, request: HeartbeatRequest) -> None:
    """Keep a member in the group; REBALANCE_IN_PROGRESS has it join again to take another step. Raises KafkaError."""
    member, _ = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
    expiring.begin_session(group, member.member_id)
    if (
        member.epoch < group.epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (member.state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_others(group, member))
    ):
        expiring.await_join(group, member)
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)


def _waits_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether somebody else still has something of what the member shall have."""
    target = group.target.get(member.member_id, {})
    return any(
        group.is_taken(topic_id, partition)
        for topic_id, partitions in target.items()
        for partition in partitions - member.assigned.get(topic_id, {}).keys()
    )


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[ConsumerMember, ClassicMember]:
    """The member, who must speak the classic protocol and know its epoch. Raises KafkaError."""
    member = group.known_member(member_id) if instance_id is None else _static_member(group, member_id, instance_id)
    if member.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
    if member.epoch != generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    return member, member.classic


def _static_member(group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerMember:
    """The member of this instance id. Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    member = group.static_member(instance_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    validation.check_instance(member, member_id, instance_id)
    return member


# --- LeaveGroup -------------------------------------------------------------------------------------


def leave(group: ConsumerGroup, identities: Sequence[LeaveGroupRequest.MemberIdentity]) -> list[Left]:
    """Take members out, whichever protocol they speak; each is answered for itself. Raises KafkaError."""
    answers, members = [], {}
    for identity in identities:
        answer = Left(member_id=identity.member_id, group_instance_id=identity.group_instance_id)
        answers.append(answer)
        try:
            member = _leaving_member(group, identity)
            members[member.member_id] = member
        except KafkaError as error:
            answer.error_code = error.code
    leaving.fence(group, list(members.values()))
    return answers


def _leaving_member(group: ConsumerGroup, identity: LeaveGroupRequest.MemberIdentity) -> ConsumerMember:
    """Whom it names. An administrator who removes a static member may know its instance id only."""
    instance_id = identity.group_instance_id
    if instance_id is None:
        return group.known_member(identity.member_id)
    if identity.member_id != UNKNOWN_MEMBER:
        return _static_member(group, identity.member_id, instance_id)
    member = group.static_member(instance_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    return member
