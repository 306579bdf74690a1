"""The record of a classic group: its membership, written when its leader has brought the assignment.

How it is read back is in `replaying`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from minibroker.broker.groups.records import group_metadata_entry
from minibroker.protocol.messages.group_records import GroupMetadataValue

if TYPE_CHECKING:
    from minibroker.broker.coordination.coordinator_logs import Entry
    from minibroker.broker.groups.classic.group import ClassicGroup

NOT_SET = -1


def record(group: ClassicGroup, assignments: Mapping[str, bytes] | None = None) -> None:
    """Append what the group is, with these assignments by member id in place of those it has.

    Raises KafkaError with the code for the client.
    """
    group.coordinator.append(group.group_id, [membership_entry(group, assignments)])


def membership_entry(group: ClassicGroup, assignments: Mapping[str, bytes] | None = None) -> Entry:
    """The record that says what the group is."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type,
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader_id,
        current_state_timestamp=NOT_SET if group.state_since_ms is None else group.state_since_ms,
        members=[
            GroupMetadataValue.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol),
                assignment=member.assignment if assignments is None else assignments.get(member.member_id, b""),
            )
            for member in group.members.values()
        ],
    )
    return group_metadata_entry(group.group_id, value)
