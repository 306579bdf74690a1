"""Clients of all times on one topic: what Produce of each version brings, and Fetch of each version takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.handlers.down_conversion import MAX_CONVERTED_BYTES, has_newer_format
from minibroker.broker.handlers.fetch import fetch as read
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.messages.topics import DeleteTopicsRequest
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.control import make_transaction_marker
from minibroker.protocol.records.conversion import build_records_in_format
from minibroker.protocol.records.formats import (
    check_batch_or_message,
    iterate_batches_in_any_format,
    iterate_records_in_any_format,
)
from minibroker.protocol.records.record import Record
from minibroker.protocol.steps import run_all_steps
from minibroker.storage.segment import Region
from tests.broker import delaying
from tests.broker.handlers.fetching import VERSIONS, answers_in, fetch, fetch_of, values_in
from tests.broker.harness import Harness
from tests.cases import for_each
from tests.protocol.records.test_message_set import CODECS
from tests.storage.support import append

T = 1_700_000_000_000
FORMAT_VERSIONS = {0: "0.9.0", 1: "0.10.2", 2: "0.11.0"}
FETCHED = {version: 0 if version < 2 else 1 if version < 4 else 2 for version in VERSIONS}
UNSUPPORTED_CODEC = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def records(*values: str, headers: tuple[tuple[str, bytes], ...] = ()) -> list[Record]:
    return [Record(at, T + at, value.encode(), value.encode(), headers) for at, value in enumerate(values)]


def produce(harness: Harness, *values: str, magic: int, codec: int = 0, topic: str = "t") -> None:
    version = {0: 0, 1: 2, 2: 9}[magic]
    answer = harness.produce_batch(
        topic, bytes(build_records_in_format(records(*values), magic, compression=codec)), version=version
    )
    assert answer.error_code == ErrorCode.NONE


def fetched(answer: Any) -> list[Record]:
    assert answer.error_code == 0
    data = bytes(answer.records)
    for position, _ in iterate_batches_in_any_format(data):
        check_batch_or_message(data, position)
    return [
        record
        for position, _ in iterate_batches_in_any_format(data)
        for record in iterate_records_in_any_format(data, position)
    ]


@pytest.fixture
def mixed(harness: Harness) -> Harness:
    """A topic "t", to which clients of each format and codec have written while its own format changed."""
    harness.create_topic("t")
    log = harness.partition("t").log
    for stored in (2, 0, 1, 2, 1, 0):
        log.update_settings(log.settings._replace(message_format_version=stored))
        for magic in (0, 1, 2):
            for codec in CODECS:
                produce(harness, f"{stored}{magic}{codec}a", f"{stored}{magic}{codec}b", magic=magic, codec=codec)
    assert {header.magic for _, header in iterate_batches_in_any_format(_stored(harness))} == {0, 1, 2}
    return harness


def _stored(harness: Harness) -> bytes:
    region = harness.partition("t").log.read(0, 1 << 20)
    assert region is not None
    return region.read()


@for_each("version", [*VERSIONS[:5], VERSIONS[-1]])  # from version 4 on nothing is converted
def test_every_fetch_version_reads_the_same_records_of_a_mixed_log(mixed: Harness, version: int) -> None:
    magic = FETCHED[version]
    all_stored = {record.offset: record for record in _all_records(mixed)}
    for offset in range(len(all_stored)):
        answer = fetch(mixed, {("t", 0): offset}, version=version)["t", 0]
        headers = [header for _, header in iterate_batches_in_any_format(bytes(answer.records))]
        assert max(header.magic for header in headers) <= magic
        found = fetched(answer)
        assert [record.offset for record in found if record.offset >= offset] == list(range(offset, len(all_stored)))
        for record in found:
            stored = all_stored[record.offset]
            assert (record.key, record.value) == (stored.key, stored.value)
            assert record.timestamp == (stored.timestamp if magic else -1)


def _all_records(harness: Harness) -> list[Record]:
    data = _stored(harness)
    return [
        record
        for position, _ in iterate_batches_in_any_format(data)
        for record in iterate_records_in_any_format(data, position)
    ]


@for_each("version", VERSIONS[:4])
@for_each("limit", [1, 100, 250, 1000])
def test_old_clients_get_a_batch_whatever_the_byte_limit(mixed: Harness, version: int, limit: int) -> None:
    offset, found = 0, []
    while offset < mixed.partition("t").log.log_end_offset:
        answer = fetch(mixed, {("t", 0): offset}, version=version, partition_max_bytes=limit)["t", 0]
        data = bytes(answer.records)
        assert (
            len(data) <= limit
            or len(list(iterate_batches_in_any_format(data))) == 1
            or _is_one_stored_batch(mixed, data)
        )
        new = [record for record in fetched(answer) if record.offset >= offset]
        assert new
        found += new
        offset = new[-1].offset + 1
    assert [record.value for record in found] == [record.value for record in _all_records(mixed)]


def _is_one_stored_batch(harness: Harness, data: bytes) -> bool:
    """Whether all of it was one batch of format 2, which was converted whole."""
    offsets = [header.last_offset for _, header in iterate_batches_in_any_format(data)]
    return any(
        header.magic == 2 and header.base_offset <= offsets[0] and offsets[-1] <= header.last_offset
        for _, header in iterate_batches_in_any_format(_stored(harness))
    )


@pytest.mark.parametrize("version", VERSIONS[:4])
def test_records_that_need_no_conversion_are_sent_from_the_file(harness: Harness, version: int) -> None:
    magic = FETCHED[version]
    harness.create_topic("t", message_format_version=FORMAT_VERSIONS[magic])
    for codec in CODECS:
        produce(harness, "a", "b", magic=2, codec=codec)
    outlet = harness.client().outlet
    assert outlet.items == []
    assert bytes(fetch(harness, {("t", 0): 0}, version=version)["t", 0].records) == _stored(harness)
    log = harness.partition("t").log
    region = log.read(0, 1 << 20)
    assert isinstance(region, Region)
    assert not run_all_steps(has_newer_format(log, region, magic))
    log.update_settings(log.settings._replace(message_format_version=2))
    produce(harness, "c", magic=2)
    region = log.read(0, 1 << 20)
    assert isinstance(region, Region)
    assert run_all_steps(has_newer_format(log, region, magic))
    log.truncate_to(8)
    region = log.read(0, 1 << 20)
    assert isinstance(region, Region)
    assert not run_all_steps(has_newer_format(log, region, magic))


@pytest.mark.parametrize("version", [0, 2, 3])
def test_control_batches_are_omitted_for_old_clients(harness: Harness, version: int) -> None:
    harness.create_topic("t")
    log = harness.partition("t").log
    for codec in (0, 1):
        harness.produce("t", f"a{codec}", compression=codec)
        marker = make_transaction_marker(committed=True, coordinator_epoch=0, timestamp=T)
        for _ in range(3):
            append(log, build_batch([marker], control=True, transactional=True, producer_id=1, producer_epoch=0))
    assert values_in(fetch(harness, {("t", 0): 0}, version=version)["t", 0]) == ["a0", "a1"]
    # Nothing but control batches is within the limit, but the client gets on.
    assert values_in(fetch(harness, {("t", 0): 1}, version=version, partition_max_bytes=1)["t", 0]) == ["a1"]
    assert fetch(harness, {("t", 0): 5}, version=version)["t", 0].records == b""


def test_headers_are_dropped_for_old_clients(harness: Harness) -> None:
    harness.create_topic("t")
    harness.produce_batch("t", build_batch(records("a", headers=(("h", b"1"),))))
    assert fetched(fetch(harness, {("t", 0): 0}, version=3)["t", 0]) == records("a")
    assert fetched(fetch(harness, {("t", 0): 0}, version=4)["t", 0])[0].headers == (("h", b"1"),)


@pytest.mark.parametrize("version", VERSIONS)
def test_zstd_is_rejected_for_clients_that_do_not_support_it(harness: Harness, version: int) -> None:
    harness.create_topic("t", 2)
    harness.produce("t", "a", compression=Compression.ZSTD)
    harness.produce("t", "b", partition=1)
    answers = fetch(harness, {("t", 0): 0, ("t", 1): 0}, version=version)
    assert answers["t", 0].error_code == (UNSUPPORTED_CODEC if version < 4 else 0)
    assert values_in(answers["t", 1]) == ["b"]


@pytest.mark.parametrize("version", VERSIONS)
def test_clients_of_old_formats_cannot_read_a_zstd_topic(harness: Harness, version: int) -> None:
    harness.create_topic("t", compression_type="zstd")
    harness.produce("t", "a")
    answer = fetch(harness, {("t", 0): 0}, version=version)["t", 0]
    assert answer.error_code == (UNSUPPORTED_CODEC if version < 4 else 0)


def test_records_before_a_zstd_batch_are_returned_before_the_error(harness: Harness) -> None:
    harness.create_topic("t")
    harness.produce("t", "a")
    harness.produce("t", "b", compression=Compression.ZSTD)
    assert values_in(fetch(harness, {("t", 0): 0}, version=2)["t", 0]) == ["a"]
    assert fetch(harness, {("t", 0): 1}, version=2)["t", 0].error_code == UNSUPPORTED_CODEC


def test_each_partition_gets_a_batch_in_fetch_versions_without_a_total_limit(harness: Harness) -> None:
    harness.create_topic("t", 2)
    for partition in (0, 1):
        harness.produce("t", "x" * 100, "y" * 100, partition=partition)
    wanted = {("t", 0): 0, ("t", 1): 0}
    for version in (0, 2):
        found = fetch(harness, wanted, version=version, partition_max_bytes=1)
        assert [len(values_in(answer)) for answer in found.values()] == [2, 2]
    found = fetch(harness, wanted, version=3, partition_max_bytes=1)
    assert [len(values_in(answer)) for answer in found.values()] == [2, 0]


def test_a_corrupt_batch_is_not_converted(harness: Harness) -> None:
    harness.create_topic("t")
    harness.produce("t", "a")
    path = Path(harness.partition("t").log.segments[0].path + ".log")
    path.write_bytes(path.read_bytes()[:-2] + b"??")
    assert fetch(harness, {("t", 0): 0}, version=2)["t", 0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


# --- Produce ------------------------------------------------------------------------------------


@pytest.mark.parametrize("stored", [0, 1, 2])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_producers_receive_offset_and_append_time(harness: Harness, version: int, stored: int) -> None:
    harness.create_topic("t", message_format_version=FORMAT_VERSIONS[stored], message_timestamp_type="LogAppendTime")
    data = bytes(build_records_in_format(records("a", "b"), 0 if version < 2 else 1))
    for first_offset in (0, 2):
        answer = harness.produce_batch("t", data, version=version)
        assert (answer.error_code, answer.base_offset) == (0, first_offset)
        assert answer.log_append_time_ms == (harness.clock.wall_ms() if version == 2 else -1)
    assert [record.value for record in _all_records(harness)] == [b"a", b"b", b"a", b"b"]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_producers_with_acks_0_get_no_response(harness: Harness, version: int) -> None:
    harness.create_topic("t")
    data = ProduceRequest.TopicProduceData.PartitionProduceData(
        index=0, records=memoryview(bytes(build_records_in_format(records("a"), 1)))
    )
    request = ProduceRequest(
        acks=0, timeout_ms=1, topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=[data])]
    )
    assert harness.request(request, version) is None
    assert len(_all_records(harness)) == 1


@pytest.mark.parametrize("stored", [0, 1])
def test_topics_of_old_formats_reject_producers_with_an_id(harness: Harness, stored: int) -> None:
    harness.create_topic("t", message_format_version=FORMAT_VERSIONS[stored])
    data = build_batch(records("a"), producer_id=3, producer_epoch=0, base_sequence=0)
    assert harness.produce_batch("t", data).error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


@pytest.mark.parametrize("version", ["0.7", "latest", "2"])
def test_an_unknown_message_format_version_of_a_topic_is_rejected(harness: Harness, version: str) -> None:
    with pytest.raises(AssertionError, match="Version .* is not a valid version"):
        harness.create_topic("t", message_format_version=version)


def test_topics_inherit_the_brokers_message_format_version(tmp_path: Path) -> None:
    with Harness(tmp_path, settings={"log.message.format.version": "0.10.0"}) as harness:
        harness.create_topic("t")
        harness.produce("t", "a")
        assert {header.magic for _, header in iterate_batches_in_any_format(_stored(harness))} == {1}
        assert values_in(fetch(harness, {("t", 0): 0})["t", 0]) == ["a"]


def test_old_message_formats_survive_a_restart(mixed: Harness) -> None:
    before = _all_records(mixed)
    mixed.restart(crash=True)
    assert _all_records(mixed) == before
    mixed.restart()
    assert _all_records(mixed) == before


LARGE = {"max_bytes": 16 << 20, "partition_max_bytes": 16 << 20}


def test_a_fetch_converts_only_a_bounded_number_of_bytes(harness: Harness) -> None:
    value = "x" * (MAX_CONVERTED_BYTES * 2 // 5)
    harness.create_topic("t", 2)
    for partition in (0, 1):
        for _ in range(4):
            harness.produce("t", value, partition=partition)

    def count_values(topic: str, version: int, **more: int) -> list[int]:
        offsets = {(topic, partition): 0 for partition in range(len(harness.cluster.image.topics[topic].partitions))}
        answers = fetch(harness, offsets, version=version, **LARGE, **more)
        return [len(values_in(answer)) for answer in answers.values()]

    assert count_values("t", 3, min_bytes=5 << 20, max_wait_ms=1000) == [2, 0]  # and it is not kept waiting
    assert count_values("t", 2) == [2, 1]  # where each partition gets one
    assert count_values("t", 4) == [4, 4]
    harness.create_topic("old", message_format_version="0.10.2")
    for _ in range(4):
        harness.produce("old", value)
    assert count_values("old", 3) == [4]  # as it is stored


# --- in steps -----------------------------------------------------------------------------------

MANY = 5000


def steps_of(harness: Harness, offsets: dict[tuple[str, int], int], version: int) -> int:
    before = harness.dispatcher.slicer.steps
    assert fetched(fetch(harness, offsets, version=version)["t", 0])
    return harness.dispatcher.slicer.steps - before


@pytest.mark.parametrize("version", VERSIONS[:4])
def test_a_large_batch_is_converted_in_steps(harness: Harness, version: int) -> None:
    harness.create_topic("t")
    harness.produce("t", *["a"] * MANY)
    assert steps_of(harness, {("t", 0): 0}, version) >= MANY // 1000


def test_fetches_without_conversion_are_not_split_into_steps(harness: Harness) -> None:
    harness.create_topic("t")
    harness.produce("t", *["a"] * MANY)
    assert [steps_of(harness, {("t", 0): 0}, version) for version in VERSIONS[4:]] == [0] * len(VERSIONS[4:])


@pytest.mark.parametrize("version", VERSIONS[:4])
def test_a_delayed_fetch_converts_in_steps(harness: Harness, version: int) -> None:
    harness.create_topic("t")
    waiting = harness.request(fetch_of(harness, {("t", 0): 0}, max_wait_ms=500), version)
    before = harness.dispatcher.slicer.steps
    harness.produce("t", *["a"] * MANY)
    (answer,) = answers_in(harness, waiting.response()).values()
    assert len(fetched(answer)) == MANY
    assert harness.dispatcher.slicer.steps - before >= MANY // 1000


@pytest.mark.parametrize("loss", ["cut", "deleted", "began later"])
def test_a_log_truncated_during_conversion_is_read_again(harness: Harness, loss: str) -> None:
    harness.create_topic("t")
    harness.produce("t", *["a"] * MANY)
    context = harness.make_context(ApiKey.FETCH, 3)
    steps = delaying.steps_of(read(context, fetch_of(harness, {("t", 0): 0})))
    for _ in range(3):
        next(steps)
    if loss == "cut":
        harness.partition("t").log.truncate_to(0)
        harness.produce("t", "b")
    elif loss == "deleted":
        harness.request(DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="t")]))
    else:
        harness.partition("t").log.delete_records_before(1)
    (answer,) = answers_in(harness, run_all_steps(steps)).values()
    if loss == "cut":
        assert [record.value for record in fetched(answer)] == [b"b"]
    else:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert answer.error_code == (unknown if loss == "deleted" else ErrorCode.OFFSET_OUT_OF_RANGE)
