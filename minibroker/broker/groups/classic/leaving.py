"""LeaveGroup to a classic group: members go, by themselves or as an administrator says.

What that means for those who stay is the business of `rebalance`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from minibroker.broker.groups.classic import rebalance
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.legible import few
from minibroker.protocol.messages.groups import LeaveGroupRequest, LeaveGroupResponse

if TYPE_CHECKING:
    from minibroker.broker.groups.classic.group import ClassicGroup

log = logging.getLogger("minibroker.groups")

Identity = LeaveGroupRequest.MemberIdentity
Answer = LeaveGroupResponse.MemberResponse

UNKNOWN_MEMBER = ""


def leave(group: ClassicGroup, members: Iterable[Identity]) -> list[Answer]:
    """Take members out, each told for itself whether it was one; there is one rebalance for all."""
    answers = [_leave(group, member) for member in members]
    gone = [answer.member_id for answer in answers if answer.error_code == ErrorCode.NONE]
    if gone:
        rebalance.after_removal(group, f"{few(gone)} left")
    return answers


def _leave(group: ClassicGroup, member: Identity) -> Answer:
    answer = Answer(member_id=member.member_id, group_instance_id=member.group_instance_id)
    try:
        group.remove(_member_id(group, member))
        log.info("group %s: %s leaves: %s", group.group_id, member.member_id, member.reason or "reason not provided")
    except KafkaError as error:
        answer.error_code = error.code
    return answer


def _member_id(group: ClassicGroup, member: Identity) -> str:
    """Whom it names. An administrator who removes a static member may know its instance id only."""
    if member.member_id == UNKNOWN_MEMBER:
        member_id = group.static.get(member.group_instance_id or "")
        if member.group_instance_id is None or member_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member_id
    if member.member_id not in group.pending:
        group.check_member(member.member_id, member.group_instance_id)
    return member.member_id
