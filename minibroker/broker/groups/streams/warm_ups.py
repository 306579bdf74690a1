"""Warm-ups: how a streams group gets to its target while its tasks go on (KIP-1071, KIP-441).

The assignor decides where a task belongs. If another member runs the task now, and its new owner has nothing of its
state, the task stays until a warm-up at the new owner has restored the state: that lacks at most
`streams.acceptable.recovery.lag` offsets then. At most `streams.num.warmup.replicas` warm-ups run at a time; further
tasks wait. So a group gets to its target in steps, each in an epoch of its own, and each chosen for the whole group.

    target: the task at b       step 1: a runs it, b warms it up       step 2, when b has caught up: b runs it

A task moves at once if it has no changelog, nobody runs it, its owner is still restoring it, or a member of the new
process has caught up. A standby at the new owner takes a warm-up's place. Steps are kept in memory only: after a
restart they follow from what members have, and warm-ups go on.

Only members that speak version 1 of StreamsGroupHeartbeat report how far they are; others get their tasks at once.
Apache Kafka 4.4.0 has these settings, offsets and epochs, but its step is always the target itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from minibroker.broker.groups.streams.streams_member import StreamsMember
from minibroker.broker.groups.streams.task_offsets import NO_OFFSETS, TaskOffsets
from minibroker.broker.groups.streams.tasks import (
    NO_TASKS,
    AnyTasks,
    TaskId,
    Tasks,
    TaskSet,
    contains_task,
    group_by_subtopology,
    iterate_tasks,
)
from minibroker.protocol.steps import Steps, split_into_portions

FIRST_WITH_WARM_UPS = 1  # version of StreamsGroupHeartbeat


class WarmUpSettings(NamedTuple):
    """The group's settings: how many warm-ups run at a time, and how many offsets a member may lack."""

    warm_ups: int
    acceptable_lag: int


class WarmUpStep(NamedTuple):
    """The step to the target of an epoch: the tasks of the members for which it is not the target itself.

    `awaited` has the tasks that begin to move when the member has caught up. Of the members in `unheard` it is not
    known yet whether they can have warm-ups.
    """

    epoch: int
    settings: WarmUpSettings
    tasks: Mapping[str, Tasks] = {}
    awaited: Mapping[str, Set[TaskId]] = {}
    unheard: frozenset[str] = frozenset()

    def allows_next_step(self, member_id: str, offsets: TaskOffsets, settings: WarmUpSettings) -> bool:
        """Return whether to plan the next step: the member has caught up with a task, or reports for the first time."""
        if not self.tasks:
            return False
        if settings != self.settings or member_id in self.unheard:
            return True
        awaited = self.awaited.get(member_id, ())
        return any(offsets.is_caught_up(task, settings.acceptable_lag) for task in awaited)


class WarmUpSituation(NamedTuple):
    """What a step depends on. `warms_up` says of members that were heard of whether they can have warm-ups."""

    members: Mapping[str, StreamsMember]
    target: Mapping[str, Tasks]
    stateful: Set[str]  # ids of subtopologies
    offsets: Mapping[str, TaskOffsets]
    warms_up: Mapping[str, bool]


class _PostponedMove(NamedTuple):
    """A task that stays with its present owner for now."""

    task: TaskId
    owner_id: str
    target_id: str


class _Process:
    """A process: its members, and how many tasks with state they have."""

    def __init__(self) -> None:
        self.members: list[StreamsMember] = []
        self.count = 0

    @property
    def tasks_per_member(self) -> float:
        """Return how many stateful tasks the process has for each of its members."""
        return self.count / len(self.members)


class _MemberTaskChanges:
    """What is other than in the target, for one member."""

    def __init__(self) -> None:
        self.active: set[TaskId] = set()
        self.not_active: set[TaskId] = set()
        self.standby: set[TaskId] = set()
        self.not_standby: set[TaskId] = set()
        self.warmup: set[TaskId] = set()

    def apply_to_tasks(self, target: Tasks) -> Tasks:
        """Return the member's tasks in this step: those of its target after the changes."""
        return Tasks(
            _add_and_remove_tasks(target.active, self.active, self.not_active),
            _add_and_remove_tasks(target.standby, self.standby, self.not_standby),
            group_by_subtopology(self.warmup),
        )


def _add_and_remove_tasks(tasks: TaskSet, added: Set[TaskId], removed: Set[TaskId]) -> TaskSet:
    """Return `tasks` with those that are added and without those that are removed."""
    return group_by_subtopology((set(iterate_tasks(tasks)) | added) - removed) if added or removed else tasks


def choose_next_warm_up_step(situation: WarmUpSituation, epoch: int, settings: WarmUpSettings) -> Steps[WarmUpStep]:
    """Return the next step on the way to the target: tasks stay with their owners until the new ones are caught up."""
    known = [situation.warms_up.get(member_id) for member_id in situation.members]
    may_warm_up = True in known or any(member.assigned.warmup for member in situation.members.values())
    if not settings.warm_ups or not may_warm_up or not situation.stateful:
        return WarmUpStep(epoch, settings)
    planner = _WarmUpStepPlanner(situation, settings)
    yield from planner.collect_task_owners()
    yield from planner.find_task_moves()
    planner.assign_warm_up_tasks()
    yield from planner.keep_tasks_with_owners()
    tasks = {
        member_id: patch.apply_to_tasks(situation.target.get(member_id, NO_TASKS))
        for member_id, patch in planner.patches.items()
    }
    return WarmUpStep(epoch, settings, tasks, planner.awaited, frozenset(planner.unheard))


class _WarmUpStepPlanner:
    def __init__(self, situation: WarmUpSituation, settings: WarmUpSettings) -> None:
        self._situation = situation
        self._settings = settings
        self._owners: dict[TaskId, str] = {}
        self._processes: dict[str, _Process] = {}
        self._moves: list[_PostponedMove] = []
        self._borrowed: set[TaskId] = set()
        self._kept: list[_PostponedMove] = []
        self._new: list[_PostponedMove] = []  # neither has anything of its state in its new process,
        self._beside: list[_PostponedMove] = []  # nor has another member of that process a standby
        self.patches: dict[str, _MemberTaskChanges] = {}
        self.awaited: dict[str, set[TaskId]] = {}
        self.unheard: set[str] = set()

    # --- what there is ----------------------------------------------------------------------------

    def collect_task_owners(self) -> Steps[None]:
        """Collect which member has which stateful tasks, without those that it is revoking."""
        for member in self._situation.members.values():
            process = self._processes.setdefault(member.process_id, _Process())
            process.members.append(member)
            active = list(self._iterate_stateful_tasks(member.assigned.active))
            for portion in split_into_portions(active):
                self._owners.update(dict.fromkeys(portion, member.member_id))
                yield
            process.count += len(active)
            for tasks in (member.assigned.standby, member.assigned.warmup):
                process.count += sum(1 for _ in self._iterate_stateful_tasks(tasks))
            yield

    def _iterate_stateful_tasks(self, tasks: AnyTasks) -> Iterator[TaskId]:
        return (task for task in iterate_tasks(tasks) if task.subtopology_id in self._situation.stateful)

    def _get_process_of_member(self, member_id: str) -> _Process:
        return self._processes[self._situation.members[member_id].process_id]

    def _iterate_members_with_copy(self, task: TaskId, process: _Process) -> Iterator[StreamsMember]:
        """Yield the members of a process that have the task as a standby or a warm-up."""
        return (
            member
            for member in process.members
            if contains_task(member.assigned.standby, task) or contains_task(member.assigned.warmup, task)
        )

    # --- which tasks stay for now -----------------------------------------------------------------

    def find_task_moves(self) -> Steps[None]:
        """Find the tasks that cannot move to their new owners yet, and how each move is prepared."""
        for target_id, tasks in sorted(self._situation.target.items()):
            if target_id not in self._situation.members:
                continue
            for portion in split_into_portions(sorted(self._iterate_stateful_tasks(tasks.active))):
                for task in portion:
                    owner_id = self._owners.get(task, target_id)
                    if owner_id != target_id and not self._may_move_task_now(task, owner_id, target_id):
                        self._postpone_move(_PostponedMove(task, owner_id, target_id))
                yield

    def _may_move_task_now(self, task: TaskId, owner_id: str, target_id: str) -> bool:
        """Return whether the target member's process has the task's state, or needs none to take it over."""
        situation, process = self._situation, self._get_process_of_member(target_id)
        if self._get_process_of_member(owner_id) is process or situation.warms_up.get(target_id) is False:
            return True
        if task in situation.offsets.get(owner_id, NO_OFFSETS).restored:
            return True  # offsets of an active task mean that its owner is still restoring it
        lag = self._settings.acceptable_lag
        return any(
            situation.offsets.get(member.member_id, NO_OFFSETS).is_caught_up(task, lag)
            for member in self._iterate_members_with_copy(task, process)
        )

    def _postpone_move(self, move: _PostponedMove) -> None:
        """Postpone a move until its target has the state: by a warm-up or standby that is there, or a new warm-up."""
        self._moves.append(move)
        copy = next(self._iterate_members_with_copy(move.task, self._get_process_of_member(move.target_id)), None)
        if copy is not None and contains_task(copy.assigned.warmup, move.task):
            self._kept.append(move)
        elif copy is not None and copy.member_id == move.target_id:
            self._use_standby_to_prepare_move(move, copy.member_id)
        elif move.target_id not in self._situation.warms_up:
            self.unheard.add(move.target_id)
        else:
            (self._new if copy is None else self._beside).append(move)

    def _use_standby_to_prepare_move(self, move: _PostponedMove, member_id: str) -> None:
        """Keep the standby of `member_id`, in the process that the task moves to, until it has caught up."""
        self._borrowed.add(move.task)
        self._get_changes_of_member(member_id).standby.add(move.task)
        self.awaited.setdefault(member_id, set()).add(move.task)

    # --- which moves get a warm-up ----------------------------------------------------------------

    def assign_warm_up_tasks(self) -> None:
        """Assign the permitted number of warm-ups to moves: first to those that have one already, then to new ones.

        A standby of another member of the new process prepares a move, too, but its state is closed before the task
        begins. Processes with little to do come first.
        """
        left = self._settings.warm_ups
        for move in sorted(self._kept, key=self._rank_move_by_load)[:left]:
            self._add_warm_up_task(move)
            left -= 1
        left = self._assign_new_warm_up_tasks(left)
        beside = sorted(self._beside, key=self._rank_move_by_load)
        for move in beside[:left]:
            self._add_warm_up_task(move)
        for move in beside[left:]:
            copy = next(self._iterate_members_with_copy(move.task, self._get_process_of_member(move.target_id)))
            self._use_standby_to_prepare_move(move, copy.member_id)

    def _assign_new_warm_up_tasks(self, slots_left: int) -> int:
        """Assign warm-ups to moves, least loaded processes first; return how many of `slots_left` are left."""
        heap = [(*self._rank_move_by_load(move), move) for move in self._new]
        heapify(heap)
        while heap and slots_left:
            load, *_, move = heappop(heap)
            process = self._get_process_of_member(move.target_id)
            if load < process.tasks_per_member:
                heappush(heap, (*self._rank_move_by_load(move), move))
                continue
            self._add_warm_up_task(move)
            process.count += 1
            slots_left -= 1
        return slots_left

    def _rank_move_by_load(self, move: _PostponedMove) -> tuple[float, float, TaskId]:
        """Return a key that sorts moves: least loaded new process first, then most loaded old process."""
        return (
            self._get_process_of_member(move.target_id).tasks_per_member,
            -self._get_process_of_member(move.owner_id).tasks_per_member,
            move.task,
        )

    def _add_warm_up_task(self, move: _PostponedMove) -> None:
        self._get_changes_of_member(move.target_id).warmup.add(move.task)
        self.awaited.setdefault(move.target_id, set()).add(move.task)

    # --- the tasks of the step ----------------------------------------------------------------------

    def _get_changes_of_member(self, member_id: str) -> _MemberTaskChanges:
        return self.patches.setdefault(member_id, _MemberTaskChanges())

    def keep_tasks_with_owners(self) -> Steps[None]:
        """Leave tasks whose move is postponed with their owners, and drop standbys that would be in the same process.

        The target may have a standby where the task stays: there is none, then. A borrowed standby takes the place of
        one that the target has elsewhere.
        """
        standbys = yield from self._list_target_standbys()
        for portion in split_into_portions(self._moves):
            for task, owner_id, target_id in portion:
                self._get_changes_of_member(owner_id).active.add(task)
                self._get_changes_of_member(target_id).not_active.add(task)
                process = self._get_process_of_member(owner_id)
                keepers = standbys.get(task, [])
                dropped = [each for each in keepers if self._get_process_of_member(each) is process]
                if not dropped and task in self._borrowed:
                    dropped = [each for each in keepers if not self._has_standby(each, task)][:1]
                for member_id in dropped:
                    self._get_changes_of_member(member_id).not_standby.add(task)
            yield

    def _has_standby(self, member_id: str, task: TaskId) -> bool:
        return contains_task(self._situation.members[member_id].assigned.standby, task)

    def _list_target_standbys(self) -> Steps[dict[TaskId, list[str]]]:
        """Return the members that are to keep standbys of the tasks that stay."""
        held = {move.task for move in self._moves}
        found: dict[TaskId, list[str]] = {}
        for member_id, tasks in sorted(self._situation.target.items()):
            if member_id not in self._situation.members:
                continue
            standbys: Iterable[TaskId] = iterate_tasks(tasks.standby)
            for portion in split_into_portions(list(standbys)):
                for task in held.intersection(portion):
                    found.setdefault(task, []).append(member_id)
                yield
        return found
