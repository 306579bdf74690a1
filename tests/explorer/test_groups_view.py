"""Groups and transactions of the explorer: states, members, lag, producers, and the frames that changed them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

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
        moments = ask(explored, "history?group=readers")
        assert "readers has committed offset 1 of orders-0" in moments[0]["effects"]
        joined = {"classic": "JoinGroup", "consumer": "ConsumerGroupHeartbeat"}[protocol]
        assert joined in [moment["api"] for moment in moments]
        assert ask(explored, f"history?group=readers&after={moments[0]['number']}") == []
    assert ask(explored, "groups")["groups"][0]["state"] == "Empty"


def test_a_transaction_is_shown_with_partitions_and_batches(explored: Broker) -> None:
    explored.create_topic("orders")
    producer = Producer({"bootstrap.servers": explored.bootstrap_servers, "transactional.id": "billing"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("orders", b"paid", partition=0)
    producer.flush()
    found = ask(explored, "transactions/billing")
    (partition,) = found["partitions"]
    assert (found["state"], partition["first_offset"], len(partition["batches"])) == ("Ongoing", 0, 1)
    assert ask(explored, "topics/orders/0/producers")[0]["producer_id"] == found["producer_id"]
    producer.commit_transaction()
    assert ask(explored, "groups")["transactions"][0]["id"] == "billing"
    effects = [text for moment in ask(explored, "history?transactional_id=billing") for text in moment["effects"]]
    assert "committed the transaction of billing" in effects


def test_an_unknown_group_is_reported_as_missing(explored: Broker) -> None:
    assert ask(explored, "groups/nobody") == (409, "there is no group nobody")


def test_each_state_machine_has_the_states_of_its_group_type() -> None:
    states = {name: {state for arrow in arrows for state in arrow} for name, arrows in MACHINES.items()}
    assert states["Classic"] == {"Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"}
    assert {"Ongoing", "PrepareCommit", "CompleteAbort"} < states["transaction"]
    assert all("Stable" in found for name, found in states.items() if name != "transaction")
