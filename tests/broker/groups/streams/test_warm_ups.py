"""The steps to a target: which tasks stay where they are for now, and who warms them up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from minibroker.broker.groups.streams.streams_member import StreamsMember
from minibroker.broker.groups.streams.task_offsets import NO_OFFSETS, UNKNOWN_OFFSET, TaskOffsets
from minibroker.broker.groups.streams.tasks import (
    NO_TASKS,
    AssignedTasks,
    TaskId,
    Tasks,
    contains_task,
    group_by_subtopology,
    iterate_tasks,
)
from minibroker.broker.groups.streams.warm_ups import (
    WarmUpSettings,
    WarmUpSituation,
    WarmUpStep,
    choose_next_warm_up_step,
)
from minibroker.protocol.steps import run_all_steps
from tests.cases import for_each

EPOCH, LAG = 7, 100
STATEFUL, STATELESS = "s", "l"


def tasks(*partitions: int, subtopology: str = STATEFUL) -> frozenset[TaskId]:
    return frozenset(TaskId(subtopology, partition) for partition in partitions)


def member(
    name: str,
    active: frozenset[TaskId] = frozenset(),
    standby: frozenset[TaskId] = frozenset(),
    warmup: frozenset[TaskId] = frozenset(),
    process: str = "",
) -> StreamsMember:
    """Return a member with these tasks, by default in a process of its own."""
    epochs = {each: dict.fromkeys(partitions, 1) for each, partitions in group_by_subtopology(active).items()}
    assigned = AssignedTasks(epochs, group_by_subtopology(standby), group_by_subtopology(warmup))
    return StreamsMember(name, process_id=process or name, assigned=assigned)


def target(
    active: frozenset[TaskId] = frozenset(),
    standby: frozenset[TaskId] = frozenset(),
    warmup: frozenset[TaskId] = frozenset(),
) -> Tasks:
    return Tasks(group_by_subtopology(active), group_by_subtopology(standby), group_by_subtopology(warmup))


def lagging(task: TaskId, lag: int) -> TaskOffsets:
    return TaskOffsets({task: 1000}, {task: 1000 + lag})


def step(
    members: list[StreamsMember],
    targets: dict[str, Tasks],
    offsets: dict[str, TaskOffsets] | None = None,
    count: int = 2,
    heard: dict[str, bool] | None = None,
) -> WarmUpStep:
    """Return the next step; all members can have warm-ups unless `heard` says otherwise."""
    by_id = {each.member_id: each for each in members}
    warms_up = dict.fromkeys(by_id, True) if heard is None else heard
    situation = WarmUpSituation(by_id, targets, {STATEFUL}, offsets or {}, warms_up)
    return run_all_steps(choose_next_warm_up_step(situation, EPOCH, WarmUpSettings(count, LAG)))


def test_a_task_stays_until_its_new_owner_has_warmed_up() -> None:
    targets = {"a": target(tasks(0)), "b": target(tasks(1))}
    first = step([member("a", tasks(0, 1)), member("b")], targets)
    assert first.tasks == {"a": target(tasks(0, 1)), "b": target(warmup=tasks(1))}
    assert first.awaited == {"b": tasks(1)}
    warming = [member("a", tasks(0, 1)), member("b", warmup=tasks(1))]
    assert step(warming, targets).tasks == first.tasks
    (task,) = tasks(1)
    assert step(warming, targets, {"b": lagging(task, LAG + 1)}).tasks == first.tasks
    assert step(warming, targets, {"b": lagging(task, LAG)}).tasks == {}


@for_each(
    ("restored", "end", "caught_up"),
    [
        (5, 5, True),
        (6, 5, True),
        (5, 105, True),
        (5, 106, False),
        (UNKNOWN_OFFSET, 5, False),
        (5, UNKNOWN_OFFSET, False),
    ],
)
def test_a_task_has_caught_up_within_the_acceptable_lag(restored: int, end: int, caught_up: bool) -> None:
    (task,) = tasks(1)
    assert TaskOffsets({task: restored}, {task: end}).is_caught_up(task, LAG) is caught_up
    assert not TaskOffsets({task: restored}).is_caught_up(task, LAG)
    assert not TaskOffsets({}, {task: end}).is_caught_up(task, LAG)


def test_tasks_that_need_or_get_no_warm_up_move_immediately() -> None:
    targets = {"a": NO_TASKS, "b": target(tasks(1))}
    stateless = {"a": NO_TASKS, "b": target(tasks(1, subtopology=STATELESS))}
    (task,) = tasks(1)
    assert step([member("a", tasks(1, subtopology=STATELESS)), member("b")], stateless).tasks == {}
    assert step([member("a"), member("b")], targets).tasks == {}
    assert step([member("a", tasks(1), process="p"), member("b", process="p")], targets).tasks == {}
    restoring = {"a": TaskOffsets({task: 3})}
    assert step([member("a", tasks(1)), member("b")], targets, restoring).tasks == {}
    sibling = member("c", standby=tasks(1), process="b")
    assert step([member("a", tasks(1)), member("b"), sibling], targets, {"c": lagging(task, 0)}).tasks == {}
    assert step([member("a", tasks(1)), member("b")], targets, count=0).tasks == {}
    assert step([member("a", tasks(1)), member("b")], targets, heard={"a": True, "b": False}).tasks == {}
    assert step([member("a", tasks(1)), member("b")], targets, heard={"a": False}).tasks == {}


def test_a_member_that_does_not_report_keeps_its_warm_up_task_and_gets_no_other() -> None:
    members = [member("a", tasks(0, 1)), member("b", warmup=tasks(1))]
    found = step(members, {"a": NO_TASKS, "b": target(tasks(0, 1))}, heard={})
    assert found.tasks == {"a": target(tasks(0, 1)), "b": target(warmup=tasks(1))}
    assert found.unheard == {"b"}
    assert found.allows_next_step("b", NO_OFFSETS, found.settings) and not found.allows_next_step(
        "a", NO_OFFSETS, found.settings
    )


def test_warm_ups_are_limited_by_the_configured_maximum() -> None:
    members = [member("a", tasks(0, 1, 2, 3)), member("b"), member("c")]
    targets = {"a": NO_TASKS, "b": target(tasks(0, 1)), "c": target(tasks(2, 3))}
    found = step(members, targets)
    assert found.tasks["a"] == target(tasks(0, 1, 2, 3))
    assert found.tasks["b"].warmup == {STATEFUL: {0}} and found.tasks["c"].warmup == {STATEFUL: {2}}
    warming = [member("a", tasks(0, 1, 2, 3)), member("b", warmup=tasks(1)), member("c", warmup=tasks(3))]
    kept = step(warming, targets, count=1)
    assert kept.tasks["b"].warmup == {STATEFUL: {1}} and not kept.tasks["c"].warmup


def test_a_standby_task_of_the_new_owner_serves_as_its_warm_up_task() -> None:
    members = [member("a", tasks(1)), member("b", standby=tasks(1)), member("c")]
    targets = {"a": NO_TASKS, "b": target(tasks(1)), "c": target(standby=tasks(1))}
    found = step(members, targets, count=1)
    assert found.tasks == {"a": target(tasks(1)), "b": target(standby=tasks(1)), "c": NO_TASKS}
    assert found.awaited == {"b": tasks(1)}


def test_the_owner_of_a_moving_task_does_not_get_it_as_a_standby_before_the_move() -> None:
    targets = {"a": target(standby=tasks(1)), "b": target(tasks(1))}
    found = step([member("a", tasks(1)), member("b")], targets)
    assert found.tasks == {"a": target(tasks(1)), "b": target(warmup=tasks(1))}


def test_a_standby_is_replaced_by_a_warm_up_of_the_new_owner_while_warm_ups_are_left() -> None:
    members = [member("a", tasks(1, 2)), member("b", process="p"), member("c", standby=tasks(1), process="p")]
    targets = {"a": NO_TASKS, "b": target(tasks(1, 2)), "c": NO_TASKS}
    assert step(members, targets).tasks["b"].warmup == {STATEFUL: {1, 2}}
    one = step(members, targets, count=1)
    assert one.tasks["b"].warmup == {STATEFUL: {2}} and one.tasks["c"] == target(standby=tasks(1))
    assert one.awaited == {"b": tasks(2), "c": tasks(1)}


def test_the_next_step_to_the_target_begins_when_settings_change_or_a_member_catches_up() -> None:
    found = step([member("a", tasks(1)), member("b")], {"a": NO_TASKS, "b": target(tasks(1))})
    (task,) = tasks(1)
    assert found.allows_next_step("b", lagging(task, LAG), found.settings)
    assert not found.allows_next_step("b", lagging(task, LAG + 1), found.settings)
    assert not found.allows_next_step("a", lagging(task, 0), found.settings)
    assert found.allows_next_step("a", NO_OFFSETS, WarmUpSettings(0, LAG))
    assert not WarmUpStep(EPOCH, found.settings).allows_next_step("a", NO_OFFSETS, WarmUpSettings(0, LAG))


MEMBERS = "abcde"
OWNERS = st.lists(st.sampled_from([*MEMBERS, None]), min_size=6, max_size=6)


@given(
    places=st.lists(st.sampled_from("pqr"), min_size=5, max_size=5),
    now=OWNERS,
    copies=OWNERS,
    wanted=st.lists(st.sampled_from(MEMBERS), min_size=6, max_size=6),
    standbys=OWNERS,
    roles=st.lists(st.booleans(), min_size=6, max_size=6),
    caught_up=st.sets(st.integers(0, 5)),
    count=st.integers(0, 3),
)
def test_each_step_to_the_target_assigns_each_task_once_and_never_twice_to_a_process(
    places: list[str],
    now: list[str | None],
    copies: list[str | None],
    wanted: list[str],
    standbys: list[str | None],
    roles: list[bool],
    caught_up: set[int],
    count: int,
) -> None:
    process = dict(zip(MEMBERS, places, strict=True))
    copies = [
        copy if copy and (owner is None or process[copy] != process[owner]) else None
        for copy, owner in zip(copies, now, strict=True)
    ]
    standbys = [
        each if each and process[each] != process[owner] else None for each, owner in zip(standbys, wanted, strict=True)
    ]

    def of(name: str, owners: list[str | None], which: list[bool] | None = None) -> frozenset[TaskId]:
        return tasks(*(n for n, owner in enumerate(owners) if owner == name and (which is None or which[n])))

    members = [
        member(
            name, of(name, now), of(name, copies, roles), of(name, copies, [not role for role in roles]), process[name]
        )
        for name in MEMBERS
    ]
    targets = {name: target(of(name, [*wanted]), of(name, standbys)) for name in MEMBERS}
    offsets = {name: TaskOffsets(*(dict.fromkeys(tasks(*caught_up), 5),) * 2) for name in MEMBERS if name not in now}
    found = step(members, targets, offsets, count)
    result = {name: found.tasks.get(name, targets[name]) for name in MEMBERS}
    assert sorted(task.partition for each in result.values() for task in iterate_tasks(each.active)) == [*range(6)]
    assert sum(1 for each in result.values() for _ in iterate_tasks(each.warmup)) <= count
    for place in set(places):
        here = [
            task for name in MEMBERS if process[name] == place for role in result[name] for task in iterate_tasks(role)
        ]
        assert len(here) == len(set(here))
    for number, owner in enumerate(now):
        (task,) = tasks(number)
        (runs,) = (name for name in MEMBERS if contains_task(result[name].active, task))
        assert runs in (owner, wanted[number])
