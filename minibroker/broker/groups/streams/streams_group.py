"""A streams group as its records say, its members' timeouts, and what may be done with its offsets (KIP-1071).

Changes are appended as records first (`streams_updating`, `streams_recording`). `apply` folds each into the group, as
at a start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from minibroker.broker.clock import Timer
from minibroker.broker.configs.group_settings import get_group_config
from minibroker.broker.coordination.coordinator_logs import Entry
from minibroker.broker.groups.group import CheckPartition, GroupContext, GroupType
from minibroker.broker.groups.group_entries import GroupChange, encode_group_changes
from minibroker.broker.groups.heartbeats import LEAVING_EPOCH
from minibroker.broker.groups.offsets_of_group import CommittedOffsets
from minibroker.broker.groups.reconciling_group import FIRST_EPOCH, NEVER, ReconcilingGroup, TimerPurpose
from minibroker.broker.groups.streams import streams_recording
from minibroker.broker.groups.streams.streams_member import MemberState, StreamsMember
from minibroker.broker.groups.streams.task_offsets import TaskOffsets
from minibroker.broker.groups.streams.tasks import (
    NO_TASKS,
    NOTHING_ASSIGNED,
    TaskId,
    Tasks,
    iterate_tasks,
    parse_task_set,
)
from minibroker.broker.groups.streams.topology import MAXIMUM_TASKS, ConfiguredTopology, Topology
from minibroker.broker.groups.streams.warm_ups import WarmUpStep
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages import streams_group_records as messages

STREAMS_PROTOCOL = "streams"
NOT_VALIDATED = -1
MAXIMUM_OFFSETS = 20 * MAXIMUM_TASKS  # that all members of a group report


class StreamsGroup(ReconcilingGroup[StreamsMember]):
    """One streams group.

    `epoch` counts the changes of its members, topology and topics. `target` was made with `assignment_configs`.
    `validated_epoch` is the epoch of the topology if all its topics were there. `configured` is the topology beside the
    topics of `looked_at_commit` of the metadata. `active_owners` has the member that has each active task,
    `standby_keepers` and `warmup_keepers` the members with each task in these roles; a task that is still to be given
    up counts. Only in memory are `endpoint_epoch`, which counts changes of what applications answer queries for,
    `shutdown_member_id`, the member that asked all to stop, and `initial_delay`, the timer that collects the first
    members; `is_assigning` says that a target is being made in steps. `task_offsets` are those that members report, and
    `warms_up` says of each member that was heard of whether it speaks a version that reports them. `step` is the step
    to the target that `warm_ups` has chosen for an epoch, and `refining_epoch` an epoch that began for nothing but
    another step.
    """

    type = GroupType.STREAMS

    def __init__(self, context: GroupContext, group_id: str, offsets: CommittedOffsets) -> None:
        super().__init__(context, group_id, offsets)
        self.validated_epoch = NOT_VALIDATED
        self.assignment_configs: dict[str, str] = {}
        self.topology: Topology | None = None
        self.target: dict[str, Tasks] = {}
        self.active_owners: dict[TaskId, str] = {}
        self.standby_keepers: dict[TaskId, set[str]] = {}
        self.warmup_keepers: dict[TaskId, set[str]] = {}
        self.task_offsets: dict[str, TaskOffsets] = {}
        self.warms_up: dict[str, bool] = {}
        self.step: WarmUpStep | None = None
        self.refining_epoch = NEVER
        self.configured: ConfiguredTopology | None = None
        self.endpoint_epoch = 0
        self.shutdown_member_id: str | None = None
        self.initial_delay: Timer | None = None
        self.is_assigning = False

    @property
    def is_ready_for_target(self) -> bool:
        """Whether the group's present topology has been validated."""
        return self.topology is not None and self.topology.epoch == self.validated_epoch

    @property
    def protocol_type(self) -> str:
        return STREAMS_PROTOCOL

    def is_subscribed_to(self, topic: str) -> bool:
        return bool(self.members) and self.topology is not None and topic in self.topology.subtopology_ids

    # --- its offsets --------------------------------------------------------------------------------

    def make_check_of_older_epoch(self, member: StreamsMember, epoch: int) -> CheckPartition:
        """Return a function that raises KafkaError for a partition whose task the member got after this older epoch."""

        def check_partition_epoch(topic: str, topic_id: bytes, partition: int) -> None:
            subtopology_id = None if self.topology is None else self.topology.subtopology_ids.get(topic)
            if subtopology_id is None:
                raise _make_stale_epoch_error(f"Topic {topic} is not in the topology.")
            since = member.get_active_since_epoch(subtopology_id, partition)
            task = f"{subtopology_id}-{partition}"
            if since is None:
                raise _make_stale_epoch_error(f"Task {task} is not assigned or pending revocation for member.")
            if epoch < since:
                raise _make_stale_epoch_error(
                    f"Received member epoch {epoch} is older than assignment epoch {since} for task {task}."
                )

        return check_partition_epoch

    # --- its end --------------------------------------------------------------------------------

    def make_tombstones(self) -> list[Entry]:
        return encode_group_changes(streams_recording.make_group_tombstones(self.group_id, self.members))

    def close_with_error(self, code: ErrorCode) -> None:
        super().close_with_error(code)
        self.cancel_initial_rebalance_delay()

    # --- look-up --------------------------------------------------------------------------------

    def is_task_active(self, task: TaskId) -> bool:
        """Return whether a member has the task as an active one, or has still to revoke it."""
        return task in self.active_owners

    def is_task_active_in_process(self, process_id: str, task: TaskId) -> bool:
        """Return whether a member of the process has the task as an active one, or has still to revoke it."""
        owner = self.members.get(self.active_owners.get(task, ""))
        return owner is not None and owner.process_id == process_id

    def is_task_standby_in_process(self, process_id: str, task: TaskId) -> bool:
        """Return whether a member of the process has the task as a standby, or has still to revoke it."""
        return self._has_member_in_process(self.standby_keepers.get(task, ()), process_id)

    def is_task_warmup_in_process(self, process_id: str, task: TaskId) -> bool:
        """Return whether a member of the process has the task as a warm-up, or has still to revoke it."""
        return self._has_member_in_process(self.warmup_keepers.get(task, ()), process_id)

    def _has_member_in_process(self, member_ids: Iterable[str], process_id: str) -> bool:
        return any(self.members[each].process_id == process_id for each in member_ids if each in self.members)

    def remember_task_offsets(self, member_id: str, offsets: TaskOffsets) -> None:
        """Keep the task offsets that a member reports, unless those of all members would take too much memory."""
        others = sum(len(each.restored) + len(each.ends) for key, each in self.task_offsets.items() if key != member_id)
        if others + len(offsets.restored) + len(offsets.ends) <= MAXIMUM_OFFSETS:
            self.task_offsets[member_id] = offsets

    # --- members come and go ----------------------------------------------------------------------

    def begin_group_epoch(self) -> None:
        """Begin another epoch, for which the next heartbeat makes a target. Raises KafkaError."""
        self.append_changes([self._make_next_epoch_record()])

    def _make_next_epoch_record(self) -> GroupChange:
        said = self.metadata_hash, self.validated_epoch, self.assignment_configs
        return streams_recording.make_group_epoch_record(self.group_id, self.epoch + 1, *said)

    def remove_members(self, members: Sequence[StreamsMember]) -> None:
        if not members:
            return
        changes = [
            change
            for member in members
            for change in streams_recording.make_member_tombstones(self.group_id, member.member_id)
        ]
        changes.append(self._make_next_epoch_record())
        if len(members) == len(self.members):  # nobody waits for a target, and no interval begins
            changes.append(streams_recording.make_target_epoch_record(self.group_id, self.epoch + 1, 0))
        self.append_changes(changes)
        for member in members:
            self.timers.cancel_timers(member.member_id)
        if not self.members:
            self.shutdown_member_id = None

    def restart_timers_after_load(self) -> None:
        for member in list(self.members.values()):
            self.restart_session_timeout(member.member_id)
            self.schedule_rebalance_timeout(member)

    def schedule_rebalance_timeout(self, member: StreamsMember) -> None:
        """Start the rebalance timeout of a member that must revoke tasks, or cancel it."""
        if member.state is MemberState.UNREVOKED_TASKS:
            self.schedule_revocation_timeout(member, "tasks")
        else:
            self.timers.cancel_timers(member.member_id, TimerPurpose.REVOCATION)

    def begin_initial_rebalance_delay(self, callback: Callable[[], None]) -> None:
        """Call `callback` after `streams.initial.rebalance.delay.ms`, unless that is 0 or runs already."""
        delay_ms = get_group_config(self.context.cluster, self.group_id, "streams.initial.rebalance.delay.ms")
        if delay_ms and self.initial_delay is None:

            def end_initial_delay() -> None:
                self.initial_delay = None
                callback()

            self.initial_delay = self.clock.call_later(delay_ms, end_initial_delay)

    def cancel_initial_rebalance_delay(self) -> None:
        """Cancel the initial rebalance delay, if it runs."""
        if self.initial_delay is not None:
            self.initial_delay.cancel()
            self.initial_delay = None

    # --- the fold -------------------------------------------------------------------------------

    def _apply_group_epoch_record(self, key: Message, value: messages.StreamsGroupMetadataValue) -> None:
        self.epoch = value.epoch
        self.metadata_hash = value.metadata_hash
        self.validated_epoch = value.validated_topology_epoch
        self.assignment_configs = {each.key: each.value for each in value.last_assignment_configs or ()}

    def _apply_topology_record(self, key: Message, value: messages.StreamsGroupTopologyValue | None) -> None:
        self.topology = None if value is None else Topology(value)
        self.configured = None

    def _apply_member_metadata_record(self, key: messages.StreamsGroupMemberMetadataKey, value: Any) -> None:
        if value is None:
            self.remove_member(key.member_id)
        else:
            self.add_or_replace_member(
                (self.members.get(key.member_id) or StreamsMember(key.member_id)).with_recorded_metadata(value)
            )

    def _apply_target_epoch_record(self, key: Message, value: Any) -> None:
        self.assignment_epoch = FIRST_EPOCH if value is None else value.assignment_epoch
        self.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp

    def _apply_target_assignment_record(self, key: messages.StreamsGroupTargetAssignmentMemberKey, value: Any) -> None:
        if value is None:
            self.target.pop(key.member_id, None)
        else:
            self.target[key.member_id] = Tasks(
                parse_task_set(value.active_tasks),
                parse_task_set(value.standby_tasks),
                parse_task_set(value.warmup_tasks),
            )

    def _apply_current_assignment_record(
        self, key: messages.StreamsGroupCurrentMemberAssignmentKey, value: Any
    ) -> None:
        member = self.members.get(key.member_id)
        if value is not None:
            self.add_or_replace_member((member or StreamsMember(key.member_id)).with_recorded_assignment(value))
        elif member is not None:
            gone = LEAVING_EPOCH
            nothing = NOTHING_ASSIGNED
            self.add_or_replace_member(
                member._replace(epoch=gone, previous_epoch=gone, assigned=nothing, pending_revocation=nothing)
            )

    def remove_member(self, member_id: str) -> None:
        super().remove_member(member_id)
        self.task_offsets.pop(member_id, None)
        self.warms_up.pop(member_id, None)

    def record_owned_partitions(self, member: StreamsMember) -> None:
        for tasks in (member.assigned, member.pending_revocation):
            self.active_owners.update(dict.fromkeys(iterate_tasks(tasks.active), member.member_id))
            for task in iterate_tasks(tasks.standby):
                self.standby_keepers.setdefault(task, set()).add(member.member_id)
            for task in iterate_tasks(tasks.warmup):
                self.warmup_keepers.setdefault(task, set()).add(member.member_id)

    def forget_partitions_owned_by_member(self, member_id: str) -> None:
        member = self.members.get(member_id)
        for tasks in () if member is None else (member.assigned, member.pending_revocation):
            for task in iterate_tasks(tasks.active):
                if self.active_owners.get(task) == member_id:
                    del self.active_owners[task]
            for task in iterate_tasks(tasks.standby):
                _remove_member_of_task(self.standby_keepers, task, member_id)
            for task in iterate_tasks(tasks.warmup):
                _remove_member_of_task(self.warmup_keepers, task, member_id)

    def get_target_of_member(self, member_id: str) -> Tasks:
        """Return the target of a member."""
        return self.target.get(member_id, NO_TASKS)

    applied = {
        messages.StreamsGroupMetadataKey: _apply_group_epoch_record,
        messages.StreamsGroupTopologyKey: _apply_topology_record,
        messages.StreamsGroupMemberMetadataKey: _apply_member_metadata_record,
        messages.StreamsGroupTargetAssignmentMetadataKey: _apply_target_epoch_record,
        messages.StreamsGroupTargetAssignmentMemberKey: _apply_target_assignment_record,
        messages.StreamsGroupCurrentMemberAssignmentKey: _apply_current_assignment_record,
    }


def _remove_member_of_task(members_by_task: dict[TaskId, set[str]], task: TaskId, member_id: str) -> None:
    members = members_by_task.get(task, set())
    members.discard(member_id)
    if not members:
        members_by_task.pop(task, None)


def _make_stale_epoch_error(message: str) -> KafkaError:
    return KafkaError(ErrorCode.STALE_MEMBER_EPOCH, message)
