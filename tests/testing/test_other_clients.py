"""What a test does to a broker, as clients that are not librdkafka take it: kafka-python and aiokafka.

The other files show each of these with librdkafka; what is asserted here is a second client's reaction.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as PythonKafkaError

from minibroker.testing import Broker
from tests.testing.support import until

pytestmark = pytest.mark.usefixtures("leaves_sockets")

REPLICATED = {"default.replication.factor": 3, "offsets.topic.replication.factor": 3}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.journal.on()
        broker.produce("t", "a")
        yield broker


@pytest.fixture
def cluster() -> Iterator[Broker]:
    with Broker(REPLICATED, nodes=3) as broker:
        broker.journal.on()
        broker.produce("t", "a")
        yield broker


def consumer_of(broker: Broker, **more: Any) -> KafkaConsumer:
    settings = {"auto_offset_reset": "earliest", "retry_backoff_ms": 20, "metadata_max_age_ms": 500}
    return KafkaConsumer("t", bootstrap_servers=broker.bootstrap_servers, **settings, **more)


def producer_of(broker: Broker, **more: Any) -> KafkaProducer:
    return KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=20, metadata_max_age_ms=500, **more
    )


def begun(broker: Broker) -> KafkaProducer:
    """A producer with an open transaction that has a record."""
    producer = producer_of(broker, transactional_id="x")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"b").get(20)
    return producer


@pytest.mark.parametrize("end", ["commit_transaction", "abort_transaction"])
def test_a_fenced_producer_reports_the_error_at_commit_and_abort(broker: Broker, end: str) -> None:
    producer = begun(broker)
    broker.fence("x")
    with pytest.raises(PythonKafkaError):
        getattr(producer, end)()
    producer.close()
    assert [record.transaction for record in broker.records("t")] == [None, "aborted"]


def test_a_transaction_timeout_aborts_the_transaction(broker: Broker) -> None:
    producer = begun(broker)
    broker.clock.advance("1 hour")
    with pytest.raises(PythonKafkaError):
        producer.commit_transaction()
    producer.close()
    assert [record.transaction for record in broker.records("t")] == [None, "aborted"]


def test_an_open_transaction_delays_a_read_committed_consumer(broker: Broker) -> None:
    producer = begun(broker)
    broker.hold("x")
    producer.commit_transaction()
    consumer = consumer_of(broker, isolation_level="read_committed")
    assert next(consumer).value == b"a"
    assert consumer.poll(300) == {}
    broker.release("x")
    assert next(consumer).value == b"b"
    consumer.close()
    producer.close()


def test_a_held_transaction_end_delays_its_producer(broker: Broker) -> None:
    producer = begun(broker)
    broker.hold("x", "ongoing")
    committing = threading.Thread(target=producer.commit_transaction)
    committing.start()
    broker.wait_for_requests("EndTxn", timeout="20 s")
    assert broker.transaction_state("x") == "Ongoing" and committing.is_alive()
    broker.release("x")
    committing.join(20)
    assert [record.transaction for record in broker.expect("t", 2)] == [None, "committed"]
    producer.close()


def test_slow_joins_delays_a_consumer_and_an_evicted_member_rejoins(broker: Broker) -> None:
    fault = broker.slow_joins("g", "1 min")  # less than after what idle connections are closed
    found: list[bytes] = []

    def read() -> None:
        consumer = consumer_of(broker, group_id="g", heartbeat_interval_ms=50)
        while b"b" not in found:
            # A poll that ends before its join does never hears of it: the next one joins again, for a minute of CPU.
            found.extend(record.value for records in consumer.poll(20_000).values() for record in records)
        consumer.close()

    reading = threading.Thread(target=read)
    reading.start()
    fault.wait_for_hits(1, "20 s")
    assert found == []
    fault.remove()
    broker.clock.advance("1 min")
    until(lambda: found)
    broker.wait_for_group("g", 1, timeout="20 s")
    broker.evict("g")
    broker.wait_for_requests(error="UNKNOWN_MEMBER_ID", timeout="20 s")
    broker.produce("t", "b")
    reading.join(20)
    assert set(found) == {b"a", b"b"}


def test_a_consumer_sees_retention_by_the_log_start_offset(broker: Broker) -> None:
    broker.clock.advance("8 days")
    broker.produce("t", "b")
    consumer = consumer_of(broker)
    assert (record := next(consumer)).value == b"b" and record.offset == 1
    consumer.close()


def test_a_paused_node_answers_when_it_resumes(cluster: Broker) -> None:
    producer = producer_of(cluster)
    producer.send("t", b"b").get(20)
    leader = cluster.leader("t")
    assert leader is not None
    cluster.pause_node(leader)
    sent = producer.send("t", b"c")
    time.sleep(0.2)
    assert not sent.is_done
    cluster.resume_node(leader)
    assert sent.get(20).offset == 2
    producer.close()


def test_a_producer_survives_moved_and_missing_leaders(cluster: Broker) -> None:
    producer, leader = producer_of(cluster), cluster.leader("t")
    producer.send("t", b"b").get(20)
    assert leader is not None
    cluster.move_leader("t", leader % 3 + 1)
    producer.send("t", b"c").get(20)
    assert cluster.requests("Produce", error="NOT_LEADER_OR_FOLLOWER")
    cluster.leave_leaderless("t")
    late = threading.Timer(0.3, cluster.elect_leaders)
    late.start()
    producer.send("t", b"d").get(20)
    late.join()
    producer.close()
    assert [record.text for record in cluster.records("t")] == ["a", "b", "c", "d"]


def test_a_consumer_commits_after_its_coordinator_moved(cluster: Broker) -> None:
    consumer = consumer_of(cluster, group_id="g", enable_auto_commit=False)
    assert next(consumer).value == b"a"
    before = cluster.coordinator(group="g")
    assert before is not None
    cluster.move_coordinator(before % 3 + 1, group="g")
    consumer.commit()
    assert cluster.wait_for_commit("g", "t") == 1
    assert cluster.requests(error="NOT_COORDINATOR")
    consumer.close()


def test_a_transactional_producer_finds_its_coordinator(cluster: Broker) -> None:
    producer = begun(cluster)
    before = cluster.coordinator(transactional_id="x")
    assert before is not None
    cluster.move_coordinator(before % 3 + 1, transactional_id="x")
    producer.commit_transaction()
    producer.close()
    assert cluster.requests("EndTxn", error="NOT_COORDINATOR", node=before)
    assert cluster.records("t")[-1].transaction == "committed"


def test_a_producer_retries_until_stale_metadata_is_refreshed(cluster: Broker) -> None:
    for node in (1, 2, 3):
        cluster.make_stale(node)
    leader = cluster.leader("t")
    assert leader is not None
    cluster.move_leader("t", leader % 3 + 1)
    producer = producer_of(cluster)
    sent = producer.send("t", b"b")
    cluster.wait_for_requests("Produce", error="NOT_LEADER_OR_FOLLOWER", timeout="20 s")
    for node in (1, 2, 3):
        cluster.refresh(node)
    assert sent.get(20).offset == 1
    producer.close()


def test_a_consumer_fetches_from_a_follower_in_its_rack() -> None:
    rack_aware = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
    with Broker({**REPLICATED, **rack_aware, "broker.rack": "a,b,c"}, nodes=3) as broker:
        broker.journal.on()
        broker.produce("t", "a")
        broker.move_leader("t", 1)
        consumer = consumer_of(broker, client_rack="b")
        assert next(consumer).value == b"a"
        consumer.close()
        served = broker.requests(
            "Fetch", where=lambda each: each.answer is not None and b"a" in each.answer_bytes[-20:]
        )
        assert served and served[-1].node_id == 2


async def test_clients_survive_a_kill_and_a_reset_in_the_same_loop() -> None:
    async with Broker() as broker:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=20)
        await producer.start()
        await producer.send_and_wait("t", b"a")
        broker.kill()
        await broker.arestart()
        await producer.send_and_wait("t", b"b")
        broker.reset()
        await producer.send_and_wait("t", b"c")
        assert [record.text for record in broker.records("t")] == ["c"]
        broker.faults.add(api="Produce", error="TOPIC_AUTHORIZATION_FAILED", once=True)
        with pytest.raises(AioKafkaError):
            await producer.send_and_wait("t", b"d")
        await producer.stop()


async def test_records_of_a_restored_snapshot_are_consumed() -> None:
    async with Broker() as broker:
        await broker.aproduce("t", "a")
        snapshot = broker.snapshot()
        broker.reset()
        broker.restore(snapshot)
        consumer = AIOKafkaConsumer("t", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
        await consumer.start()
        assert (await asyncio.wait_for(consumer.getone(), 20)).value == b"a"
        await consumer.stop()
