"""DescribeGroups, ListGroups, DeleteGroups on several nodes, and on a disk that fails or is slow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.groups import group_entries
from minibroker.broker.groups.offsets_of_group import CommittedOffset
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from tests.broker.groups.classic.driving import Driver
from tests.broker.harness import Harness

OFFSET = CommittedOffset(5, -1, "", 1_700_000_000_000)


@pytest.fixture
def driver(harness: Harness) -> Driver:
    return Driver(harness)


def describe(harness: Harness, *groups: str, version: int = 6, node: int = 1, **more: Any) -> list[Any]:
    answer = harness.request(DescribeGroupsRequest(groups=list(groups), **more), version, node=node)
    described: list[Any] = answer.groups
    return described


def commit(harness: Harness, group: str) -> None:
    """Make a group that only commits offsets."""
    harness.coordinator(group)
    harness.cluster.groups.append_entries(group, [group_entries.encode_offset_entry(group, "t", 0, OFFSET)])
    harness.cluster.groups.find_or_make_classic_group(group).offsets.apply_offset("t", 0, OFFSET)


# --- DescribeGroups -----------------------------------------------------------------------------


def test_a_static_member_is_described_with_its_instance_id(driver: Driver) -> None:
    driver.ask_join(instance="i")
    (group,) = describe(driver.harness, "g")
    assert [member.group_instance_id for member in group.members] == ["i"]


def test_only_the_coordinator_describes_a_group(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        (group,) = describe(harness, "g", node=3 - harness.coordinator("g"))
        assert (group.error_code, group.group_state) == (ErrorCode.NOT_COORDINATOR, "")


# --- ListGroups ---------------------------------------------------------------------------------


def test_each_node_lists_the_groups_that_it_coordinates(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        owners = {f"g{number}": harness.coordinator(f"g{number}") for number in range(10)}
        for group in owners:
            commit(harness, group)
        for node in (1, 2):
            answer = harness.request(ListGroupsRequest(), node=node)
            assert {group.group_id for group in answer.groups} == {
                group for group, owner in owners.items() if owner == node
            }


def test_a_cluster_without_groups_lists_none(harness: Harness) -> None:
    assert harness.request(ListGroupsRequest()).groups == []


# --- DeleteGroups -------------------------------------------------------------------------------


def test_only_the_coordinator_deletes_a_group(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        commit(harness, "g")
        request = DeleteGroupsRequest(groups_names=["g"])
        (result,) = harness.request(request, node=3 - harness.coordinator("g")).results
        assert result.error_code == ErrorCode.NOT_COORDINATOR


def test_a_group_whose_deletion_cannot_be_written_is_not_deleted(driver: Driver) -> None:
    commit(driver.harness, "old")
    topic = driver.harness.cluster.groups.log
    driver.harness.partition(topic.name, topic.get_partition_index("old")).log.offline = "the disk is gone"
    (result,) = driver.harness.request(DeleteGroupsRequest(groups_names=["old"])).results
    assert result.error_code == ErrorCode.NOT_COORDINATOR
    assert "old" in driver.harness.cluster.groups.groups


def test_a_deletion_is_answered_after_the_fsync_if_the_topic_requires_it(driver: Driver) -> None:
    commit(driver.harness, "old")
    commit(driver.harness, "older")
    topic = driver.harness.cluster.groups.log
    for name in ("old", "older"):
        kept = driver.harness.partition(topic.name, topic.get_partition_index(name)).log
        kept.flush_at = kept.log_end_offset + 1
    driver.harness.clock.holds_aside = True
    waiting = driver.harness.request(DeleteGroupsRequest(groups_names=["old", "none", "older"]))
    assert not waiting.done
    driver.harness.clock.do_aside()
    codes = [result.error_code for result in waiting.response().results]
    assert codes == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NONE]
