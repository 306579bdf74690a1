"""The times that members of a consumer group are given, and what happens when they run out.

How a member is put out of its group is in `leaving`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from minibroker.broker.configs.group_settings import group_value
from minibroker.broker.groups.consumer import leaving
from minibroker.broker.groups.consumer.member import ConsumerMember, MemberState
from minibroker.broker.groups.consumer.timers import Purpose
from minibroker.protocol.errors import KafkaError

if TYPE_CHECKING:
    from minibroker.broker.groups.consumer.group import ConsumerGroup

log = logging.getLogger("minibroker.groups")

AGAIN_MS = 1000  # when putting a member out could not be recorded


def begin_sessions(group: ConsumerGroup) -> None:
    """After a start: all members have a whole session to say that they are still there."""
    for member in list(group.members.values()):
        begin_session(group, member.member_id)
        if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
            _watch_revocation(group, member)


def begin_session(group: ConsumerGroup, member_id: str) -> None:
    """The member has been heard of: it is put out unless it is again in time."""
    classic = group.members[member_id].classic
    timeout_ms = (
        group_value(group.context.cluster, group.group_id, "consumer.session.timeout.ms")
        if classic is None
        else classic.session_timeout_ms
    )
    _start(group, member_id, Purpose.SESSION, timeout_ms, f"it was not heard of for {timeout_ms} ms")


def watch_revocation(group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember) -> None:
    """A member that is told to give partitions up must do so within its rebalance timeout."""
    if after == before:
        return
    if after.state is MemberState.UNREVOKED_PARTITIONS:
        _watch_revocation(group, after)
    else:
        group.timers.cancel(after.member_id, Purpose.REVOCATION)


def _watch_revocation(group: ConsumerGroup, member: ConsumerMember) -> None:
    def is_late() -> bool:
        present = group.members.get(member.member_id)
        return present is not None and present.epoch == member.epoch

    timeout_ms = member.rebalance_timeout_ms
    reason = f"it did not give up partitions within {timeout_ms} ms"
    _start(group, member.member_id, Purpose.REVOCATION, timeout_ms, reason, is_late)


def await_join(group: ConsumerGroup, member: ConsumerMember) -> None:
    """A member with the classic protocol has been told to join again: it must, within its rebalance timeout."""
    if not group.timers.runs(member.member_id, Purpose.JOIN):
        reason = f"it did not join again within {member.rebalance_timeout_ms} ms"
        _start(group, member.member_id, Purpose.JOIN, member.rebalance_timeout_ms, reason)


def await_sync(group: ConsumerGroup, member: ConsumerMember) -> None:
    """A member with the classic protocol has joined: it must ask for its assignment."""
    group.timers.cancel(member.member_id, Purpose.JOIN)
    reason = f"it did not sync within {member.rebalance_timeout_ms} ms"
    _start(group, member.member_id, Purpose.SYNC, member.rebalance_timeout_ms, reason)


def _start(
    group: ConsumerGroup,
    member_id: str,
    purpose: Purpose,
    timeout_ms: int,
    reason: str,
    is_late: Callable[[], bool] = lambda: True,
) -> None:
    def expired() -> None:
        if not is_late():
            return
        try:
            leaving.expire(group, member_id, reason)
        except KafkaError as error:
            log.error("member %s cannot be put out of group %s: %s", member_id, group.group_id, error)
            _start(group, member_id, purpose, AGAIN_MS, reason, is_late)

    group.timers.start(member_id, purpose, timeout_ms, expired)
