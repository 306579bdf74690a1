"""JoinGroup to a classic group: who may join, under which id, and whether that takes another generation.

How a rebalance goes on is in `rebalance`, how a static member takes its place again in `static`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from minibroker.broker.groups.classic import rebalance, static
from minibroker.broker.groups.classic.members import Member, Protocol, Respond, join_error
from minibroker.broker.groups.classic.states import State
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.groups import JoinGroupRequest
from minibroker.protocol.primitives import MAX_STRING_BYTES

if TYPE_CHECKING:
    from minibroker.broker.groups.callers import Caller
    from minibroker.broker.groups.classic.group import ClassicGroup

log = logging.getLogger("minibroker.groups")

UNKNOWN_MEMBER = ""
FIRST_WITH_MEMBER_ID_REQUIRED = 4  # KIP-394
# A new member cannot send heartbeats while its first JoinGroup waits; this long it is believed to be there.
NEW_MEMBER_TIMEOUT_MS = 5 * 60 * 1000


def join(group: ClassicGroup, caller: Caller, request: JoinGroupRequest, respond: Respond) -> None:
    """Let a member join. Raises KafkaError; its message is not for the client, which is told the member id it sent."""
    names = [protocol.name for protocol in request.protocols]
    if not _has_room(group, request.member_id):
        group.remove(request.member_id)
        respond(join_error(ErrorCode.GROUP_MAX_SIZE_REACHED))
        rebalance.complete_if_all_joined(group)
    elif not _understands(group, request.protocol_type, names):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    elif request.member_id != UNKNOWN_MEMBER:
        _join_known(group, caller, request, respond)
    elif request.group_instance_id is not None and request.group_instance_id in group.static:
        static.rejoin(group, caller, request, respond)
    elif request.group_instance_id is not None or caller.version < FIRST_WITH_MEMBER_ID_REQUIRED:
        add(group, caller, request, new_member_id(group, caller, request), respond)
    else:
        _require_member_id(group, caller, request, respond)


def _has_room(group: ClassicGroup, member_id: str) -> bool:
    """Whether one more fits in.

    During a rebalance those who have joined count, so that the last to come are left out if the limit was lowered.
    """
    limit = group.setting("group.max.size")
    if group.state is State.EMPTY:
        return True
    if group.state is State.PREPARING_REBALANCE:
        return member_id in group.joining or len(group.joining) < limit
    return member_id in group.members or len(group.members) < limit


def _understands(group: ClassicGroup, protocol_type: str, names: list[str]) -> bool:
    if group.state is State.EMPTY:
        return bool(protocol_type and names)
    return group.kind == protocol_type and group.have_in_common(names)


def _require_member_id(group: ClassicGroup, caller: Caller, request: JoinGroupRequest, respond: Respond) -> None:
    """Give out an id, with which the member is to come again: one whose answer is lost leaves no member behind."""
    member_id = new_member_id(group, caller, request)
    group.expect(member_id, request.session_timeout_ms)
    respond(join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id))


def new_member_id(group: ClassicGroup, caller: Caller, request: JoinGroupRequest) -> str:
    """An id that nobody has: as with Kafka, the instance's or the client's with a UUID.

    Raises KafkaError(UNKNOWN_SERVER_ERROR), as Kafka answers, for one that no answer could hold, the leader's included.
    """
    name = caller.client_id if request.group_instance_id is None else request.group_instance_id
    member_id = f"{name}-{group.coordinator.new_uuid()}"
    if len(member_id.encode()) > MAX_STRING_BYTES:
        message = f"A member id begins with the name {name}, which leaves no room for a UUID."
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message)
    return member_id


def add(group: ClassicGroup, caller: Caller, request: JoinGroupRequest, member_id: str, respond: Respond) -> None:
    """Take a new member in, and rebalance."""
    member = Member(
        member_id,
        request.group_instance_id,
        caller.client_id,
        caller.client_host,
        request.rebalance_timeout_ms,
        request.session_timeout_ms,
        protocols_of(request),
    )
    member.is_new = True
    if not group.members:
        group.kind = request.protocol_type
    group.has_new_member = group.state is State.PREPARING_REBALANCE and group.is_first_rebalance
    group.add(member)
    group.joining[member_id] = respond
    group.keep_alive(member, NEW_MEMBER_TIMEOUT_MS)
    rebalance.prepare_or_complete(group, f"{member_id} joins ({reason_of(request)})")


def protocols_of(request: JoinGroupRequest) -> list[Protocol]:
    """What the request says that the member understands; of protocols with one name the first."""
    protocols: dict[str, Protocol] = {}
    for protocol in request.protocols:
        protocols.setdefault(protocol.name, Protocol(protocol.name, protocol.metadata))
    return list(protocols.values())


def reason_of(request: JoinGroupRequest) -> str:
    """Why it joins, if it says so (KIP-800)."""
    return request.reason or "not provided"


def _join_known(group: ClassicGroup, caller: Caller, request: JoinGroupRequest, respond: Respond) -> None:
    """Somebody joins under an id that was given to him, now or before."""
    if request.member_id in group.pending:
        if request.group_instance_id is not None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "A static member is not given an id to come again with.")
        add(group, caller, request, request.member_id, respond)
        return
    try:
        member = group.check_member(request.member_id, request.group_instance_id)
    except KafkaError as error:
        respond(join_error(error.code, request.member_id))
        return
    _rejoin(group, member, request, respond)


def _rejoin(group: ClassicGroup, member: Member, request: JoinGroupRequest, respond: Respond) -> None:
    """A member joins again: it follows a rebalance, it forces one, or it has missed an answer."""
    unchanged = member.protocols == protocols_of(request)
    is_leader = member.member_id == group.leader_id
    missed_answer = group.state is State.COMPLETING_REBALANCE or (group.state is State.STABLE and not is_leader)
    if unchanged and missed_answer:
        respond(rebalance.join_answer(group, member.member_id))
    else:
        # A stable group's leader may always force one: it may have learnt of other partitions, say.
        update(group, member, request)
        await_join(group, member, respond)
        rebalance.prepare_or_complete(group, f"{member.member_id} joins again ({reason_of(request)})")


def update(group: ClassicGroup, member: Member, request: JoinGroupRequest) -> None:
    """Have a member as it describes itself now."""
    group.change_protocols(member, protocols_of(request))
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.session_timeout_ms = request.session_timeout_ms


def await_join(group: ClassicGroup, member: Member, respond: Respond) -> None:
    """Answer a member's JoinGroup when the next generation begins; one of its that waits already is told to go on."""
    group.answer_join(member.member_id, join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    group.joining[member.member_id] = respond
