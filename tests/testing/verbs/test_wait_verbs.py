"""Waiting for groups, offsets and requests: it ends as soon as the state is there, and says how far it came if not."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, Producer

from minibroker.testing import Broker
from minibroker.testing.seen.waiting import Expired


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def consumer_of(broker: Broker, **more: object) -> Consumer:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    return Consumer({**settings, "log_level": 0, **more})


class Polling:
    """Consumers that are polled by a thread until the end of the block."""

    def __init__(self, *consumers: Consumer) -> None:
        self._consumers = consumers
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll)

    def __enter__(self) -> Polling:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        for consumer in self._consumers:
            consumer.close()

    def _poll(self) -> None:
        while not self._stop.is_set():
            for consumer in self._consumers:
                consumer.poll(0.02)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_stable_group_with_its_members_is_awaited(broker: Broker, protocol: str) -> None:
    broker.produce("t", "a")
    consumers = [consumer_of(broker, **{"group.protocol": protocol}) for _ in range(2)]
    for consumer in consumers:
        consumer.subscribe(["t"])
    with Polling(*consumers):
        assert len(broker.wait_for_group("g", members=2, timeout="20 s")) == 2
    broker.wait_for_group("g", members=0, state="Empty", timeout="20 s")


def test_a_groups_commits_and_catching_up_are_awaited(broker: Broker) -> None:
    broker.produce("t", "a", "b")
    consumer = consumer_of(broker, **{"auto.commit.interval.ms": 50})
    consumer.subscribe(["t"])
    with Polling(consumer):
        assert broker.wait_for_commit("g", "t", timeout="20 s") <= 2
        broker.wait_until_caught_up("g", "t", "20 s")
        broker.produce("t", "c")
        assert broker.wait_for_commit("g", "t", offset=3, timeout="20 s") == 3


def test_a_high_watermark_is_awaited(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

    def late() -> None:
        for value in ("a", "b"):
            producer.produce("t", value)
        producer.flush(20)

    timer = threading.Timer(0.05, late)
    timer.start()
    assert broker.wait_for_high_watermark("t", 2, timeout="20 s") == 2
    timer.join()


def test_a_number_of_requests_is_awaited(broker: Broker) -> None:
    broker.journal.on()
    consumer = consumer_of(broker, **{"client.id": "me", "fetch.wait.max.ms": 20})
    consumer.subscribe(["t"])
    broker.produce("t", "a")
    with Polling(consumer):
        seen = broker.wait_for_requests("Fetch", 3, "20 s", client_id="me")
        assert len(seen) >= 3 and {exchange.api for exchange in seen} == {"Fetch"}
    assert broker.wait_for_requests("Fetch", 0) == broker.requests("Fetch")


WAITS: list[tuple[Callable[[Broker], object], str]] = [
    (
        lambda b: b.wait_for_group("g", 2, timeout="10 ms"),
        "group 'g' was expected to be Stable with 2 members, and there is no such group, and no other",
    ),
    (
        lambda b: b.wait_for_commit("g", "t", offset=5, timeout="10 ms"),
        "expected to commit offset 5 for t-0, and there is no such group",
    ),
    (lambda b: b.wait_until_caught_up("g", "t", "10 ms"), "to catch up in t, and there is no such group"),
    (lambda b: b.wait_until_caught_up("g", "no", "10 ms"), "to catch up in no, and there is no such topic, only t"),
    (
        lambda b: b.wait_for_high_watermark("t", 9, timeout="10 ms"),
        "t-0 was expected to have the high watermark 9, and it has reached 1",
    ),
    (
        lambda b: b.wait_for_requests("Fetch", 2, "10 ms", node=7),
        "2 requests were expected .api Fetch, node 7., and there are 0",
    ),
]


@pytest.mark.parametrize(("wait", "words"), WAITS)
def test_a_wait_that_times_out_reports_the_state_reached(
    broker: Broker, wait: Callable[[Broker], object], words: str
) -> None:
    broker.produce("t", "a")
    broker.journal.on()
    with pytest.raises(Expired, match=words):
        wait(broker)
    broker.journal.off()
    assert broker.interceptors == []


@pytest.mark.parametrize(
    ("wait", "words"),
    [
        (lambda b: b.wait_for_group("g", state="stable"), "'stable' is not a state .* Empty, .* Stable"),
        (lambda b: b.wait_for_requests("Fecth"), "'Fecth' is not an API"),
        (lambda b: b.wait_for_requests("Fetch", error="NOT_LEADER"), "'NOT_LEADER' is not an error of Kafka"),
    ],
)
def test_waiting_with_an_invalid_state_api_or_error_fails_immediately(
    broker: Broker, wait: Callable[[Broker], object], words: str
) -> None:
    broker.journal.on()
    with pytest.raises(ValueError, match=words):
        wait(broker)


def test_requests_cannot_be_awaited_without_the_journal(broker: Broker) -> None:
    with pytest.raises(RuntimeError, match="the journal is off"):
        broker.wait_for_requests("Fetch")


def test_a_wait_continues_after_a_kill_and_restart_of_the_broker(broker: Broker) -> None:
    broker.produce("t", "a")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(broker.wait_for_high_watermark, "t", 2, timeout="60 s")
        while broker.watch not in broker.interceptors:
            time.sleep(0.001)
        broker.kill()
        broker.restart()
        assert not waiting.done()
        broker.produce("t", "b")
        assert waiting.result(20) == 2


def test_a_wait_that_expires_while_the_broker_is_down_says_so(broker: Broker) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(broker.expect, "t", 1, "300 ms")
        while broker.watch not in broker.interceptors:
            time.sleep(0.001)
        broker.kill()
        with pytest.raises(Expired, match="the broker is down"):
            waiting.result(20)


def test_a_failing_condition_is_raised_where_it_is_awaited(broker: Broker) -> None:
    broker.journal.on()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("t", "a")
    producer.flush(20)
    with pytest.raises(ZeroDivisionError):
        broker.wait_for_requests("Produce", where=lambda _: 1 // 0)


def test_waits_can_be_awaited_in_the_brokers_own_loop() -> None:
    async def use() -> None:
        async with Broker() as broker:
            broker.journal.on()
            await broker.aproduce("t", "a")
            settings = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "g"}
            consumer = AIOKafkaConsumer("t", auto_offset_reset="earliest", **settings)
            await consumer.start()
            assert (await consumer.getone()).value == b"a"
            assert len(await broker.await_for_group("g", 1)) == 1
            await consumer.commit()
            assert await broker.await_for_commit("g", "t") == 1
            await broker.await_until_caught_up("g", "t")
            assert await broker.await_for_high_watermark("t", 1) == 1
            assert await broker.await_for_requests("JoinGroup")
            await consumer.stop()

    asyncio.run(use())
