"""How a member gets from its tasks to its target: first it gives up some, then it gets others.

A process has a task in one role only, and only one member has it as an active one. So a task waits until all others,
and the member's own process in another role, have reported that they gave it up.

Members that speak version 1 of StreamsGroupHeartbeat change the role of a task in place, as with Kafka 4.4, so that its
state stays open: a standby or warm-up becomes active when the task's owner has given it up, and is kept until then; an
active task becomes a standby at once, though others wait until it is given up as an active one. With version 0 each
role is given up before the next, as with Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from minibroker.broker.groups.streams.streams_member import MemberState, StreamsMember
from minibroker.broker.groups.streams.tasks import (
    NOTHING_ASSIGNED,
    AnyTasks,
    AssignedTasks,
    EpochTasks,
    TaskId,
    Tasks,
    TaskSet,
    contains_task,
    group_by_subtopology,
    iterate_tasks,
)
from minibroker.protocol.errors import ErrorCode, KafkaError

IsTaken = Callable[[TaskId], bool]


class TaskReconciliationState(NamedTuple):
    """What a member's next step depends on.

    `owned` are the tasks that its heartbeat reports to run, None if it reports nothing. `is_active` says whether any
    member has a task as an active one, or has still to give it up; `is_active_here`, `is_standby_here` and
    `is_warmup_here` say the same of the members of this member's process, itself included.
    """

    target_epoch: int
    target: Tasks
    owned: Tasks | None
    is_active: IsTaken
    is_active_here: IsTaken
    is_standby_here: IsTaken
    is_warmup_here: IsTaken
    in_place: bool = False

    def may_member_run_any_of(self, revoked_tasks: AssignedTasks) -> bool:
        """Return whether the member may still run some of these tasks: if it reports none, it may run all."""
        return self.owned is None or self.owned.has_common_task(revoked_tasks)

    def must_wait_for_revocation(self, revoked_tasks: AssignedTasks) -> bool:
        """Return whether there are tasks to revoke, and the member may still run some of them."""
        return not revoked_tasks.is_empty and self.may_member_run_any_of(revoked_tasks)


def reconcile_member(member: StreamsMember, reconciliation: TaskReconciliationState) -> StreamsMember:
    """Return the member with the epoch and tasks that it may have now on the way to its target, or unchanged.

    Raises KafkaError(FENCED_MEMBER_EPOCH) for a member in an unknown state, so that it joins anew.
    """
    if member.is_reconciled_to(reconciliation.target_epoch):
        return member
    if member.state is MemberState.UNREVOKED_TASKS:
        if reconciliation.may_member_run_any_of(member.pending_revocation):
            return member
        return _move_member_toward_target(member, reconciliation, member.epoch + 1)
    if member.state is MemberState.UNKNOWN:
        if reconciliation.owned is None or any(reconciliation.owned):
            message = (
                "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin."
            )
            raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, message)
        return _move_member_toward_target(member, reconciliation, reconciliation.target_epoch)
    return _move_member_toward_target(member, reconciliation, member.epoch)


def _move_member_toward_target(
    member: StreamsMember, reconciliation: TaskReconciliationState, epoch: int
) -> StreamsMember:
    """Return the member with the tasks that it may have now; it stays in `epoch` while it has tasks to revoke."""
    assigned, target = member.assigned, reconciliation.target
    kept = AssignedTasks(
        _select_active_tasks(assigned.active, target.active, is_in_target=True),
        _intersect_tasks(assigned.standby, target.standby),
        _intersect_tasks(assigned.warmup, target.warmup),
    )
    revoked = AssignedTasks(
        _select_active_tasks(assigned.active, target.active, is_in_target=False),
        _subtract_tasks(assigned.standby, target.standby),
        _subtract_tasks(assigned.warmup, target.warmup),
    )
    wanted = Tasks(
        _subtract_tasks(target.active, kept.active),
        _subtract_tasks(target.standby, kept.standby),
        _subtract_tasks(target.warmup, kept.warmup),
    )
    given = _select_free_tasks(wanted, reconciliation, assigned if reconciliation.in_place else NOTHING_ASSIGNED)
    if reconciliation.in_place:
        kept, revoked = _revoke_tasks_with_changed_role(assigned, given, kept, revoked)
        kept, revoked = _revoke_tasks_becoming_active(assigned, given, kept, revoked, reconciliation)
    if reconciliation.must_wait_for_revocation(revoked):
        return member.with_epoch_and_assignment(epoch, MemberState.UNREVOKED_TASKS, kept, revoked)
    active = dict(kept.active)
    for each, partitions in given.active.items():
        active[each] = {**active.get(each, {}), **dict.fromkeys(sorted(partitions), reconciliation.target_epoch)}
    after = AssignedTasks(active, _unite_tasks(kept.standby, given.standby), _unite_tasks(kept.warmup, given.warmup))
    state = MemberState.STABLE if given == wanted else MemberState.UNRELEASED_TASKS
    return member.with_epoch_and_assignment(reconciliation.target_epoch, state, after, NOTHING_ASSIGNED)


# --- roles that change in place -------------------------------------------------------------------


def _revoke_tasks_with_changed_role(
    assigned_tasks: AssignedTasks, target: Tasks, kept_tasks: AssignedTasks, revoked_tasks: AssignedTasks
) -> tuple[AssignedTasks, AssignedTasks]:
    """Return (kept, revoked) tasks after keeping those that become standbys or warm-ups.

    A standby that becomes a warm-up, or the reverse, is not given up. An active task is, as its next owner waits.
    """
    demoted = _intersect_tasks(
        target.standby, {each: frozenset(epochs) for each, epochs in assigned_tasks.active.items()}
    )
    standby, warmup = (
        _intersect_tasks(target.standby, assigned_tasks.warmup),
        _intersect_tasks(target.warmup, assigned_tasks.standby),
    )
    return (
        kept_tasks._replace(
            standby=_unite_tasks(kept_tasks.standby, _unite_tasks(demoted, standby)),
            warmup=_unite_tasks(kept_tasks.warmup, warmup),
        ),
        revoked_tasks._replace(
            standby=_subtract_tasks(revoked_tasks.standby, warmup),
            warmup=_subtract_tasks(revoked_tasks.warmup, standby),
        ),
    )


def _revoke_tasks_becoming_active(
    assigned_tasks: AssignedTasks,
    new_tasks: Tasks,
    kept_tasks: AssignedTasks,
    revoked_tasks: AssignedTasks,
    reconciliation: TaskReconciliationState,
) -> tuple[AssignedTasks, AssignedTasks]:
    """Return (kept, revoked) tasks after keeping those that are to become active, in their old role until they may."""
    target = reconciliation.target.active
    revoked_tasks = revoked_tasks._replace(
        standby=_subtract_tasks(revoked_tasks.standby, target), warmup=_subtract_tasks(revoked_tasks.warmup, target)
    )
    now: TaskSet = {} if reconciliation.must_wait_for_revocation(revoked_tasks) else new_tasks.active
    return (
        kept_tasks._replace(
            standby=_unite_tasks(
                kept_tasks.standby, _subtract_tasks(_intersect_tasks(assigned_tasks.standby, target), now)
            ),
            warmup=_unite_tasks(
                kept_tasks.warmup, _subtract_tasks(_intersect_tasks(assigned_tasks.warmup, target), now)
            ),
        ),
        revoked_tasks,
    )


# --- sets of tasks --------------------------------------------------------------------------------


def _select_active_tasks(active: EpochTasks, target: TaskSet, *, is_in_target: bool) -> EpochTasks:
    """Return those of the active tasks that are in the target, or those that are not."""
    return {
        each: some
        for each, epochs in active.items()
        if (some := {index: epochs[index] for index in epochs if (index in target.get(each, ())) is is_in_target})
    }


def _intersect_tasks(tasks: TaskSet, others: TaskSet) -> TaskSet:
    return {each: both for each in tasks if (both := tasks[each] & others.get(each, frozenset()))}


def _subtract_tasks(tasks: TaskSet, others: AnyTasks) -> TaskSet:
    """Return the tasks that are not among the others."""
    return {each: rest for each in tasks if (rest := tasks[each].difference(others.get(each, ())))}


def _unite_tasks(tasks: TaskSet, others: Mapping[str, frozenset[int]]) -> TaskSet:
    return {each: tasks.get(each, frozenset()) | others.get(each, frozenset()) for each in {**tasks, **others}}


def _select_free_tasks(tasks: Tasks, reconciliation: TaskReconciliationState, own_tasks: AssignedTasks) -> Tasks:
    """Return those of `tasks` that nobody must revoke first, unless it is the member itself (`own_tasks`)."""
    at = reconciliation

    def is_standby(task: TaskId) -> bool:
        return at.is_standby_here(task) and not contains_task(own_tasks.standby, task)

    def is_warmup(task: TaskId) -> bool:
        return at.is_warmup_here(task) and not contains_task(own_tasks.warmup, task)

    def is_active(task: TaskId) -> bool:
        return at.is_active_here(task) and not contains_task(own_tasks.active, task)

    return Tasks(
        _drop_taken_tasks(tasks.active, lambda task: at.is_active(task) or is_standby(task) or is_warmup(task)),
        _drop_taken_tasks(tasks.standby, lambda task: is_active(task) or at.is_standby_here(task) or is_warmup(task)),
        _drop_taken_tasks(
            tasks.warmup, lambda task: at.is_active_here(task) or is_standby(task) or at.is_warmup_here(task)
        ),
    )


def _drop_taken_tasks(tasks: TaskSet, is_taken: IsTaken) -> TaskSet:
    """Return the tasks for which `is_taken` returns false."""
    free: Iterable[TaskId] = (task for task in iterate_tasks(tasks) if not is_taken(task))
    return group_by_subtopology(free)
