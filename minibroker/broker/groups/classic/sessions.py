"""The sessions of a classic group's members: heartbeats, and the end of those from whom none comes.

All time is the clock's that was passed in.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from minibroker.broker.groups.classic import rebalance
from minibroker.broker.groups.classic.members import Member
from minibroker.broker.groups.classic.states import State, rebalancing, wrong_generation

if TYPE_CHECKING:
    from minibroker.broker.groups.classic.group import ClassicGroup

log = logging.getLogger("minibroker.groups")


def heartbeat(group: ClassicGroup, member_id: str, instance_id: str | None, generation: int) -> None:
    """A member says that it is there. Raises KafkaError: REBALANCE_IN_PROGRESS too, which has it join again."""
    member = group.check_member(member_id, instance_id)
    if generation != group.generation:
        raise wrong_generation(generation, group.generation)
    keep_alive(group, member)
    if group.state is State.PREPARING_REBALANCE:
        raise rebalancing(group.state)


def keep_alive(group: ClassicGroup, member: Member, timeout_ms: int | None = None) -> None:
    """Begin a member's session anew, for its session timeout unless told."""
    if member.session is not None:
        member.session.cancel()
    timeout_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
    member.session = group.clock.call_later(timeout_ms, lambda: _expire(group, member))


def _expire(group: ClassicGroup, member: Member) -> None:
    """Nothing was heard of a member. One whose request waits here is there; it gets a session with its answer."""
    waits = member.member_id in group.joining or member.member_id in group.syncing
    if waits and not member.is_new:
        return
    log.info("group %s: %s has not been heard of for its session timeout", group.group_id, member.member_id)
    group.remove(member.member_id)
    rebalance.after_removal(group, f"{member.member_id} fell silent")


def expect(group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
    """Wait for the member to whom this id was given to join with it, and so long hold back the next generation."""

    def expire() -> None:
        log.info("group %s: nobody has joined as %s", group.group_id, member_id)
        group.forget_pending(member_id)
        if group.state is State.PREPARING_REBALANCE and group.have_all_joined:
            rebalance.complete(group)

    group.pending[member_id] = group.clock.call_later(timeout_ms, expire)
