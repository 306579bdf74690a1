"""Groups of the next generation (KIP-848) that one of the two brokers has kept, and the other one goes on with.

Kafka hashes a group's topics otherwise than minibroker: with the first heartbeat after the change the group is in
another epoch, in which everybody keeps what it has.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from conformance.kafka_files.conftest import Brokers
from conformance.wire.connection import Connection
from conformance.wire.consumer_members import Member, describe
from conformance.wire.members import Member as ClassicMember
from conformance.wire.members import look_up
from conformance.wire.requests import create_request, exists, repeated, topic
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.consumer_protocol import ConsumerProtocolSubscription

GROUP = "kept"
PARTITIONS = 8
SESSION_MS = 60_000
SUBSCRIPTION = b"\0\1" + bytes(ConsumerProtocolSubscription(topics=["t"]).encode(1))


def seen(connection: Connection) -> dict[str, Any]:
    """Return what the broker says of the members, by id."""
    members = describe(connection, GROUP).members
    for member in members:
        for assignment in (member.assignment, member.target_assignment):
            for each in assignment.topic_partitions:
                each.partitions.sort()
    return {member.member_id: member for member in members}


def step(old: ClassicMember, *members: Member) -> None:
    """Send one heartbeat of each; the one with the classic protocol joins and syncs when the answer says so."""
    code = old.heartbeat()
    if code == ErrorCode.REBALANCE_IN_PROGRESS:
        assert old.join().error_code == 0
        assert old.sync().error_code in (0, ErrorCode.REBALANCE_IN_PROGRESS)
    else:
        assert code == 0
    for member in members:
        assert member.beat().error_code == 0


def await_stable(connection: Connection, old: ClassicMember, *members: Member) -> None:
    def state() -> str:
        step(old, *members)
        found: str = describe(connection, GROUP).group_state
        return found

    assert repeated(state, lambda found: found == "Stable") == "Stable"


@pytest.mark.parametrize("first", ["kafka", "minibroker"])
def test_consumer_group_members_continue_when_the_other_broker_serves_the_directory(
    first: str, brokers: Brokers, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    start = {"kafka": brokers.kafka, "minibroker": brokers.minibroker}
    other = "minibroker" if first == "kafka" else "kafka"
    with start[first](logs) as broker, ExitStack() as open_connections:
        connection, own = (open_connections.enter_context(Connection(broker.bootstrap_servers)) for _ in range(2))
        assert connection.ask(create_request(topic("t", PARTITIONS)), 7).topics[0].error_code == 0
        assert repeated(lambda: exists(connection, "t"), bool)
        look_up(connection, GROUP)
        named = Member(connection, GROUP, "named", "t")
        static = Member(connection, GROUP, "static", "t", instance_id="i")
        matching = Member(connection, GROUP, "matching", subscribed_topic_names=None, subscribed_topic_regex="[t]")
        old = ClassicMember(own, GROUP, protocols=(("range", SUBSCRIPTION),), session_ms=SESSION_MS)
        members = (named, static, matching)
        for member in members:
            assert member.join().error_code == 0
        old.join()
        await_stable(connection, old, *members)
        before = seen(connection)
        broker.stop()
    with start[other](logs) as broker, ExitStack() as open_connections:
        connection, own = (open_connections.enter_context(Connection(broker.bootstrap_servers)) for _ in range(2))
        look_up(connection, GROUP)
        old.connection = own
        named.connection = static.connection = matching.connection = connection
        assert repeated(lambda: seen(connection), lambda found: found == before) == before
        await_stable(connection, old, *members)
        after = seen(connection)
        assert {each: after[each].assignment for each in after} == {each: before[each].assignment for each in before}
        assert static.ask(member_epoch=-2).error_code == 0
        broker.stop()
    with start[first](logs) as broker, ExitStack() as open_connections:
        connection, own = (open_connections.enter_context(Connection(broker.bootstrap_servers)) for _ in range(2))
        look_up(connection, GROUP)
        again = Member(connection, GROUP, "again", "t", instance_id="i")
        assert again.join().error_code == 0
        assert again.owned == static.owned
        old.connection = own
        named.connection = matching.connection = connection
        await_stable(connection, old, named, matching, again)
        assert [each.count for each in (named, matching, again)] == [2, 2, 2]
