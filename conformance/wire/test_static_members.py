"""Classic groups: static members (KIP-345), who come back into their generation and fence whoever they were before.

What they have in common with other members is in `test_group_joining.py` and its neighbours.
"""

from __future__ import annotations

import pytest

from conformance.wire.conftest import NewMember
from conformance.wire.connection import Connection
from conformance.wire.members import JOIN, join_request, rebalanced, until_rebalancing
from minibroker.protocol.errors import ErrorCode


@pytest.mark.parametrize("version", range(5, 10))
def test_a_static_leader_rejoins_its_generation(new_member: NewMember, version: int) -> None:
    before, after = new_member(instance="i"), new_member(instance="i")
    before.settle()
    again = after.join(version)
    assert (again.error_code, again.generation_id, again.protocol_name) == (0, 1, "range")
    assert after.member_id != before.member_id
    assert after.member_id.startswith("i-")
    if version >= 9:
        assert (again.leader, again.skip_assignment) == (after.member_id, True)
        assert [(each.member_id, each.group_instance_id) for each in again.members] == [(after.member_id, "i")]
    else:
        assert (again.leader, again.members) == (before.member_id, [])
    assert after.sync().assignment == b"all"
    assert after.heartbeat() == 0


def test_a_static_follower_rejoins_its_generation(new_member: NewMember) -> None:
    leader, before, after = new_member(), new_member(instance="i"), new_member(instance="i")
    leader.settle()
    rebalanced(leader, before)
    waiting = before.syncing()
    leader.sync({leader.member_id: b"1", before.member_id: b"2"})
    waiting()
    again = after.join()
    assert (again.generation_id, again.leader, again.skip_assignment) == (2, leader.member_id, False)
    assert again.members == []
    assert after.sync().assignment == b"2"
    assert leader.heartbeat() == 0


def test_the_previous_member_of_an_instance_is_fenced(
    connection: Connection, new_member: NewMember, group: str
) -> None:
    before, after = new_member(instance="i"), new_member(instance="i")
    before.settle()
    after.join()
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert before.heartbeat() == fenced
    assert before.heartbeat(generation_id=9) == fenced
    assert before.sync().error_code == fenced
    assert [each.error_code for each in before.leave().members] == [fenced]
    answer = connection.ask(join_request(group, before.member_id, instance="i"), JOIN)
    assert (answer.error_code, answer.member_id, answer.protocol_name) == (fenced, before.member_id, None)
    assert before.heartbeat(group_instance_id=None) == ErrorCode.UNKNOWN_MEMBER_ID
    unknown = connection.ask(join_request(group, after.member_id, instance="other"), JOIN)
    assert unknown.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert after.heartbeat() == 0


def test_a_pending_join_is_fenced_by_another_join_of_its_instance_id(new_member: NewMember) -> None:
    other, before, after = new_member(), new_member(instance="i"), new_member(instance="i")
    other.settle()
    waiting = before.joining()
    until_rebalancing(other)
    ours = after.joining()
    assert waiting().error_code == ErrorCode.FENCED_INSTANCE_ID
    answer = other.join()
    assert ours().generation_id == answer.generation_id == 2
    assert {each.member_id for each in answer.members} == {other.member_id, after.member_id}


def test_a_pending_sync_is_fenced_by_a_join_of_its_instance_id(new_member: NewMember) -> None:
    leader, before, after = new_member(), new_member(instance="i"), new_member(instance="i")
    leader.settle()
    rebalanced(leader, before)
    waiting = before.syncing()
    ours = after.joining()
    assert waiting().error_code == ErrorCode.FENCED_INSTANCE_ID
    until_rebalancing(leader)
    assert leader.join().generation_id == ours().generation_id == 3


def test_a_static_member_that_changes_the_protocol_starts_another_generation(new_member: NewMember) -> None:
    both = (("range", b"r"), ("sticky", b"s"))
    before = new_member(instance="i", protocols=both)
    after = new_member(instance="i", protocols=(both[1], both[0]))
    assert before.settle().protocol_name == "range"
    answer = after.join()
    assert (answer.generation_id, answer.protocol_name, answer.skip_assignment) == (2, "sticky", False)


def test_a_rebalance_waits_for_an_absent_static_member(new_member: NewMember) -> None:
    other, away = new_member(rebalance_ms=500), new_member(instance="i", rebalance_ms=500)
    other.settle()
    rebalanced(other, away)
    waiting = away.syncing()
    other.sync({})
    waiting()
    answer = other.join()
    assert {each.group_instance_id for each in answer.members} == {None, "i"}
    assert other.sync({other.member_id: b"1", away.member_id: b"2"}).assignment == b"1"
    assert away.heartbeat(generation_id=answer.generation_id) in (0, ErrorCode.REBALANCE_IN_PROGRESS)


def test_a_static_member_cannot_use_a_pending_member_id(connection: Connection, group: str) -> None:
    member_id = connection.ask(join_request(group), JOIN).member_id
    answer = connection.ask(join_request(group, member_id, instance="i"), JOIN)
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
