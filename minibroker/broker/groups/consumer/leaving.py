"""Members that leave a consumer group, or are put out of it because they are not heard of.

What is left of the group may go over to the classic protocol: see `migration`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from minibroker.broker.groups.consumer import migration, recording, validation
from minibroker.broker.groups.consumer.member import LEAVING_FOR_A_WHILE_EPOCH, ConsumerMember
from minibroker.broker.groups.consumer.updating import Update
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.legible import few
from minibroker.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest

if TYPE_CHECKING:
    from minibroker.broker.groups.consumer.group import ConsumerGroup
    from minibroker.broker.groups.coordinator import GroupCoordinator

log = logging.getLogger("minibroker.groups")


def leave(coordinator: GroupCoordinator, request: ConsumerGroupHeartbeatRequest) -> None:
    """Let the member go that asks for it.

    Raises KafkaError: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, or what recording it raises.
    """
    group = coordinator.consumer_group(request.group_id)
    instance_id = request.instance_id
    if instance_id is None:
        fence(group, [group.known_member(request.member_id)])
        return
    member = group.static_member(instance_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    validation.check_instance(member, request.member_id, instance_id)
    if request.member_epoch == LEAVING_FOR_A_WHILE_EPOCH:
        _leave_for_a_while(group, member)
    else:
        fence(group, [member])


def _leave_for_a_while(group: ConsumerGroup, member: ConsumerMember) -> None:
    """A static member keeps its partitions until its session ends; whoever comes with its instance id takes them."""
    away = member._replace(
        epoch=LEAVING_FOR_A_WHILE_EPOCH,
        assigned={topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in member.assigned.items()},
        pending_revocation={},
    )
    group.context.commit(group.group_id, [recording.member_assignment(group.group_id, away)])


def fence(group: ConsumerGroup, members: Sequence[ConsumerMember]) -> None:
    """Let members go, and begin another epoch: the next heartbeat of any other shares out what they had.

    Raises KafkaError if that cannot be recorded; they are members still, then.
    """
    if not members:
        return
    gone = {member.member_id for member in members}
    staying = [member for member_id, member in group.members.items() if member_id not in gone]
    if staying and migration.goes_back_without(group, gone):
        migration.go_back(group, staying, f"{few(gone)} left, who spoke the new protocol")
        return
    update = Update(group)
    update.remove(members)
    update.look_at_topics(changed=True)
    update.commit()
    for member in members:
        group.timers.cancel(member.member_id)


def expire(group: ConsumerGroup, member_id: str, reason: str) -> None:
    """Put a member out whose time is over, if it is one still. Raises KafkaError if that cannot be recorded."""
    member = group.members.get(member_id)
    if member is None:
        return
    log.info("member %s is put out of group %s: %s", member_id, group.group_id, reason)
    fence(group, [member])
