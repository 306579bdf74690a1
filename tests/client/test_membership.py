"""A member of a group on the blocking client: its partitions, its offsets, and other members."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer

from minibroker.client import membership
from minibroker.client.blocking import Client
from minibroker.client.client_errors import ClientError
from minibroker.client.connection_settings import ClientSettings
from minibroker.client.membership import GroupMembership, assign_ranges
from minibroker.testing import Broker

BOTH = [("t", 0), ("t", 1)]


@pytest.fixture
def client(kafka: Broker) -> Iterator[Client]:
    kafka.create_topic("t", partitions=2)
    with Client(ClientSettings({"bootstrap.servers": kafka.bootstrap_servers})) as found:
        yield found


def test_each_member_gets_a_range_of_each_topic() -> None:
    topics = {"b": ["t", "u"], "a": ["t"], "c": []}
    assert assign_ranges(topics, {"t": 3, "u": 2, "gone": 1}) == {
        "a": [("t", 0), ("t", 1)],
        "b": [("t", 2), ("u", 0), ("u", 1)],
        "c": [],
    }


def test_a_single_member_gets_all_partitions_and_commits_its_offsets(client: Client) -> None:
    member = GroupMembership(client, "g", ["t"])
    assert member.join_and_get_partitions() == BOTH
    assert member.fetch_committed_offsets(BOTH) == {}
    member.commit_offsets({("t", 1): 7})
    assert member.fetch_committed_offsets(BOTH) == {("t", 1): 7}
    member.leave_group()
    assert GroupMembership(client, "g", ["t"]).fetch_committed_offsets(BOTH) == {("t", 1): 7}


def test_an_expired_member_rejoins(client: Client, kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    member = GroupMembership(client, "g", ["t"])
    member.join_and_get_partitions()
    assert member.is_generation_current()  # a heartbeat is not due yet
    monkeypatch.setattr(membership, "HEARTBEAT_S", 0.0)
    assert member.is_generation_current()
    kafka.evict("g")
    assert not member.is_generation_current()
    member.commit_offsets({("t", 0): 1})  # is refused, and not an error
    assert member.join_and_get_partitions() == BOTH
    assert member.fetch_committed_offsets(BOTH) == {}


def test_our_member_shares_partitions_with_members_of_another_client(
    client: Client, kafka: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "HEARTBEAT_S", 0.0)
    member = GroupMembership(client, "g", ["t"])
    member.join_and_get_partitions()
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g"}
    with Consumer({**settings, "partition.assignment.strategy": "range"}) as other:
        other.subscribe(["t"])
        mine = BOTH
        while mine == BOTH:
            other.poll(0.1)
            if not member.is_generation_current():
                mine = member.join_and_get_partitions()
        assert len(mine) == 1
        member.leave_group()


def test_a_rejected_join_raises_an_error(client: Client, kafka: Broker) -> None:
    member = GroupMembership(client, "g", ["t"])
    kafka.faults.add(api="JoinGroup", error="GROUP_AUTHORIZATION_FAILED")
    with pytest.raises(ClientError, match="group g: GROUP_AUTHORIZATION_FAILED"):
        member.join_and_get_partitions()
