"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: how members of a classic group join, stay and leave.

Behaviour: JoinGroup waits until all members have joined or the rebalance timeout is over, SyncGroup until the leader
has sent the assignment. A dynamic member that joins without an id gets one, and joins again with it (KIP-394). A
static member that comes back keeps its place, and its old member id is fenced (KIP-345). Answers are sent after their
records are in `__consumer_offsets`, so members keep their generation when the broker restarts. If a client disconnects
while it waits, its member leaves only by the session timeout, as in Kafka.

Versions: JoinGroup 1 brought the rebalance timeout (before, the session timeout is used), 4 the required member id, 5
static members, 7 the protocol type, 8 a reason (KIP-800), 9 skip_assignment (KIP-814). SyncGroup 3 and Heartbeat 3
brought static members, SyncGroup 5 protocol type and name, LeaveGroup 3 several members at once, 5 reasons.
"""

from __future__ import annotations

from minibroker.broker.delayed_operations import GivenUpForMemory, Promise
from minibroker.broker.groups.classic.classic_group import ClassicGroup
from minibroker.broker.groups.group import Caller
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import READ_GROUP
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

FIRST_JOIN_WITH_REBALANCE_TIMEOUT = 1
FIRST_JOIN_WITHOUT_PROTOCOL = 7  # the protocol name may be null from this version on
FIRST_SYNC_WITH_PROTOCOL = 5
FIRST_LEAVE_WITH_SEVERAL = 3
UNKNOWN_MEMBER = ""

MemberIdentity = LeaveGroupRequest.MemberIdentity
LeftMember = LeaveGroupResponse.MemberResponse


@handles(ApiKey.JOIN_GROUP)
async def join_group(context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    if context.version < FIRST_JOIN_WITH_REBALANCE_TIMEOUT:
        request.rebalance_timeout_ms = request.session_timeout_ms
    groups, member_id = context.cluster.groups, UNKNOWN_MEMBER
    joined: Promise[JoinGroupResponse] = Promise()
    try:
        context.authorize(READ_GROUP, request.group_id)
        member_id = request.member_id
        groups.check_group_id(request.group_id)
        _check_session_timeout(context, request.session_timeout_ms)
        groups.check_is_coordinator(context.node, request.group_id)
        group = groups.find_group_to_join(request.group_id, create=member_id == UNKNOWN_MEMBER)
        if not isinstance(group, ClassicGroup):
            member_id = UNKNOWN_MEMBER  # Kafka names nobody in the errors of other groups
        group.join_member(make_caller(context), request, joined)
        response = await joined
    except KafkaError as error:
        response = JoinGroupResponse(member_id=member_id, protocol_name=None, error_code=error.code)
    except GivenUpForMemory:
        if isinstance(group, ClassicGroup):
            group.remove_member_waiting_to_join(joined)
        raise
    if response.protocol_name is None and context.version < FIRST_JOIN_WITHOUT_PROTOCOL:
        response.protocol_name = ""
    return response


def _check_session_timeout(context: RequestContext, timeout_ms: int) -> None:
    settings = context.cluster.settings
    shortest_ms, longest_ms = settings["group.min.session.timeout.ms"], settings["group.max.session.timeout.ms"]
    if not shortest_ms <= timeout_ms <= longest_ms:
        raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)


@handles(ApiKey.SYNC_GROUP)
async def sync_group(context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    named = request.protocol_type is not None and request.protocol_name is not None
    if context.version >= FIRST_SYNC_WITH_PROTOCOL and not named:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    context.authorize(READ_GROUP, request.group_id)
    group = context.cluster.groups.get_group_for_member_request(context.node, request.group_id)
    synced: Promise[SyncGroupResponse] = Promise()
    group.sync_member(request, synced)
    return await synced


@handles(ApiKey.HEARTBEAT)
def heartbeat(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    context.authorize(READ_GROUP, request.group_id)
    context.cluster.groups.get_group_for_member_request(context.node, request.group_id).handle_member_heartbeat(request)
    return HeartbeatResponse()


@handles(ApiKey.LEAVE_GROUP)
def leave_group(context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    several = context.version >= FIRST_LEAVE_WITH_SEVERAL
    members = request.members if several else [MemberIdentity(member_id=request.member_id)]
    context.authorize(READ_GROUP, request.group_id)
    try:
        left = context.cluster.groups.get_group_for_member_request(
            context.node, request.group_id
        ).remove_leaving_members(members)
    except KafkaError as error:
        if error.code != ErrorCode.UNKNOWN_MEMBER_ID:
            raise
        left = [  # the group does not exist: each member gets the error
            LeftMember(member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=error.code)
            for each in members
        ]
    return LeaveGroupResponse(members=left) if several else LeaveGroupResponse(error_code=left[0].error_code)


def make_caller(context: RequestContext) -> Caller:
    """Return the sender of the request."""
    return Caller(context.client_id or "", f"/{context.connection.host}", context.version, context.principal)
