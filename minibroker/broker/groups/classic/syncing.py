"""SyncGroup to a classic group: the leader brings the assignment, and each member gets its part of it.

How the assignment is told is in `rebalance`, how it is kept in `recording`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from minibroker.broker.groups.classic import rebalance
from minibroker.broker.groups.classic.members import Respond
from minibroker.broker.groups.classic.recording import record
from minibroker.broker.groups.classic.states import State, rebalancing, wrong_generation
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.legible import few
from minibroker.protocol.messages.groups import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from minibroker.broker.groups.classic.group import ClassicGroup

log = logging.getLogger("minibroker.groups")


def sync(group: ClassicGroup, request: SyncGroupRequest, respond: Respond) -> None:
    """Answer a member with its assignment, at once or when the leader has brought it. Raises KafkaError."""
    member = group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise wrong_generation(request.generation_id, group.generation)
    if _differs(request.protocol_type, group.kind) or _differs(request.protocol_name, group.protocol):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.state is State.PREPARING_REBALANCE:
        raise rebalancing(group.state)
    rebalance.has_synced(group, member.member_id)
    if group.state is State.STABLE:
        respond(rebalance.sync_answer(group, member.assignment))
        return
    group.answer_sync(member.member_id, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    group.syncing[member.member_id] = respond
    if member.member_id == group.leader_id:
        _assign(group, {given.member_id: given.assignment for given in request.assignments})


def _differs(told: str | None, known: str | None) -> bool:
    return told is not None and known is not None and told != known


def _assign(group: ClassicGroup, assignments: dict[str, bytes]) -> None:
    """Keep the leader's assignment, then tell it. Members that it has forgotten get an empty one."""
    generation = group.generation

    def kept(failure: KafkaError | None) -> None:
        if group.state is not State.COMPLETING_REBALANCE or group.generation != generation:
            return  # somebody has come or gone meanwhile
        if failure is not None:
            rebalance.propagate_error(group, failure.code)
            rebalance.prepare(group, f"the assignment of generation {generation} could not be kept: {failure}")
            return
        for member_id, member in group.members.items():
            member.assignment = assignments.get(member_id, b"")
        group.become(State.STABLE)
        rebalance.propagate(group)

    forgotten = [member_id for member_id in group.members if member_id not in assignments]
    if forgotten:
        log.warning("the leader of group %s assigns nothing to %s", group.group_id, few(forgotten))
    try:
        record(group, assignments)
        group.coordinator.when_durable(group.group_id, kept)
    except KafkaError as error:
        kept(error)
