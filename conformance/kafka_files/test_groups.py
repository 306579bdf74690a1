"""Groups with members in directories that change hands: whoever serves them next, members go on in their generation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from conformance.kafka_files.conftest import Brokers
from conformance.kafka_files.dumping import dump
from conformance.wire.connection import Connection
from conformance.wire.members import Member, look_up, rebalanced, until_rebalancing
from conformance.wire.requests import repeated
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.groups import DescribeGroupsRequest

GROUP = "wanderers"
SESSION_MS = 120_000
NOWHERE: Any = None  # until it is `connected`
OFFSETS = "__consumer_offsets-0"


@contextmanager
def connected(servers: str, *members: Member) -> Iterator[None]:
    """Connect each member on a connection of its own to a broker that has read the group."""
    with ExitStack() as stack:
        for member in members:
            member.connection = stack.enter_context(Connection(servers))
        look_up(members[0].connection, GROUP)
        yield


def described(member: Member) -> dict[str, tuple[str | None, bytes, bytes]]:
    """Of a stable group by member id the instance id, what it tells the leader, and what it has."""
    (group,) = member.connection.ask(DescribeGroupsRequest(groups=[GROUP]), 6).groups
    assert (group.error_code, group.group_state, group.protocol_data) == (0, "Stable", "range")
    return {
        each.member_id: (each.group_instance_id, each.member_metadata, each.member_assignment) for each in group.members
    }


def settled(leader: Member, static: Member) -> dict[str, tuple[str | None, bytes, bytes]]:
    """Bring both into the next generation of a stable group; return the group's members."""
    if leader.generation < 0:
        leader.settle()
        rebalanced(leader, static)
    else:
        waiting = leader.joining()
        until_rebalancing(static)
        static.join()
        waiting()
    synced = static.syncing()
    leader.sync({leader.member_id: b"1", static.member_id: b"2"})
    assert synced().assignment == b"2"
    return described(leader)


def check_goes_on(leader: Member, static: Member, known: dict[str, tuple[str | None, bytes, bytes]]) -> None:
    """The group is as it was, for its members and for those who look on."""
    assert repeated(leader.heartbeat, lambda code: code == 0) == 0
    assert static.heartbeat() == 0
    assert (leader.sync().assignment, static.sync().assignment) == (b"1", b"2")
    assert static.heartbeat(generation_id=static.generation - 1) == ErrorCode.ILLEGAL_GENERATION
    assert described(static) == known


@pytest.mark.parametrize("how", ["stopped", "killed"])
@pytest.mark.parametrize("first", ["minibroker", "kafka"])
def test_members_continue_whichever_broker_serves_the_directory(
    first: str, how: str, brokers: Brokers, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    start = {"minibroker": brokers.minibroker, "kafka": brokers.kafka}
    second = "kafka" if first == "minibroker" else "minibroker"
    leader = Member(NOWHERE, GROUP, session_ms=SESSION_MS)
    static = Member(NOWHERE, GROUP, session_ms=SESSION_MS, instance="i")
    known = None
    for name in (first, second, first):
        with start[name](logs) as broker:
            with connected(broker.bootstrap_servers, leader, static):
                if known is not None:
                    check_goes_on(leader, static, known)
                known = settled(leader, static)
            if how == "stopped":
                broker.stop()
            else:
                broker.kill()
    assert leader.generation == static.generation == 4


def test_kafkas_tool_reads_our_group_records(brokers: Brokers, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    leader = Member(NOWHERE, GROUP, session_ms=SESSION_MS)
    static = Member(NOWHERE, GROUP, session_ms=SESSION_MS, instance="i")
    with brokers.minibroker(logs) as broker, connected(broker.bootstrap_servers, leader, static):
        settled(leader, static)
    (segment,) = (logs / OFFSETS).glob("*.log")
    told = dump([segment], "--offsets-decoder")
    assert told.complaints == ""
    payloads = re.findall(r"payload: (\{.*\})", "\n".join(told.lines[segment]))
    last = json.loads(payloads[-1])
    assert last["version"] == "3"
    data = last["data"]
    assert (data["protocolType"], data["generation"], data["protocol"]) == ("consumer", 2, "range")
    assert data["leader"] == leader.member_id
    assert {(each["memberId"], each["groupInstanceId"]) for each in data["members"]} == {
        (leader.member_id, None),
        (static.member_id, "i"),
    }
    assert {each["sessionTimeout"] for each in data["members"]} == {SESSION_MS}
