"""The way of a streams group's members to their targets, beside Kafka 4.4's own class, for random members."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from conformance.assignor.judge import answers, nested, partitions_of
from minibroker.broker.groups.streams.streams_member import MemberState, StreamsMember
from minibroker.broker.groups.streams.streams_reconciliation import TaskReconciliationState, reconcile_member
from minibroker.broker.groups.streams.tasks import AssignedTasks, TaskId, Tasks, group_by_subtopology, iterate_tasks
from minibroker.protocol.errors import KafkaError

MEMBERS, TARGET_EPOCH = 6000, 5
EVERY = [TaskId(name, partition) for name in "ab" for partition in range(2)]
STATES = (MemberState.STABLE, MemberState.UNREVOKED_TASKS, MemberState.UNRELEASED_TASKS, MemberState.UNKNOWN)


class Case(NamedTuple):
    """A member of process p, its target, what it reports, and which processes have each task."""

    member: StreamsMember
    target: Tasks
    owned: Tasks | None
    active: dict[TaskId, str]
    standby: dict[TaskId, set[str]]
    warmup: dict[TaskId, set[str]]

    def ours(self) -> dict[str, Any]:
        """Return our step."""
        at = TaskReconciliationState(
            TARGET_EPOCH,
            self.target,
            self.owned,
            lambda task: task in self.active,
            lambda task: self.active.get(task) == "p",
            lambda task: "p" in self.standby.get(task, ()),
            lambda task: "p" in self.warmup.get(task, ()),
            in_place=True,
        )
        try:
            after = reconcile_member(self.member, at)
        except KafkaError:
            return {"error": "fenced"}
        return {
            "epoch": after.epoch,
            "previous": after.previous_epoch,
            "state": int(after.state),
            "assigned": _with_epochs(after.assigned),
            "pending": _with_epochs(after.pending_revocation),
        }

    def question(self) -> dict[str, Any]:
        """Return the member as the judge reads it."""
        member = self.member
        return {
            "epoch": member.epoch,
            "previous": member.previous_epoch,
            "state": int(member.state),
            "assigned": _with_epochs(member.assigned),
            "pending": _with_epochs(member.pending_revocation),
            "target_epoch": TARGET_EPOCH,
            "target": _said(self.target),
            "owned": None if self.owned is None else _said(self.owned),
            "active_process": nested(self.active),
            "standby_processes": nested({task: sorted(each) for task, each in self.standby.items()}),
            "warmup_processes": nested({task: sorted(each) for task, each in self.warmup.items()}),
        }


def _said(tasks: Tasks) -> dict[str, Any]:
    return {role: partitions_of(getattr(tasks, role)) for role in Tasks._fields}


def _with_epochs(tasks: AssignedTasks) -> dict[str, Any]:
    active = {
        name: {str(each): epoch for each, epoch in sorted(epochs.items())} for name, epochs in tasks.active.items()
    }
    return {"active": active, "standby": partitions_of(tasks.standby), "warmup": partitions_of(tasks.warmup)}


def _tasks(source: random.Random, share: float) -> Tasks:
    """Return tasks in one role each."""
    roles: list[list[TaskId]] = [[], [], []]
    for task in EVERY:
        if source.random() < share:
            source.choice(roles).append(task)
    return Tasks(*map(group_by_subtopology, roles))


def _assigned(source: random.Random, tasks: Tasks) -> AssignedTasks:
    active = {name: {each: source.randint(1, 4) for each in partitions} for name, partitions in tasks.active.items()}
    return AssignedTasks(active, tasks.standby, tasks.warmup)


def cases(source: random.Random) -> Iterator[Case]:
    """Yield random members, most of them as groups may have them."""
    for _ in range(MEMBERS):
        assigned, pending, target = (_tasks(source, share) for share in (0.6, 0.15, 0.7))
        state = source.choices(STATES, (4, 2, 2, 0.3))[0]
        epoch = source.randint(2, TARGET_EPOCH)
        if state is not MemberState.UNREVOKED_TASKS:
            pending = Tasks()
        member = StreamsMember(
            "m",
            process_id="p",
            epoch=epoch,
            previous_epoch=epoch - 1,
            state=state,
            assigned=_assigned(source, assigned),
            pending_revocation=_assigned(source, pending),
        )
        active = dict.fromkeys((*iterate_tasks(assigned.active), *iterate_tasks(pending.active)), "p")
        active |= {task: source.choice("pq") for task in EVERY if source.random() < 0.2}
        copies = []
        for role in ("standby", "warmup"):
            found = {task: {"p"} for each in (assigned, pending) for task in iterate_tasks(getattr(each, role))}
            for task in EVERY:
                if source.random() < 0.2:
                    found.setdefault(task, set()).add(source.choice("pq"))
            copies.append(found)
        owned = source.choice((None, assigned, _tasks(source, 0.4), Tasks()))
        yield Case(member, target, owned, active, *copies)


def test_members_reach_their_target_assignments_as_in_kafka() -> None:
    members = list(cases(random.Random(11)))
    for case, expected in zip(members, answers(case.question() for case in members), strict=True):
        assert case.ours() == expected, json.dumps(case.question())
