"""DescribeGroups, ListGroups, DeleteGroups in all versions: each group is answered for itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.groups import group_entries
from minibroker.broker.groups.offsets_of_group import CommittedOffset
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from tests.broker.groups.classic.driving import Driver, answered, subscription
from tests.broker.harness import Harness, served_versions
from tests.cases import for_each

DESCRIBE_VERSIONS = served_versions(DescribeGroupsRequest)
LIST_VERSIONS = served_versions(ListGroupsRequest)
DELETE_VERSIONS = served_versions(DeleteGroupsRequest)
OMITTED = -(1 << 31)
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
    harness.cluster.groups.append(group, [group_entries.offset_entry(group, "t", 0, OFFSET)])
    harness.cluster.groups.classic_group_or_new(group).offsets.apply("t", 0, OFFSET)


# --- DescribeGroups -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", DESCRIBE_VERSIONS)
def test_a_stable_group_is_described_completely(driver: Driver, version: int) -> None:
    (member_id,) = driver.stable()
    (group,) = describe(driver.harness, "g", version=version)
    assert (group.error_code, group.group_id, group.group_state) == (0, "g", "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    (member,) = group.members
    assert (member.member_id, member.client_id, member.client_host) == (member_id, "test", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (subscription("t"), b"0")
    assert group.authorized_operations == OMITTED


def test_a_static_member_is_described_with_its_instance_id(driver: Driver) -> None:
    driver.ask_join(instance="i")
    (group,) = describe(driver.harness, "g")
    assert [member.group_instance_id for member in group.members] == ["i"]


def test_members_metadata_is_described_only_for_a_stable_group(driver: Driver) -> None:
    (member_id,) = driver.stable()
    driver.ask_join()
    driver.ask_join(member_id)
    (group,) = describe(driver.harness, "g")
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert [(one.member_id, one.member_metadata, one.member_assignment) for one in group.members] == [
        (member_id, b"", b"0")
    ]


@for_each("version", DESCRIBE_VERSIONS)
def test_an_unknown_group_is_dead_and_from_version_6_not_found(driver: Driver, version: int) -> None:
    none, empty = describe(driver.harness, "none", "", version=version, **operations(version))
    for group in (none, empty):
        assert (group.group_state, group.members) == ("Dead", [])
        assert group.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
    assert none.error_message == ("Group none not found." if version >= 6 else None)
    if version >= 3:
        assert (none.authorized_operations == OMITTED) == (version >= 6)


def operations(version: int) -> dict[str, bool]:
    return {"include_authorized_operations": True} if version >= 3 else {}


def test_authorized_operations_are_described_on_request(driver: Driver) -> None:
    driver.stable()
    (group,) = describe(driver.harness, "g", include_authorized_operations=True)
    assert group.authorized_operations == sum(1 << bit for bit in (3, 6, 8, 10, 11))


def test_only_the_coordinator_describes_a_group(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        (group,) = describe(harness, "g", node=3 - harness.coordinator("g"))
        assert (group.error_code, group.group_state) == (ErrorCode.NOT_COORDINATOR, "")


# --- ListGroups ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", LIST_VERSIONS)
def test_groups_are_listed(driver: Driver, version: int) -> None:
    driver.stable()
    commit(driver.harness, "offsets-only")
    answer = driver.harness.request(ListGroupsRequest(), version)
    assert answer.error_code == 0
    assert {group.group_id: group.protocol_type for group in answer.groups} == {"g": "consumer", "offsets-only": ""}
    if version >= 4:
        assert [group.group_state for group in answer.groups] == ["Empty", "Stable"]
    if version >= 5:
        assert [group.group_type for group in answer.groups] == ["classic", "classic"]


@pytest.mark.parametrize(
    ("states", "types", "found"),
    [
        (["Stable"], [], ["g"]),
        (["sTaBLE", "PreparingRebalance"], ["CLASSIC"], ["g"]),
        (["Empty"], [], ["offsets-only"]),
        (["Dead", "nonsense"], [], []),
        ([], ["consumer"], []),
        ([], ["classic", "consumer"], ["offsets-only", "g"]),
        ([], ["nonsense"], []),
    ],
)
def test_groups_are_filtered(driver: Driver, states: list[str], types: list[str], found: list[str]) -> None:
    driver.stable()
    commit(driver.harness, "offsets-only")
    answer = driver.harness.request(ListGroupsRequest(states_filter=states, types_filter=types))
    assert [group.group_id for group in answer.groups] == found


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


@pytest.mark.parametrize("version", DELETE_VERSIONS)
def test_each_group_is_deleted_separately(driver: Driver, version: int) -> None:
    driver.stable()
    commit(driver.harness, "old")
    names = ["old", "g", "none", "", "old"]
    answer = answered(driver.harness.request(DeleteGroupsRequest(groups_names=names), version))
    assert [(result.group_id, result.error_code) for result in answer.results] == [
        ("old", ErrorCode.NONE),
        ("g", ErrorCode.NON_EMPTY_GROUP),
        ("none", ErrorCode.GROUP_ID_NOT_FOUND),
        ("", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    driver.harness.restart()
    assert list(driver.harness.cluster.groups.groups) == ["g"]


def test_a_group_whose_members_have_left_can_be_deleted(driver: Driver) -> None:
    (member_id,) = driver.stable()
    driver.leave(member_id)
    (result,) = answered(driver.harness.request(DeleteGroupsRequest(groups_names=["g"]))).results
    assert result.error_code == 0
    (group,) = describe(driver.harness, "g")
    assert group.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_only_the_coordinator_deletes_a_group(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        commit(harness, "g")
        request = DeleteGroupsRequest(groups_names=["g"])
        (result,) = harness.request(request, node=3 - harness.coordinator("g")).results
        assert result.error_code == ErrorCode.NOT_COORDINATOR


def test_a_group_whose_deletion_cannot_be_written_stays(driver: Driver) -> None:
    commit(driver.harness, "old")
    topic = driver.harness.cluster.groups.log
    driver.harness.partition(topic.name, topic.partition_of("old")).log.offline = "the disk is gone"
    (result,) = driver.harness.request(DeleteGroupsRequest(groups_names=["old"])).results
    assert result.error_code == ErrorCode.NOT_COORDINATOR
    assert "old" in driver.harness.cluster.groups.groups


def test_a_deletion_is_answered_after_the_fsync_if_the_topic_requires_it(driver: Driver) -> None:
    commit(driver.harness, "old")
    commit(driver.harness, "older")
    topic = driver.harness.cluster.groups.log
    for name in ("old", "older"):
        kept = driver.harness.partition(topic.name, topic.partition_of(name)).log
        kept.flush_at = kept.log_end_offset + 1
    driver.harness.clock.holds_aside = True
    waiting = driver.harness.request(DeleteGroupsRequest(groups_names=["old", "none", "older"]))
    assert not waiting.done
    driver.harness.clock.do_aside()
    codes = [result.error_code for result in waiting.response().results]
    assert codes == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NONE]
