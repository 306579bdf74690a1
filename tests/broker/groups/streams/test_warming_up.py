"""Groups whose tasks move by warm-ups: heartbeats from the first to the last step, restarts, settings."""

from __future__ import annotations

import pytest

from minibroker.broker.groups.streams.streams_updating import SMALL
from minibroker.broker.groups.streams.topology import HeartbeatStatus
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.streams_groups import StreamsGroupHeartbeatRequest
from tests.broker.groups.streams.driving import (
    GROUP,
    Player,
    TaskOffset,
    Topology,
    configure,
    describe,
    group_of,
    settle,
    topology,
)
from tests.broker.harness import Harness

LAG = 10_000
KeyValue = StreamsGroupHeartbeatRequest.KeyValue


@pytest.fixture
def counted(harness: Harness) -> Topology:
    """Return a topology with state, with four tasks."""
    harness.create_topic("t", 4)
    return topology("t", changelog="changelog")


@pytest.fixture
def grown(harness: Harness, counted: Topology) -> tuple[Player, Player]:
    """Return a member with all four tasks, and one that has joined later."""
    first, second = Player(harness, "m1", counted), Player(harness, "m2", counted)
    first.join()
    settle(first)
    second.join()
    settle(first, second)
    return first, second


def test_tasks_move_when_their_state_is_restored(harness: Harness, grown: tuple[Player, Player]) -> None:
    first, second = grown
    assert (first.active, second.active, second.warmup) == ({"0": {0, 1, 2, 3}}, {}, {"0": {2, 3}})
    epoch = describe(harness).group_epoch
    assert second.restored(2, 100, 100 + LAG + 1).error_code == ErrorCode.NONE
    settle(first, second)
    assert describe(harness).group_epoch == epoch
    second.restored(2, 100, 100 + LAG)
    settle(first, second)
    assert describe(harness).group_epoch == epoch + 1
    assert (first.active, second.active, second.warmup) == ({"0": {0, 1, 3}}, {"0": {2}}, {"0": {3}})
    second.restored(3, 100, 99)
    settle(first, second)
    assert (first.active, second.active, second.warmup) == ({"0": {0, 1}}, {"0": {2, 3}}, {})


def test_a_task_move_is_visible_in_the_group_description(harness: Harness, grown: tuple[Player, Player]) -> None:
    _, second = grown
    second.restored(2, 100, 50_000)
    (member,) = (each for each in describe(harness).members if each.member_id == "m2")
    assert [(each.subtopology_id, each.partition, each.offset) for each in member.task_offsets] == [("0", 2, 100)]
    assert [each.offset for each in member.task_end_offsets] == [50_000]
    assert [each.partitions for each in member.assignment.warmup_tasks] == [[2, 3]]
    assert [each.partitions for each in member.target_assignment.active_tasks] == [[2, 3]]
    assert member.target_assignment.warmup_tasks == []


def test_heartbeat_responses_contain_the_warm_up_settings(harness: Harness, counted: Topology) -> None:
    member = Player(harness, "m1", counted)
    joined = member.join()
    assert (joined.task_offset_interval_ms, joined.acceptable_recovery_lag) == (60_000, LAG)
    configure(harness, "streams.task.offset.interval.ms", "20000")
    configure(harness, "streams.acceptable.recovery.lag", "7")
    answer = member.beat()
    assert (answer.task_offset_interval_ms, answer.acceptable_recovery_lag) == (20_000, 7)
    old = member.ask(version=0)
    assert (old.task_offset_interval_ms, old.acceptable_recovery_lag_legacy) == (20_000, 0)


@pytest.mark.parametrize(("name", "value"), [("num.warmup.replicas", "0"), ("acceptable.recovery.lag", "50000")])
def test_changing_a_warm_up_setting_lets_tasks_move(
    harness: Harness, grown: tuple[Player, Player], name: str, value: str
) -> None:
    first, second = grown
    for task in (2, 3):
        second.restored(task, 0, 50_000)
        configure(harness, f"streams.{name}", value)
        settle(first, second)
    assert (first.active, second.active) == ({"0": {0, 1}}, {"0": {2, 3}})


def test_members_that_report_no_offsets_get_their_tasks_immediately(harness: Harness, counted: Topology) -> None:
    first, second = Player(harness, "m1", counted), Player(harness, "m2", counted)
    second.version = 0
    first.join()
    settle(first)
    second.join()
    settle(first, second)
    assert (first.active, second.active) == ({"0": {0, 1}}, {"0": {2, 3}})


@pytest.mark.parametrize("crash", [False, True])
def test_warm_ups_continue_after_a_restart(harness: Harness, grown: tuple[Player, Player], crash: bool) -> None:
    first, second = grown
    epoch = describe(harness).group_epoch
    harness.restart(crash=crash)
    settle(first, second)
    assert (first.active, second.warmup) == ({"0": {0, 1, 2, 3}}, {"0": {2, 3}})
    assert describe(harness).group_epoch == epoch
    second.restored(2, 1, 1)
    settle(first, second)
    assert second.active == {"0": {2}}


def test_the_next_step_of_a_large_streams_group_is_computed_in_the_background(harness: Harness) -> None:
    harness.create_topic("wide", SMALL)
    many = topology("wide", changelog="changelog")
    first, second = Player(harness, "m1", many), Player(harness, "m2", many)
    for players in ((first,), (first, second)):
        players[-1].join()
        for _ in range(2):  # first without the changelog
            players[-1].beat()
            harness.clock.advance(0)
        settle(*players)
    assert second.warmup == {"0": {SMALL // 2, SMALL // 2 + 1}}
    harness.restart(crash=True)
    assert second.beat().error_code == ErrorCode.NONE
    assert group_of(harness).step is None
    harness.clock.advance(0)
    assert group_of(harness).step is not None
    assert second.restored(SMALL // 2, 1, 1).error_code == ErrorCode.NONE
    harness.clock.advance(0)
    settle(first, second)
    assert second.active == {"0": {SMALL // 2}}


def test_the_owner_can_leave_while_another_member_warms_up(harness: Harness, grown: tuple[Player, Player]) -> None:
    first, second = grown
    first.ask(member_epoch=-1)
    settle(second)
    assert (second.active, second.warmup) == ({"0": {0, 1, 2, 3}}, {})


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([(0, 1), (0, 2)], "Task offsets contain a duplicate entry for subtopology 0 and partition 0."),
        (
            [(each, 1) for each in range(5001)],
            "A member may report 5000 task offsets at most.",
        ),
    ],
)
def test_invalid_task_offsets_are_rejected(
    harness: Harness, counted: Topology, offsets: list[tuple[int, int]], message: str
) -> None:
    member = Player(harness, "m1", counted)
    member.join()
    said = [TaskOffset(subtopology_id="0", partition=task, offset=offset) for task, offset in offsets]
    answer = member.beat(task_offsets=said)
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, message)
    assert group_of(harness).task_offsets == {}


def test_members_without_the_client_tags_of_the_group_are_warned(harness: Harness, counted: Topology) -> None:
    member = Player(harness, "m1", counted)
    member.join(client_tags=[KeyValue(key="zone", value="1")])
    configure(harness, "streams.rack.aware.assignment.tags", "zone,cluster,rack")
    (status,) = member.beat().status
    assert status.status_code == HeartbeatStatus.MISSING_CLIENT_TAGS
    assert "assignment: [cluster, rack]." in status.status_detail
    assert group_of(harness).assignment_configs["rack.aware.assignment.tags"] == "zone,cluster,rack"
    assert member.ask(version=0).status == []
    assert harness.cluster.groups.rebalances["streams"] >= 2
    configure(harness, "streams.rack.aware.assignment.tags", "zone")
    assert member.beat().status == []
    assert GROUP in harness.cluster.groups.groups
