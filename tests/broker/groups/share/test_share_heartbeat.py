"""The heartbeats of large share groups: their target is made in steps, between which other requests are served."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from minibroker.broker.groups.group import Caller
from minibroker.broker.groups.share.share_group import SMALL
from minibroker.broker.groups.share.share_heartbeat import handle_share_heartbeat, initialize_share_states
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.share_groups import ShareGroupHeartbeatRequest
from minibroker.protocol.steps import WAITING, run_all_steps
from tests.broker.harness import Harness

GROUP, TOPIC = "s", "wide"
COUNT = 2 * SMALL


@pytest.fixture(autouse=True)
def wide(harness: Harness) -> None:
    harness.create_topic(TOPIC, COUNT)
    harness.coordinator(GROUP)
    run_all_steps(harness.cluster.share_states.log.create_topic_in_steps())


def steps_of(harness: Harness, member_id: str, epoch: int = 0) -> Generator[Any, None, Any]:
    """Return a heartbeat's steps, after its states have begun."""
    names = [TOPIC] if epoch == 0 else None
    request = ShareGroupHeartbeatRequest(
        group_id=GROUP, member_id=member_id, member_epoch=epoch, subscribed_topic_names=names
    )
    groups = harness.cluster.groups
    begun = run_all_steps(initialize_share_states(groups, harness.cluster.share_states, request))
    return handle_share_heartbeat(groups, request, Caller("c", "/127.0.0.1", 1), begun)


def counted(answer: Any) -> int:
    return sum(len(each.partitions) for each in answer.assignment.topic_partitions)


def test_other_heartbeats_wait_until_the_target_assignment_is_computed(harness: Harness) -> None:
    first = steps_of(harness, "m1")
    assert next(first) is not WAITING
    second = steps_of(harness, "m2")
    assert next(second) is WAITING
    assert counted(run_all_steps(first)) == COUNT
    assert counted(run_all_steps(second)) == COUNT // 2
    assert counted(run_all_steps(steps_of(harness, "m1", 2))) == COUNT // 2
    group = harness.cluster.groups.get_share_group(GROUP)
    assert (group.epoch, group.assignment_epoch, group.is_assigning) == (3, 3, False)
    assert harness.cluster.groups.rebalances == {"share": 2}


def test_a_share_group_that_became_empty_has_its_target_assignment_at_once(harness: Harness) -> None:
    run_all_steps(steps_of(harness, "m1"))
    group = harness.cluster.groups.get_share_group(GROUP)
    group.remove_members([group.members["m1"]])
    harness.restart(crash=True)
    group = harness.cluster.groups.get_share_group(GROUP)
    assert (group.assignment_epoch, group.assignment_timestamp_ms) == (group.epoch, 0)


def test_a_member_removed_during_the_assignment_gets_no_partitions(harness: Harness) -> None:
    steps = steps_of(harness, "m1")
    next(steps)
    group = harness.cluster.groups.get_share_group(GROUP)
    group.remove_members([group.members["m1"]])
    with pytest.raises(KafkaError) as raised:
        run_all_steps(steps)
    assert raised.value.code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (group.members, group.target, group.is_assigning) == ({}, {}, False)
    assert counted(run_all_steps(steps_of(harness, "m2"))) == COUNT


def test_a_heartbeat_abandoned_during_the_assignment_does_not_block_the_group(harness: Harness) -> None:
    steps = steps_of(harness, "m1")
    next(steps)
    steps.close()
    assert counted(run_all_steps(steps_of(harness, "m1"))) == COUNT
    members = harness.cluster.groups.get_share_group(GROUP).members
    harness.restart(crash=True)
    assert harness.cluster.groups.get_share_group(GROUP).members == members


def test_a_heartbeat_looks_up_its_group_again_if_it_was_deleted(harness: Harness) -> None:
    steps = steps_of(harness, "m1")
    next(steps)
    del harness.cluster.groups.groups[GROUP]
    with pytest.raises(KafkaError) as raised:
        run_all_steps(steps)
    assert raised.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert GROUP not in harness.cluster.groups.groups
