"""Classic groups: who is let into a group, with which answer, and every code for those who may not join.

What the members that are already there go through is in `test_group_rebalances.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from conformance.wire.conftest import NewMember
from conformance.wire.connection import Connection
from conformance.wire.members import JOIN, RANGE, SUBSCRIPTION, Member, join_request, look_up
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.groups import JoinGroupRequest
from minibroker.protocol.primitives import encode_unsigned_varint


@pytest.mark.parametrize("version", range(10))
def test_a_classic_group_member_joins_and_leaves(new_member: NewMember, version: int) -> None:
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
def test_a_member_without_an_id_is_given_one(connection: Connection, group: str, version: int) -> None:
    answer = connection.ask(join_request(group), version)
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id.startswith("wire-")
    assert (answer.generation_id, answer.protocol_type) == (-1, None)
    assert answer.protocol_name == (None if version >= 7 else "")
    assert (answer.leader, answer.members) == ("", [])


@pytest.mark.parametrize("version", range(10))
def test_joining_with_an_empty_group_id_is_rejected(connection: Connection, group: str, version: int) -> None:
    answer = connection.ask(join_request("", "m"), version)
    assert (answer.error_code, answer.member_id) == (ErrorCode.INVALID_GROUP_ID, "m")
    named = Member(connection, "")
    assert named.sync(version=min(version, 4)).error_code == ErrorCode.INVALID_GROUP_ID
    assert named.heartbeat(min(version, 4)) == ErrorCode.INVALID_GROUP_ID
    left = named.leave(("m", None), version=min(version, 5))
    assert (left.error_code, left.members) == (ErrorCode.INVALID_GROUP_ID, [])


def test_a_group_id_of_the_maximum_length_is_accepted(connection: Connection) -> None:
    name = "g" * 32_767
    look_up(connection, name)
    assert connection.ask(join_request(name), JOIN).error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert connection.ask(join_request(name), 5).error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_a_group_id_that_is_too_long_is_rejected(connection: Connection, group: str) -> None:
    rest = join_request("").encode(JOIN)[1:]  # after the one byte of the empty group id
    body = encode_unsigned_varint(32_768 + 1) + b"g" * 32_768 + rest
    connection.send_request(JoinGroupRequest.api_key, JOIN, body, header_version=2)
    assert connection.is_closed()


@pytest.mark.parametrize("session_ms", [-1, 0, 5_999, 1_800_001, (1 << 31) - 1])
def test_a_session_timeout_out_of_bounds_is_rejected(connection: Connection, group: str, session_ms: int) -> None:
    answer = connection.ask(join_request(group, "m", session_ms=session_ms), JOIN)
    assert (answer.error_code, answer.member_id) == (ErrorCode.INVALID_SESSION_TIMEOUT, "m")


@pytest.mark.parametrize("version", [0, 4, 6, 7, 9])
def test_a_member_of_an_unknown_group_is_rejected(connection: Connection, group: str, version: int) -> None:
    answer = connection.ask(join_request(group, "nobody"), version)
    assert (answer.error_code, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "nobody")
    assert (answer.generation_id, answer.protocol_name) == (-1, None if version >= 7 else "")


@pytest.mark.parametrize("version", [0, 4, 6, 7, 9])
def test_a_join_of_an_unknown_member_is_rejected(
    connection: Connection, new_member: NewMember, group: str, version: int
) -> None:
    member = new_member()
    member.settle()
    answer = connection.ask(join_request(group, "nobody"), version)
    assert (answer.error_code, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "nobody")
    assert answer.protocol_name == (None if version >= 7 else "")
    assert member.heartbeat() == 0


@pytest.mark.parametrize(("kind", "protocols"), [("", RANGE), ("consumer", ())])
@pytest.mark.parametrize("version", [0, 4, 9])
def test_a_join_without_protocols_is_rejected(
    connection: Connection, group: str, version: int, kind: str, protocols: Any
) -> None:
    answer = connection.ask(join_request(group, kind=kind, protocols=protocols), version)
    assert (answer.error_code, answer.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")


@pytest.mark.parametrize(
    ("kind", "protocols"), [("connect", RANGE), ("consumer", (("sticky", b""),)), ("consumer", ())]
)
@pytest.mark.parametrize("version", [0, 4, 9])
def test_a_protocol_that_other_members_lack_is_rejected(
    connection: Connection, new_member: NewMember, group: str, version: int, kind: str, protocols: Any
) -> None:
    member = new_member()
    member.settle()
    answer = connection.ask(join_request(group, kind=kind, protocols=protocols), version)
    assert (answer.error_code, answer.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    answer = connection.ask(join_request(group, member.member_id, kind=kind, protocols=()), version)
    assert (answer.error_code, answer.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member.member_id)
    assert member.heartbeat() == 0


@pytest.mark.parametrize("version", [5, 9])
def test_an_instance_id_too_long_for_a_member_id_is_rejected(connection: Connection, group: str, version: int) -> None:
    answer = connection.ask(join_request(group, instance=32_731 * "x"), version)
    assert (answer.error_code, answer.member_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, "")
    answer = connection.ask(join_request(f"{group}-of-another", instance=32_730 * "x"), version)
    assert (answer.error_code, len(answer.member_id)) == (ErrorCode.NONE, 32_767)
