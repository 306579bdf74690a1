"""A rewritten directory is served by a broker as it is: what real clients wrote before, real clients read after."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import confluent_kafka
import pytest

from minibroker.pipeline.rewriting.batch_conversion import RewriteError, RewriteSettings
from minibroker.pipeline.rewriting.directory import RewriteReport, rewrite_directory
from minibroker.protocol.records.compression import Compression
from tests.clients.confluent import TO_THE_END, Confluent
from tests.clients.interface import PATIENCE_S, Read, Record
from tests.clients.kafka_python import KafkaPython
from tests.clients.transactions import ConfluentTransactions
from tests.pipeline.rewriting.directories import batches_of, damages
from tests.running import running_broker

RECORDS = [
    Record(None if index % 5 == 0 else b"k%d" % (index % 7), b"v%d" % index * 30, (("h", b"x"), ("none", None)))
    for index in range(60)
] + [Record(b"k1", None), Record(b"", b"")]
PLAIN = [record._replace(headers=()) for record in RECORDS]
COMMITTED = [b"c%d" % index for index in range(20)]
LOGS = ("plain-0", "plain-1", "old-0", "committed-0")


class Written(NamedTuple):
    """A data directory that a broker has left, and its clients what they know of it."""

    data: Path
    end_of_committed: int


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    directory = tmp_path_factory.mktemp("written")
    with running_broker(directory) as broker:
        servers = broker.bootstrap_servers
        with Confluent().admin(servers) as admin:
            admin.create_topic("plain", 2, {"max.message.bytes": "700000"})
            old = {"message.format.version": "0.10.2", "compression.type": "gzip", "record.attributes.elide": "true"}
            admin.create_topic("old", 1, old)
            admin.create_topic("committed", 1, {})
        for number in range(3):
            with Confluent().producer(servers, codec="lz4", idempotent=True) as producer:
                producer.send("plain", RECORDS[20 * number : 20 * number + 22], partition=number % 2)
        with KafkaPython().producer(servers) as producer:
            producer.send("old", PLAIN)
        transactions = ConfluentTransactions(servers, "writer")
        for half in (COMMITTED[:10], COMMITTED[10:]):
            transactions.transaction("committed", half, commit=True)
            transactions.transaction("committed", [b"aborted"] * 5, commit=False)
        commit(servers, "committed", 7)
        with Confluent().consumer(servers, "committed") as consumer:
            end = consumer.offsets()[1]
    yield Written(directory / "data", end)


def commit(servers: str, topic: str, offset: int) -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "readers"})
    consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def committed(servers: str, count: int = len(COMMITTED)) -> list[bytes | None]:
    """Return what a reader of committed records gets: so many from the beginning, and what follows at once.

    It comes to the end, or to offsets that an old format has no records for.
    """
    settings = {
        "bootstrap.servers": servers,
        "group.id": "x",
        "isolation.level": "read_committed",
        **TO_THE_END,
    }
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition("committed", 0, 0)])
    found = []
    while (message := consumer.poll(PATIENCE_S if len(found) < count else 1)) is not None and not message.error():
        found.append(message.value())
    consumer.close()
    return found


def rewritten(written: Written, tmp_path: Path, settings: RewriteSettings) -> RewriteReport:
    return rewrite_directory(str(written.data), str(tmp_path / "data"), settings)


def read(client: Confluent | KafkaPython, servers: str, topic: str, partition: int, count: int) -> list[Read]:
    with client.consumer(servers, topic, (partition,)) as consumer:
        return consumer.read(count)


NEW = {
    "zstd": RewriteSettings(Compression.ZSTD),
    "small batches": RewriteSettings(Compression.NONE, batch_bytes=300),
    "snappy": RewriteSettings(codec=Compression.SNAPPY),
}


@pytest.mark.parametrize("settings", NEW.values(), ids=NEW)
def test_clients_consume_rewritten_records(written: Written, tmp_path: Path, settings: RewriteSettings) -> None:
    rewritten(written, tmp_path, settings)
    for log in LOGS:
        assert damages(tmp_path / "data" / log) == []
        assert {header.magic for header, _ in batches_of(tmp_path / "data" / log)} == {2}
    with running_broker(tmp_path) as broker:
        servers = broker.bootstrap_servers
        for client in (Confluent(), KafkaPython()):
            first, second = [*RECORDS[:22], *RECORDS[40:62]], RECORDS[20:42]
            found = read(client, servers, "plain", 0, 44)
            assert [each.offset for each in found] == list(range(44))
            assert [each.record for each in found] == first
            assert [each.record for each in read(client, servers, "plain", 1, 22)] == second
            values = [each.record.value for each in read(client, servers, "old", 0, len(PLAIN))]
            assert values == [record.value for record in PLAIN]
        assert committed(servers) == COMMITTED
        with Confluent().consumer(servers, "committed") as consumer:
            assert consumer.offsets()[1] == written.end_of_committed
        group = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "readers"})
        (position,) = group.committed([confluent_kafka.TopicPartition("committed", 0)], timeout=PATIENCE_S)
        group.close()
        assert position.offset == 7


def test_a_rewritten_log_can_be_appended_to(written: Written, tmp_path: Path) -> None:
    rewritten(written, tmp_path, NEW["zstd"])
    with running_broker(tmp_path) as broker:
        with Confluent().producer(broker.bootstrap_servers, idempotent=True) as producer:
            assert producer.send("plain", PLAIN[:3]) == [44, 45, 46]
        writer = ConfluentTransactions(broker.bootstrap_servers, "writer")
        writer.transaction("committed", [b"more"], commit=True)
        assert committed(broker.bootstrap_servers, len(COMMITTED) + 1) == [*COMMITTED, b"more"]
        broker.kill()
        broker.start()
        assert len(read(Confluent(), broker.bootstrap_servers, "plain", 0, 47)) == 47


def test_unselected_and_internal_topics_are_copied(written: Written, tmp_path: Path) -> None:
    settings = RewriteSettings(codec=Compression.GZIP)
    report = rewrite_directory(str(written.data), str(tmp_path / "data"), settings, ["committed"])
    assert [space.topic for space in report.topics] == ["committed"]
    assert {"plain-0", "plain-1", "old-0", "__cluster_metadata-0"} < set(report.copied)
    for log in report.copied:
        for path in (written.data / log).iterdir():
            assert (tmp_path / "data" / log / path.name).read_bytes() == path.read_bytes()
    for topic in ("__consumer_offsets", "nothing"):
        with pytest.raises(RewriteError, match=topic):
            rewrite_directory(str(written.data), str(tmp_path / "other"), settings, [topic])


def test_a_directory_in_use_is_rejected(written: Written, tmp_path: Path) -> None:
    shutil.copytree(written.data, tmp_path / "data")
    with running_broker(tmp_path) as broker, pytest.raises(RewriteError, match="stop the broker first"):
        rewrite_directory(str(tmp_path / "data"), str(tmp_path / "new"), RewriteSettings())
    assert broker.process.poll() == 0
