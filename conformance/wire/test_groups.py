"""Classic groups: how members join, are assigned, stay and go, and every code for those who may not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Protocol

import pytest

from conformance.wire.connection import Connection
from conformance.wire.members import (
    JOIN,
    RANGE,
    SUBSCRIPTION,
    Member,
    join_request,
    look_up,
    rebalanced,
    until_rebalancing,
)
from conformance.wire.requests import repeated
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.groups import JoinGroupRequest
from minibroker.protocol.primitives import varint

CHANGED = SUBSCRIPTION.replace(b"t", b"u")


class NewMember(Protocol):
    """Makes a member of the test's group, on a connection of its own; `settings` are those of `join_request`."""

    def __call__(self, **settings: Any) -> Member: ...


@pytest.fixture
def group(connection: Connection, new_name: Callable[[], str]) -> str:
    """A group id that nobody else has, of a group that does not exist."""
    name = f"group-{new_name()}"
    look_up(connection, name)
    return name


@pytest.fixture
def new_member(connect: Callable[[], Connection], group: str) -> Iterator[NewMember]:
    with ExitStack() as stack:
        yield lambda **settings: Member(stack.enter_context(connect()), group, **settings)


# --- joining ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(10))
def test_one_member_from_joining_to_leaving(new_member: NewMember, version: int) -> None:
    member = new_member()
    joined = member.join(version)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.leader == joined.member_id == member.member_id
    assert [(each.member_id, each.group_instance_id, each.metadata) for each in joined.members] == [
        (member.member_id, None, SUBSCRIPTION)
    ]
    assert joined.skip_assignment is False
    assert joined.protocol_type == ("consumer" if version >= 7 else None)
    assert member.heartbeat(min(version, 4)) == 0
    synced = member.sync({member.member_id: b"mine"}, min(version, 5))
    assert (synced.error_code, synced.assignment) == (0, b"mine")
    assert (synced.protocol_type, synced.protocol_name) == (("consumer", "range") if version >= 5 else (None, None))
    assert member.heartbeat(min(version, 4)) == 0
    left = member.leave(version=min(version, 5))
    assert left.error_code == 0
    assert [(each.member_id, each.error_code) for each in left.members] == (
        [(member.member_id, 0)] if version >= 3 else []
    )
    assert member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(4, 10))
def test_who_comes_without_an_id_is_given_one(connection: Connection, group: str, version: int) -> None:
    answer = connection.ask(join_request(group), version)
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id.startswith("wire-")
    assert (answer.generation_id, answer.protocol_type) == (-1, None)
    assert answer.protocol_name == (None if version >= 7 else "")
    assert (answer.leader, answer.members) == ("", [])


@pytest.mark.parametrize("version", range(10))
def test_a_group_id_that_is_empty(connection: Connection, group: str, version: int) -> None:
    answer = connection.ask(join_request("", "m"), version)
    assert (answer.error_code, answer.member_id) == (ErrorCode.INVALID_GROUP_ID, "m")
    named = Member(connection, "")
    assert named.sync(version=min(version, 4)).error_code == ErrorCode.INVALID_GROUP_ID
    assert named.heartbeat(min(version, 4)) == ErrorCode.INVALID_GROUP_ID
    left = named.leave(("m", None), version=min(version, 5))
    assert (left.error_code, left.members) == (ErrorCode.INVALID_GROUP_ID, [])


def test_a_group_id_of_the_greatest_length(connection: Connection) -> None:
    name = "g" * 32_767
    look_up(connection, name)
    assert connection.ask(join_request(name), JOIN).error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert connection.ask(join_request(name), 5).error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_a_group_id_that_is_too_long(connection: Connection, group: str) -> None:
    rest = join_request("").encode(JOIN)[1:]  # after the one byte of the empty group id
    body = varint(32_768 + 1) + b"g" * 32_768 + rest
    connection.send_request(JoinGroupRequest.api_key, JOIN, body, header_version=2)
    assert connection.is_closed()


@pytest.mark.parametrize("session_ms", [-1, 0, 5_999, 1_800_001, (1 << 31) - 1])
def test_a_session_timeout_out_of_bounds(connection: Connection, group: str, session_ms: int) -> None:
    answer = connection.ask(join_request(group, "m", session_ms=session_ms), JOIN)
    assert (answer.error_code, answer.member_id) == (ErrorCode.INVALID_SESSION_TIMEOUT, "m")


@pytest.mark.parametrize("version", [0, 4, 6, 7, 9])
def test_a_member_of_no_group(connection: Connection, group: str, version: int) -> None:
    answer = connection.ask(join_request(group, "nobody"), version)
    assert (answer.error_code, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "nobody")
    assert (answer.generation_id, answer.protocol_name) == (-1, None if version >= 7 else "")


@pytest.mark.parametrize("version", [0, 4, 6, 7, 9])
def test_a_member_that_is_none(connection: Connection, new_member: NewMember, group: str, version: int) -> None:
    member = new_member()
    member.settle()
    answer = connection.ask(join_request(group, "nobody"), version)
    assert (answer.error_code, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "nobody")
    assert answer.protocol_name == (None if version >= 7 else "")
    assert member.heartbeat() == 0


@pytest.mark.parametrize(("kind", "protocols"), [("", RANGE), ("consumer", ())])
@pytest.mark.parametrize("version", [0, 4, 9])
def test_no_protocol_at_all(connection: Connection, group: str, version: int, kind: str, protocols: Any) -> None:
    answer = connection.ask(join_request(group, kind=kind, protocols=protocols), version)
    assert (answer.error_code, answer.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")


@pytest.mark.parametrize(
    ("kind", "protocols"), [("connect", RANGE), ("consumer", (("sticky", b""),)), ("consumer", ())]
)
@pytest.mark.parametrize("version", [0, 4, 9])
def test_a_protocol_that_the_others_do_not_share(
    connection: Connection, new_member: NewMember, group: str, version: int, kind: str, protocols: Any
) -> None:
    member = new_member()
    member.settle()
    answer = connection.ask(join_request(group, kind=kind, protocols=protocols), version)
    assert (answer.error_code, answer.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    answer = connection.ask(join_request(group, member.member_id, kind=kind, protocols=()), version)
    assert (answer.error_code, answer.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member.member_id)
    assert member.heartbeat() == 0


# --- rebalancing --------------------------------------------------------------------------------


def test_a_second_member_takes_another_generation(new_member: NewMember) -> None:
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


def test_the_generation_before_is_fenced(new_member: NewMember) -> None:
    first, second = new_member(), new_member()
    first.settle()
    rebalanced(first, second)
    for generation in (1, 3, -1):
        assert first.heartbeat(generation_id=generation) == ErrorCode.ILLEGAL_GENERATION
        assert first.sync(generation_id=generation).error_code == ErrorCode.ILLEGAL_GENERATION
    assert first.heartbeat() == 0


def test_an_assignment_that_the_leader_forgets_is_empty(new_member: NewMember) -> None:
    first, second = new_member(), new_member()
    first.settle()
    rebalanced(first, second)
    waiting = second.syncing()
    assert first.sync({first.member_id: b"1", "nobody": b"3"}).assignment == b"1"
    answer = waiting()
    assert (answer.error_code, answer.assignment) == (0, b"")


def test_a_follower_that_assigns_is_not_heard(new_member: NewMember) -> None:
    first, second = new_member(), new_member()
    first.settle()
    rebalanced(first, second)
    waiting = second.syncing({first.member_id: b"stolen", second.member_id: b"stolen"})
    assert first.sync({first.member_id: b"1", second.member_id: b"2"}).assignment == b"1"
    assert waiting().assignment == b"2"


def test_a_stable_group_tells_the_assignment_again(new_member: NewMember) -> None:
    member = new_member()
    member.settle()
    assert member.sync({member.member_id: b"other"}).assignment == b"all"


def test_a_follower_that_joins_unchanged_is_told_the_generation_again(new_member: NewMember) -> None:
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


def test_a_leader_that_joins_again_takes_another_generation(new_member: NewMember) -> None:
    member = new_member()
    member.settle()
    assert member.join().generation_id == 2


def test_a_member_that_changes_takes_another_generation(new_member: NewMember) -> None:
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


def test_who_waits_for_an_assignment_joins_again_when_somebody_comes(new_member: NewMember) -> None:
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
    ],
)
def test_the_protocol_that_most_like_best_of_those_that_all_understand(
    new_member: NewMember, preferences: tuple[tuple[str, ...], ...], chosen: str
) -> None:
    members = [new_member(protocols=[(name, name.encode()) for name in names]) for names in preferences]
    members[0].settle()
    for count in range(2, len(members) + 1):
        answers = rebalanced(*members[:count])
    assert [answer.protocol_name for answer in answers] == [chosen] * len(members)
    assert [each.metadata for each in answers[0].members] == [chosen.encode()] * len(members)


def test_who_does_not_join_in_time_is_out(new_member: NewMember) -> None:
    first, second = new_member(rebalance_ms=500), new_member(rebalance_ms=500)
    first.settle()
    answer = second.join()
    assert (answer.generation_id, answer.leader) == (2, second.member_id)
    assert [each.member_id for each in answer.members] == [second.member_id]
    assert first.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert first.sync().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    late = first.connection.ask(join_request(first.group, first.member_id), JOIN)
    assert late.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_who_joins_and_does_not_sync_in_time_is_out(new_member: NewMember) -> None:
    first, second = new_member(rebalance_ms=500), new_member(rebalance_ms=500)
    first.settle()
    rebalanced(first, second)
    assert first.sync({first.member_id: b"1", second.member_id: b"2"}).assignment == b"1"
    until_rebalancing(first)
    answer = first.join()
    assert [each.member_id for each in answer.members] == [first.member_id]
    assert second.sync().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_leader_that_does_not_sync_in_time_is_out(new_member: NewMember) -> None:
    first, second = new_member(rebalance_ms=500), new_member(rebalance_ms=500)
    first.settle()
    rebalanced(first, second)
    answer = second.sync()
    assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    joined = second.join()
    assert (joined.leader, len(joined.members)) == (second.member_id, 1)


def test_who_falls_silent_is_out_after_its_session_timeout(new_member: NewMember) -> None:
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


# --- syncing and heartbeats ---------------------------------------------------------------------


def test_whom_a_sync_is_refused(new_member: NewMember) -> None:
    member = new_member()
    assert member.sync(protocol_name="range").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    member.settle()
    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert member.sync(member_id="nobody").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.sync(group_instance_id="i").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.sync(protocol_type="connect").error_code == code
    assert member.sync(protocol_name="sticky").error_code == code
    assert member.sync(protocol_type=None).error_code == code
    assert member.sync(protocol_name=None).error_code == code
    assert member.sync(version=4).error_code == 0
    assert member.sync(generation_id=7, protocol_type="connect").error_code == ErrorCode.ILLEGAL_GENERATION
    assert member.sync(generation_id=7, member_id="nobody").error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_whose_heartbeat_is_refused(new_member: NewMember) -> None:
    member = new_member()
    assert member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    member.settle()
    assert member.heartbeat(member_id="nobody", generation_id=9) == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.heartbeat(member_id="") == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.heartbeat(generation_id=9) == ErrorCode.ILLEGAL_GENERATION
    assert member.heartbeat(group_instance_id="i") == ErrorCode.UNKNOWN_MEMBER_ID
    member.leave()
    assert member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


# --- leaving ------------------------------------------------------------------------------------


def test_who_stays_takes_another_generation(new_member: NewMember) -> None:
    first, second = new_member(), new_member()
    first.settle()
    rebalanced(first, second)
    first.leave()
    assert second.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    answer = second.join()
    assert (answer.generation_id, answer.leader, len(answer.members)) == (3, second.member_id, 1)


def test_several_leave_and_each_is_answered_for_itself(new_member: NewMember) -> None:
    first, second, static = new_member(), new_member(), new_member(instance="i")
    first.settle()
    rebalanced(first, second)
    rebalanced(first, second, static)
    answer = first.leave(
        (second.member_id, None),
        (second.member_id, None),
        ("nobody", None),
        ("", None),
        ("", "nobody"),
        ("wrong", "i"),
        ("", "i"),
        (first.member_id, "i"),
    )
    assert answer.error_code == 0
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [(each.member_id, each.group_instance_id, each.error_code) for each in answer.members] == [
        (second.member_id, None, 0),
        (second.member_id, None, unknown),
        ("nobody", None, unknown),
        ("", None, unknown),
        ("", "nobody", unknown),
        ("wrong", "i", ErrorCode.FENCED_INSTANCE_ID),
        ("", "i", 0),
        (first.member_id, "i", unknown),
    ]
    assert static.heartbeat() == unknown
    assert [each.member_id for each in first.join().members] == [first.member_id]


def test_an_id_that_was_given_out_can_be_given_back(connection: Connection, new_member: NewMember, group: str) -> None:
    member_id = connection.ask(join_request(group), JOIN).member_id
    answer = new_member().leave((member_id, None))
    assert [each.error_code for each in answer.members] == [0]
    assert connection.ask(join_request(group, member_id), JOIN).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(6))
def test_leaving_no_group(new_member: NewMember, version: int) -> None:
    answer = new_member().leave(("m", None), version=version)
    codes = [each.error_code for each in answer.members] if version >= 3 else [answer.error_code]
    assert codes == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_nobody_leaves(new_member: NewMember) -> None:
    member = new_member()
    member.settle()
    (left,) = member.leave(("nobody", None)).members
    assert left.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.heartbeat() == 0


# --- static members -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5, 10))
def test_a_static_leader_comes_back_into_its_generation(new_member: NewMember, version: int) -> None:
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


def test_a_static_follower_comes_back_into_its_generation(new_member: NewMember) -> None:
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


def test_whoever_had_the_instance_before_is_fenced(connection: Connection, new_member: NewMember, group: str) -> None:
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


def test_a_join_that_waits_is_fenced_by_another_of_its_instance(new_member: NewMember) -> None:
    other, before, after = new_member(), new_member(instance="i"), new_member(instance="i")
    other.settle()
    waiting = before.joining()
    until_rebalancing(other)
    ours = after.joining()
    assert waiting().error_code == ErrorCode.FENCED_INSTANCE_ID
    answer = other.join()
    assert ours().generation_id == answer.generation_id == 2
    assert {each.member_id for each in answer.members} == {other.member_id, after.member_id}


def test_a_sync_that_waits_is_fenced_by_another_of_its_instance(new_member: NewMember) -> None:
    leader, before, after = new_member(), new_member(instance="i"), new_member(instance="i")
    leader.settle()
    rebalanced(leader, before)
    waiting = before.syncing()
    ours = after.joining()
    assert waiting().error_code == ErrorCode.FENCED_INSTANCE_ID
    until_rebalancing(leader)
    assert leader.join().generation_id == ours().generation_id == 3


def test_a_static_member_that_changes_the_protocol_takes_another_generation(new_member: NewMember) -> None:
    both = (("range", b"r"), ("sticky", b"s"))
    before = new_member(instance="i", protocols=both)
    after = new_member(instance="i", protocols=(both[1], both[0]))
    assert before.settle().protocol_name == "range"
    answer = after.join()
    assert (answer.generation_id, answer.protocol_name, answer.skip_assignment) == (2, "sticky", False)


def test_a_static_member_that_is_away_is_waited_for(new_member: NewMember) -> None:
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


def test_an_id_that_was_given_out_is_for_no_static_member(connection: Connection, group: str) -> None:
    member_id = connection.ask(join_request(group), JOIN).member_id
    answer = connection.ask(join_request(group, member_id, instance="i"), JOIN)
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


# --- after a kill -------------------------------------------------------------------------------


def test_members_go_on_in_their_generation_after_a_kill(start_broker: Callable[..., Any], tmp_path: Any) -> None:
    with start_broker(tmp_path) as broker:
        with Connection(broker.bootstrap_servers) as first, Connection(broker.bootstrap_servers) as second:
            look_up(first, "g")
            leader, static = Member(first, "g"), Member(second, "g", instance="i")
            leader.settle()
            rebalanced(leader, static)
            waiting = static.syncing()
            leader.sync({leader.member_id: b"1", static.member_id: b"2"})
            waiting()
        broker.kill()
        broker.start()
        with Connection(broker.bootstrap_servers) as first, Connection(broker.bootstrap_servers) as second:
            look_up(first, "g")
            leader.connection, static.connection = first, second
            assert repeated(leader.heartbeat, lambda code: code == 0) == 0
            assert static.heartbeat() == 0
            assert static.sync().assignment == b"2"
            assert leader.sync().assignment == b"1"
            assert static.heartbeat(generation_id=1) == ErrorCode.ILLEGAL_GENERATION
            ours = leader.joining()
            until_rebalancing(static)
            assert static.join().generation_id == ours().generation_id == 3
