"""Static members (KIP-345): one that comes back under its instance id takes its place, and fences who had it.

What holds for all members is in `members`; leaving under an instance id is in `leaving`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from minibroker.broker.groups.classic import joining, rebalance
from minibroker.broker.groups.classic.members import Member, Protocol, Respond
from minibroker.broker.groups.classic.recording import record
from minibroker.broker.groups.classic.states import State
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.messages.groups import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from minibroker.broker.groups.callers import Caller
    from minibroker.broker.groups.classic.group import ClassicGroup

log = logging.getLogger("minibroker.groups")

FIRST_WITH_SKIPPED_ASSIGNMENT = 9  # KIP-814


class _Before(NamedTuple):
    """What is to be again if the change cannot be recorded."""

    member_id: str
    protocols: list[Protocol]
    rebalance_timeout_ms: int
    session_timeout_ms: int


def rejoin(group: ClassicGroup, caller: Caller, request: JoinGroupRequest, respond: Respond) -> None:
    """A static member joins that is one already: it is another life of it, under another id.

    A stable group goes on in its generation if nothing else has changed, and so nobody notices a quick restart.
    """
    present = group.members[group.static[request.group_instance_id or ""]]
    leader_id = group.leader_id
    before = _Before(present.member_id, present.protocols, present.rebalance_timeout_ms, present.session_timeout_ms)
    member = group.replace(present, joining.new_member_id(group, caller, request))
    log.info("group %s: %s takes the place of %s", group.group_id, member.member_id, before.member_id)
    joining.update(group, member, request)
    group.keep_alive(member)
    group.joining[member.member_id] = respond
    reason = f"static member {member.instance_id} is back ({joining.reason_of(request)})"
    if group.state is not State.STABLE:
        # The leader of a generation that is not complete has got the old id, and would assign nothing to the new one.
        rebalance.prepare_or_complete(group, reason)
    elif group.select_protocol() == group.protocol:
        _go_on(group, caller, member, before, leader_id)
    else:
        rebalance.prepare(group, reason)


def _go_on(group: ClassicGroup, caller: Caller, member: Member, before: _Before, leader_id: str | None) -> None:
    """Keep the generation, once the new id is recorded."""

    def recorded(failure: KafkaError | None) -> None:
        if group.state is State.DEAD:
            return  # it is loaded again, as what was recorded could not be written; whoever waited was told
        if failure is not None:
            _revert(group, member, before, leader_id, failure)
        elif caller.version >= FIRST_WITH_SKIPPED_ASSIGNMENT:
            is_leader = member.member_id == group.leader_id
            group.answer_join(
                member.member_id, rebalance.join_answer(group, member.member_id, skip_assignment=is_leader)
            )
        else:
            # It must not assign anything, and does not if it takes another for the leader.
            answer = rebalance.join_answer(group, member.member_id)
            answer.leader, answer.members = leader_id or "", []
            group.answer_join(member.member_id, answer)

    try:
        assignments = {member_id: each.assignment for member_id, each in group.members.items()}
        record(group, assignments)
        group.coordinator.when_durable(group.group_id, recorded)
    except KafkaError as error:
        recorded(error)


def _revert(group: ClassicGroup, member: Member, before: _Before, leader_id: str | None, failure: KafkaError) -> None:
    respond = group.joining.pop(member.member_id, None)
    if member.member_id in group.members:
        group.change_protocols(member, before.protocols)
        member.rebalance_timeout_ms = before.rebalance_timeout_ms
        member.session_timeout_ms = before.session_timeout_ms
        group.keep_alive(group.replace(member, before.member_id))
    if respond is not None:
        respond(
            JoinGroupResponse(
                generation_id=group.generation,
                protocol_type=group.kind,
                protocol_name=group.protocol,
                leader=leader_id or "",
                error_code=failure.code,
            )
        )
