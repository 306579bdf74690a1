"""Produce: what is stored, what needs nodes or a restart, and what happens while a batch is validated.

What a batch must be is tested in `tests/storage/test_validation.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.delayed_operations import Slicer
from minibroker.broker.handlers import produce as producing
from minibroker.broker.requests.dispatch import Dispatcher
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.records.batch import HEADER, LOG_APPEND_TIME, read_header, set_checksum, set_offset_and_epoch
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.payload import iterate_records_of_batch
from minibroker.protocol.records.record import Record
from minibroker.protocol.steps import Steps
from minibroker.storage.validation import validate_records_in_steps
from tests.broker.harness import Harness, batch, frame_of, served_versions

FIRST_WITH_LEADERS = 10
VERSIONS = served_versions(ProduceRequest)
NO_TOPIC_ID = b"\x11" * 16

Topic = ProduceRequest.TopicProduceData
Partition = Topic.PartitionProduceData
Where = tuple[str, int]  # a topic's name and the partition's number


def request_of(harness: Harness, batches: Mapping[Where, bytes | None], acks: int = -1, **more: Any) -> ProduceRequest:
    """A request with a batch a partition; topics that are not there get an id that nobody has."""
    known = harness.cluster.image.topics
    data = []
    for (name, index), records in batches.items():
        topic_id = known[name].topic_id if name in known else NO_TOPIC_ID
        records = None if records is None else memoryview(records)
        data.append(Topic(name=name, topic_id=topic_id, partition_data=[Partition(index=index, records=records)]))
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=data, **more)


def produce(
    harness: Harness,
    batches: Mapping[Where, bytes | None],
    *,
    version: int = VERSIONS[-1],
    acks: int = -1,
    node: int = 1,
    client_id: str = "test",
    **more: Any,
) -> dict[Where, Any]:
    """Each partition's answer."""
    response = harness.request(request_of(harness, batches, acks, **more), version, node=node, client_id=client_id)
    answers = [answer for topic in response.responses for answer in topic.partition_responses]
    assert [answer.index for answer in answers] == [index for _, index in batches]
    return dict(zip(batches, answers, strict=True))


def stored(harness: Harness, topic: str, index: int = 0) -> bytes:
    """All bytes of the partition's log."""
    region = harness.partition(topic, index).log.read(0, 1 << 30)
    return b"" if region is None else bytes(region.read())


def keyed(*keys: bytes | None) -> bytes:
    """A batch with a record a key."""
    return bytes(build_batch([Record(0, 1_700_000_000_000, key, b"value", ()) for key in keys]))


def changed(data: bytes, *, sealed: bool = True, **fields: int) -> bytes:
    """The batch with other values in its header; with a checksum that fits, unless told."""
    edited = bytearray(data)
    HEADER.pack_into(edited, 0, *read_header(data)._replace(**fields))
    if sealed:
        set_checksum(edited, 0, len(edited))
    return bytes(edited)


# --- appended -----------------------------------------------------------------------------------


def test_stored_batches_differ_from_produced_ones_only_in_offset_and_leader_epoch(harness: Harness) -> None:
    harness.create_topic("t")
    sent = [batch("a", "b", compression=codec, leader_epoch=77) for codec in Compression]
    expected = b""
    for index, data in enumerate(sent):
        assert produce(harness, {("t", 0): data})["t", 0].base_offset == 2 * index
        data = bytearray(data)
        set_offset_and_epoch(data, 0, 2 * index, harness.partition("t").leader_epoch)
        expected += data
    assert stored(harness, "t") == expected


def test_each_partition_of_several_topics_is_answered(harness: Harness) -> None:
    harness.create_topic("t", 2)
    harness.create_topic("u")
    harness.produce("t", "before", partition=1)
    answers = produce(harness, {("t", 0): batch("a"), ("t", 1): batch("b"), ("u", 0): batch("c")})
    assert {where: (answer.error_code, answer.base_offset) for where, answer in answers.items()} == {
        ("t", 0): (0, 0),
        ("t", 1): (0, 1),
        ("u", 0): (0, 0),
    }


@pytest.mark.parametrize(
    ("count", "size"), [(3, 1), (60, 1), (3, 30_000)], ids=["few small ones", "many", "large ones"]
)
@pytest.mark.parametrize(("sent", "stored_as"), [(0, "producer"), (1, "producer"), (0, "gzip")])
def test_only_few_small_uncompressed_batches_are_appended_in_one_step(
    harness: Harness, count: int, size: int, sent: int, stored_as: str
) -> None:
    harness.create_topic("t", count, compression_type=stored_as)
    before = harness.dispatcher.slicer.slices
    answers = produce(harness, {("t", index): batch("v" * size, compression=sent) for index in range(count)})
    assert {(answer.error_code, answer.base_offset) for answer in answers.values()} == {(0, 0)}
    is_at_once = (count, size, sent, stored_as) == (3, 1, 0, "producer")
    assert harness.dispatcher.slicer.slices - before == (not is_at_once)


# --- refused ------------------------------------------------------------------------------------

GOOD = batch("a", "b")


OF_NOBODY = batch("a", transactional=True)


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_transactional_batch_without_a_producer_id_is_in_no_transaction(harness: Harness, partitions: int) -> None:
    harness.create_topic("t", 2)
    sent = {("t", index): OF_NOBODY for index in range(partitions)}
    answers = produce(harness, sent, transactional_id="mine")
    assert [answer.error_code for answer in answers.values()] == [0] * partitions
    log = harness.partition("t").log
    assert (
        log.last_stable_offset,
        list(log.producers.iterate_entries()),
        log.producers.open_transactions,
    ) == (
        1,
        [],
        {},
    )
    assert read_header(stored(harness, "t")).is_transactional
    harness.restart(crash=True)
    log = harness.partition("t").log
    assert (log.last_stable_offset, log.log_end_offset) == (1, 1)


def test_responses_by_topic_id_contain_the_topic_id(harness: Harness) -> None:
    harness.create_topic("t")
    response = harness.request(request_of(harness, {("t", 0): GOOD, ("nowhere", 0): GOOD}))
    assert [topic.topic_id for topic in response.responses] == [
        harness.cluster.image.topics["t"].topic_id,
        NO_TOPIC_ID,
    ]


def test_too_few_in_sync_replicas_reject_only_acks_all(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        harness.create_topic("t", replicas=2, min_insync_replicas="3")
        assert produce(harness, {("t", 0): GOOD}, acks=-1)["t", 0].error_code == 0
        harness.restart(nodes=[1])
        refused = produce(harness, {("t", 0): GOOD}, acks=-1)["t", 0]
        assert (refused.error_code, refused.log_start_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS, 0)
        assert produce(harness, {("t", 0): GOOD}, acks=1)["t", 0].error_code == 0


def test_only_the_admin_client_can_write_to_internal_topics(harness: Harness) -> None:
    harness.create_topic("__consumer_offsets", cleanup_policy="compact")
    where = ("__consumer_offsets", 0)
    assert produce(harness, {where: keyed(b"k")})[where].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert produce(harness, {where: keyed(b"k")}, client_id="__admin_client")[where].error_code == 0


def test_a_batch_of_a_transaction_that_was_not_started_is_rejected(harness: Harness) -> None:
    harness.create_topic("t")
    data = batch("a", transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
    answer = produce(harness, {("t", 0): data}, transactional_id="mine")["t", 0]
    assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS  # as there is nobody to ask, the client is to try again
    harness.cluster.transactions.log.create_topic()
    answer = produce(harness, {("t", 0): data}, transactional_id="mine")["t", 0]
    assert answer.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


# --- the wrong node (KIP-951) -------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_node_that_is_not_the_leader_returns_the_leader_and_its_address(tmp_path: Path, version: int) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        harness.create_topic("t", 2)
        here = next(index for index in range(2) if harness.partition("t", index).leader_id == 1)
        there = 1 - here
        request = request_of(harness, {("t", here): GOOD, ("t", there): GOOD})
        response = harness.request(request, version, node=1, listener="INTERNAL")
        mine, other = (topic.partition_responses[0] for topic in response.responses)
        assert (mine.error_code, mine.current_leader) == (0, None)
        assert (other.error_code, other.log_start_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        if version < FIRST_WITH_LEADERS:
            assert (other.current_leader, response.node_endpoints) == (None, [])
            return
        assert (other.current_leader.leader_id, other.current_leader.leader_epoch) == (2, 0)
        endpoints = [(node.node_id, node.host, node.port) for node in response.node_endpoints]
        assert endpoints == [(2, "node2.test", 19002)]


# --- what the topic changes ---------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(Compression))
def test_log_append_time_is_stored_and_returned(harness: Harness, codec: Compression) -> None:
    harness.create_topic("t", message_timestamp_type="LogAppendTime")
    harness.clock.advance(5)
    now = harness.clock.wall_ms()
    long_ago_and_far_off = batch("a", "b", timestamp=5, step_ms=1 << 42, compression=codec)
    answer = produce(harness, {("t", 0): long_ago_and_far_off})["t", 0]
    assert (answer.error_code, answer.log_append_time_ms) == (0, now)
    header = read_header(stored(harness, "t"))
    assert (header.timestamp_type, header.max_timestamp, header.base_timestamp) == (LOG_APPEND_TIME, now, 5)
    assert [record.timestamp for record in iterate_records_of_batch(stored(harness, "t"))] == [now, now]


@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("sent", list(Compression))
def test_batches_are_stored_in_the_codec_of_the_topic(harness: Harness, wanted: str, sent: Compression) -> None:
    harness.create_topic("t", compression_type=wanted)
    assert produce(harness, {("t", 0): batch("a", None, "c" * 1000, compression=sent)})["t", 0].error_code == 0
    data = stored(harness, "t")
    expected = Compression.NONE if wanted == "uncompressed" else Compression[wanted.upper()]
    assert read_header(data).compression == expected
    assert [record.value for record in iterate_records_of_batch(data)] == [b"a", None, b"c" * 1000]


@pytest.mark.parametrize("log_end_offset", [0, 5])
def test_a_batch_validated_for_a_replaced_log_is_not_appended_to_its_successor(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, log_end_offset: int
) -> None:
    harness.create_topic("t", message_format_version="0.10.2")
    harness.create_topic("u", message_format_version="0.10.2")
    other = harness.partition("u").log
    for _ in range(log_end_offset):
        harness.produce("u", "a")

    def moving(*args: Any, **more: Any) -> Any:
        validated = yield from validate_records_in_steps(*args, **more)
        harness.partition("t").log = other
        return validated

    monkeypatch.setattr(producing, "validate_records_in_steps", moving)
    answer = produce(harness, {("t", 0): GOOD})["t", 0]
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert other.log_end_offset == log_end_offset


@pytest.mark.parametrize("partitions", [1, 2])
def test_the_next_request_does_not_overwrite_records_of_a_waiting_produce(harness: Harness, partitions: int) -> None:
    harness.create_topic("t", 2)
    turns: list[Callable[[], None]] = []
    slicer = Slicer(turns.append)
    harness.dispatcher = Dispatcher(harness.cluster, slicer=slicer)
    going_on = [True]

    def others() -> Steps[None]:
        while going_on[0]:
            yield

    slicer.run_steps_in_slices(others())
    sent, scribble = (
        build_batch([Record(0, 1_700_000_000_000, b"key", value, ())], compression=Compression.GZIP)
        for value in (b"what was sent", b"what followed")
    )
    version = VERSIONS[-1]
    scratch = memoryview(bytearray(1 << 16))
    client = harness.client()
    for records in (sent, scribble):  # the second, of another client, comes to lie where the first did
        request = request_of(harness, {("t", index): bytes(records) for index in range(partitions)})
        frame = frame_of(request, version)
        scratch[: len(frame)] = frame
        if records is sent:
            client.connection.process_received_data(scratch, len(frame))
    going_on[0] = False
    while turns:
        turns.pop(0)()
    (record,) = iterate_records_of_batch(stored(harness, "t"))
    assert record.value == b"what was sent"
