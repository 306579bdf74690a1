"""The clients of the lab do what their rows say, and the broker sees it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable

import pytest

from minibroker.lab import clients as lab_clients
from minibroker.lab.clients import MOST_CLIENTS, ClientState, LabClient, LabClients
from minibroker.lab.lab_routes import KINDS
from minibroker.testing import Broker


class Changes:
    """What `until` waits for: the event is set whenever a client of the test changes."""

    event: asyncio.Event

    @classmethod
    def note(cls, client: LabClient, name: str, value: object) -> None:
        object.__setattr__(client, name, value)
        cls.event.set()


@pytest.fixture(autouse=True)
def in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_clients, "TURN_SECONDS", 0.02)
    Changes.event = asyncio.Event()
    monkeypatch.setattr(LabClient, "__setattr__", lambda *changed: Changes.note(*changed))


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(nodes=2, settings={"group.initial.rebalance.delay.ms": 0}) as broker:
        await broker.acreate_topic("orders", 2)
        yield broker


@pytest.fixture
async def clients(broker: Broker) -> AsyncIterator[LabClients]:
    clients = LabClients(lambda: broker.bootstrap_servers, KINDS)
    yield clients
    clients.remove_all()


async def until(client: LabClient, is_so: Callable[[LabClient], bool]) -> None:
    """Wait until something holds for a client; the test's own timeout bounds it."""
    while not is_so(client):
        assert client.state is not ClientState.FAILED, client.said
        Changes.event.clear()
        await Changes.event.wait()


def reads(*partitions: int) -> Callable[[LabClient], bool]:
    """Return whether a consumer says that it has these partitions."""
    return lambda client: re.findall(r"(\d+) at", client.said) == [str(each) for each in partitions]


async def test_a_producer_writes_to_all_partitions_in_turn(broker: Broker, clients: LabClients) -> None:
    producer = clients.add("producer", "orders")
    records = await broker.aexpect("orders", 4)
    assert {record.partition for record in records} == {0, 1}
    await producer.stop()
    assert producer.state is ClientState.STOPPED
    assert clients.describe_all()[0]["count"] == len(broker.records("orders"))


async def test_a_client_creates_a_missing_topic(broker: Broker, clients: LabClients) -> None:
    clients.add("producer", "new")
    await broker.aexpect("new", 1)


async def test_consumers_share_partitions_and_commit(broker: Broker, clients: LabClients) -> None:
    clients.add("producer", "orders")
    first = clients.add("consumer", "orders", "readers")
    await until(first, lambda each: each.count >= 3)
    second = clients.add("consumer", "orders", "readers")
    await until(first, lambda each: reads(0)(each) or reads(1)(each))
    await until(second, lambda each: reads(0)(each) or reads(1)(each))
    await first.stop()
    await until(second, reads(0, 1))
    assert broker.committed("readers")


async def test_a_consumer_retries_to_join_until_the_group_accepts_it(broker: Broker, clients: LabClients) -> None:
    fault = broker.faults.add(api="JoinGroup", error="UNKNOWN_MEMBER_ID", times=600)
    client = clients.add("consumer", "orders", "readers")
    await until(client, reads(0, 1))
    assert fault.hits == 600


async def test_a_killed_consumer_is_removed_when_its_session_expires(broker: Broker, clients: LabClients) -> None:
    first = clients.add("consumer", "orders", "readers")
    await until(first, reads(0, 1))
    first.kill()
    second = clients.add("consumer", "orders", "readers")
    await until(second, lambda each: each.said == "joins the group")
    assert first.state is ClientState.KILLED
    await broker.clock.aadvance("11 s")
    await until(second, reads(0, 1))


async def test_transactions_are_committed_and_every_fourth_is_aborted(broker: Broker, clients: LabClients) -> None:
    producer = clients.add("transactional-producer", "orders", "payments")
    await until(producer, lambda each: "transaction 4 is aborted" in each.said)
    await producer.stop()
    assert producer.state is ClientState.STOPPED
    assert broker.transaction_state("payments") in ("CompleteAbort", "CompleteCommit")


async def test_a_stopped_producer_aborts_its_transaction(broker: Broker, clients: LabClients) -> None:
    producer = clients.add("transactional-producer", "orders", "payments")
    await until(producer, lambda each: each.count == 2)
    await producer.stop()
    assert broker.transaction_state("payments") == "CompleteAbort"
    assert producer.said == "transaction 1 is aborted, epoch 0"


async def test_a_consumer_counts_committed_records_only(broker: Broker, clients: LabClients) -> None:
    producer = clients.add("transactional-producer", "orders", "payments")
    await until(producer, lambda each: "transaction 4 is aborted" in each.said)
    await producer.stop()
    consumer = clients.add("consumer", "orders", "readers")
    # Of each transaction a partition has a record and a marker.
    await until(consumer, lambda each: "0 at 8, 1 at 8" in each.said)
    assert (producer.count, consumer.count) == (8, 6)


async def test_a_consumer_starts_at_the_committed_offset_and_leaves_its_group_when_stopped(
    broker: Broker, clients: LabClients
) -> None:
    broker.journal.on()
    await broker.aproduce("orders", "tea", partition=0)
    first = clients.add("consumer", "orders", "readers")
    await until(first, lambda each: "0 at 1" in each.said)
    await first.stop()
    assert len(broker.requests("LeaveGroup")) == 1
    second = clients.add("consumer", "orders", "readers")
    await until(second, reads(0, 1))
    assert (first.count, second.count) == (1, 0)
    assert "0 at 1" in second.said


async def test_a_killed_producer_writes_no_more(clients: LabClients) -> None:
    first = clients.add("producer", "orders")
    await until(first, lambda each: each.count > 0)
    first.kill()
    killed_at = first.count
    second = clients.add("producer", "orders")
    await until(second, lambda each: each.count > 2)
    assert first.count == killed_at


async def test_a_second_producer_fences_the_first(broker: Broker, clients: LabClients) -> None:
    first = clients.add("transactional-producer", "orders", "payments")
    await until(first, lambda each: each.count > 0)
    second = clients.add("transactional-producer", "orders", "payments")
    await until(first, lambda each: each.state is ClientState.FAILED)
    assert "INVALID_PRODUCER_EPOCH" in first.said or "PRODUCER_FENCED" in first.said
    await until(second, lambda each: each.count > 0)


async def test_clients_reconnect_to_a_restarted_broker(broker: Broker, clients: LabClients) -> None:
    producer = clients.add("producer", "orders")
    consumer = clients.add("consumer", "orders", "readers")
    await until(consumer, lambda each: each.count > 0)
    await broker.arestart()
    before = producer.count, consumer.count
    await until(producer, lambda each: each.count > before[0])
    await until(consumer, lambda each: each.count > before[1])


async def test_a_stopped_client_starts_again(broker: Broker, clients: LabClients) -> None:
    producer = clients.add("producer", "orders")
    await until(producer, lambda each: each.count > 0)
    await producer.stop()
    producer.start()
    before = producer.count
    await until(producer, lambda each: each.count > before)


async def test_clients_of_unknown_kind_without_topic_or_over_the_limit_are_rejected(clients: LabClients) -> None:
    with pytest.raises(LookupError, match="there is no client of the kind cat"):
        clients.add("cat", "orders")
    with pytest.raises(ValueError, match="needs a topic"):
        clients.add("producer", "")
    for _ in range(MOST_CLIENTS):
        clients.add("producer", "orders").kill()
    with pytest.raises(ValueError, match=f"{MOST_CLIENTS} clients at most"):
        clients.add("producer", "orders")
    clients.remove(1)
    with pytest.raises(LookupError, match="there is no client 1"):
        clients.get(1)
