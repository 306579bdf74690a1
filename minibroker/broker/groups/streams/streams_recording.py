"""The records of a streams group, one function each. How they are folded in is in `streams_group`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from minibroker.broker.groups.group_entries import GroupChange
from minibroker.broker.groups.streams.streams_member import StreamsMember
from minibroker.broker.groups.streams.tasks import Tasks, TaskSet
from minibroker.broker.groups.streams.topology import Topology
from minibroker.protocol.messages import streams_group_records as messages

_Target = messages.StreamsGroupTargetAssignmentMemberValue


def make_group_epoch_record(
    group_id: str, epoch: int, metadata_hash: int, validated_topology_epoch: int, configs: Mapping[str, str]
) -> GroupChange:
    """Return the record of a new group epoch, with the settings that the assignor will use for it."""
    kind = messages.StreamsGroupMetadataValue
    value = kind(
        epoch=epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=validated_topology_epoch,
        last_assignment_configs=[kind.LastAssignmentConfig(key=key, value=each) for key, each in configs.items()],
    )
    return GroupChange(messages.StreamsGroupMetadataKey(group_id=group_id), value)


def make_topology_record(group_id: str, topology: Topology) -> GroupChange:
    """Return the record of the group's topology."""
    return GroupChange(messages.StreamsGroupTopologyKey(group_id=group_id), topology.value)


def make_member_metadata_record(group_id: str, member: StreamsMember) -> GroupChange:
    """Return the record of a member's metadata: its client, process, endpoint and tags."""
    key = messages.StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    return GroupChange(key, member.make_metadata_value())


def make_current_assignment_record(group_id: str, member: StreamsMember) -> GroupChange:
    """Return the record of a member's epoch and tasks."""
    key = messages.StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return GroupChange(key, member.make_current_assignment_value())


def make_target_assignment_record(group_id: str, member_id: str, tasks: Tasks) -> GroupChange:
    """Return the record of a member's target assignment."""
    value = _Target(
        active_tasks=_encode_target_tasks(tasks.active),
        standby_tasks=_encode_target_tasks(tasks.standby),
        warmup_tasks=_encode_target_tasks(tasks.warmup),
    )
    return GroupChange(messages.StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def _encode_target_tasks(tasks: TaskSet) -> list[_Target.TaskIds]:
    """Return the tasks by subtopology, as the record of a target has them."""
    return [
        _Target.TaskIds(subtopology_id=each, partitions=sorted(partitions))
        for each, partitions in sorted(tasks.items())
    ]


def make_target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> GroupChange:
    """Return the record of the epoch of the target assignment."""
    value = messages.StreamsGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=timestamp_ms
    )
    return GroupChange(messages.StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def make_member_tombstones(group_id: str, member_id: str) -> list[GroupChange]:
    """Return the tombstones of a member, in Kafka's order, which Kafka requires when it reads them."""
    return [
        GroupChange(messages.StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        GroupChange(messages.StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        GroupChange(messages.StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def make_group_tombstones(group_id: str, members: Iterable[str]) -> list[GroupChange]:
    """Return the tombstones of all records of a group, in Kafka's order."""
    gone = [make_member_tombstones(group_id, member_id) for member_id in members]
    return [
        *(changes[0] for changes in gone),
        *(changes[1] for changes in gone),
        GroupChange(messages.StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(changes[2] for changes in gone),
        GroupChange(messages.StreamsGroupMetadataKey(group_id=group_id), None),
        GroupChange(messages.StreamsGroupTopologyKey(group_id=group_id), None),
    ]
