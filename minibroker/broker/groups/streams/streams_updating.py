"""A change of a streams group: the records so far, and what the group will be with them.

Nothing changes before `Update.append_changes`, which appends all records or none.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from minibroker.broker.clock import run_steps_in_slices
from minibroker.broker.configs.group_settings import RACK_TAGS, get_group_config
from minibroker.broker.groups.consumer.subscriptions import hash_topic_metadata
from minibroker.broker.groups.group import Group
from minibroker.broker.groups.group_entries import GroupChange
from minibroker.broker.groups.heartbeats import JOINING_EPOCH
from minibroker.broker.groups.reconciling_group import GroupState
from minibroker.broker.groups.streams import streams_recording
from minibroker.broker.groups.streams.streams_assignor import MemberSpecification, assign_tasks
from minibroker.broker.groups.streams.streams_group import NOT_VALIDATED, StreamsGroup
from minibroker.broker.groups.streams.streams_member import StreamsMember
from minibroker.broker.groups.streams.streams_reconciliation import TaskReconciliationState, reconcile_member
from minibroker.broker.groups.streams.streams_validation import check_owned_tasks
from minibroker.broker.groups.streams.task_offsets import NO_OFFSETS, TaskOffsets
from minibroker.broker.groups.streams.tasks import NO_TASKS, TaskId, Tasks
from minibroker.broker.groups.streams.topology import (
    ConfiguredTopology,
    HeartbeatStatus,
    ReportedTopology,
    Topology,
    TopologyProblem,
    configure_topology,
    parse_topology,
)
from minibroker.broker.groups.streams.warm_ups import (
    FIRST_WITH_WARM_UPS,
    WarmUpSettings,
    WarmUpSituation,
    WarmUpStep,
    choose_next_warm_up_step,
)
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.streams_groups import StreamsGroupHeartbeatRequest
from minibroker.protocol.steps import Steps, run_all_steps, split_into_portions

log = logging.getLogger("minibroker.groups")

SMALL = 500  # tasks and members: their assignment takes some 5 ms
PORTION = 20  # records of members' targets, which are appended together
STANDBY_REPLICAS = "num.standby.replicas"  # as its value is recorded


class CurrentTarget(NamedTuple):
    """What a member is brought nearer to now."""

    epoch: int
    tasks: Tasks


class StreamsGroupUpdate:
    """A change of `group`, which may take the place of another group (`replaced`).

    `status` is what the answer to the heartbeat says about the group.
    """

    def __init__(self, group: StreamsGroup, replaced: Group | None = None) -> None:
        self.group = group
        self.status: list[TopologyProblem] = []
        self.members = dict(group.members)
        self.configured: ConfiguredTopology | None = group.configured
        self._replaced = replaced
        self._changes: list[GroupChange] = []
        self._topology = group.topology
        self._target = group.target
        self._epoch = group.epoch
        self._changed = False  # whether another epoch must begin
        self._metadata_hash = group.metadata_hash
        self._assigns_later = False
        self._gone: list[str] = []  # ids of static members that have others now
        self._assignment_epoch = group.assignment_epoch
        self._refines = group.refining_epoch == group.epoch
        self._step = group.step
        self._offsets: dict[str, TaskOffsets] = {}  # of the member that sends a heartbeat,
        self._warms_up: dict[str, bool] = {}  # as this
        self._cluster = group.context.cluster

    # --- members and topology ---------------------------------------------------------------------

    def record_member_if_changed(self, before: StreamsMember, member: StreamsMember) -> None:
        """Record a member's metadata if it is new or differs from `before`."""
        if member != before or member.member_id not in self.members:
            self._changes.append(streams_recording.make_member_metadata_record(self.group.group_id, member))
            self._changed = True
        self.members[member.member_id] = member

    def replace_static_member(self, member: StreamsMember, member_id: str) -> StreamsMember:
        """Give a static member that joins again a new id, with its target and tasks; return it."""
        group_id, target = self.group.group_id, self.group.get_target_of_member(member.member_id)
        replacement = member._replace(member_id=member_id, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)
        del self.members[member.member_id]
        self._gone.append(member.member_id)
        self.members[member_id] = replacement
        self._target = {key: tasks for key, tasks in self._target.items() if key != member.member_id}
        self._target[member_id] = target
        self._step = None  # it has the other id
        self._changes += [
            *streams_recording.make_member_tombstones(group_id, member.member_id),
            streams_recording.make_member_metadata_record(group_id, replacement),
            streams_recording.make_target_assignment_record(group_id, member_id, target),
            streams_recording.make_current_assignment_record(group_id, replacement),
        ]
        return replacement

    def remember_reported_task_offsets(self, request: StreamsGroupHeartbeatRequest, version: int) -> None:
        """Keep the task offsets that a heartbeat reports. Raises KafkaError(INVALID_REQUEST)."""
        member_id, said, ends = request.member_id, request.task_offsets, request.task_end_offsets
        if said is not None or ends is not None:
            self._offsets[member_id] = self._get_task_offsets(member_id).make_updated_offsets(said, ends)
        self._warms_up[member_id] = version >= FIRST_WITH_WARM_UPS

    def check_or_set_topology(self, reported_topology: ReportedTopology | None, member: StreamsMember) -> None:
        """Take the topology of the first member to join; later members must report the same, or an older one.

        Raises KafkaError: INVALID_REQUEST, STREAMS_INVALID_TOPOLOGY.
        """
        if reported_topology is not None:
            topology = parse_topology(reported_topology)
            if self._topology is None:
                self._topology, self.configured = topology, None
                self._changes.append(streams_recording.make_topology_record(self.group.group_id, topology))
            elif self._topology.epoch <= topology.epoch and self._topology != topology:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
        present = self.group.topology
        if present is not None and member.topology_epoch < present.epoch:
            detail = f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch "
            self.status.append(TopologyProblem(HeartbeatStatus.STALE_TOPOLOGY, f"{detail}{present.epoch}."))

    def refresh_topology_topics(self, owned_tasks: Tasks | None) -> None:
        """Look up the topology's topics if metadata has changed. Raises KafkaError if it lacks one of `owned_tasks`."""
        topology, image = self._get_known_topology(), self._cluster.image
        if self.configured is None or self.group.looked_at_commit != self._cluster.commits:
            found = hash_topic_metadata(topology.topic_names, image)
            self._changed = self._changed or found != self._metadata_hash
            if self.configured is None or found != self._metadata_hash:
                self.configured = configure_topology(topology, image)
            self._metadata_hash = found
        if self.configured.is_ready:
            check_owned_tasks(owned_tasks, self.configured)

    def _get_known_topology(self) -> Topology:
        if self._topology is None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The group has no topology.")
        return self._topology

    # --- epochs and targets -------------------------------------------------------------------------

    def begin_group_epoch_if_changed(self, member_id: str) -> None:
        """Begin another epoch if members, topology, topics or the settings of the assignor have changed.

        Begin one as well if this member's heartbeat allows another step to the target.
        """
        group, topology = self.group, self._get_known_topology()
        configs = {STANDBY_REPLICAS: str(self.get_group_config("streams.num.standby.replicas"))}
        if tags := self.get_group_config(RACK_TAGS):
            configs[RACK_TAGS.removeprefix("streams.")] = ",".join(tags)
        validated = topology.epoch if self.configured and self.configured.is_ready else NOT_VALIDATED
        if self._changed or validated != group.validated_epoch or configs != group.assignment_configs:
            self._refines = False
        elif self._may_begin_next_warm_up_step(member_id):
            self._refines = True
        else:
            return
        self._epoch += 1
        self._changes.append(
            streams_recording.make_group_epoch_record(
                group.group_id, self._epoch, self._metadata_hash, validated, configs
            )
        )

    def get_group_config(self, name: str) -> Any:
        """Return a config of the group."""
        return get_group_config(self._cluster, self.group.group_id, name)

    def _may_begin_next_warm_up_step(self, member_id: str) -> bool:
        """Return whether a heartbeat of this member begins the next step of warm-ups on the way to the target."""
        step = self.group.step
        return (
            step is not None
            and step.epoch == self.group.epoch
            and step.allows_next_step(member_id, self._get_task_offsets(member_id), self._make_warm_up_settings())
            and self.group.state_name == GroupState.STABLE
        )

    def _make_warm_up_settings(self) -> WarmUpSettings:
        """Return the group's number of warm-ups and acceptable recovery lag."""
        return WarmUpSettings(
            self.get_group_config("streams.num.warmup.replicas"),
            self.get_group_config("streams.acceptable.recovery.lag"),
        )

    def find_or_make_current_target(self, member: StreamsMember) -> CurrentTarget | None:
        """Return the member's present tasks and their epoch; None if they are still to be computed in later turns.

        Make a new target first if it is due and small.
        """
        if self.group.initial_delay is not None:
            self._report_assignment_delayed("initial rebalance delay")
            return CurrentTarget(self._assignment_epoch, NO_TASKS)
        if self._must_delay_target():
            self._report_assignment_delayed("assignment interval")
        self._assigns_later = self.is_target_or_warm_up_step_due and not self._is_small_assignment()
        if self._is_target_due and not self._assigns_later:
            run_all_steps(self._assign_tasks_or_keep_target())
        step = self._current_warm_up_step
        if step is None and self._assigns_later and member.epoch != JOINING_EPOCH:
            return None
        tasks = (step or run_all_steps(self._choose_warm_up_step())).tasks.get(member.member_id)
        target = self._target.get(member.member_id, NO_TASKS) if tasks is None else tasks
        return CurrentTarget(self._assignment_epoch, target)

    @property
    def is_target_or_warm_up_step_due(self) -> bool:
        """Whether a target has to be made, or the next step of warm-ups on the way to it has to be planned."""
        return self._is_target_due or self._current_warm_up_step is None

    @property
    def _current_warm_up_step(self) -> WarmUpStep | None:
        """The step of warm-ups on the way to the current target, None if it is not planned yet."""
        return self._step if self._step is not None and self._step.epoch == self._assignment_epoch else None

    @property
    def _is_target_due(self) -> bool:
        """Whether the group's epoch has no target yet, and the assignment interval is over."""
        return self._epoch > self._assignment_epoch and not self._must_delay_target()

    def _is_small_assignment(self) -> bool:
        """Return whether an assignment is so fast that it is made within the heartbeat that needs it."""
        return len(self.members) + sum(1 for _ in islice(self._list_tasks(), SMALL)) < SMALL

    def _list_tasks(self, *, stateful_only: bool = False) -> Iterable[TaskId]:
        """Return the topology's tasks; none while a topic is missing."""
        found = self.configured
        return found.iterate_task_ids(stateful_only=stateful_only) if found is not None and found.is_ready else ()

    def _must_delay_target(self) -> bool:
        """Return whether a new target must wait for the assignment interval; the next step of warm-ups need not."""
        if self._refines or self._epoch == self._assignment_epoch:
            return False
        interval_ms = self.get_group_config("streams.assignment.interval.ms")
        last_ms = self.group.assignment_timestamp_ms
        return bool(last_ms and interval_ms and self._cluster.clock.wall_ms() < last_ms + interval_ms)

    def _report_assignment_delayed(self, reason: str) -> None:
        """Add the status ASSIGNMENT_DELAYED to the answer."""
        detail = f"Assignment delayed due to the configured {reason}."
        self.status.append(TopologyProblem(HeartbeatStatus.ASSIGNMENT_DELAYED, detail))

    def make_target_assignment_if_due(self) -> Steps[None]:
        """Make a target for the group's epoch if it is due, and plan the next step of warm-ups on the way to it."""
        if self._is_target_due:
            yield from self._assign_tasks_or_keep_target()
        yield from self._choose_warm_up_step()

    def _assign_tasks_or_keep_target(self) -> Steps[None]:
        """Make a target for the group's epoch; if the epoch began only for a step of warm-ups, keep the old one."""
        made_ms = self.group.assignment_timestamp_ms
        if not self._refines:
            yield from self._make_target_assignment()
            made_ms = self._cluster.clock.wall_ms()
        self._changes.append(streams_recording.make_target_epoch_record(self.group.group_id, self._epoch, made_ms))
        self._assignment_epoch = self._epoch

    def _choose_warm_up_step(self) -> Steps[WarmUpStep]:
        """Choose the next step of warm-ups, and keep it in the update."""
        found = self.configured.subtopologies or {} if self.configured and self.configured.is_ready else {}
        situation = WarmUpSituation(
            self.members,
            self._target,
            {name for name, each in found.items() if each.is_stateful},
            self._collect_task_offsets(),
            {**self.group.warms_up, **self._warms_up},
        )
        step = self._step = yield from choose_next_warm_up_step(
            situation, self._assignment_epoch, self._make_warm_up_settings()
        )
        return step

    def _collect_task_offsets(self) -> dict[str, TaskOffsets]:
        """Return the task offsets of all members, by member id, with those that this heartbeat reports."""
        return {**self.group.task_offsets, **self._offsets}

    def _get_task_offsets(self, member_id: str) -> TaskOffsets:
        return self._offsets.get(member_id) or self.group.task_offsets.get(member_id, NO_OFFSETS)

    def _make_target_assignment(self) -> Steps[None]:
        """Make a target: without tasks while a topic is missing."""
        offsets = self._collect_task_offsets()
        members = {
            member_id: MemberSpecification(
                member.process_id,
                self._target.get(member_id, NO_TASKS),
                offsets.get(member_id, NO_OFFSETS).restored,
            )
            for member_id, member in self.members.items()
        }
        stateful = self._list_tasks(stateful_only=True)
        target = yield from assign_tasks(
            members, self._list_tasks(), stateful, self.get_group_config("streams.num.standby.replicas")
        )
        for member_id, tasks in target.items():
            if self._target.get(member_id) != tasks:
                self._changes.append(
                    streams_recording.make_target_assignment_record(self.group.group_id, member_id, tasks)
                )
                yield
        self._target = target

    # --- one member -------------------------------------------------------------------------------

    def reconcile_member(
        self, member: StreamsMember, target: CurrentTarget | None, owned_tasks: Tasks | None, *, in_place: bool
    ) -> StreamsMember:
        """Return the member on the way to its target, and record it; it reports to run `owned_tasks`.

        With `in_place`, a task that the member keeps changes its role without being revoked.
        """
        if target is None:
            return member
        group, process_id = self.group, member.process_id
        after = reconcile_member(
            member,
            TaskReconciliationState(
                target.epoch,
                target.tasks,
                owned_tasks,
                group.is_task_active,
                partial(group.is_task_active_in_process, process_id),
                partial(group.is_task_standby_in_process, process_id),
                partial(group.is_task_warmup_in_process, process_id),
                in_place,
            ),
        )
        if after != member:
            self._changes.append(streams_recording.make_current_assignment_record(group.group_id, after))
        return after

    def append_changes(self) -> None:
        """Append the records of the update, and apply them to the group. Raises KafkaError, and nothing has changed."""
        commits = self._cluster.commits
        self.group.append_changes(self._changes, self._replaced)
        self.group.configured = self.configured
        self.group.looked_at_commit = commits
        for member_id in self._gone:
            self.group.timers.cancel_timers(member_id)
        for member_id, offsets in self._offsets.items():
            self.group.remember_task_offsets(member_id, offsets)
        self.group.warms_up.update(self._warms_up)
        self._set_warm_up_step_of_group()
        if self._assigns_later:
            make_target_assignments_soon(self.group)

    def _set_warm_up_step_of_group(self) -> None:
        """Give the group the update's step of warm-ups."""
        self.group.step = self._step
        if self._refines:
            self.group.refining_epoch = self._epoch

    def append_changes_in_portions(self) -> Steps[None]:
        """Append and apply the records of a target, few at a time; stop if the group has changed meanwhile.

        The last record makes the target valid. What is there of it before is the start of the next one.
        """
        for portion in split_into_portions(self._changes, PORTION):
            if self.is_obsolete:
                return
            self.group.append_changes(portion)
            yield
        if not self.is_obsolete:
            self._set_warm_up_step_of_group()

    @property
    def is_obsolete(self) -> bool:
        """Whether the group's epoch has changed since the update began, or another group has replaced the group."""
        return self.group.epoch != self._epoch or self.group.context.groups.get(self.group.group_id) is not self.group


# --- large groups ---------------------------------------------------------------------------------


def make_target_assignments_soon(group: StreamsGroup) -> None:
    """Run `make_target_assignments` in later turns of the loop, unless it runs already."""
    if not group.is_assigning:
        group.is_assigning = True
        cluster = group.context.cluster
        cluster.clock.call_later(0, lambda: run_steps_in_slices(cluster.clock, make_target_assignments(group)))


def make_target_assignments(group: StreamsGroup) -> Steps[None]:
    """Make targets until there is one for the group's present epoch."""
    try:
        while (
            not group.is_empty
            and group.configured is not None
            and (update := StreamsGroupUpdate(group)).is_target_or_warm_up_step_due
        ):
            yield from update.make_target_assignment_if_due()
            yield from update.append_changes_in_portions()
            if group.context.groups.get(group.group_id) is not group:
                return
    except KafkaError as error:
        log.error("group %s: its assignment cannot be recorded: %s", group.group_id, error)
    finally:
        group.is_assigning = False


def keep_assignment_of_leaving_static_member(group: StreamsGroup, member: StreamsMember, epoch: int) -> None:
    """Keep the tasks of a static member that leaves for a while, until its session ends. Raises KafkaError."""
    active = {each: dict.fromkeys(epochs, 0) for each, epochs in member.assigned.active.items()}
    away = member._replace(
        epoch=epoch, assigned=member.assigned._replace(active=active), pending_revocation=type(member.assigned)()
    )
    changes: Sequence[GroupChange] = [streams_recording.make_current_assignment_record(group.group_id, away)]
    group.append_changes(changes)
    group.schedule_rebalance_timeout(away)
