"""Groups among several nodes: members go on in their generation at the node that leads their partition from now on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from minibroker.protocol.errors import ErrorCode
from tests.broker.groups.classic.driving import Driver, answered
from tests.broker.handlers.test_partition_reassignments import move
from tests.broker.harness import Harness


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    with Harness(tmp_path, nodes=3, settings={"offsets.topic.replication.factor": "1"}) as harness:
        yield Driver(harness)


def test_members_continue_at_the_node_to_which_their_group_moves(driver: Driver) -> None:
    members = driver.stable(2)
    after = driver.node % 3 + 1
    topic = driver.harness.cluster.groups.log
    assert move(driver.harness, (topic.get_partition_index("g"), [after]), name=topic.name) == [(0, None)]
    assert {driver.heartbeat(member_id) for member_id in members} == {ErrorCode.NOT_COORDINATOR}
    assert answered(driver.ask_join()).error_code == ErrorCode.NOT_COORDINATOR
    driver.node = driver.harness.coordinator("g")
    assert driver.node == after
    assert {driver.heartbeat(member_id) for member_id in members} == {ErrorCode.NONE}
    leader, follower = members
    joining = driver.ask_join(leader)
    joined = {follower: answered(driver.ask_join(follower)), leader: joining.response()}
    assert {answer.generation_id for answer in joined.values()} == {2}
    driver.sync_all({leader: joined[leader], follower: joined[follower]})
    driver.harness.restart(crash=True)
    assert {driver.heartbeat(member_id, 2) for member_id in members} == {ErrorCode.NONE}


def test_members_continue_when_another_node_leads_their_offsets_partition(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        driver = Driver(harness)
        members = driver.stable(2)
        left = 3 - driver.node
        harness.restart(nodes=[left], crash=True)
        driver.node = harness.coordinator("g")
        assert driver.node == left
        assert {driver.heartbeat(member_id, 1) for member_id in members} == {ErrorCode.NONE}
