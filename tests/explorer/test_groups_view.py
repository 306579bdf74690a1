"""Groups of the explorer: states, members, lag, and the frames that changed them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from minibroker.explorer.groups_view import MACHINES
from minibroker.testing import Broker
from tests.explorer.asking import ask


@contextlib.contextmanager
def member(broker: Broker, **config: Any) -> Iterator[Consumer]:
    """A member of the group `readers` that has read a record of `orders` and committed it."""
    broker.produce("orders", "first")
    common = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = Consumer({**common, "enable.auto.commit": False, "client.id": "ann", **config})
    consumer.subscribe(["orders"])
    try:
        message = None
        while message is None:
            message = consumer.poll(0.2)
        consumer.commit(message, asynchronous=False)
        yield consumer
    finally:
        consumer.close()


@pytest.mark.parametrize(("protocol", "kind"), [("classic", "classic"), ("consumer", "consumer")])
def test_a_group_is_shown_with_members_offsets_and_history(explored: Broker, protocol: str, kind: str) -> None:
    with member(explored, **{"group.protocol": protocol}):
        explored.produce("orders", "second")
        found = ask(explored, "groups/readers")
        assert (found["type"], found["state"], found["count"]) == (kind, "Stable", 1)
        assert [(each["client_id"], each["assigned"]) for each in found["members"]] == [("ann", ["orders-0"])]
        assert found["lag"] == [{"topic": "orders", "partition": 0, "offset": 1, "end": 2, "lag": 1}]
        moments = ask(explored, "history?group=readers")["moments"]
        assert "readers has committed offset 1 of orders-0" in moments[0]["effects"]
        joined = {"classic": "JoinGroup", "consumer": "ConsumerGroupHeartbeat"}[protocol]
        assert joined in [moment["api"] for moment in moments]
        assert ask(explored, f"history?group=readers&after={moments[0]['number']}")["moments"] == []
    assert ask(explored, "groups")["groups"][0]["state"] == "Empty"


def test_an_assigned_partition_without_a_commit_is_shown(explored: Broker) -> None:
    explored.create_topic("orders", 2)
    with member(explored):
        found = {each["partition"]: each for each in ask(explored, "groups/readers")["lag"]}
    read = next(index for index, each in found.items() if each["offset"] is not None)
    assert (found[read]["offset"], found[1 - read]) == (
        1,
        {"topic": "orders", "partition": 1 - read, "offset": None, "end": 0, "lag": None},
    )


def test_a_commit_that_changes_nothing_is_not_in_the_history(explored: Broker) -> None:
    with member(explored) as consumer:
        for _ in range(2):
            consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
        moments = ask(explored, "history?group=readers")["moments"]
        commits = [each["number"] for each in moments if each["api"] == "OffsetCommit"]
        assert commits == [explored.requests("OffsetCommit")[0].number]
        assert all(each["effects"] and not each["errors"] for each in moments)


def test_an_unknown_group_is_reported_as_missing(explored: Broker) -> None:
    assert ask(explored, "groups/nobody") == (409, "there is no group nobody")


def test_each_state_machine_has_the_states_of_its_group_type() -> None:
    states = {name: {state for arrow in arrows for state in arrow} for name, arrows in MACHINES.items()}
    assert states["Classic"] == {"Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"}
    assert {"Ongoing", "PrepareCommit", "CompleteAbort"} < states["transaction"]
    assert all("Stable" in found for name, found in states.items() if name != "transaction")
