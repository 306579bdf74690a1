"""Groups of Kafka Streams as tests see them (KIP-1071): epochs, and members with their tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minibroker.named_tuples import NamedTuple

if TYPE_CHECKING:
    from minibroker.broker.groups.streams.streams_group import StreamsGroup
    from minibroker.broker.groups.streams.streams_member import StreamsMember
    from minibroker.broker.groups.streams.tasks import AnyTasks

TasksById = dict[str, list[int]]  # partitions by the id of the subtopology


class StreamsMemberState(NamedTuple):
    """A member, and the tasks that it has been told to run, by role."""

    member: str
    instance: str | None
    client_id: str
    process: str
    epoch: int
    active: TasksById
    standby: TasksById
    warmup: TasksById


class StreamsGroupState(NamedTuple):
    """A group: `topology_epoch` is None before the first member, `source_topics` are those of all subtopologies."""

    state: str
    epoch: int
    assignment_epoch: int
    topology_epoch: int | None
    source_topics: list[str]
    members: list[StreamsMemberState]


def make_group_state(group: StreamsGroup) -> StreamsGroupState:
    """Return what a group is like now."""
    topology = group.topology
    subtopologies = [] if topology is None else list(topology.subtopologies.values())
    return StreamsGroupState(
        group.state_name,
        group.epoch,
        group.assignment_epoch,
        None if topology is None else topology.epoch,
        sorted({topic for each in subtopologies for topic in each.source_topics}),
        [_make_member_state(each) for each in group.members.values()],
    )


def _make_member_state(member: StreamsMember) -> StreamsMemberState:
    assigned = member.assigned
    return StreamsMemberState(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.process_id,
        member.epoch,
        _make_tasks_by_id(assigned.active),
        _make_tasks_by_id(assigned.standby),
        _make_tasks_by_id(assigned.warmup),
    )


def _make_tasks_by_id(tasks: AnyTasks) -> TasksById:
    return {subtopology_id: sorted(partitions) for subtopology_id, partitions in sorted(tasks.items())}
