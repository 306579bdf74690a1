"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup in all versions, and the codes for what cannot be served."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.groups.classic.classic_group import ClassicGroup
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from tests.broker.groups.classic.driving import RANGE, Driver, answered
from tests.broker.harness import Harness, Waiting, served_versions
from tests.cases import for_each

JOIN_VERSIONS = served_versions(JoinGroupRequest)
SYNC_VERSIONS = served_versions(SyncGroupRequest)
HEARTBEAT_VERSIONS = served_versions(HeartbeatRequest)
LEAVE_VERSIONS = served_versions(LeaveGroupRequest)

PROTOCOLS = [JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")]


@pytest.fixture
def driver(harness: Harness) -> Driver:
    return Driver(harness)


def join(group: str = "g", **fields: object) -> JoinGroupRequest:
    fields = {"session_timeout_ms": 10_000, "protocol_type": "consumer", "protocols": PROTOCOLS, **fields}
    return JoinGroupRequest(group_id=group, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", JOIN_VERSIONS)
def test_a_member_joins_syncs_and_leaves(driver: Driver, version: int) -> None:
    if version < 4:
        waiting = driver.ask_join(version=version)
        member_id = next(iter(driver.group.members))
    else:
        member_id, waiting = driver.new_member(version=version)
    assert not waiting.done
    driver.turn()
    joined = waiting.response()
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert (joined.member_id, joined.leader) == (member_id, member_id)
    assert [(one.member_id, one.metadata) for one in joined.members] == [(member_id, RANGE[0][1])]
    if version >= 7:
        assert joined.protocol_type == "consumer"
    joined.protocol_type = "consumer"
    synced = driver.ask_sync(joined, {member_id: b"a"}, version=min(version, 5))
    assert (synced.error_code, synced.assignment) == (0, b"a")
    assert driver.heartbeat(member_id, version=min(version, 4)) == ErrorCode.NONE
    left = driver.leave(member_id, version=min(version, 5))
    assert left.error_code == 0
    assert driver.group.state_name == "Empty"


@pytest.mark.parametrize("version", JOIN_VERSIONS)
def test_version_0_uses_the_session_timeout_for_rebalances(driver: Driver, version: int) -> None:
    driver.ask_join(instance="i", version=max(version, 5)) if version >= 4 else driver.ask_join(version=version)
    (member,) = driver.group.members.values()
    assert member.rebalance_timeout_ms == (10_000 if version == 0 else 60_000)


@pytest.mark.parametrize("version", JOIN_VERSIONS)
def test_a_join_error_contains_the_sent_member_id(driver: Driver, version: int) -> None:
    answer = driver.ask_join("nobody", version=version)
    assert (answer.error_code, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "nobody")
    protocol = None if version >= 7 else ""
    assert (answer.generation_id, answer.leader, answer.protocol_name, answer.members) == (-1, "", protocol, [])
    driver.stable()
    answer = driver.ask_join("nobody", version=version)
    assert (answer.error_code, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "nobody")
    assert answer.protocol_name == protocol


@pytest.mark.parametrize("version", [0, 3, 4, 9])
def test_a_client_id_too_long_for_a_member_id_is_rejected(driver: Driver, version: int) -> None:
    driver.stable(2)
    before = driver.group.generation, list(driver.group.members)
    answer = driver.harness.request(join(), version, client_id=32_760 * "x")
    assert (answer.error_code, answer.member_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, "")
    assert (driver.group.generation, list(driver.group.members)) == before
    assert [driver.heartbeat(member_id) for member_id in before[1]] == [ErrorCode.NONE, ErrorCode.NONE]


def test_a_response_that_cannot_be_encoded_blocks_no_other_member(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = [driver.harness.client(node=driver.node) for _ in range(3)]
    for client in clients:
        client.send(join(), 3)
    spoilt = list(driver.group.members)[1]
    monkeypatch.setattr(ClassicGroup, "join_answer", spoiling(spoilt, ClassicGroup.join_answer))
    driver.turn()
    assert [client.closed for client in clients] == [False, True, False]
    answers = [[answer for _, answer in client.responses()] for client in clients]
    assert [[(one.error_code, one.generation_id) for one in each] for each in answers] == [[(0, 1)], [], [(0, 1)]]
    assert len(answers[0][0].members) == 3


def spoiling(spoilt: str, join_answer: Any) -> Any:
    """`join_answer`, but of a protocol that no string can hold for one member."""

    def answer(group: Any, member_id: str, **more: Any) -> JoinGroupResponse:
        response: JoinGroupResponse = join_answer(group, member_id, **more)
        if member_id == spoilt:
            response.protocol_name = 32_768 * "x"
        return response

    return answer


def test_the_longest_client_and_instance_ids_that_fit_are_accepted(driver: Driver) -> None:
    longest = 16_365 * "é"  # 32,730 bytes
    for client_id, instance in ((longest, None), ("c", longest)):
        taken, refused = (
            driver.harness.request(
                join(group_instance_id=instance and f"{more}{instance}"),
                3 if instance is None else 5,
                client_id=f"{more}{client_id}" if instance is None else client_id,
            )
            for more in ("", "x")
        )
        assert not isinstance(refused, Waiting) and refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        driver.turn()
        joined = answered(taken)
        assert joined.error_code == ErrorCode.NONE and len(joined.member_id.encode()) == 32_767
        driver.leave((joined.member_id, instance))


@for_each("version", JOIN_VERSIONS)
@for_each("timeout_ms", [-1, 0, 5_999, 1_800_001, (1 << 31) - 1])
def test_a_session_timeout_outside_its_bounds_is_rejected(harness: Harness, version: int, timeout_ms: int) -> None:
    harness.coordinator("g")
    answer = harness.request(join(session_timeout_ms=timeout_ms, member_id="m"), version)
    assert (answer.error_code, answer.member_id) == (ErrorCode.INVALID_SESSION_TIMEOUT, "m")
    assert harness.cluster.groups.groups == {}


def test_the_bounds_of_the_session_timeout_are_configurable(tmp_path: Path) -> None:
    settings = {"group.min.session.timeout.ms": "100", "group.max.session.timeout.ms": "200"}
    with Harness(tmp_path, settings=settings) as harness:
        harness.coordinator("g")
        codes = [harness.request(join(session_timeout_ms=timeout_ms)).error_code for timeout_ms in (99, 100, 200, 201)]
        bad, good = ErrorCode.INVALID_SESSION_TIMEOUT, ErrorCode.MEMBER_ID_REQUIRED
        assert codes == [bad, good, good, bad]


@pytest.mark.parametrize("request_", [join(""), SyncGroupRequest(), HeartbeatRequest(), LeaveGroupRequest()])
def test_an_empty_group_id_is_invalid(harness: Harness, request_: JoinGroupRequest) -> None:
    harness.coordinator("g")
    if isinstance(request_, SyncGroupRequest):
        request_.protocol_type = request_.protocol_name = "p"
    for version in served_versions(type(request_)):
        assert answered(harness.request(request_, version)).error_code == ErrorCode.INVALID_GROUP_ID


def test_only_the_coordinator_answers_group_requests(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        other = 3 - harness.coordinator("g")
        named = {"protocol_type": "p", "protocol_name": "p"}
        for request in (
            join(),
            SyncGroupRequest(group_id="g", **named),  # type: ignore[arg-type]
            HeartbeatRequest(group_id="g"),
            LeaveGroupRequest(group_id="g"),
        ):
            for version in served_versions(type(request)):
                answer = answered(harness.request(request, version, node=other))
                assert answer.error_code == ErrorCode.NOT_COORDINATOR


def test_a_group_has_no_coordinator_before_find_coordinator(harness: Harness) -> None:
    assert answered(harness.request(join())).error_code == ErrorCode.NOT_COORDINATOR


@for_each("version", SYNC_VERSIONS)
def test_sync_group_to_an_unknown_group_is_rejected(driver: Driver, version: int) -> None:
    request = SyncGroupRequest(group_id="g", member_id="m", protocol_type="consumer", protocol_name="range")
    assert answered(driver.harness.request(request, version)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
def test_sync_group_5_contains_the_protocol(driver: Driver, missing: str) -> None:
    (member_id,) = driver.stable()
    joined = answered(driver.ask_join(member_id))
    driver.turn()
    answer = answered(driver.ask_sync(joined, version=5, **{missing: None}))
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", HEARTBEAT_VERSIONS)
def test_heartbeat_to_an_unknown_group_is_rejected(driver: Driver, version: int) -> None:
    assert driver.heartbeat("m", 1, version=version) == ErrorCode.UNKNOWN_MEMBER_ID


@for_each("version", LEAVE_VERSIONS)
def test_leaving_an_unknown_group_is_rejected(driver: Driver, version: int) -> None:
    answer = driver.leave("m", version=version)
    if version < 3:
        assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    else:
        assert answer.error_code == 0
        assert [(one.member_id, one.error_code) for one in answer.members] == [("m", ErrorCode.UNKNOWN_MEMBER_ID)]


@pytest.mark.parametrize("version", LEAVE_VERSIONS)
def test_unknown_members_cannot_leave(driver: Driver, version: int) -> None:
    (member_id,) = driver.stable()
    answer = driver.leave("nobody", version=version)
    code = answer.error_code if version < 3 else answer.members[0].error_code
    assert code == ErrorCode.UNKNOWN_MEMBER_ID
    assert list(driver.group.members) == [member_id]
    assert driver.group.state_name == "Stable"
