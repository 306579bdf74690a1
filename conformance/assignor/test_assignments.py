"""The sticky assignor of streams groups beside Kafka's own class, for random groups that change.

Kafka breaks ties by the order of a hash map, so assignments differ. They are as balanced, and move as few tasks.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from typing import Any

from conformance.assignor.judge import answers, nested, partitions_of
from minibroker.broker.groups.streams.streams_assignor import MemberSpecification, assign_tasks
from minibroker.broker.groups.streams.tasks import TaskId, Tasks, iterate_tasks
from minibroker.protocol.steps import run_all_steps

GROUPS, CHANGES = 150, 3

Members = dict[str, MemberSpecification]
Subtopologies = dict[str, tuple[int, bool]]  # number of tasks, and whether they have state


class Case:
    """A group: its members with what they have, its subtopologies, and the number of standbys."""

    def __init__(self, members: Members, subtopologies: Subtopologies, standbys: int) -> None:
        self.members = members
        self.subtopologies = subtopologies
        self.standbys = standbys

    def tasks(self, *, stateful_only: bool = False) -> list[TaskId]:
        """Return the tasks."""
        return [
            TaskId(name, partition)
            for name, (count, stateful) in self.subtopologies.items()
            for partition in range(count)
            if stateful or not stateful_only
        ]

    def ours(self) -> dict[str, Tasks]:
        """Return our assignment."""
        return run_all_steps(assign_tasks(self.members, self.tasks(), self.tasks(stateful_only=True), self.standbys))

    def question(self) -> dict[str, Any]:
        """Return the group as the judge reads it."""
        members = {
            name: {
                "process": one.process_id,
                "active": partitions_of(one.tasks.active),
                "standby": partitions_of(one.tasks.standby),
                "offsets": nested(one.offsets),
            }
            for name, one in self.members.items()
        }
        subtopologies = {
            name: {"tasks": count, "stateful": stateful} for name, (count, stateful) in self.subtopologies.items()
        }
        return {"members": members, "subtopologies": subtopologies, "standbys": self.standbys}


def cases(source: random.Random) -> Iterator[Case]:
    """Yield random groups, each several times: members join and leave, and the others have what they were given."""
    for _ in range(GROUPS):
        names = [f"s{number}" for number in range(source.randint(1, 3))]
        subtopologies = {name: (source.randint(1, 8), source.random() < 0.6) for name in names}
        processes = [f"p{number}" for number in range(source.randint(1, 4))]
        standbys = source.choice((0, 1, 1, 2))
        members: Members = {}
        for step in range(CHANGES):
            for name in list(members):
                if source.random() < 0.3:
                    del members[name]
            for number in range(source.randint(0 if members else 1, 3)):
                members[f"m{step}{number}"] = MemberSpecification(
                    source.choice(processes), offsets=offsets(source, names)
                )
            case = Case(dict(members), subtopologies, standbys)
            yield case
            given = case.ours()
            members = {name: one._replace(tasks=given[name]) for name, one in members.items()}


def offsets(source: random.Random, names: list[str]) -> dict[TaskId, int]:
    """Return the offsets that a member reports of tasks whose state it has on its disk."""
    every = [TaskId(name, partition) for name in names for partition in range(8)]
    return {task: source.randrange(1000) for task in source.sample(every, source.choice((0, 0, 3)))}


def theirs(groups: list[Case]) -> list[dict[str, Tasks]]:
    """Return Kafka's assignments."""
    return [
        {name: Tasks(_tasks(one["active"]), _tasks(one["standby"])) for name, one in answer.items()}
        for answer in answers(case.question() for case in groups)
    ]


def _tasks(said: Mapping[str, list[int]]) -> dict[str, frozenset[int]]:
    return {name: frozenset(partitions) for name, partitions in said.items() if partitions}


def spread(given: Mapping[str, Tasks]) -> int:
    """Return how many more active tasks the member with the most has than the one with the fewest."""
    counts = [len([*iterate_tasks(tasks.active)]) for tasks in given.values()]
    return max(counts) - min(counts)


def standbys(given: Mapping[str, Tasks]) -> int:
    """Return the number of standbys."""
    return sum(len([*iterate_tasks(tasks.standby)]) for tasks in given.values())


def kept(case: Case, given: Mapping[str, Tasks]) -> int:
    """Return how many active tasks stay where they are."""
    return sum(
        len({*iterate_tasks(tasks.active)} & {*iterate_tasks(case.members[name].tasks.active)})
        for name, tasks in given.items()
    )


def test_assignments_are_as_balanced_and_sticky_as_kafkas() -> None:
    groups = list(cases(random.Random(7)))
    expected, found = theirs(groups), [case.ours() for case in groups]
    stayed = 0
    for case, ours, kafkas in zip(groups, found, expected, strict=True):
        assert spread(ours) <= spread(kafkas), json.dumps(case.question())
        assert standbys(ours) == standbys(kafkas), json.dumps(case.question())
        stayed += kept(case, kafkas) - kept(case, ours)
    assert stayed <= len(groups) // 100  # a tie may decide about a task
