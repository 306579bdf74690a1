"""`reset`, `snapshot` and `restore`: the broker's state is another at once, and clients that are connected stay so."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer

from minibroker.broker.cluster import Cluster
from minibroker.testing import Broker
from tests.testing.support import until

pytestmark = pytest.mark.usefixtures("leaves_sockets")


def producer_of(broker: Broker) -> Producer:
    return Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, "topic.metadata.refresh.interval.ms": 100}
    )


def produce(producer: Producer, *values: str, topic: str = "t") -> None:
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(20) == 0


def topics(broker: Broker) -> set[str]:
    return set(AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=10).topics)


def values(broker: Broker, count: int, topic: str = "t") -> list[bytes | None]:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "log_level": 0})
    consumer.subscribe([topic])
    try:
        return [message.value() for message in consumer.consume(count, timeout=20)]
    finally:
        consumer.close()


def waiting_fetches(broker: Broker) -> int:
    cluster: Cluster = broker.running.cluster
    return broker.loop.call_on_loop(
        lambda: sum(len(p.waiters) for topic in cluster.image.topics.values() for p in topic.partitions)
    )


def test_a_reset_broker_is_empty_and_keeps_its_clients_connected() -> None:
    with Broker() as broker:
        producer = producer_of(broker)
        produce(producer, "a", "b")
        assert values(broker, 2) == [b"a", b"b"]
        open_before = {connection.peer for connection in broker.running.server.list_connections()}
        where, cluster_id = broker.bootstrap_servers, broker.running.cluster.cluster_id
        broker.reset()
        open_after = {connection.peer for connection in broker.running.server.list_connections()}
        assert open_after and open_after <= open_before
        assert broker.records("t") == []  # the producer may ask for the topic at any time, which makes it anew
        assert (broker.bootstrap_servers, broker.running.cluster.cluster_id) == (where, cluster_id)
        produce(producer, "c")
        assert values(broker, 1) == [b"c"]


def test_a_waiting_consumer_reads_a_recreated_topic_after_a_reset() -> None:
    with Broker() as broker:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, metadata_max_age_ms=200)
        producer.send("t", b"a").get(20)
        consumer = KafkaConsumer(
            "t",
            bootstrap_servers=broker.bootstrap_servers,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=20_000,
            metadata_max_age_ms=200,
        )
        assert [record.value for record in next(iter(consumer.poll(10_000).values()))] == [b"a"]
        consumer.poll(100)
        until(lambda: waiting_fetches(broker) == 1)
        broker.reset()
        for value in (b"b", b"c"):
            producer.send("t", value).get(20)
        found: list[bytes] = []  # it goes on at its position, which a new topic's second record has
        until(lambda: found.extend(r.value for rs in consumer.poll(100).values() for r in rs) or found[-1:] == [b"c"])
        consumer.close()
        producer.close()


def test_members_rejoin_their_group_after_a_reset() -> None:
    with Broker() as broker:
        produce(producer_of(broker), "a")
        lost: list[object] = []
        settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "log_level": 0}
        consumer = Consumer({**settings, "auto.offset.reset": "earliest", "heartbeat.interval.ms": 100})
        consumer.subscribe(["t"], on_lost=lambda _, partitions: lost.extend(partitions))
        assert [message.value() for message in consumer.consume(1, 20)] == [b"a"]
        broker.reset()
        produce(producer_of(broker), "b")
        found: list[bytes | None] = []

        def read() -> bool:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                found.append(message.value())
            return found == [b"b"]

        until(read)
        assert lost
        consumer.close()


def test_a_reset_with_many_topics_is_fast() -> None:
    """Not a timed test: what a reset opens does not grow with what was there."""
    with Broker({"num.partitions": 20}) as broker:
        broker.fill({f"t{number}": ["a"] for number in range(20)})
        broker.reset()
        assert sorted(path.name for path in broker.directory.iterdir() if path.is_dir()) == ["__cluster_metadata-0"]


def test_a_reset_removes_all_previous_state() -> None:
    with Broker() as broker:
        before = broker.directory
        snapshot = broker.snapshot()
        broker.reset()
        until(lambda: not before.exists())
        broker.restore(snapshot)


def test_a_reset_empties_a_given_directory(tmp_path: Path) -> None:
    with Broker(directory=tmp_path) as broker:
        produce(producer_of(broker), "a")
        broker.reset()
        assert broker.records("t") == []
        broker.restart()
        assert broker.records("t") == []


def test_a_reset_keeps_foreign_files_in_a_given_directory(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    for name in ("src/program.py", "notes.txt"):
        (tmp_path / name).write_text("mine")
    with Broker(directory=tmp_path) as broker:
        produce(producer_of(broker), "a")
        broker.restart()  # which leaves checkpoints
        broker.reset()
        left = {path.name for path in tmp_path.iterdir()}
        assert left == {"src", "notes.txt", ".lock", "meta.properties", "__cluster_metadata-0"}
        assert (tmp_path / "src" / "program.py").read_text() == "mine"


def test_an_idempotent_producer_continues_after_a_reset() -> None:
    with Broker() as broker:
        settings = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, "enable.idempotence": True}
        producer = Producer(settings)
        produce(producer, "a", "b")
        broker.reset()
        failures: list[KafkaError] = []
        producer.produce("t", "c", on_delivery=lambda error, _: failures.append(error))
        assert producer.flush(20) == 0
        assert failures == [None]


def test_a_snapshot_restores_offsets_and_groups() -> None:
    with Broker() as broker:
        produce(producer_of(broker), "a", "b")
        assert values(broker, 1) == [b"a"]
        snapshot = broker.snapshot()
        for _ in range(2):
            produce(producer_of(broker), "c")
            produce(producer_of(broker), "d", topic="other")
            broker.restore(snapshot)
            assert topics(broker) == {"t", "__consumer_offsets"}
            assert values(broker, 1) == [b"b"]  # the group's first offset was committed already


def test_a_snapshot_is_removed_with_its_broker() -> None:
    with Broker() as broker:
        snapshot = broker.snapshot()
    with Broker() as broker:
        produce(producer_of(broker), "a")
        with pytest.raises(FileNotFoundError):
            broker.restore(snapshot)
        assert values(broker, 1) == [b"a"]  # nothing has changed


def test_a_restored_broker_restarts_with_the_restored_state() -> None:
    with Broker() as broker:
        produce(producer_of(broker), "a")
        snapshot = broker.snapshot()
        broker.reset()
        broker.restore(snapshot)
        broker.kill()
        broker.restart()
        assert values(broker, 1) == [b"a"]
