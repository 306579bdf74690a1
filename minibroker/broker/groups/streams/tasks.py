"""Tasks: a task is a partition of a subtopology. A member runs active ones, and keeps the state of others as a standby.

A warm-up restores a task's state before the task moves to its member (`warm_ups`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

TaskSet = Mapping[str, frozenset[int]]  # partitions by subtopology id
EpochTasks = Mapping[str, Mapping[int, int]]  # partitions by subtopology id, each with the epoch of its assignment


class TaskId(NamedTuple):
    """A task."""

    subtopology_id: str
    partition: int


class Tasks(NamedTuple):
    """The tasks of a member, by role."""

    active: TaskSet = {}
    standby: TaskSet = {}
    warmup: TaskSet = {}

    def has_common_task(self, others: AssignedTasks) -> bool:
        """Return whether any task, in its role, is also one of the others."""
        return (
            _have_common_task(self.active, others.active)
            or _have_common_task(self.standby, others.standby)
            or _have_common_task(self.warmup, others.warmup)
        )

    def is_subset_of(self, others: AssignedTasks) -> bool:
        """Return whether all tasks, in their roles, are among the others."""
        return (
            _is_subset_of(self.active, others.active)
            and _is_subset_of(self.standby, others.standby)
            and _is_subset_of(self.warmup, others.warmup)
        )


class AssignedTasks(NamedTuple):
    """The tasks that a member has, or must give up; active ones with the epoch of their assignment."""

    active: EpochTasks = {}
    standby: TaskSet = {}
    warmup: TaskSet = {}

    @property
    def is_empty(self) -> bool:
        """Whether there are no tasks."""
        return not (self.active or self.standby or self.warmup)


NO_TASKS = Tasks()
NOTHING_ASSIGNED = AssignedTasks()

AnyTasks = TaskSet | EpochTasks


def _have_common_task(tasks: TaskSet, others: AnyTasks) -> bool:
    return any(not partitions.isdisjoint(others.get(each, ())) for each, partitions in tasks.items())


def _is_subset_of(tasks: TaskSet, others: AnyTasks) -> bool:
    return all(partition in others.get(each, ()) for each, partitions in tasks.items() for partition in partitions)


def contains_task(tasks: AnyTasks, task: TaskId) -> bool:
    """Return whether the task is one of these."""
    return task.partition in tasks.get(task.subtopology_id, ())


def iterate_tasks(tasks: AnyTasks) -> Iterator[TaskId]:
    """Yield each task of these."""
    return (TaskId(each, partition) for each, partitions in tasks.items() for partition in partitions)


def group_by_subtopology(tasks: Iterable[TaskId]) -> TaskSet:
    """Return the tasks by subtopology."""
    found: dict[str, set[int]] = {}
    for subtopology_id, partition in tasks:
        found.setdefault(subtopology_id, set()).add(partition)
    return {subtopology_id: frozenset(partitions) for subtopology_id, partitions in found.items()}


class TaskIds(Protocol):
    """Tasks of one subtopology, as messages and records have them."""

    subtopology_id: str
    partitions: list[int]


def parse_task_set(task_ids: Iterable[TaskIds]) -> TaskSet:
    """Return the tasks of a message or a record."""
    found: dict[str, frozenset[int]] = {}
    for each in task_ids:
        if each.partitions:
            found[each.subtopology_id] = found.get(each.subtopology_id, frozenset()).union(each.partitions)
    return found
