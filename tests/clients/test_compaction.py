"""A compacted topic as clients see it: the latest record of each key, whatever happens while the log is compacted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest

from tests.clients.confluent import TO_THE_END, Confluent
from tests.clients.interface import PATIENCE_S, Client, Producer, Read, Record
from tests.clients.ports import free_ports
from tests.running import running_broker

KEYS = [b"k%d" % number for number in range(10)]
DELETED = KEYS[:4]
ROUNDS = 12  # with values of 30 KB about 3.6 MB, in segments of 1 MiB
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}
END = Record(b"end", b"")


def value(key: bytes, round_number: int) -> bytes:
    return b"%s in round %d" % (key, round_number) + bytes(30_000)


def write_rounds(producer: Producer, topic: str, rounds: range) -> None:
    for number in rounds:
        producer.send(topic, [Record(key, value(key, number)) for key in KEYS])


def write_padding(producer: Producer, topic: str) -> int:
    """Records that fill a segment, so that all before can be compacted; the first one's offset."""
    return producer.send(topic, [Record(b"padding", bytes(40_000)) for _ in range(30)])[0]


def read_all(client: Client, servers: str, topic: str) -> list[Read]:
    """The topic from its start, whose last record is put in for that."""
    with Confluent().producer(servers) as producer:
        (end,) = producer.send(topic, [END])
    found: list[Read] = []
    with client.consumer(servers, topic, offset=0) as consumer:
        while not found or found[-1].offset != end:
            found += consumer.read(1)
    return found


def latest(read: list[Read]) -> dict[bytes | None, bytes | None]:
    offsets = [each.offset for each in read]
    assert offsets == sorted(set(offsets))
    return {each.record.key: each.record.value for each in read}


def await_true(what: Callable[[], object]) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < give_up_at, "it does not come to pass"
        time.sleep(0.002)


def await_clean(directory: Path, topic: str, offset: int) -> None:
    """Wait until the topic is compacted up to the offset at least."""
    checkpoint = directory / "data" / "cleaner-offset-checkpoint"

    def is_clean() -> bool:
        lines = checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []
        return any(int(clean) >= offset for name, _, clean in map(str.split, lines) if name == topic)

    await_true(is_clean)


def test_every_client_reads_the_latest_records_and_temporary_tombstones(tmp_path: Path, client: Client) -> None:
    with running_broker(tmp_path, "log.cleaner.backoff.ms=50") as broker:
        servers = broker.bootstrap_servers
        with Confluent().admin(servers) as admin:
            admin.create_topic("kept", 1, {**CONFIGS, "delete.retention.ms": "86400000"})
            admin.create_topic("gone", 1, CONFIGS)
        with client.producer(servers) as producer:
            for topic in ("kept", "gone"):
                write_rounds(producer, topic, range(ROUNDS))
                producer.send(topic, [Record(key, None) for key in DELETED])
                for _ in range(2):  # the first time a tombstone is told when it may go
                    await_clean(tmp_path, topic, write_padding(producer, topic))
        kept, gone = (read_all(client, servers, topic) for topic in ("kept", "gone"))
    assert kept[-1].offset > len(kept)
    others = {**{key: value(key, ROUNDS - 1) for key in KEYS[len(DELETED) :]}, b"padding": bytes(40_000), b"end": b""}
    assert latest(gone) == others
    assert latest(kept) == {**others, **dict.fromkeys(DELETED)}
    for read in (kept, gone):
        keys = [each.record.key for each in read if each.record.key != b"padding"]
        assert len(keys) == len(set(keys))


def test_read_committed_consumers_miss_no_record_after_aborted_ones_are_removed(tmp_path: Path) -> None:
    committed: dict[bytes | None, bytes | None] = {}
    with running_broker(tmp_path, "log.cleaner.backoff.ms=50") as broker:
        servers = broker.bootstrap_servers
        with Confluent().admin(servers) as admin:
            admin.create_topic("t", 1, CONFIGS)
        producer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": "t"})
        producer.init_transactions(PATIENCE_S)
        with Confluent().producer(servers) as other:
            for number in range(6):
                producer.begin_transaction()
                written = {key: value(key, number) for key in KEYS[number:]}
                for key, content in written.items():
                    producer.produce("t", content, key, 0)
                assert producer.flush(PATIENCE_S) == 0
                if number % 2:
                    producer.abort_transaction(PATIENCE_S)
                else:
                    producer.commit_transaction(PATIENCE_S)
                    committed.update(written)
                await_clean(tmp_path, "t", write_padding(other, "t"))
        settings = {"bootstrap.servers": servers, "group.id": "nobody", **TO_THE_END}
        for isolation in ("read_committed", "read_uncommitted"):
            consumer = confluent_kafka.Consumer({**settings, "isolation.level": isolation})
            consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
            read = dict(messages(consumer))
            consumer.close()
            assert {key: read.get(key) for key in KEYS} == committed


def messages(consumer: confluent_kafka.Consumer) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Key and value of each record up to the end of the log."""
    while (message := consumer.poll(PATIENCE_S)) is not None and not message.error():
        yield message.key(), message.value()
    assert message is not None and message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF


@pytest.mark.parametrize("moment", ["*.log.cleaned", pytest.param("*.log.deleted", marks=pytest.mark.thorough)])
def test_kills_during_compaction_lose_nothing_and_the_producer_continues(
    tmp_path: Path, complaints: list[str], moment: str
) -> None:
    complaints.append("")  # that the broker is away is what clients complain of
    address = f"127.0.0.1:{free_ports()}"
    slowly = "log.cleaner.io.max.bytes.per.second=10000000"
    log = tmp_path / "data" / "t-0"
    with running_broker(tmp_path, f"listeners=PLAINTEXT://{address}", "log.cleaner.backoff.ms=50", slowly) as broker:
        with Confluent().admin(address) as admin:
            admin.create_topic("t", 1, CONFIGS)
        with Confluent().producer(address, idempotent=True) as producer:
            for start in range(0, 3 * ROUNDS, ROUNDS):
                write_rounds(producer, "t", range(start, start + ROUNDS))
                dirty = write_padding(producer, "t")
                await_true(lambda: list(log.glob(moment)))
                broker.kill()
                broker.start()
                read = latest(read_all(Confluent(), address, "t"))
                assert {key: read[key] for key in KEYS} == {key: value(key, start + ROUNDS - 1) for key in KEYS}
            await_clean(tmp_path, "t", dirty)
            assert producer.send("t", [END]) == [end_offset(address) - 1]
        read_again = read_all(Confluent(), address, "t")
        assert latest(read_again) == read


def end_offset(servers: str) -> int:
    with Confluent().consumer(servers, "t", offset=0) as consumer:
        return consumer.offsets()[1]
