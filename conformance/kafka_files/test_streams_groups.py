"""Streams groups (KIP-1071) that one of the two brokers has kept, and the other one goes on with.

Kafka hashes a group's topics otherwise than minibroker: with the first heartbeat after the change the group is in
another epoch, in which everybody keeps what it has.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from conformance.kafka_files.conftest import Brokers
from conformance.wire.connection import Connection
from conformance.wire.groups import commit_request
from conformance.wire.members import look_up
from conformance.wire.requests import create_request, exists, repeated, topic
from conformance.wire.streams_members import Endpoint, KeyValue, Member, configure, describe, settle, word_count
from minibroker.protocol.messages.groups import DeleteGroupsRequest

GROUP = "kept"
PARTITIONS = 4
# Kafka 4.3.1 asks for the partitions of an internal topic that its coordinator does not know yet (an endpoint's
# NoSuchElementException), and answers UNKNOWN_SERVER_ERROR until it does.
RACE = -1


@contextmanager
def connected(servers: str, *members: Member) -> Iterator[Connection]:
    """Connect the members to a broker that has read the group."""
    with Connection(servers) as connection:
        look_up(connection, GROUP)
        for member in members:
            member.connection = connection
        yield connection


def seen(connection: Connection) -> Any:
    """Return the description, without the topology: before the first heartbeat Kafka does not know its topics."""
    found = describe(connection, GROUP)
    found.topology = None
    found.members.sort(key=lambda member: str(member.member_id))
    return found


@pytest.mark.parametrize("first", ["kafka", "minibroker"])
def test_streams_group_members_continue_when_the_other_broker_serves_the_directory(
    first: str, brokers: Brokers, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    start = {"kafka": brokers.kafka, "minibroker": brokers.minibroker}
    other = "minibroker" if first == "kafka" else "kafka"
    said = word_count("t", GROUP, cleanup_policy="compact")
    nowhere: Any = None  # until they are connected
    members = [Member(nowhere, GROUP, f"m-{number}", said, f"p-{number}") for number in range(3)]
    with start[first](logs) as broker, connected(broker.bootstrap_servers, *members) as connection:
        assert connection.ask(create_request(topic("t", PARTITIONS)), 7).topics[0].error_code == 0
        assert repeated(lambda: exists(connection, "t"), bool)
        delays = {"initial_rebalance_delay_ms": "0", "assignment_interval_ms": "0"}
        configure(connection, GROUP, num_standby_replicas="1", **delays)
        for member in members:
            endpoint = Endpoint(host="h", port=40_000)
            tags = [KeyValue(key="zone", value=member.process)]
            join = partial(member.join, user_endpoint=endpoint, client_tags=tags, rack_id="r")
            assert repeated(join, lambda answer: first != "kafka" or answer.error_code != RACE).error_code == 0
        settle(connection, GROUP, *members)
        commit = commit_request(GROUP, ("t", 0, 5), generation_id_or_member_epoch=members[0].epoch, member_id="m-0")
        assert connection.ask(commit, 9).topics[0].partitions[0].error_code == 0
        before, had = seen(connection), [(member.active, member.standby) for member in members]
        broker.stop()
    with start[other](logs) as broker, connected(broker.bootstrap_servers, *members) as connection:
        assert repeated(lambda: seen(connection), lambda found: found == before) == before
        settle(connection, GROUP, *members)
        assert [(member.active, member.standby) for member in members] == had
        assert members.pop().ask(member_epoch=-1).error_code == 0
        settle(connection, GROUP, *members)
        broker.stop()
    with start[first](logs) as broker, connected(broker.bootstrap_servers, *members) as connection:
        settle(connection, GROUP, *members)
        for kind in ("active", "standby"):
            tasks = [partition for member in members for partition in getattr(member, kind).get("1", ())]
            assert sorted(tasks) == list(range(PARTITIONS))
        for member in members:
            assert member.ask(member_epoch=-1).error_code == 0
        assert connection.ask(DeleteGroupsRequest(groups_names=[GROUP]), 2).results[0].error_code == 0
        broker.stop()
    with start[other](logs) as broker, connected(broker.bootstrap_servers) as connection:
        assert describe(connection, GROUP).error_message == f"Group {GROUP} not found."
