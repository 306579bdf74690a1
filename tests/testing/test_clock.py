"""Time in the hand of the test: what a broker does after days and seconds, it does when told that they have passed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from minibroker.testing import Broker
from tests.testing.support import settings


def create(broker: Broker, topic: str, **config: str) -> None:
    config = {name.replace("_", "."): value for name, value in config.items()}
    admin = AdminClient(settings(broker))
    admin.create_topics([NewTopic(topic, 1, config=config)])[topic].result(20)


def produce(broker: Broker, topic: str, *pairs: tuple[str | None, str]) -> None:
    producer = Producer(settings(broker))
    for key, value in pairs:
        producer.produce(topic, value, key)
        assert producer.flush(20) == 0


def log_start_offset(broker: Broker, topic: str) -> int:
    return broker.loop.call_on_loop(
        lambda: broker.running.cluster.image.topics[topic].partitions[0].log.log_start_offset
    )


def test_retention_deletes_records_only_after_its_days() -> None:
    with Broker() as broker:
        create(broker, "t", retention_ms="604800000", segment_bytes="1048576")
        produce(broker, "t", (None, "a"), (None, "b"))
        broker.clock.advance("6 days")
        assert log_start_offset(broker, "t") == 0
        broker.clock.advance("1 day")
        broker.clock.advance("10 min")
        assert log_start_offset(broker, "t") == 2
        broker.clock.advance("2 min")
        assert not list((broker.directory / "t-0").glob("*.deleted"))
        broker.produce("t", "c")
        consumer = Consumer(settings(broker, **{"group.id": "g", "auto.offset.reset": "earliest"}))
        consumer.subscribe(["t"])
        assert [(message.offset(), message.value()) for message in consumer.consume(1, 20)] == [(2, b"c")]
        consumer.close()


def test_a_compacted_topic_keeps_the_newest_value_of_each_key() -> None:
    with Broker() as broker:
        create(
            broker,
            "t",
            cleanup_policy="compact",
            min_cleanable_dirty_ratio="0.01",
            segment_ms="1000",
            message_timestamp_type="LogAppendTime",
        )
        produce(broker, "t", ("k", "old"), ("k", "new"))
        broker.clock.advance("1 min")
        produce(broker, "t", ("other", "last"))
        broker.clock.advance("1 min")
        consumer = Consumer(settings(broker, **{"group.id": "g", "auto.offset.reset": "earliest"}))
        consumer.subscribe(["t"])
        assert [message.value() for message in consumer.consume(2, 20)] == [b"new", b"last"]
        consumer.close()


def test_a_transaction_timeout_aborts_and_fences_the_producer() -> None:
    with Broker() as broker:
        create(broker, "t")
        producer = Producer(settings(broker, **{"transactional.id": "x", "transaction.timeout.ms": 60_000}))
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce("t", "lost")
        producer.flush(20)
        broker.clock.advance("2 min")
        with pytest.raises(KafkaException):
            producer.commit_transaction(20)


MEMBER = """
import sys
from confluent_kafka import Consumer
member = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "g", "session.timeout.ms": 45_000})
member.subscribe(["t"], on_assign=lambda *_: print("assigned", flush=True))
while True:
    member.poll(1)
"""


def test_a_killed_member_process_is_removed_after_its_session_timeout() -> None:
    with Broker() as broker:
        create(broker, "t")
        command = [sys.executable, "-c", MEMBER, broker.bootstrap_servers]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as member:
            assert member.stdout is not None and member.stdout.readline() == "assigned\n"
            member.kill()
        assigned: list[object] = []
        consumer = Consumer(settings(broker, **{"group.id": "g", "session.timeout.ms": 45_000}))
        consumer.subscribe(["t"], on_assign=lambda _, partitions: assigned.extend(partitions))
        consumer.poll(1)
        assert assigned == []
        broker.clock.advance("46 s")
        until = time.monotonic() + 20
        while not assigned:
            assert time.monotonic() < until
            consumer.poll(0.1)
        consumer.close()


def test_the_clock_can_be_advanced_while_the_broker_is_down(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Broker() as broker:
        producer = Producer(settings(broker, **{"transactional.id": "x", "transaction.timeout.ms": 60_000}))
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce("t", "a")
        producer.flush(20)
        broker.kill()
        before_ms = broker.clock.now_ms()
        broker.clock.advance("6 days")
        assert broker.clock.now_ms() - before_ms >= 6 * 86_400_000
        assert [record.message for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []
        broker.restart()
        assert broker.records("t")[0].transaction == "open"
        broker.clock.advance("2 min")
        assert broker.records("t")[0].transaction == "aborted"


def test_a_delayed_fetch_ends_after_its_max_wait() -> None:
    with Broker() as broker:
        produce(broker, "t", (None, "a"))
        consumer = Consumer(
            settings(
                broker,
                **{
                    "group.id": "g",
                    "fetch.wait.max.ms": 60_000,
                    "session.timeout.ms": 90_000,
                    "socket.timeout.ms": 90_000,
                    "max.poll.interval.ms": 90_000,
                },
            )
        )
        consumer.subscribe(["t"])
        consumer.poll(1)

        def waiting() -> int:
            topics = broker.running.cluster.image.topics
            return broker.loop.call_on_loop(lambda: len(topics["t"].partitions[0].waiters) if "t" in topics else 0)

        until = time.monotonic() + 20
        while not waiting():
            assert time.monotonic() < until
            consumer.poll(0.05)
        broker.clock.freeze()
        before = broker.clock.now_ms()
        time.sleep(0.05)
        assert broker.clock.now_ms() == before
        broker.clock.advance("1 min")
        assert broker.clock.now_ms() == before + 60_000
        broker.clock.unfreeze()
        consumer.close()


def test_log_append_time_is_that_of_the_brokers_clock() -> None:
    async def use(broker: Broker) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        await producer.start()
        broker.clock.freeze()
        first = await producer.send_and_wait("t", b"a")
        await broker.clock.aadvance("1 day")
        second = await producer.send_and_wait("t", b"b")
        await producer.stop()
        assert second.timestamp - first.timestamp == 86_400_000

    with Broker({"log.message.timestamp.type": "LogAppendTime"}) as broker:
        asyncio.run(use(broker))


@pytest.mark.parametrize("by_ms", [1, 9, 11, 1234])
def test_a_stopped_clock_advances_only_by_the_given_time(by_ms: int) -> None:
    with Broker() as broker:
        broker.clock.freeze()
        before = broker.clock.now_ms()
        broker.clock.advance(by_ms / 1000)
        assert broker.clock.now_ms() - before == by_ms


def test_a_restart_keeps_the_time_and_a_reset_restores_the_system_time() -> None:
    with Broker() as broker:
        now_ms = time.time_ns() // 1_000_000
        broker.clock.advance("1 day")
        broker.restart()
        assert broker.clock.now_ms() >= now_ms + 86_400_000
        broker.clock.freeze()
        broker.reset()
        assert not broker.clock.frozen
        assert now_ms <= broker.clock.now_ms() < now_ms + 80_000_000
