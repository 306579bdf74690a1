"""The record of a classic group, read back: its membership as it was when its leader had last synced.

How the record is made is in `recording`; that the sessions begin anew is the group's business (`loaded`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minibroker.broker.groups.classic.group import ClassicGroup
from minibroker.broker.groups.classic.members import Member, Protocol
from minibroker.broker.groups.classic.states import State
from minibroker.broker.groups.offsets import CommittedOffsets
from minibroker.protocol.messages.group_records import GroupMetadataKey, GroupMetadataValue

if TYPE_CHECKING:
    from minibroker.broker.groups.coordinator import GroupCoordinator

NOT_SET = -1


def replay_group_metadata(
    coordinator: GroupCoordinator, key: GroupMetadataKey, value: GroupMetadataValue | None
) -> None:
    """Fold in one record of a classic group; without a value, what is left of it is its offsets."""
    present = coordinator.groups.get(key.group)
    if value is None:
        if isinstance(present, ClassicGroup):
            del coordinator.groups[key.group]
            if present.offsets.by_partition:
                coordinator.groups[key.group] = ClassicGroup(coordinator, key.group, present.offsets)
        return
    offsets = CommittedOffsets() if present is None else present.offsets
    group = coordinator.groups[key.group] = ClassicGroup(coordinator, key.group, offsets)
    group.kind = value.protocol_type or None
    group.protocol = value.protocol
    group.generation = value.generation
    group.state = State.STABLE if value.members else State.EMPTY
    group.state_since_ms = None if value.current_state_timestamp == NOT_SET else value.current_state_timestamp
    for member in value.members:
        group.add(_member(value, member))
    group.leader_id = value.leader
    group.learn_topics()


def _member(group: GroupMetadataValue, member: GroupMetadataValue.MemberMetadata) -> Member:
    rebalance_timeout_ms = member.rebalance_timeout
    return Member(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        member.session_timeout if rebalance_timeout_ms == NOT_SET else rebalance_timeout_ms,
        member.session_timeout,
        [Protocol(group.protocol or "", member.subscription)],
        member.assignment,
    )
