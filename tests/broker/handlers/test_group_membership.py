"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: long ids, answers that cannot be sent, and nodes."""

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
from tests.broker.groups.classic.driving import Driver, answered
from tests.broker.harness import Harness, Waiting, served_versions

JOIN_VERSIONS = served_versions(JoinGroupRequest)

PROTOCOLS = [JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")]


@pytest.fixture
def driver(harness: Harness) -> Driver:
    return Driver(harness)


def join(group: str = "g", **fields: object) -> JoinGroupRequest:
    fields = {"session_timeout_ms": 10_000, "protocol_type": "consumer", "protocols": PROTOCOLS, **fields}
    return JoinGroupRequest(group_id=group, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", JOIN_VERSIONS)
def test_version_0_uses_the_session_timeout_for_rebalances(driver: Driver, version: int) -> None:
    driver.ask_join(instance="i", version=max(version, 5)) if version >= 4 else driver.ask_join(version=version)
    (member,) = driver.group.members.values()
    assert member.rebalance_timeout_ms == (10_000 if version == 0 else 60_000)


@pytest.mark.parametrize("version", [0, 3, 4, 9])
def test_a_client_id_too_long_for_a_member_id_is_rejected(driver: Driver, version: int) -> None:
    driver.stable(2)
    before = driver.group.generation, list(driver.group.members)
    answer = driver.harness.request(join(), version, client_id=32_760 * "x")
    assert (answer.error_code, answer.member_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, "")
    assert (driver.group.generation, list(driver.group.members)) == before
    assert [driver.heartbeat(member_id) for member_id in before[1]] == [ErrorCode.NONE, ErrorCode.NONE]


def test_a_join_group_response_that_cannot_be_encoded_affects_no_other_member(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = [driver.harness.client(node=driver.node) for _ in range(3)]
    for client in clients:
        client.send(join(), 3)
    spoilt = list(driver.group.members)[1]
    monkeypatch.setattr(
        ClassicGroup, "make_join_group_response", spoiling(spoilt, ClassicGroup.make_join_group_response)
    )
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


def test_the_bounds_of_the_session_timeout_are_configurable(tmp_path: Path) -> None:
    settings = {"group.min.session.timeout.ms": "100", "group.max.session.timeout.ms": "200"}
    with Harness(tmp_path, settings=settings) as harness:
        harness.coordinator("g")
        codes = [harness.request(join(session_timeout_ms=timeout_ms)).error_code for timeout_ms in (99, 100, 200, 201)]
        bad, good = ErrorCode.INVALID_SESSION_TIMEOUT, ErrorCode.MEMBER_ID_REQUIRED
        assert codes == [bad, good, good, bad]


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


def test_a_join_before_any_find_coordinator_gets_not_coordinator(harness: Harness) -> None:
    assert answered(harness.request(join())).error_code == ErrorCode.NOT_COORDINATOR
