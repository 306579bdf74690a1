"""From one generation of a classic group to the next: who is waited for, for how long, and what the members are told.

Which state follows on which is in `states`; what the single requests ask for is in the files named after them.

A rebalance begins (`prepare`) when somebody comes, goes or changes. All members must join again, within the longest of
their rebalance timeouts; then the next generation begins without those who have not (`complete`), and its leader has
as long to bring the assignment. The first rebalance of an empty group waits for `group.initial.rebalance.delay.ms`
instead, and as long again whenever somebody has come meanwhile.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from minibroker.broker.groups.classic.recording import record
from minibroker.broker.groups.classic.states import CAN_REBALANCE, State
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.legible import few
from minibroker.protocol.messages.groups import JoinGroupResponse, SyncGroupResponse

if TYPE_CHECKING:
    from minibroker.broker.groups.classic.group import ClassicGroup

log = logging.getLogger("minibroker.groups")

INITIAL_DELAY = "group.initial.rebalance.delay.ms"


# --- the members join -------------------------------------------------------------------------------


def prepare_or_complete(group: ClassicGroup, reason: str) -> None:
    """Begin a rebalance, or, if one goes on, see whether all have joined now."""
    if group.state in CAN_REBALANCE:
        prepare(group, reason)
    else:
        complete_if_all_joined(group)


def prepare(group: ClassicGroup, reason: str) -> None:
    """Have all members join again."""
    if group.state is State.COMPLETING_REBALANCE:
        propagate_error(group, ErrorCode.REBALANCE_IN_PROGRESS)
    expect_no_syncs(group)
    group.is_first_rebalance = group.state is State.EMPTY
    group.become(State.PREPARING_REBALANCE)
    log.info("group %s rebalances after generation %d: %s", group.group_id, group.generation, reason)
    if group.is_first_rebalance:
        delay_ms = group.setting(INITIAL_DELAY)
        _wait_for_first(group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
    elif group.have_all_joined:
        complete(group)
    else:
        group.wait_for_joins(group.rebalance_timeout_ms, lambda: complete(group))


def complete_if_all_joined(group: ClassicGroup) -> None:
    """Begin the next generation if nobody is missed; the first one of an empty group always has its delay."""
    if group.state is State.PREPARING_REBALANCE and not group.is_first_rebalance and group.have_all_joined:
        complete(group)


def _wait_for_first(group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
    def is_over() -> None:
        if not group.has_new_member or not remaining_ms:
            complete(group)
            return
        group.has_new_member = False
        again_ms = min(group.setting(INITIAL_DELAY), remaining_ms)
        _wait_for_first(group, again_ms, max(remaining_ms - delay_ms, 0))

    group.wait_for_joins(delay_ms, is_over)


def complete(group: ClassicGroup) -> None:
    """Begin the next generation with the members who have joined, and the static ones, who may come back later."""
    group.stop_waiting_for_joins()
    missed = [
        member_id
        for member_id, member in group.members.items()
        if member_id not in group.joining and member.instance_id is None
    ]
    for member_id in missed:
        group.remove(member_id)
    if missed:
        log.info("group %s goes on without %s, which have not joined in time", group.group_id, few(missed))
    if group.elect_joined_leader() or not group.members:
        _begin_generation(group)
    else:
        log.warning("group %s waits on: none of its %d static members has joined", group.group_id, len(group.members))
        group.wait_for_joins(group.rebalance_timeout_ms, lambda: complete(group))


def _begin_generation(group: ClassicGroup) -> None:
    group.generation += 1
    group.protocol = group.select_protocol()
    group.learn_topics()
    group.unsynced.clear()
    if not group.members:
        _become_empty(group)
        return
    group.become(State.COMPLETING_REBALANCE)
    log.info("group %s is in generation %d with %d members", group.group_id, group.generation, len(group.members))
    for member_id, member in group.members.items():
        group.answer_join(member_id, join_answer(group, member_id))
        group.keep_alive(member)
        member.is_new = False
        group.unsynced.add(member_id)
    group.wait_for_syncs(group.rebalance_timeout_ms, lambda: _expire_syncs(group))


def _become_empty(group: ClassicGroup) -> None:
    group.become(State.EMPTY)
    log.info("group %s is empty after generation %d", group.group_id, group.generation)
    try:
        record(group)
    except KafkaError as error:
        # After a start the members of the generation before are waited for again, and time out.
        log.warning("it is not recorded that group %s is empty: %s", group.group_id, error)


def join_answer(group: ClassicGroup, member_id: str, *, skip_assignment: bool = False) -> JoinGroupResponse:
    """What a member is told of the present generation; the leader also learns who is in it."""
    told = group.members.values() if member_id == group.leader_id else ()
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.kind,
        protocol_name=group.protocol,
        leader=group.leader_id or "",
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=[
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(group.protocol),
            )
            for member in told
        ],
    )


# --- the members sync -------------------------------------------------------------------------------


def propagate(group: ClassicGroup) -> None:
    """Give each member that waits for it its assignment."""
    for member_id, member in list(group.members.items()):
        if group.answer_sync(member_id, sync_answer(group, member.assignment)):
            # While it waited its session could not run out, and nothing would notice from now on that it is silent.
            group.keep_alive(member)


def propagate_error(group: ClassicGroup, code: ErrorCode) -> None:
    """Tell each member that waits for its assignment that there is none."""
    for member_id, member in list(group.members.items()):
        member.assignment = b""
        if group.answer_sync(member_id, SyncGroupResponse(error_code=code)):
            group.keep_alive(member)


def sync_answer(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    """What a member is told that has an assignment."""
    return SyncGroupResponse(protocol_type=group.kind, protocol_name=group.protocol, assignment=assignment)


def has_synced(group: ClassicGroup, member_id: str) -> None:
    """A member has asked for its assignment; once all have, nobody is waited for."""
    group.unsynced.discard(member_id)
    if not group.unsynced:
        expect_no_syncs(group)


def expect_no_syncs(group: ClassicGroup) -> None:
    """Wait for no SyncGroup any more."""
    group.unsynced.clear()
    group.stop_waiting_for_syncs()


def _expire_syncs(group: ClassicGroup) -> None:
    """Go on without those who have joined and then not asked for their assignment."""
    silent = list(group.unsynced)
    for member_id in silent:
        group.remove(member_id)
    prepare(group, f"{few(silent)} joined and did not ask for their assignment")


# --- members go -------------------------------------------------------------------------------------


def after_removal(group: ClassicGroup, reason: str) -> None:
    """Somebody has gone: those who stay need another generation, or do not wait for him any more."""
    if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
        prepare(group, reason)
    else:
        complete_if_all_joined(group)
