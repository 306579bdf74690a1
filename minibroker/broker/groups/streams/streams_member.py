"""A member of a streams group: a thread of an application, its process, its epochs and its tasks.

A member never changes: a change makes another one. `streams_reconciliation` says how
it gets from its tasks to its target.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from minibroker.broker.groups.heartbeats import JOINING_EPOCH, UNKNOWN_TIMEOUT_MS
from minibroker.broker.groups.streams.tasks import NOTHING_ASSIGNED, AnyTasks, AssignedTasks, parse_task_set
from minibroker.protocol.messages.streams_group_records import (
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
)

_Assigned = StreamsGroupCurrentMemberAssignmentValue.TaskIds


class MemberState(IntEnum):
    """How far a member is on the way to its target, with the numbers of the record."""

    STABLE = 1  # it has all tasks of its target in its epoch
    UNREVOKED_TASKS = 2  # it must give up tasks, and has not reported yet that it did
    UNRELEASED_TASKS = 3  # it waits for tasks that others have not given up
    UNKNOWN = 127  # a state of a Kafka that knows more


class Endpoint(NamedTuple):
    """Where the member answers queries of its state, as the application says."""

    host: str
    port: int


class StreamsMember(NamedTuple):
    """One member, as recorded. Members with the same `process_id` are threads of one process."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = UNKNOWN_TIMEOUT_MS
    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: tuple[tuple[str, str], ...] = ()
    epoch: int = JOINING_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: AssignedTasks = NOTHING_ASSIGNED
    pending_revocation: AssignedTasks = NOTHING_ASSIGNED

    def with_epoch_and_assignment(
        self, epoch: int, state: MemberState, assigned_tasks: AssignedTasks, pending_revocation: AssignedTasks
    ) -> StreamsMember:
        """Return this member with another epoch and assignment; the present epoch becomes the previous one."""
        return self._replace(
            epoch=epoch,
            previous_epoch=self.epoch,
            state=state,
            assigned=assigned_tasks,
            pending_revocation=pending_revocation,
        )

    def is_reconciled_to(self, epoch: int) -> bool:
        """Return whether it has all tasks of its target in this epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def get_active_since_epoch(self, subtopology_id: str, partition: int) -> int | None:
        """Return the epoch in which an active task was assigned that the member has or must revoke; None for others."""
        for tasks in (self.assigned, self.pending_revocation):
            epoch = tasks.active.get(subtopology_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None

    # --- records --------------------------------------------------------------------------------

    def make_metadata_value(self) -> StreamsGroupMemberMetadataValue:
        """Return the value of the record of the member's metadata."""
        kind, endpoint = StreamsGroupMemberMetadataValue, self.user_endpoint
        return kind(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            topology_epoch=self.topology_epoch,
            process_id=self.process_id,
            user_endpoint=None if endpoint is None else kind.Endpoint(host=endpoint.host, port=endpoint.port),
            client_tags=[kind.KeyValue(key=key, value=value) for key, value in self.client_tags],
        )

    def with_recorded_metadata(self, value: StreamsGroupMemberMetadataValue) -> StreamsMember:
        """Return this member with the metadata of a record."""
        endpoint = value.user_endpoint
        return self._replace(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topology_epoch=value.topology_epoch,
            process_id=value.process_id,
            user_endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
            client_tags=tuple((each.key, each.value) for each in value.client_tags),
        )

    def make_current_assignment_value(self) -> StreamsGroupCurrentMemberAssignmentValue:
        """Return the value of the record of the member's epochs, state and tasks."""
        assigned, revoked = self.assigned, self.pending_revocation
        return StreamsGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            active_tasks=_encode_active_tasks(assigned),
            standby_tasks=_encode_tasks(assigned.standby),
            warmup_tasks=_encode_tasks(assigned.warmup),
            active_tasks_pending_revocation=_encode_active_tasks(revoked),
            standby_tasks_pending_revocation=_encode_tasks(revoked.standby),
            warmup_tasks_pending_revocation=_encode_tasks(revoked.warmup),
        )

    def with_recorded_assignment(self, value: StreamsGroupCurrentMemberAssignmentValue) -> StreamsMember:
        """Return this member with the epochs, state and tasks of a record."""
        known = value.state in MemberState.__members__.values()
        return self._replace(
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state) if known else MemberState.UNKNOWN,
            assigned=AssignedTasks(
                _parse_active_tasks(value.active_tasks, value.member_epoch),
                parse_task_set(value.standby_tasks),
                parse_task_set(value.warmup_tasks),
            ),
            pending_revocation=AssignedTasks(
                _parse_active_tasks(value.active_tasks_pending_revocation, value.member_epoch),
                parse_task_set(value.standby_tasks_pending_revocation),
                parse_task_set(value.warmup_tasks_pending_revocation),
            ),
        )


def _encode_tasks(tasks: AnyTasks) -> list[_Assigned]:
    return [
        _Assigned(subtopology_id=each, partitions=sorted(partitions), assignment_epochs=None)
        for each, partitions in sorted(tasks.items())
    ]


def _encode_active_tasks(tasks: AssignedTasks) -> list[_Assigned]:
    return [
        _Assigned(
            subtopology_id=each,
            partitions=sorted(epochs),
            assignment_epochs=[epochs[partition] for partition in sorted(epochs)],
        )
        for each, epochs in sorted(tasks.active.items())
    ]


def _parse_active_tasks(recorded: Iterable[_Assigned], member_epoch: int) -> dict[str, dict[int, int]]:
    """Return recorded active tasks with their epochs; records from before Kafka 4.3 have only the member's."""
    return {
        each.subtopology_id: dict(zip(each.partitions, each.assignment_epochs, strict=True))
        if each.assignment_epochs is not None and len(each.assignment_epochs) == len(each.partitions)
        else dict.fromkeys(each.partitions, member_epoch)
        for each in recorded
        if each.partitions
    }
