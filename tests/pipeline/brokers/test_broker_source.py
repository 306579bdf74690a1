"""The log of a running broker: partitions, bounds, splits, and rows of both tables."""

from __future__ import annotations

import errno
import pickle
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as AdminPartition
from confluent_kafka.admin import AdminClient, NewTopic

from minibroker.client import blocking
from minibroker.client.client_errors import ClientError
from minibroker.pipeline.brokers.broker_source import BrokerSource
from minibroker.pipeline.log_source import (
    Bounds,
    CorruptData,
    DataLoss,
    OffsetRange,
    OptionError,
    ReadRequest,
    Split,
    TopicPartition,
    TopicSelection,
)
from minibroker.pipeline.schemas import BATCHES, RECORDS, choose_columns
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.message_set import build_message_set
from tests.client.scripted import Script, partition_data, scripted
from tests.protocol.records.samples import SMALL
from tests.running import RunningBroker, running_broker

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
RECORDS_REQUEST = ReadRequest("records", COLUMNS)
T = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("broker"), nodes=2) as broker:
        yield broker


def test_an_unknown_topic_is_an_error_unless_missing_topics_are_allowed(broker: RunningBroker, topic: str) -> None:
    selection = TopicSelection(topics=(topic, "gone"))
    with closing(BrokerSource(broker.bootstrap_servers, selection)) as source:
        with pytest.raises(OptionError, match="topic gone does not exist"):
            source.list_partitions()
        assert source.list_partitions(missing_ok=True) == [TopicPartition(topic, 0), TopicPartition(topic, 1)]


def test_a_broker_that_refuses_connections_is_tried_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuse(host: str, port: int, timeout_s: float) -> None:
        asked.append((host, port))
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    monkeypatch.setattr(blocking, "connect_socket", refuse)
    for _ in range(2):
        source = pickle.loads(pickle.dumps(BrokerSource("127.0.0.1:1,127.0.0.1:2", TopicSelection(topics=("t",)))))
        with pytest.raises(ClientError, match="cannot connect to 127.0.0.1:1: Connection refused; 127.0.0.1:2: "):
            source.list_partitions()
    assert asked == [("127.0.0.1", 1), ("127.0.0.1", 2)] * 2


@pytest.fixture
def topic(request: pytest.FixtureRequest, broker: RunningBroker) -> str:
    """A topic of two partitions, one led by each node, under the test's name."""
    name = request.node.name.replace("[", "-").replace("]", "")
    create(broker, name, 2)
    return name


def create(broker: RunningBroker, topic: str, partitions: int, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    config["retention.ms"] = "-1"  # the records are old
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result()


def producer(broker: RunningBroker, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.num.messages": 7, **settings})


def produce(broker: RunningBroker, topic: str, count: int, partition: int = 0, first: int = 0, **settings: Any) -> None:
    """`count` records with the number of each as its value, 7 in a batch, a second apart."""
    made = producer(broker, **settings)
    for number in range(first, first + count):
        key = None if number % 3 else b"k%d" % number
        made.produce(
            topic, b"%d" % number, key, partition, timestamp=T + 1000 * number, headers=[("n", b"%d" % number)]
        )
    assert made.flush(30) == 0


def source(broker: RunningBroker, topic: str, committed: bool = False, **settings: str) -> BrokerSource:
    return BrokerSource(broker.bootstrap_servers, TopicSelection((topic,)), settings, committed)


def rows(log: BrokerSource, offsets: OffsetRange, request: ReadRequest = RECORDS_REQUEST) -> list[dict[str, Any]]:
    schema = choose_columns(RECORDS if request.table == "records" else BATCHES, request.columns)
    read: list[dict[str, Any]] = pa.Table.from_batches(log.read_split(Split(offsets), request), schema).to_pylist()
    return read


def values(log: BrokerSource, partition: TopicPartition, start: int, end: int) -> list[int]:
    return [int(row["value"]) for row in rows(log, OffsetRange(partition, start, end))]


def test_partitions_are_selected_by_topic_pattern_or_assignment(broker: RunningBroker, topic: str) -> None:
    both = [TopicPartition(topic, 0), TopicPartition(topic, 1)]

    def found(selection: TopicSelection) -> list[TopicPartition]:
        with closing(BrokerSource(broker.bootstrap_servers, selection)) as log:
            return log.list_partitions()

    assert found(TopicSelection((topic,))) == both
    assert found(TopicSelection(pattern=f"^{topic}$")) == both
    assert found(TopicSelection(assigned=(both[1],))) == both[1:]
    with pytest.raises(OptionError, match="topic nowhere does not exist"):
        found(TopicSelection((topic, "nowhere")))
    with pytest.raises(OptionError, match=f"there is no {topic}-2"):
        found(TopicSelection(assigned=(TopicPartition(topic, 2),)))


def test_offset_bounds_are_requested_from_each_leader(broker: RunningBroker, topic: str) -> None:
    produce(broker, topic, 20, partition=0)
    produce(broker, topic, 5, partition=1)
    log = source(broker, topic)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_records([AdminPartition(topic, 0, 3)])[AdminPartition(topic, 0)].result()
    assert log.find_bounds(log.list_partitions()) == {
        TopicPartition(topic, 0): Bounds(3, 20),
        TopicPartition(topic, 1): Bounds(0, 5),
    }
    log.close()


def test_offsets_are_found_by_timestamp(broker: RunningBroker, topic: str) -> None:
    produce(broker, topic, 20)
    log = source(broker, topic)
    partition, empty = log.list_partitions()
    assert log.find_offsets_at({partition: T + 7000, empty: T}) == {partition: 7, empty: None}
    assert log.find_offsets_at({partition: T + 7001}) == {partition: 8}
    assert log.find_offsets_at({partition: T + 20_000}) == {partition: None}
    log.close()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_column_of_produced_records_is_read(broker: RunningBroker, topic: str, codec: str) -> None:
    produce(broker, topic, 50, **{"compression.type": codec})
    read = rows(source(broker, topic), OffsetRange(TopicPartition(topic, 0), 0, 50))
    assert [int(row["value"]) for row in read] == list(range(50))
    assert [row["offset"] for row in read] == list(range(50))
    assert [row["key"] for row in read[:4]] == [b"k0", None, None, b"k3"]
    assert {(row["topic"], row["partition"], row["timestampType"]) for row in read} == {(topic, 0, 0)}
    assert [row["timestamp"].timestamp() * 1000 for row in read] == [T + 1000 * number for number in range(50)]
    assert [row["headers"] for row in read[:2]] == [[{"key": "n", "value": b"0"}], [{"key": "n", "value": b"1"}]]


def test_a_range_of_offsets_is_read_exactly_even_within_batches(broker: RunningBroker, topic: str) -> None:
    produce(broker, topic, 50)
    log, partition = source(broker, topic), TopicPartition(topic, 0)
    for start, end in ((0, 50), (0, 1), (49, 50), (6, 8), (13, 14), (7, 14), (20, 45)):
        assert values(log, partition, start, end) == list(range(start, end))
    tiny = source(broker, topic, **{"max.partition.fetch.bytes": "1", "fetch.max.bytes": "1"})
    assert values(tiny, partition, 3, 47) == list(range(3, 47))


def test_splits_cover_the_offset_ranges_exactly(broker: RunningBroker, topic: str) -> None:
    produce(broker, topic, 100, partition=0)
    produce(broker, topic, 10, partition=1)
    log = source(broker, topic)
    first, second = log.list_partitions()
    ranges = [OffsetRange(first, 0, 100), OffsetRange(second, 2, 10), OffsetRange(second, 10, 10)]
    assert [split.offsets for split in log.make_splits(ranges)] == ranges[:2]
    many = log.make_splits(ranges, 11)
    assert len(many) == 11
    read = [value for split in many for value in values(log, *split.offsets)]
    assert read == [*range(100), *range(2, 10)]
    assert log.make_splits([OffsetRange(first, 5, 5)], 3) == []
    log.close()


def test_more_splits_than_offsets_have_one_offset_each(broker: RunningBroker) -> None:
    log = BrokerSource(broker.bootstrap_servers, TopicSelection(("t",)))
    offsets = [split.offsets[1:] for split in log.make_splits([OffsetRange(TopicPartition("t", 0), 7, 10)], 100)]
    assert offsets == [(7, 8), (8, 9), (9, 10)]


def test_a_pickled_source_has_no_connections(broker: RunningBroker, topic: str) -> None:
    produce(broker, topic, 3)
    log = source(broker, topic)
    log.list_partitions()
    there = pickle.loads(pickle.dumps(log))
    assert values(there, TopicPartition(topic, 0), 0, 3) == [0, 1, 2]
    assert there.list_partitions() == log.list_partitions()
    log.close()
    there.close()


def test_only_committed_records_are_read(broker: RunningBroker, topic: str) -> None:
    transactional = producer(broker, **{"transactional.id": topic})
    transactional.init_transactions(30)
    for number, commit in enumerate([True, False, True, False, False, True]):
        transactional.begin_transaction()
        for _ in range(10):
            transactional.produce(topic, b"%d" % number, partition=0)
        transactional.flush(30)
        if commit:
            transactional.commit_transaction(30)
        else:
            transactional.abort_transaction(30)
    transactional.begin_transaction()
    transactional.produce(topic, b"open", partition=0)
    transactional.flush(30)
    partition = TopicPartition(topic, 0)
    committed, uncommitted = source(broker, topic, committed=True), source(broker, topic)
    assert committed.find_bounds([partition])[partition] == Bounds(0, 66)
    assert uncommitted.find_bounds([partition])[partition] == Bounds(0, 67)
    assert values(committed, partition, 0, 66) == [number for number in (0, 2, 5) for _ in range(10)]
    assert values(committed, partition, 15, 60) == [2] * 10 + [5] * 5  # begins within an aborted transaction
    assert values(committed, partition, 33, 55) == []
    assert [row["value"] for row in rows(uncommitted, OffsetRange(partition, 11, 67))][::10] == [
        b"1", b"2", b"3", b"4", b"5", b"open",
    ]  # fmt: skip
    transactional.abort_transaction(30)
    for log in (committed, uncommitted):
        log.close()


def test_batch_rows_of_a_broker_have_no_segment_and_position(broker: RunningBroker, topic: str) -> None:
    made = producer(broker, **{"compression.type": "lz4"})
    for _ in range(50):
        made.produce(topic, b"much of the same " * 9, partition=0)
    assert made.flush(30) == 0
    request = ReadRequest("batches", tuple(BATCHES.names), verify_crc=True)
    read = rows(source(broker, topic), OffsetRange(TopicPartition(topic, 0), 0, 50), request)
    assert sum(row["recordCount"] for row in read) == 50
    assert [row["baseOffset"] for row in read[1:]] == [row["lastOffset"] + 1 for row in read[:-1]]
    seen = {
        (row["topic"], row["segment"], row["position"], row["magic"], row["codec"], row["crcValid"]) for row in read
    }
    assert seen == {(topic, None, None, 2, "lz4", True)}


def test_a_batch_larger_than_the_requested_range_is_read(broker: RunningBroker) -> None:
    create(broker, "large", 1, **{"max.message.bytes": "5000000"})
    made = producer(broker, **{"message.max.bytes": 5_000_000})
    for number in range(3):
        made.produce("large", b"%d" % number * 3_000_000, partition=0)
    assert made.flush(30) == 0
    log = source(broker, "large", **{"max.partition.fetch.bytes": "1000"})
    read = rows(log, OffsetRange(TopicPartition("large", 0), 0, 3))
    assert [row["value"] for row in read] == [b"0" * 3_000_000, b"1" * 3_000_000, b"2" * 3_000_000]


def test_records_deleted_since_planning_are_reported(broker: RunningBroker, topic: str) -> None:
    produce(broker, topic, 30)
    log = source(broker, topic)
    (split,) = log.make_splits([OffsetRange(TopicPartition(topic, 0), 5, 30)])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_records([AdminPartition(topic, 0, 12)])[AdminPartition(topic, 0)].result()
    with pytest.raises(DataLoss, match=f"{topic}-0: offsets 5 to 11 are missing: the partition begins at 12"):
        values(log, *split.offsets)
    lenient = ReadRequest("records", COLUMNS, fail_on_data_loss=False)
    assert [row["offset"] for row in rows(log, split.offsets, lenient)] == list(range(12, 30))


def test_a_broker_may_restart_during_a_read(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        port = broker.bootstrap_servers.rpartition(":")[2]
        broker.command += ["--set", f"listeners=PLAINTEXT://127.0.0.1:{port}"]
        create(broker, "t", 1)
        produce(broker, "t", 700)
        log = source(broker, "t", **{"max.partition.fetch.bytes": "1000", "retry.backoff.ms": "10"})
        read = log.read_split(Split(OffsetRange(TopicPartition("t", 0), 0, 700)), RECORDS_REQUEST)
        fetched = iter(read)
        broker.restart()
        assert [offset for batch in fetched for offset in batch["offset"].to_pylist()] == list(range(700))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("compression", [0, 1])
def test_old_formats_are_read(magic: int, compression: int) -> None:
    data = bytes(build_message_set(SMALL, magic, compression=compression))
    with scripted(Script(lambda node, offset: partition_data(data, end=5))) as nodes:
        log = BrokerSource(nodes.bootstrap_servers, TopicSelection(("t",)))
        read = rows(log, OffsetRange(TopicPartition("t", 0), 1, 4))
    assert [(row["offset"], row["key"], row["value"]) for row in read] == [
        (record.offset, record.key, record.value) for record in SMALL[1:4]
    ]


def test_a_broker_of_kafka_0_10_1_is_read() -> None:
    old = {ApiKey.FETCH: 3, ApiKey.LIST_OFFSETS: 1, ApiKey.METADATA: 2, ApiKey.API_VERSIONS: 0}
    data = bytes(build_message_set(SMALL, 1))
    script = Script(lambda node, offset: partition_data(data, end=5), bounds=(0, 5), versions=dict(old))
    with scripted(script) as nodes:
        selection = TopicSelection(("t",))
        log = BrokerSource(nodes.bootstrap_servers, selection)
        (partition,) = log.list_partitions()
        assert log.find_bounds([partition]) == {partition: Bounds(0, 5)}
        assert [row["value"] for row in rows(log, OffsetRange(partition, 0, 5))] == [each.value for each in SMALL]
        committed = BrokerSource(nodes.bootstrap_servers, selection, read_committed=True)
        with pytest.raises(ClientError, match="ListOffsets: the broker supports versions 0 to 1 of ListOffsets"):
            committed.find_bounds([partition])
        for each in (log, committed):
            each.close()


def test_a_corrupt_batch_is_reported_with_broker_partition_and_offset() -> None:
    data = bytearray(build_batch(SMALL, base_offset=10))
    data[-1] ^= 1
    script = Script(lambda node, offset: partition_data(bytes(data), end=15))
    with scripted(script) as nodes:
        log = BrokerSource(nodes.bootstrap_servers, TopicSelection(("t",)))
        offsets = OffsetRange(TopicPartition("t", 0), 10, 15)
        with pytest.raises(CorruptData, match=f"{nodes.bootstrap_servers}, t-0, offset 10: "):
            rows(log, offsets)
        (row,) = rows(log, offsets, ReadRequest("records", ("offset", "value", "_corrupt"), "PERMISSIVE"))
        assert row["offset"] == 10 and row["value"] is None and "offset 10" in row["_corrupt"]


def test_unknown_options_are_rejected_immediately() -> None:
    with pytest.raises(OptionError, match=r"kafka\.fetch\.mostly is not known"):
        BrokerSource("127.0.0.1:9092", TopicSelection(("t",)), {"fetch.mostly": "1"})
    with pytest.raises(OptionError, match=r"kafka\.fetch\.max\.bytes must be from 1 to 2147483647, not 0"):
        BrokerSource("127.0.0.1:9092", TopicSelection(("t",)), {"fetch.max.bytes": "0"})
