"""Time, state, and what comes from files and other processes, as clients take it that are not librdkafka.

Nodes, groups and transactions are in `test_other_clients`; what librdkafka makes of these is in the other files.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition
from kafka.errors import KafkaError as PythonKafkaError
from kafka.errors import TopicAuthorizationFailedError
from kafka.structs import OffsetAndMetadata

from minibroker.testing import Broker
from tests.running import running_broker
from tests.testing.control.test_control import Control

pytestmark = pytest.mark.usefixtures("leaves_sockets")


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.journal.on()
        yield broker


def consumer_of(broker: Broker, *topics: str, **more: object) -> KafkaConsumer:
    settings = {"auto_offset_reset": "earliest", "retry_backoff_ms": 20, "metadata_max_age_ms": 500}
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, **settings, **more)
    for topic in topics:  # a leader that has not heard of the topic assigns nothing, and stays at that
        consumer.partitions_for_topic(topic)
    consumer.subscribe(topics)
    return consumer


def producer_of(broker: Broker, **more: object) -> KafkaProducer:
    return KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=20, metadata_max_age_ms=500, **more
    )


# --- time ---------------------------------------------------------------------------------------------


def test_a_compacted_topic_has_the_newest_value_of_each_key(broker: Broker) -> None:
    broker.create_topic("t", cleanup_policy="compact", min_cleanable_dirty_ratio=0.01, segment_ms=1000)
    producer = producer_of(broker)
    for key, value in ((b"k", b"old"), (b"k", b"new"), (b"other", b"last")):
        if key == b"other":
            broker.clock.advance("1 min")
        at_ms = broker.clock.now_ms()
        producer.send("t", value, key, timestamp_ms=at_ms).get(20)
    producer.close()
    broker.clock.advance("1 min")
    consumer = consumer_of(broker, "t")
    assert [next(consumer).value for _ in range(2)] == [b"new", b"last"]
    consumer.close()


def test_partitions_of_a_silent_member_are_reassigned_after_its_session_timeout(broker: Broker) -> None:
    """The members are kafka-python's, which falls silent, and aiokafka's."""
    broker.produce("t", "a")
    silent = consumer_of(broker, "t", group_id="g", client_id="silent", session_timeout_ms=30_000)
    assert next(silent).value == b"a"
    broker.faults.add(api=["Heartbeat", "JoinGroup", "LeaveGroup"], client_id="silent", close="before")

    async def read() -> bytes:
        consumer = AIOKafkaConsumer(
            "t", bootstrap_servers=broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
        )
        starting = asyncio.create_task(consumer.start())
        await broker.await_for_requests("JoinGroup", client_id=consumer._client._client_id, timeout="20 s")
        await broker.clock.aadvance("31 s")
        await asyncio.wait_for(starting, 20)
        try:
            return bytes((await asyncio.wait_for(consumer.getone(), 20)).value)
        finally:
            await consumer.stop()

    assert asyncio.run(read()) == b"a"
    silent.close(autocommit=False)


@pytest.mark.parametrize("client", ["librdkafka", "kafka-python"])
def test_a_member_starts_from_the_beginning_after_its_groups_offsets_expired(broker: Broker, client: str) -> None:
    broker.create_topic("t", retention_ms=-1)
    broker.produce("t", "a", "b")

    def first() -> bytes | None:
        """The first value of a member that has committed what it has read when it leaves."""
        if client == "kafka-python":
            consumer = consumer_of(broker, "t", group_id="g", max_poll_records=1)
            value = bytes(next(consumer).value)
            consumer.commit({PythonPartition("t", 0): OffsetAndMetadata(1, "", -1)})
            consumer.close(autocommit=False)
            return value
        settings = {"bootstrap.servers": broker.bootstrap_servers, "auto.offset.reset": "earliest", "log_level": 0}
        member = Consumer({**settings, "group.id": "g", "enable.auto.commit": False})
        member.subscribe(["t"])
        (message,) = member.consume(1, 20)
        member.commit(message=message, asynchronous=False)
        member.close()
        return message.value()

    assert [first(), first()] == [b"a", b"b"]
    broker.clock.advance("6 days")
    assert broker.wait_for_commit("g", "t") in (1, 2)
    broker.clock.advance("25 hours")
    assert first() == b"a"


def test_a_delayed_fetch_waits_while_the_clock_stands_still(broker: Broker) -> None:
    broker.produce("t", "a")
    consumer = consumer_of(broker, "t", fetch_max_wait_ms=60_000, fetch_min_bytes=1000, request_timeout_ms=90_000)
    broker.clock.freeze()
    found: list[bytes] = []
    reading = threading.Thread(target=lambda: found.append(next(consumer).value))
    reading.start()
    broker.wait_for_requests("Fetch", where=lambda each: each.outcome == "open", timeout="20 s")
    assert found == []
    broker.clock.advance("1 min")
    reading.join(20)
    assert found == [b"a"]
    consumer.close()


# --- state, and what the broker says of it ----------------------------------------------------------------


def test_a_reused_directory_is_served_to_kafka_python(tmp_path: Path) -> None:
    with Broker(directory=tmp_path) as broker:
        producer = producer_of(broker)
        producer.send("t", b"a").get(20)
        broker.restart()
        producer.send("t", b"b").get(20)
        producer.close()
    with Broker(directory=tmp_path) as broker:
        consumer = consumer_of(broker, "t")
        assert [next(consumer).value for _ in range(2)] == [b"a", b"b"]
        consumer.close()


async def test_clients_with_own_threads_reach_a_broker_in_the_callers_loop() -> None:
    def librdkafka(address: str) -> int:
        producer = Producer({"bootstrap.servers": address})
        producer.produce("t", "a")
        return producer.flush(20)

    def kafka_python(address: str) -> int:
        producer = KafkaProducer(bootstrap_servers=address)
        offset = producer.send("t", b"b").get(20).offset
        producer.close()
        return int(offset)

    async with Broker() as broker:
        assert await asyncio.to_thread(librdkafka, broker.bootstrap_servers) == 0
        assert await asyncio.to_thread(kafka_python, broker.bootstrap_servers) == 1
        assert [record.text for record in await broker.aexpect("t", 2)] == ["a", "b"]


def test_produced_records_are_consumed_with_all_their_fields(broker: Broker) -> None:
    broker.produce("t", "a", key="k", headers={"h": "v"}, timestamp_ms=1234)
    consumer = consumer_of(broker, "t")
    record = next(consumer)
    assert (record.key, record.value, record.timestamp) == (b"k", b"a", 1234)
    assert list(record.headers) == [("h", b"v")]
    consumer.close()


def test_records_commits_and_groups_of_kafka_python_can_be_awaited(broker: Broker) -> None:
    broker.fill({"t": ["a", "b"]})

    def use() -> None:
        consumer = consumer_of(broker, "t", group_id="g", enable_auto_commit=False)
        while len(broker.records("replies")) < 2:
            # kafka-python 3.0.12 never takes note of a join that ends after the poll that began it: this one is long.
            for records in consumer.poll(20_000).values():
                for record in records:
                    producer.send("replies", record.value).get(60)
        consumer.commit()
        while not caught_up.is_set():
            consumer.poll(50)
        consumer.close()

    caught_up, producer = threading.Event(), producer_of(broker)
    using = threading.Thread(target=use)
    using.start()
    try:
        assert [record.text for record in broker.expect("replies", 2, "60 s")] == ["a", "b"]
        assert broker.wait_for_high_watermark("replies", 2, timeout="60 s") == 2
        assert len(broker.wait_for_group("g", 1, timeout="60 s")) == 1
        broker.wait_until_caught_up("g", "t", "60 s")
        assert broker.wait_for_commit("g", "t", offset=2, timeout="60 s") == 2
        assert broker.wait_for_requests("OffsetCommit", timeout="60 s")
    finally:
        caught_up.set()
        using.join(60)
        producer.close()


@pytest.mark.parametrize("client", ["librdkafka", "kafka-python"])
def test_an_unexpected_record_fails_immediately(broker: Broker, client: str) -> None:
    def late() -> None:
        if client == "librdkafka":
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
            producer.produce("t", "late")
            producer.flush(20)
        else:
            producer = producer_of(broker)
            producer.send("t", b"late").get(20)
            producer.close()

    sending = threading.Timer(0.01, late)
    sending.start()
    with pytest.raises(AssertionError, match="late"):
        broker.assert_nothing_produced("t", "1 min")
    sending.join()


@pytest.mark.parametrize("client", ["librdkafka", "kafka-python"])
def test_a_producer_sequence_gap_is_explained(broker: Broker, client: str) -> None:
    if client == "librdkafka":
        settings = {"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True, "log_level": 0}
        librdkafka = Producer(settings)
        for text in "abc":
            librdkafka.produce("t", text)
            librdkafka.flush(20)
        broker.truncate("t", 1)
        librdkafka.produce("t", "d")
        with pytest.raises(KafkaException, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
            librdkafka.flush(20)
    else:
        producer = producer_of(broker, delivery_timeout_ms=5000, request_timeout_ms=2000)
        for value in (b"a", b"b", b"c"):
            producer.send("t", value).get(20)
        broker.truncate("t", 1)
        with pytest.raises(PythonKafkaError):
            producer.send("t", b"d").get(20)
        producer.close()
    refused = broker.requests("Produce", error="OUT_OF_ORDER_SEQUENCE_NUMBER")[0]
    assert "3 (incoming seq. number), 0 (current end sequence number); expected 1" in refused.refusals[0]


# --- files and other processes ------------------------------------------------------------------------------


def test_a_process_uses_faults_from_a_file_and_over_http(tmp_path: Path) -> None:
    fault_of_file = "- {api: Produce, topic: t, error: TOPIC_AUTHORIZATION_FAILED, once: true}"
    (tmp_path / "faults.yaml").write_text(fault_of_file)
    options = ("--faults", str(tmp_path / "faults.yaml"), "--control", "0")
    with running_broker(tmp_path, options=options) as process:
        control = Control(process)
        where = process.bootstrap_servers
        producer = KafkaProducer(bootstrap_servers=where, retry_backoff_ms=20, enable_idempotence=False)
        with pytest.raises(TopicAuthorizationFailedError):
            producer.send("t", b"a").get(20)
        words = {"api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}
        (fault,) = control.post("/v1/faults", words, 201)
        producer.send("t", b"b").get(20)
        assert control.post(f"/v1/faults/{fault['number']}/wait", {"hits": 2})["hits"] == 2
        producer.close()

        async def send() -> None:
            async with AIOKafkaProducer(bootstrap_servers=where, enable_idempotence=True) as other:
                control.post("/v1/faults", {"api": "Produce", "close": "after", "once": True}, 201)
                await other.send_and_wait("t", b"c")

        asyncio.run(send())
        seen = control.get("/v1/topics/t/records")
        assert [record["value"] for record in seen] == ["b", "c"]
