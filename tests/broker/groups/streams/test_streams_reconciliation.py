"""How a member gets to its target: no task is given before all others have reported that they gave it up."""

from __future__ import annotations

import pytest

from minibroker.broker.groups.streams.streams_member import MemberState, StreamsMember
from minibroker.broker.groups.streams.streams_reconciliation import TaskReconciliationState, reconcile_member
from minibroker.broker.groups.streams.tasks import NO_TASKS, AssignedTasks, Tasks
from minibroker.protocol.errors import ErrorCode, KafkaError
from tests.cases import for_each

MEMBER = StreamsMember("m", process_id="p", epoch=3, previous_epoch=2)
ONE, TWO = {"0": frozenset({1})}, {"0": frozenset({1, 2})}


def nobody(*_: object) -> bool:
    return False


def anybody(*_: object) -> bool:
    return True


def toward(
    member: StreamsMember,
    target: Tasks,
    owned: Tasks | None = NO_TASKS,
    *,
    active: object = nobody,
    active_here: object = nobody,
    standby_here: object = nobody,
    warmup_here: object = nobody,
    in_place: bool = False,
) -> StreamsMember:
    """Return the member after a step to the target of epoch 5."""
    at = TaskReconciliationState(5, target, owned, active, active_here, standby_here, warmup_here, in_place)  # type: ignore[arg-type]
    return reconcile_member(member, at)


def having(active: dict[int, int], **more: object) -> StreamsMember:
    """Return the member with active tasks of subtopology 0."""
    return MEMBER._replace(assigned=AssignedTasks({"0": active} if active else {}), **more)  # type: ignore[arg-type]


def test_unowned_tasks_are_assigned_and_the_member_reaches_the_target_epoch_at_once() -> None:
    after = toward(having({1: 3}), Tasks(TWO))
    assert (after.epoch, after.previous_epoch, after.state) == (5, 3, MemberState.STABLE)
    assert after.assigned.active == {"0": {1: 3, 2: 5}}
    assert toward(after, Tasks(TWO)) is after


def test_a_member_waits_for_target_tasks_that_others_own() -> None:
    after = toward(having({1: 3}), Tasks(TWO), active=anybody)
    assert (after.epoch, after.state, after.assigned.active) == (5, MemberState.UNRELEASED_TASKS, {"0": {1: 3}})
    later = toward(after, Tasks(TWO))
    assert (later.state, later.assigned.active) == (MemberState.STABLE, {"0": {1: 3, 2: 5}})


@for_each("target", [Tasks(ONE), Tasks(standby=ONE), Tasks(warmup=ONE)])
@for_each("here", ["active_here", "standby_here", "warmup_here"])
@for_each("in_place", [False, True])
def test_a_member_waits_for_a_task_that_its_process_still_runs_as_active_standby_or_warm_up(
    target: Tasks, here: str, in_place: bool
) -> None:
    active = anybody if here == "active_here" else nobody
    after = toward(MEMBER, target, active=active, in_place=in_place, **{here: anybody})  # type: ignore[arg-type]
    assert (after.epoch, after.state) == (5, MemberState.UNRELEASED_TASKS)
    assert after.assigned.is_empty


def test_a_standby_task_is_assigned_while_the_task_is_active_on_another_process() -> None:
    after = toward(MEMBER, Tasks(standby=ONE), active=anybody)
    assert (after.state, after.assigned.standby) == (MemberState.STABLE, ONE)


def test_a_member_reaches_the_target_epoch_only_after_it_revoked_its_tasks() -> None:
    member = having({1: 3, 2: 3})
    after = toward(member, Tasks(ONE), Tasks(TWO))
    assert (after.epoch, after.state) == (3, MemberState.UNREVOKED_TASKS)
    assert (after.assigned.active, after.pending_revocation.active) == ({"0": {1: 3}}, {"0": {2: 3}})
    for owned in (None, Tasks(TWO)):
        assert toward(after, Tasks(ONE), owned) is after
    done = toward(after, Tasks(ONE), Tasks(ONE))
    assert (done.epoch, done.state, done.assigned.active) == (5, MemberState.STABLE, {"0": {1: 3}})
    assert done.pending_revocation.is_empty


def test_tasks_that_a_member_no_longer_runs_need_no_revocation() -> None:
    after = toward(having({1: 3, 2: 3}), Tasks(ONE), Tasks(ONE))
    assert (after.epoch, after.state, after.assigned.active) == (5, MemberState.STABLE, {"0": {1: 3}})


def test_a_member_in_an_unknown_state_must_rejoin() -> None:
    unknown = having({1: 3}, state=MemberState.UNKNOWN)
    with pytest.raises(KafkaError) as raised:
        toward(unknown, Tasks(ONE), Tasks(ONE))
    assert raised.value.code == ErrorCode.FENCED_MEMBER_EPOCH
    assert toward(unknown, Tasks(ONE)).state is MemberState.STABLE


# --- roles that change in place -------------------------------------------------------------------


@pytest.mark.parametrize("role", ["standby", "warmup"])
def test_a_standby_is_kept_until_it_becomes_active_in_one_step(role: str) -> None:
    member = MEMBER._replace(assigned=AssignedTasks(**{role: ONE}))  # type: ignore[arg-type]
    owned = Tasks(**{role: ONE})  # type: ignore[arg-type]
    here = {f"{role}_here": anybody, "in_place": True}
    waiting = toward(member, Tasks(ONE), owned, active=anybody, **here)  # type: ignore[arg-type]
    assert (waiting.epoch, waiting.state, waiting.assigned) == (5, MemberState.UNRELEASED_TASKS, member.assigned)
    after = toward(waiting, Tasks(ONE), owned, **here)  # type: ignore[arg-type]
    assert (after.state, after.assigned) == (MemberState.STABLE, AssignedTasks({"0": {1: 5}}))


def test_an_active_task_becomes_a_standby_during_its_revocation() -> None:
    member, owned = having({1: 3}), Tasks(ONE)
    after = toward(member, Tasks(standby=ONE), owned, active=anybody, active_here=anybody, in_place=True)
    assert (after.state, after.assigned) == (MemberState.UNREVOKED_TASKS, AssignedTasks(standby=ONE))
    assert after.pending_revocation == AssignedTasks({"0": {1: 3}})


def test_a_standby_becomes_a_warm_up_without_a_revocation() -> None:
    member = MEMBER._replace(assigned=AssignedTasks(standby=ONE))
    after = toward(member, Tasks(warmup=ONE), Tasks(standby=ONE), standby_here=anybody, in_place=True)
    assert (after.epoch, after.state, after.assigned) == (5, MemberState.STABLE, AssignedTasks(warmup=ONE))


def test_a_standby_that_cannot_be_promoted_is_revoked_before_it_becomes_active() -> None:
    member = MEMBER._replace(assigned=AssignedTasks(standby=ONE))
    after = toward(member, Tasks(ONE), Tasks(standby=ONE), standby_here=anybody)
    assert (after.state, after.pending_revocation) == (MemberState.UNREVOKED_TASKS, AssignedTasks(standby=ONE))
