"""The sticky assignor: who runs which task, and who keeps its state. The conformance tests compare it with Kafka's."""

from __future__ import annotations

from collections import Counter
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from minibroker.broker.groups.streams import streams_assignor
from minibroker.broker.groups.streams.streams_assignor import MemberSpecification
from minibroker.broker.groups.streams.tasks import TaskId, Tasks, iterate_tasks
from minibroker.protocol.steps import run_all_steps


def assigned(
    members: dict[str, MemberSpecification], tasks: list[TaskId], stateful: list[TaskId], standbys: int
) -> dict[str, Tasks]:
    """Return the target of each member."""
    return run_all_steps(streams_assignor.assign_tasks(members, tasks, stateful, standbys))


STATEFUL, STATELESS = [TaskId("s", partition) for partition in range(5)], [TaskId("l", 0), TaskId("l", 1)]


def on(**processes: str) -> dict[str, MemberSpecification]:
    """Return members without tasks; each argument is a process with its members."""
    return {name: MemberSpecification(process) for process, names in processes.items() for name in names.split()}


def with_tasks(members: dict[str, MemberSpecification], found: dict[str, Tasks]) -> dict[str, MemberSpecification]:
    """Return the members with what they were given."""
    return {name: one._replace(tasks=found[name]) for name, one in members.items()}


def test_no_tasks_are_assigned_if_there_are_no_members() -> None:
    assert assigned({}, STATEFUL, STATEFUL, 1) == {}


def test_a_stateful_task_stays_with_its_owner() -> None:
    members = on(p="a", q="b")
    found = assigned(members, STATEFUL, STATEFUL, 1)
    assert assigned(with_tasks(members, found), STATEFUL, STATEFUL, 1) == found


def test_a_standby_task_becomes_active() -> None:
    members, tasks = on(p="a", q="b", r="c"), STATEFUL[:3]
    found = assigned(members, tasks, tasks, 1)
    lost = set(iterate_tasks(found.pop("a").active))
    left = {name: one._replace(tasks=found[name]) for name, one in members.items() if name in found}
    now = assigned(left, tasks, tasks, 1)
    for task in lost:
        (owner,) = (name for name, tasks in now.items() if task in set(iterate_tasks(tasks.active)))
        assert task in set(iterate_tasks(found[owner].standby))


def test_a_task_is_assigned_to_a_member_with_its_state_on_disk() -> None:
    members, tasks = on(p="a", q="b", r="c"), STATEFUL[:3]
    members["c"] = members["c"]._replace(offsets={tasks[0]: 10})
    members["b"] = members["b"]._replace(offsets={tasks[0]: 9, tasks[1]: 1})
    found = assigned(members, tasks, tasks, 0)
    assert {name: list(iterate_tasks(each.active)) for name, each in found.items()} == {
        "a": [tasks[2]],
        "b": [tasks[1]],
        "c": [tasks[0]],
    }


def test_a_standby_is_preferred_to_a_member_with_state_on_disk() -> None:
    members, tasks = on(p="a", q="b"), STATEFUL[:2]
    members["a"] = members["a"]._replace(tasks=Tasks(standby={"s": frozenset({0})}))
    members["b"] = members["b"]._replace(offsets=dict.fromkeys(tasks, 1000))
    found = assigned(members, tasks, tasks, 0)
    assert {name: list(iterate_tasks(each.active)) for name, each in found.items()} == {
        "a": [tasks[0]],
        "b": [tasks[1]],
    }


def test_members_of_one_process_are_not_standbys_for_each_other() -> None:
    found = assigned(on(p="a b"), STATEFUL, STATEFUL, 1)
    assert not any(tasks.standby for tasks in found.values())


@given(
    places=st.lists(st.sampled_from("pqr"), min_size=1, max_size=7),
    gone=st.sets(st.integers(0, 6)),
    late=st.lists(st.sampled_from("pqrt"), max_size=4),
    standbys=st.integers(0, 2),
)
def test_every_task_has_one_owner_and_standbys_on_other_processes(
    places: list[str], gone: set[int], late: list[str], standbys: int
) -> None:
    every = [*STATEFUL, *STATELESS]
    members = {f"m{number}": MemberSpecification(process) for number, process in enumerate(places)}
    before = assigned(members, every, STATEFUL, standbys)
    members = with_tasks(members, before)
    members = {name: one for number, (name, one) in enumerate(members.items()) if number not in gone}
    members |= {f"n{number}": MemberSpecification(process) for number, process in enumerate(late)}
    found = assigned(members, every, STATEFUL, standbys)
    assert found.keys() == members.keys()
    owners = Counter(chain.from_iterable(iterate_tasks(tasks.active) for tasks in found.values()))
    assert owners == (Counter(every) if members else Counter())
    for task in STATEFUL if members else ():
        having = [
            members[name].process_id
            for name, tasks in found.items()
            for role in tasks[:2]
            if task in set(iterate_tasks(role))
        ]
        assert len(having) == len(set(having)) == min(1 + standbys, len({one.process_id for one in members.values()}))
    assert not any(task.subtopology_id == "l" for tasks in found.values() for task in iterate_tasks(tasks.standby))
    if len(set(places + late)) == 1 and members:
        counts = [len([*iterate_tasks(tasks.active)]) for tasks in found.values()]
        assert max(counts) - min(counts) <= 1
