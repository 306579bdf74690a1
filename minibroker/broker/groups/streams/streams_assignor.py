"""The sticky assignor, Kafka's only one for streams groups: who runs which task, and who keeps its state as a standby.

Active tasks are balanced among members, with as few moves as possible: a task stays with the member that has it, else
it goes to one that has its state as a standby, else to one that reports an offset of it and so has some state on its
disk (Kafka 4.4), else to the process with the least load. Standbys are in other processes than the task and each other;
members of one process share its state directory. What happens until a task has moved is in `warm_ups`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from minibroker.broker.groups.streams.tasks import NO_TASKS, TaskId, Tasks, group_by_subtopology, iterate_tasks
from minibroker.protocol.steps import Steps, split_into_portions

log = logging.getLogger("minibroker.groups")

NAME = "sticky"


class MemberSpecification(NamedTuple):
    """A member for the assignor: its process, the tasks of its present target, and the offsets that it reports."""

    process_id: str
    tasks: Tasks = NO_TASKS
    offsets: Mapping[TaskId, int] = {}


class _Process:
    """A process with the numbers of tasks of its members."""

    def __init__(self, process_id: str) -> None:
        self.process_id = process_id
        self.counts: dict[str, int] = {}
        self.tasks: set[TaskId] = set()
        self.load = 0.0

    def add_task_to_member(self, member_id: str, task: TaskId) -> int:
        """Add a task to a member; return how many it has then."""
        self.tasks.add(task)
        self.counts[member_id] += 1
        self.load = sum(self.counts.values()) / len(self.counts)
        return self.counts[member_id]

    @property
    def load_rank(self) -> tuple[float, int]:
        """Return a key that sorts processes by load: tasks per member, then the fewest tasks of a member."""
        return self.load, min(self.counts.values())

    def find_least_loaded_member(self) -> str:
        """Return the member with the fewest tasks."""
        return min(self.counts, key=lambda member_id: self.counts[member_id])


class _Quota:
    """How many tasks a member may have: equal shares of what is left for the members that have not got theirs."""

    def __init__(self, task_count: int, member_count: int) -> None:
        self._tasks = task_count
        self._members = member_count
        self.value = -(-task_count // member_count)

    def update_if_member_is_full(self, task_count: int) -> None:
        """If a member's new number of tasks is its full quota, compute the quota of the others from what is left."""
        if task_count == self.value:
            self._members -= 1
            self._tasks -= task_count
            self.value = -(-self._tasks // self._members) if self._members else 0


class _Assignment:
    def __init__(
        self, members: Mapping[str, MemberSpecification], tasks: list[TaskId], stateful: list[TaskId], standbys: int
    ) -> None:
        self._processes: dict[str, _Process] = {}
        self._process_of: dict[str, _Process] = {}
        for member_id, member in members.items():
            process = self._processes.setdefault(member.process_id, _Process(member.process_id))
            process.counts[member_id] = 0
            self._process_of[member_id] = process
        self._standby_count = standbys
        self._active_quota = _Quota(len(tasks), len(members))
        self._quota = _Quota(len(tasks) + len(stateful) * standbys, len(members))
        self._had_active = {task: each for each, one in members.items() for task in iterate_tasks(one.tasks.active)}
        self._had_standby: dict[TaskId, list[str]] = {}
        self.active: dict[str, list[TaskId]] = {member_id: [] for member_id in members}
        self.standby: dict[str, list[TaskId]] = {member_id: [] for member_id in members}

    # --- who has state ----------------------------------------------------------------------------

    def collect_previous_owners(self, members: Mapping[str, MemberSpecification]) -> Steps[None]:
        """Collect who has state of each task: first members that had it as a standby, then others, by their offsets."""
        candidates: dict[TaskId, list[tuple[bool, int, str]]] = {}
        for member_id, member in members.items():
            standbys = {*iterate_tasks(member.tasks.standby), *iterate_tasks(member.tasks.warmup)}
            for portion in split_into_portions([*standbys, *(member.offsets.keys() - standbys)]):
                for task in portion:
                    rank = task not in standbys, -member.offsets.get(task, 0), member_id
                    candidates.setdefault(task, []).append(rank)
                yield
        for some in split_into_portions(list(candidates.items())):
            for task, ranks in some:
                self._had_standby[task] = [member_id for *_, member_id in sorted(ranks)]
            yield

    # --- active tasks -----------------------------------------------------------------------------

    def assign_active_tasks(self, tasks: Iterable[TaskId]) -> Steps[None]:
        """Assign each task to one member."""
        left = sorted(tasks, key=lambda task: (task.partition, task.subtopology_id))
        for had in (self._had_active.get, self._find_least_loaded_member):
            others = []
            for portion in split_into_portions(left):
                others += [task for task in portion if not self._assign_active_unless_full(had(task), task)]
                yield
            left = others
        heap = self._make_heap_of_processes()
        for portion in split_into_portions(sorted(left)):
            for task in portion:
                *_, position, process = heappop(heap)
                self._add_active_task(process.find_least_loaded_member(), task)
                heappush(heap, (*process.load_rank, position, process))
            yield

    def _assign_active_unless_full(self, member_id: str | None, task: TaskId) -> bool:
        """Assign an active task to a member unless its quota is reached; return whether that was done."""
        if member_id is None or self._process_of[member_id].counts[member_id] >= self._active_quota.value:
            return False
        self._add_active_task(member_id, task)
        return True

    def _add_active_task(self, member_id: str, task: TaskId) -> None:
        self.active[member_id].append(task)
        has = self._process_of[member_id].add_task_to_member(member_id, task)
        self._active_quota.update_if_member_is_full(has)
        self._quota.update_if_member_is_full(has)

    def _find_least_loaded_member(self, task: TaskId, *, without_task: bool = False) -> str | None:
        """Return the member with the least load of those that had state of the task, or None if nobody had.

        With `without_task`, leave out members whose process has the task already.
        """
        found, least = None, (0.0, 0)
        for member_id in self._had_standby.get(task, ()):
            process = self._process_of[member_id]
            load, count = process.load, process.counts[member_id]
            if without_task and task in process.tasks:
                continue
            if found is None or (load < least[0] and count < least[1]):
                found, least = member_id, (load, count)
        return found

    def _make_heap_of_processes(self) -> list[tuple[float, int, int, _Process]]:
        """Return a heap of (load, fewest tasks of a member, position, process), the least loaded first."""
        heap = [(*process.load_rank, position, process) for position, process in enumerate(self._processes.values())]
        heapify(heap)
        return heap

    # --- standbys ---------------------------------------------------------------------------------

    def assign_standby_tasks(self, tasks: Iterable[TaskId]) -> Steps[None]:
        """Assign the standbys of each task, to different processes as long as there are any."""
        left: list[tuple[TaskId, int]] = []
        for portion in split_into_portions(
            sorted(tasks, key=lambda task: (task.partition, task.subtopology_id), reverse=True)
        ):
            for task in portion:
                missing = self._assign_standbys_to_previous_owners(task)
                if missing:
                    left.append((task, missing))
            yield
        heap, short = self._make_heap_of_processes(), 0
        for some in split_into_portions(sorted(left, reverse=True)):
            for task, missing in some:
                short += missing - sum(self._assign_standby_to_least_loaded(heap, task) for _ in range(missing))
                yield
        if short:
            log.info("%d standby tasks are not assigned, as each needs another process than its task", short)

    def _assign_standbys_to_previous_owners(self, task: TaskId) -> int:
        """Assign standbys of a task to members that have state of it; return how many more are needed."""
        for given in range(self._standby_count):
            if not (
                self._assign_standby_unless_present(self._had_active.get(task), task)
                or self._assign_standby_unless_present(self._find_least_loaded_member(task, without_task=True), task)
            ):
                return self._standby_count - given
        return 0

    def _assign_standby_unless_present(self, member_id: str | None, task: TaskId) -> bool:
        """Assign a standby unless the process has the task, or the member a full quota; return whether it was done."""
        process = None if member_id is None else self._process_of[member_id]
        if member_id is None or process is None or task in process.tasks:
            return False
        if process.counts[member_id] >= self._quota.value:
            return False
        self._add_standby_task(member_id, task)
        return True

    def _assign_standby_to_least_loaded(self, heap: list[tuple[float, int, int, _Process]], task: TaskId) -> bool:
        """Assign a standby to the least loaded process without the task; return False if there is no such process."""
        passed, found = [], False
        while heap and not found:
            *_, position, process = heappop(heap)
            if task not in process.tasks:
                self._add_standby_task(process.find_least_loaded_member(), task)
                found = True
            passed.append((*process.load_rank, position, process))
        for each in passed:
            heappush(heap, each)
        return found

    def _add_standby_task(self, member_id: str, task: TaskId) -> None:
        self.standby[member_id].append(task)
        self._quota.update_if_member_is_full(self._process_of[member_id].add_task_to_member(member_id, task))


def assign_tasks(
    members: Mapping[str, MemberSpecification],
    tasks: Iterable[TaskId],
    stateful_tasks: Iterable[TaskId],
    standby_count: int,
) -> Steps[dict[str, Tasks]]:
    """Return the target of each member. `stateful_tasks` are the tasks that have `standby_count` standbys each."""
    if not members:
        return {}
    every, kept = list(tasks), list(stateful_tasks) if standby_count else []
    members = dict(sorted(members.items()))
    assignment = _Assignment(members, every, kept, standby_count)
    yield from assignment.collect_previous_owners(members)
    yield from assignment.assign_active_tasks(every)
    yield from assignment.assign_standby_tasks(kept)
    target: dict[str, Tasks] = {}
    for portion in split_into_portions(list(members)):
        for member_id in portion:
            active, standby = assignment.active[member_id], assignment.standby[member_id]
            target[member_id] = Tasks(group_by_subtopology(active), group_by_subtopology(standby))
        yield
    return target
