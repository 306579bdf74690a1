"""What survives an orderly stop, and a kill in the middle of producing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

from tests.clients.confluent import Confluent
from tests.clients.conftest import CLIENTS
from tests.clients.interface import CODECS, PATIENCE_S, Client, Record
from tests.clients.ports import free_ports
from tests.running import running_broker

RECORDS = [Record(b"k%d" % index, b"v%d" % index * 100, (("h", None),)) for index in range(100)]
PER_REQUEST = 20


def everything(client: Client, servers: str, topic: str, count: int) -> list[tuple[int, Record]]:
    with client.consumer(servers, topic) as consumer:
        return [(read.offset, read.record) for read in consumer.read(count)]


def test_a_clean_stop_keeps_all_records(tmp_path: Path) -> None:
    marker = tmp_path / "data" / ".kafka_cleanshutdown"
    with running_broker(tmp_path) as broker:
        with Confluent().admin(broker.bootstrap_servers) as admin:
            admin.create_topic("configured", 3, {"max.message.bytes": "7000"})
            for codec in CODECS:
                admin.create_topic(f"by-{codec}", 1, {})
        for codec in CODECS:
            with Confluent().producer(broker.bootstrap_servers, codec=codec) as producer:
                producer.send(f"by-{codec}", RECORDS)
        assert not marker.exists()
        assert broker.stop() == 0
        assert marker.exists()

        broker.start()
        assert not marker.exists()
        for codec, client in zip(CODECS, CLIENTS * 2, strict=False):
            assert everything(client, broker.bootstrap_servers, f"by-{codec}", 100) == list(enumerate(RECORDS))
        with Confluent().admin(broker.bootstrap_servers) as admin:
            topics = {topic for topic in admin.topics() if not topic.startswith("__")}  # consumers bring the group's
            assert topics == {"configured", *(f"by-{codec}" for codec in CODECS)}
            assert admin.config("configured")["max.message.bytes"] == "7000"
        with Confluent().producer(broker.bootstrap_servers) as producer:
            assert producer.send("by-none", RECORDS[:1]) == [100]


def test_a_clean_stop_ends_delayed_fetches(tmp_path: Path, client: Client, complaints: list[str]) -> None:
    complaints.append("")  # that their connections end is what clients complain of
    with running_broker(tmp_path) as broker:
        with Confluent().admin(broker.bootstrap_servers) as admin:
            admin.create_topic("t", 1, {})
        with Confluent().producer(broker.bootstrap_servers) as producer:
            producer.send("t", RECORDS[:1])
        with client.consumer(broker.bootstrap_servers, "t", wait_ms=1000 * PATIENCE_S) as consumer:
            consumer.read(1)
            assert broker.stop() == 0


class Sender:
    """A sender of one request after the other until the test stops it; `acknowledged` are the acknowledged records."""

    def __init__(self, client: Client, servers: str, topic: str) -> None:
        self.client = client
        self.servers = servers
        self.topic = topic
        self.acknowledged: list[tuple[int, bytes]] = []
        self.stop = Event()

    def run(self) -> None:
        number = 0
        with self.client.producer(self.servers, idempotent=True) as producer:
            while not self.stop.is_set():
                values = [b"%d" % value for value in range(number, number + PER_REQUEST)]
                offsets = producer.send(self.topic, [Record(b"k", value) for value in values])
                self.acknowledged += zip(offsets, values, strict=True)
                number += PER_REQUEST


def test_a_kill_causes_no_loss_or_duplicates_and_the_producer_continues(
    tmp_path: Path, client: Client, complaints: list[str]
) -> None:
    complaints.append("")  # that the broker is away is what clients complain of
    address = f"127.0.0.1:{free_ports()}"
    with running_broker(tmp_path, f"listeners=PLAINTEXT://{address}") as broker, ThreadPoolExecutor(1) as threads:
        with Confluent().admin(address) as admin:
            admin.create_topic("t", 1, {})
        sender = Sender(client, address, "t")
        sending = threads.submit(sender.run)
        try:
            for _ in range(2):
                await_more(address, sender)
                broker.kill()
                broker.start()
            await_more(address, sender)
        finally:
            sender.stop.set()
        sending.result(PATIENCE_S)
        with Confluent().consumer(address, "t") as consumer:
            assert consumer.offsets() == (0, len(sender.acknowledged))
            stored = [(read.offset, read.record.value) for read in consumer.read(len(sender.acknowledged))]
    assert stored == sender.acknowledged
    assert stored == [(offset, b"%d" % offset) for offset in range(len(stored))]


def await_more(servers: str, sender: Sender) -> None:
    """Wait until some requests more than those acknowledged have reached the log, so that others are on their way."""
    with Confluent().consumer(servers, sender.topic, offset=len(sender.acknowledged)) as consumer:
        consumer.read(10 * PER_REQUEST)
