"""The topics of the coordinators: how they are made, what is appended to them, and how it is read back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from minibroker.broker.coordination.coordinator_logs import CoordinatorLog, Entry, hash_as_java
from minibroker.broker.groups.group_coordinator import SETTINGS
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.records.batch import read_header
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.control import make_transaction_marker
from minibroker.protocol.records.record import Record
from minibroker.protocol.steps import run_all_steps
from tests.broker.handlers.fetching import fetch_of
from tests.broker.harness import Harness
from tests.cases import for_each

NAME = "__consumer_offsets"

# What java.lang.String.hashCode gives (OpenJDK 17).
HASHES = {
    "": 0,
    "a": 97,
    "group": 98629247,
    "my-consumer-group": 1513705513,
    "polygenelubricants": -2147483648,
    "ümläut": -1271284472,
    "\U0001f600": 1772899,
}


class Read:
    """A reader that keeps what it gets."""

    def __init__(self) -> None:
        self.records: list[tuple[bytes | None, bytes | None, int]] = []
        self.ended: list[tuple[int, bool]] = []

    def replay_record(self, record: Record, producer_id: int) -> None:
        if record.key == b"unknown":
            raise ValueError("this says nothing")
        self.records.append((record.key, record.value, producer_id))

    def apply_transaction_end(self, producer_id: int, *, committed: bool) -> None:
        self.ended.append((producer_id, committed))

    def start_timers_after_load(self) -> None:
        raise AssertionError("the log itself does not decide that")

    discard_state = start_timers_after_load


def made(harness: Harness) -> CoordinatorLog:
    topic = CoordinatorLog(harness.cluster, harness.cluster.controller, NAME, SETTINGS)
    topic.create_topic()
    return topic


def append(log: CoordinatorLog, index: int, entries: Sequence[Entry]) -> None:
    log.append_batch(log.get_partition(index), log.build_batch(entries))


@pytest.mark.parametrize("load_bytes", ["1", "200", "5242880"])
def test_a_coordinator_log_is_replayed_in_chunks_of_any_size(tmp_path: Path, load_bytes: str) -> None:
    settings = {"offsets.topic.num.partitions": "1", "offsets.load.buffer.size": load_bytes}
    with Harness(tmp_path, settings=settings) as harness:
        topic = made(harness)
        entries: list[Entry] = [(b"k%d" % number, b"v" * number) for number in range(20)]
        for each in entries:
            append(topic, 0, [each])
        assert [(key, value) for key, value, _ in replayed(harness).records] == entries


def replayed(harness: Harness, index: int = 0) -> Read:
    read = Read()
    run_all_steps(made(harness).replay_partition(harness.partition(NAME, index), read))
    return read


@for_each(("text", "value"), HASHES.items())
def test_the_group_id_hash_is_that_of_java(text: str, value: int) -> None:
    assert hash_as_java(text) == value


@pytest.mark.parametrize(("key", "index"), [("group", 98629247 % 5), ("ümläut", 1271284472 % 5)])
def test_a_groups_partition_is_its_absolute_hash_modulo_the_partition_count(
    harness: Harness, key: str, index: int
) -> None:
    assert CoordinatorLog(harness.cluster, harness.cluster.controller, NAME, SETTINGS).get_partition_index(key) == index
    assert made(harness).get_partition_index(key) == index


def test_the_smallest_hash_maps_to_partition_0(harness: Harness) -> None:
    assert made(harness).get_partition_index("polygenelubricants") == 0


def test_the_partition_count_of_an_existing_topic_overrides_the_setting(harness: Harness) -> None:
    made(harness)
    harness.restart(settings={"offsets.topic.num.partitions": "7"})
    assert made(harness).get_partition_index("group") == 98629247 % 5


def test_the_coordinator_topic_is_created_as_in_kafka(tmp_path: Path) -> None:
    settings = {"offsets.topic.num.partitions": "4", "offsets.topic.segment.bytes": "2000000"}
    with Harness(tmp_path, nodes=4, settings=settings) as harness:
        topic = made(harness).topic
        assert topic is not None
        assert topic.internal
        assert [len(partition.replicas) for partition in topic.partitions] == [3] * 4
        assert topic.overrides == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "2000000",
        }


def test_a_single_node_creates_coordinator_partitions_with_one_replica(tmp_path: Path) -> None:
    with Harness(tmp_path, settings={"offsets.topic.num.partitions": "50"}) as harness:
        topic = made(harness).topic
        assert topic is not None
        assert (len(topic.partitions), topic.partitions[0].replicas) == (50, [1])


def test_appended_records_are_read_back_after_a_crash(harness: Harness) -> None:
    entries: Sequence[Entry] = [(b"k", b"v"), (b"k", None), (b"e", b"")]
    append(made(harness), 3, entries)
    harness.restart(crash=True)
    assert replayed(harness, 3).records == [(b"k", b"v", -1), (b"k", None, -1), (b"e", b"", -1)]
    assert harness.partition(NAME, 3).log.log_end_offset == 3
    assert replayed(harness, 2).records == []


def test_records_appended_together_are_one_batch_in_the_configured_codec(tmp_path: Path) -> None:
    with Harness(tmp_path, settings={"offsets.topic.compression.codec": "3"}) as harness:
        append(made(harness), 0, [(b"k", b"v" * 1000), (b"l", b"w")])
        region = harness.partition(NAME).log.read(0, 1 << 20, minimum_one=True)
        assert region is not None
        header = read_header(region.read())
        assert (header.record_count, header.compression) == (2, 3)
        assert header.size_bytes == region.size_bytes < 1000
        assert [key for key, _, _ in replayed(harness).records] == [b"k", b"l"]


def test_an_unknown_coordinator_record_is_skipped(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    append(made(harness), 0, [(b"a", b"1"), (b"unknown", b"2"), (b"b", b"3")])
    assert [key for key, _, _ in replayed(harness).records] == [b"a", b"b"]
    assert f"{NAME}-0: the record at offset 1 is skipped: this says nothing" in caplog.text


def test_a_corrupt_batch_is_skipped(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    topic = made(harness)
    for key in (b"a", b"b", b"c"):
        append(topic, 0, [(key, b"v")])
    harness.end_turn()
    region = harness.partition(NAME).log.read(1, 1, minimum_one=True)
    assert region is not None
    path = Path(region.file.path)
    data = bytearray(path.read_bytes())
    data[region.position + region.size_bytes - 3] ^= 1
    path.write_bytes(data)
    assert [key for key, _, _ in replayed(harness).records] == [b"a", b"c"]
    assert f"{NAME}-0: the batch at offset 1 is skipped" in caplog.text


def test_replayed_transactional_records_have_their_producer_and_markers_their_outcome(harness: Harness) -> None:
    made(harness)
    kept = harness.partition(NAME).log
    for batch in (
        build_batch(
            [Record(key=b"k", value=b"v")], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
        ),
        build_batch(
            [make_transaction_marker(committed=True, coordinator_epoch=0, timestamp=0)],
            producer_id=7,
            producer_epoch=0,
            transactional=True,
            control=True,
        ),
        build_batch(
            [make_transaction_marker(committed=False, coordinator_epoch=0, timestamp=0)],
            producer_id=8,
            producer_epoch=0,
            transactional=True,
            control=True,
        ),
    ):
        kept.append(batch, [read_header(batch)], 0)
    read = replayed(harness)
    assert (read.records, read.ended) == ([(b"k", b"v", 7)], [(7, True), (8, False)])


def test_appending_before_the_coordinator_topic_exists_gets_not_coordinator(harness: Harness) -> None:
    with pytest.raises(KafkaError) as raised:
        append(CoordinatorLog(harness.cluster, harness.cluster.controller, NAME, SETTINGS), 0, [(b"k", b"v")])
    assert raised.value.code == ErrorCode.NOT_COORDINATOR


def test_coordinator_records_that_exceed_a_batch_are_rejected_together(harness: Harness) -> None:
    topic = made(harness)
    with pytest.raises(KafkaError) as raised:
        append(topic, 0, [(b"k", b"v"), (b"l", bytes(1_100_000))])
    assert raised.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert harness.partition(NAME).log.log_end_offset == 0


def test_a_coordinator_partition_below_min_insync_replicas_rejects_requests(harness: Harness) -> None:
    topic = made(harness)
    harness.partition(NAME).isr = []
    with pytest.raises(KafkaError) as raised:
        append(topic, 0, [(b"k", b"v")])
    assert raised.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_coordinator_partition_with_an_offline_log_rejects_requests(harness: Harness) -> None:
    topic = made(harness)
    harness.partition(NAME).log.offline = "the disk is gone"
    with pytest.raises(KafkaError) as raised:
        append(topic, 0, [(b"k", b"v")])
    assert raised.value.code == ErrorCode.NOT_COORDINATOR


def test_appended_coordinator_records_wake_waiting_consumers(harness: Harness) -> None:
    topic = made(harness)
    waiting = harness.request(fetch_of(harness, {(NAME, 0): 0}, max_wait_ms=10_000))
    append(topic, 0, [(b"k", b"v")])
    assert not waiting.done
    harness.end_turn()
    assert waiting.done
