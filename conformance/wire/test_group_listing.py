"""DescribeGroups, ListGroups, DeleteGroups: what the answers say of groups in each state, and which can be deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from conformance.wire.connection import Connection
from conformance.wire.members import JOIN, SUBSCRIPTION, Member, join_request, until_rebalancing
from conformance.wire.requests import repeated
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest

OMITTED = -(1 << 31)
READ_DELETE_DESCRIBE_AND_CONFIGS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


@pytest.fixture
def member(connect: Callable[[], Connection], group: str) -> Iterator[Member]:
    """The only member of the group, which is stable."""
    with connect() as opened:
        made = Member(opened, group)
        made.settle()
        yield made


def described(connection: Connection, *names: str, version: int = 6, operations: bool = False) -> dict[str, Any]:
    request = DescribeGroupsRequest(groups=list(names), include_authorized_operations=operations)
    return {each.group_id: each for each in connection.ask(request, version).groups}


def listed(connection: Connection, *, version: int = 5, states: Any = (), types: Any = ()) -> dict[str, Any]:
    answer = connection.ask(ListGroupsRequest(states_filter=list(states), types_filter=list(types)), version)
    assert answer.error_code == 0
    return {each.group_id: each for each in answer.groups}


def deleted(connection: Connection, *names: str, version: int = 2) -> list[tuple[str, int]]:
    answer = connection.ask(DeleteGroupsRequest(groups_names=list(names)), version)
    return sorted((each.group_id, each.error_code) for each in answer.results)


@pytest.mark.parametrize("version", range(7))
def test_a_stable_group_is_described(connection: Connection, member: Member, version: int) -> None:
    (found,) = described(connection, member.group, version=version).values()
    assert (found.error_code, found.group_state) == (0, "Stable")
    assert (found.protocol_type, found.protocol_data) == ("consumer", "range")
    (only,) = found.members
    assert (only.member_id, only.group_instance_id) == (member.member_id, None)
    assert (only.client_id, only.client_host) == ("wire", "/127.0.0.1")
    assert (only.member_metadata, only.member_assignment) == (SUBSCRIPTION, b"all")
    assert found.authorized_operations == OMITTED
    assert found.error_message is None


def test_a_rebalancing_group_is_described(
    connection: Connection, connect: Callable[[], Connection], member: Member
) -> None:
    with connect() as opened:
        other = Member(opened, member.group)
        other.joining()
        until_rebalancing(member)
        found = described(connection, member.group)[member.group]
        assert (found.group_state, found.protocol_type, found.protocol_data) == ("PreparingRebalance", "consumer", "")
        assert {(each.member_metadata, each.member_assignment) for each in found.members} == {(b"", b"all"), (b"", b"")}
        assert {each.member_id for each in found.members} == {member.member_id, other.member_id}
        member.join()
        assert described(connection, member.group)[member.group].group_state == "CompletingRebalance"


def test_an_empty_group_is_described(connection: Connection, member: Member) -> None:
    member.leave()
    found = described(connection, member.group)[member.group]
    assert (found.error_code, found.group_state, found.members) == (0, "Empty", [])
    assert (found.protocol_type, found.protocol_data) == ("consumer", "")
    assert listed(connection)[member.group].group_state == "Empty"


def test_a_group_with_only_a_pending_member_is_described_as_empty(connection: Connection, group: str) -> None:
    connection.ask(join_request(group), JOIN)
    # Kafka answers before its record of the group is committed.
    found = repeated(lambda: described(connection, group)[group], lambda seen: bool(seen.error_code == 0))
    assert (found.error_code, found.group_state, found.protocol_type, found.members) == (0, "Empty", "", [])
    assert listed(connection)[group].protocol_type == ""


@pytest.mark.parametrize("version", range(7))
def test_an_unknown_group_is_described_as_dead(connection: Connection, group: str, version: int) -> None:
    (found,) = described(connection, group, version=version).values()
    assert (found.group_state, found.protocol_type, found.members) == ("Dead", "", [])
    if version >= 6:
        assert (found.error_code, found.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group} not found.")
    else:
        assert found.error_code == 0


def test_authorized_group_operations_are_described(connection: Connection, member: Member) -> None:
    found = described(connection, member.group, f"{member.group}-not", operations=True)
    assert found[member.group].authorized_operations == READ_DELETE_DESCRIBE_AND_CONFIGS
    assert found[f"{member.group}-not"].authorized_operations == OMITTED


@pytest.mark.parametrize("version", range(6))
def test_a_group_is_listed(connection: Connection, member: Member, version: int) -> None:
    found = listed(connection, version=version)[member.group]
    assert found.protocol_type == "consumer"
    assert found.group_state == ("Stable" if version >= 4 else "")
    assert found.group_type == ("classic" if version >= 5 else "")


@pytest.mark.parametrize(
    ("states", "types", "is_found"),
    [
        (["stable"], [], True),
        (["Empty", "STABLE"], ["cLASSIC"], True),
        (["Empty"], [], False),
        (["nonsense"], [], False),
        ([], ["consumer"], False),
        ([], ["consumer", "classic"], True),
        ([], ["nonsense"], False),
    ],
)
def test_listed_groups_are_filtered_by_state_and_type(
    connection: Connection, member: Member, states: Any, types: Any, is_found: bool
) -> None:
    assert (member.group in listed(connection, states=states, types=types)) == is_found


@pytest.mark.parametrize("version", range(3))
def test_only_an_empty_group_is_deleted(connection: Connection, member: Member, version: int) -> None:
    name, none = member.group, f"{member.group}-not"
    assert deleted(connection, name, none, name, version=version) == [
        (name, ErrorCode.NON_EMPTY_GROUP),
        (none, ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    member.leave()
    assert deleted(connection, name, version=version) == [(name, 0)]
    assert name not in listed(connection)
    assert deleted(connection, name, version=version) == [(name, ErrorCode.GROUP_ID_NOT_FOUND)]


def test_the_empty_group_id_is_not_found(connection: Connection) -> None:
    deleted(connection, "")  # other tests have committed offsets for it
    look_up_empty = described(connection, "")
    assert look_up_empty[""].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert deleted(connection, "") == [("", ErrorCode.GROUP_ID_NOT_FOUND)]
    assert deleted(connection) == []
