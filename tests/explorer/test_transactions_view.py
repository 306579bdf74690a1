"""Transactions of the explorer: states, producers, timeouts, and the frames that changed them."""

from __future__ import annotations

from itertools import count

from confluent_kafka import Producer

from minibroker.testing import Broker
from tests.explorer.asking import ask


def pay(broker: Broker, transactional_id: str = "billing") -> Producer:
    """Begin a transaction with a record of `orders`."""
    config = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": transactional_id}
    producer = Producer({**config, "transaction.timeout.ms": 60_000})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("orders", b"paid", partition=0)
    producer.flush()
    return producer


def test_a_transaction_is_shown_with_partitions_and_batches(explored: Broker) -> None:
    explored.create_topic("orders")
    producer = pay(explored)
    found = ask(explored, "transactions/billing")
    (partition,) = found["partitions"]
    assert (found["state"], partition["first_offset"], len(partition["batches"])) == ("Ongoing", 0, 1)
    assert ask(explored, "topics/orders/0/producers")[0]["producer_id"] == found["producer_id"]
    producer.commit_transaction()
    assert ask(explored, "transactions")[0]["id"] == "billing"
    effects = [
        text for moment in ask(explored, "history?transactional_id=billing")["moments"] for text in moment["effects"]
    ]
    assert "committed the transaction of billing" in effects


def test_the_view_lists_the_transaction_timeouts_of_a_transactional_id(explored: Broker) -> None:
    explored.create_topic("orders")
    pay(explored)
    assert ask(explored, "transactions/billing")["timeouts"] == []
    explored.clock.advance("2 minutes")
    (found,) = ask(explored, "transactions/billing")["timeouts"]
    assert found["timeout_ms"] == 60_000


def test_the_view_lists_no_transaction_timeouts_of_other_transactional_ids(explored: Broker) -> None:
    explored.create_topic("orders")
    pay(explored).abort_transaction()  # in time
    partition_of = explored.running.cluster.transactions.log.get_partition_index
    other = next(name for name in map(str, count()) if partition_of(name) == partition_of("billing"))
    pay(explored, other)
    explored.clock.advance("2 minutes")
    assert [len(ask(explored, f"transactions/{name}")["timeouts"]) for name in ("billing", other)] == [0, 1]
