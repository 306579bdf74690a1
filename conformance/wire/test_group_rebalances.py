"""Classic groups: how one generation follows another, who leads and assigns, and who is out for being late.

A static member that comes back is in `test_static_members.py`, one that leaves in `test_group_membership.py`.
"""

from __future__ import annotations

import pytest

from conformance.wire.conftest import NewMember
from conformance.wire.members import JOIN, LEAVE, SUBSCRIPTION, join_request, rebalanced, until_rebalancing
from conformance.wire.requests import repeated
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.groups import LeaveGroupRequest

CHANGED = SUBSCRIPTION.replace(b"t", b"u")


def test_a_second_member_starts_another_generation(new_member: NewMember) -> None:
    first, second = new_member(), new_member()
    first.settle()
    ours = second.joining()
    until_rebalancing(first)
    assert first.sync().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    theirs = first.join()
    mine = ours()
    assert theirs.generation_id == mine.generation_id == 2
    assert theirs.leader == mine.leader == first.member_id
    assert {each.member_id for each in theirs.members} == {first.member_id, second.member_id}
    assert mine.members == []
    waiting = second.syncing()
    assert second.member_id != first.member_id
    assert first.sync({first.member_id: b"1", second.member_id: b"2"}).assignment == b"1"
    assert waiting().assignment == b"2"
    assert (first.heartbeat(), second.heartbeat()) == (0, 0)


def test_the_previous_generation_is_fenced(new_member: NewMember) -> None:
    first, second = new_member(), new_member()
    first.settle()
    rebalanced(first, second)
    for generation in (1, 3, -1):
        assert first.heartbeat(generation_id=generation) == ErrorCode.ILLEGAL_GENERATION
        assert first.sync(generation_id=generation).error_code == ErrorCode.ILLEGAL_GENERATION
    assert first.heartbeat() == 0


def test_a_member_that_the_leader_omits_gets_an_empty_assignment(new_member: NewMember) -> None:
    first, second = new_member(), new_member()
    first.settle()
    rebalanced(first, second)
    waiting = second.syncing()
    assert first.sync({first.member_id: b"1", "nobody": b"3"}).assignment == b"1"
    answer = waiting()
    assert (answer.error_code, answer.assignment) == (0, b"")


def test_an_assignment_by_a_follower_is_ignored(new_member: NewMember) -> None:
    first, second = new_member(), new_member()
    first.settle()
    rebalanced(first, second)
    waiting = second.syncing({first.member_id: b"stolen", second.member_id: b"stolen"})
    assert first.sync({first.member_id: b"1", second.member_id: b"2"}).assignment == b"1"
    assert waiting().assignment == b"2"


def test_a_repeated_sync_in_a_stable_group_returns_the_existing_assignment(new_member: NewMember) -> None:
    member = new_member()
    member.settle()
    assert member.sync({member.member_id: b"other"}).assignment == b"all"


def test_a_follower_that_rejoins_unchanged_gets_the_same_generation(new_member: NewMember) -> None:
    first, second = new_member(), new_member()
    first.settle()
    rebalanced(first, second)
    again = second.join()
    assert (again.error_code, again.generation_id, again.members) == (0, 2, [])
    leader = first.join()
    assert (leader.generation_id, len(leader.members)) == (2, 2)
    waiting = second.syncing()
    first.sync({})
    waiting()
    again = second.join()
    assert (again.error_code, again.generation_id, again.leader) == (0, 2, first.member_id)
    assert (again.members, again.skip_assignment, again.protocol_type) == ([], False, "consumer")


def test_a_leader_that_rejoins_starts_another_generation(new_member: NewMember) -> None:
    member = new_member()
    member.settle()
    assert member.join().generation_id == 2


def test_a_member_that_changes_its_protocols_starts_another_generation(new_member: NewMember) -> None:
    first, second = new_member(), new_member()
    first.settle()
    rebalanced(first, second)
    waiting = second.syncing()
    first.sync({})
    waiting()
    second.settings["protocols"] = (("range", CHANGED),)
    ours = second.joining()
    until_rebalancing(first)
    answer = first.join()
    assert {each.metadata for each in answer.members} == {SUBSCRIPTION, CHANGED}
    assert ours().generation_id == 3


def test_a_member_waiting_for_an_assignment_rejoins_when_another_joins(new_member: NewMember) -> None:
    first, second, third = new_member(), new_member(), new_member()
    first.settle()
    rebalanced(first, second)
    waiting = second.syncing()
    ours = third.joining()
    answer = waiting()
    assert (answer.error_code, answer.assignment) == (ErrorCode.REBALANCE_IN_PROGRESS, b"")
    assert first.sync({}).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    joining = second.joining()
    assert first.join().generation_id == joining().generation_id == ours().generation_id == 3


@pytest.mark.parametrize(
    ("preferences", "chosen"),
    [
        ((("a", "b"), ("b", "a"), ("b", "a")), "b"),
        ((("a", "b", "c"), ("c", "b"), ("b", "c")), "b"),
        ((("a", "b"), ("c", "b")), "b"),
        ((("range", "cooperative-sticky"), ("cooperative-sticky", "range")), "range"),
        ((("cooperative-sticky", "range"), ("range", "cooperative-sticky")), "range"),
        ((("roundrobin", "range"), ("range", "roundrobin")), "range"),
        ((("roundrobin", "sticky"), ("sticky", "roundrobin")), "sticky"),
        ((("a", "b"), ("b", "a")), "a"),
        ((("b", "a"), ("a", "b")), "a"),
    ],
)
def test_the_common_protocol_with_the_most_votes_is_chosen(
    new_member: NewMember, preferences: tuple[tuple[str, ...], ...], chosen: str
) -> None:
    members = [new_member(protocols=[(name, name.encode()) for name in names]) for names in preferences]
    members[0].settle()
    for count in range(2, len(members) + 1):
        answers = rebalanced(*members[:count])
    assert [answer.protocol_name for answer in answers] == [chosen] * len(members)
    assert [each.metadata for each in answers[0].members] == [chosen.encode()] * len(members)


def test_a_member_that_does_not_rejoin_in_time_is_removed(new_member: NewMember) -> None:
    first, second = new_member(rebalance_ms=500), new_member(rebalance_ms=500)
    first.settle()
    answer = second.join()
    assert (answer.generation_id, answer.leader) == (2, second.member_id)
    assert [each.member_id for each in answer.members] == [second.member_id]
    assert first.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert first.sync().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    late = first.connection.ask(join_request(first.group, first.member_id), JOIN)
    assert late.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_sync_in_time_is_removed(new_member: NewMember) -> None:
    first, second = new_member(rebalance_ms=500), new_member(rebalance_ms=500)
    first.settle()
    rebalanced(first, second)
    assert first.sync({first.member_id: b"1", second.member_id: b"2"}).assignment == b"1"
    until_rebalancing(first)
    answer = first.join()
    assert [each.member_id for each in answer.members] == [first.member_id]
    assert second.sync().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_sync_in_time_is_removed(new_member: NewMember) -> None:
    first, second = new_member(rebalance_ms=500), new_member(rebalance_ms=500)
    first.settle()
    rebalanced(first, second)
    answer = second.sync()
    assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    joined = second.join()
    assert (joined.leader, len(joined.members)) == (second.member_id, 1)


def test_a_member_without_heartbeats_is_removed_after_its_session_timeout(new_member: NewMember) -> None:
    silent, other = new_member(session_ms=6_000), new_member(session_ms=6_000)
    silent.settle()
    rebalanced(silent, other)
    waiting = other.syncing()
    silent.sync({})
    waiting()
    until_rebalancing(other)
    answer = other.join()
    assert (answer.leader, len(answer.members)) == (other.member_id, 1)
    assert silent.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_leaves_during_its_join_is_removed(new_member: NewMember) -> None:
    minutes_ms = 300_000  # only its LeaveGroup ends it while the test runs
    first, second = new_member(), new_member(session_ms=minutes_ms, rebalance_ms=minutes_ms)
    first.settle()
    second.joining()
    until_rebalancing(first)
    leaving = LeaveGroupRequest.MemberIdentity(member_id=second.member_id)
    second.connection.send(LeaveGroupRequest(group_id=first.group, members=[leaving]), LEAVE)
    second.connection.close()

    def ids_of_members() -> set[str]:
        return {member.member_id for member in first.join().members}

    alone = {first.member_id}
    assert repeated(ids_of_members, lambda seen: seen == alone) == alone
