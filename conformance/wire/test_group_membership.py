"""Classic groups: whose SyncGroup and Heartbeat are refused, who leaves, and who is still there after a kill.

Who is let in is in `test_group_joining.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conformance.wire.conftest import NewMember
from conformance.wire.connection import Connection
from conformance.wire.members import JOIN, Member, join_request, look_up, rebalanced, until_rebalancing
from conformance.wire.requests import repeated
from minibroker.protocol.errors import ErrorCode

# --- syncing and heartbeats ---------------------------------------------------------------------


def test_sync_group_rejects_unknown_and_inconsistent_members(new_member: NewMember) -> None:
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


def test_heartbeat_rejects_unknown_members_and_generations(new_member: NewMember) -> None:
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


def test_the_remaining_member_rejoins_in_another_generation_after_a_leave(new_member: NewMember) -> None:
    first, second = new_member(), new_member()
    first.settle()
    rebalanced(first, second)
    first.leave()
    assert second.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    answer = second.join()
    assert (answer.generation_id, answer.leader, len(answer.members)) == (3, second.member_id, 1)


def test_several_members_leave_and_are_answered_individually(new_member: NewMember) -> None:
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


def test_an_unused_member_id_can_leave(connection: Connection, new_member: NewMember, group: str) -> None:
    member_id = connection.ask(join_request(group), JOIN).member_id
    answer = new_member().leave((member_id, None))
    assert [each.error_code for each in answer.members] == [0]
    assert connection.ask(join_request(group, member_id), JOIN).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(6))
def test_leaving_an_unknown_group_is_rejected(new_member: NewMember, version: int) -> None:
    answer = new_member().leave(("m", None), version=version)
    codes = [each.error_code for each in answer.members] if version >= 3 else [answer.error_code]
    assert codes == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_leaving_as_an_unknown_member_is_rejected(new_member: NewMember) -> None:
    member = new_member()
    member.settle()
    (left,) = member.leave(("nobody", None)).members
    assert left.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.heartbeat() == 0


# --- after a kill -------------------------------------------------------------------------------


def test_members_continue_in_their_generation_after_a_kill(start_broker: Callable[..., Any], tmp_path: Any) -> None:
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
