"""DeleteRecords: where logs begin then, what is refused, and who hears of it.

Every literal is what Apache Kafka 4.4 answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial

import pytest

from conformance.wire.batches import Record, batch
from conformance.wire.conftest import Differing, NewTopic
from conformance.wire.connection import Connection
from conformance.wire.requests import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    asked,
    fetch_request,
    fetched,
    list_offset,
    produce,
    repeated,
)
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.log_offsets import DeleteRecordsRequest

TIMEOUT_MS = 5000
NOW_MS = int(time.time() * 1000)
Topic = DeleteRecordsRequest.DeleteRecordsTopic
Answer = tuple[str, int, int, int]


def made(records: Iterable[Record | bytes]) -> bytes:
    return batch(records, timestamp=NOW_MS)


def delete(connection: Connection, *asked: tuple[str, int, int], version: int = 2) -> list[Answer]:
    """(topic, partition, error code, low watermark) for each (topic, partition, offset), as they come."""
    topics = [
        Topic(name=name, partitions=[Topic.DeleteRecordsPartition(partition_index=index, offset=offset)])
        for name, index, offset in asked
    ]
    response = connection.ask(DeleteRecordsRequest(topics=topics, timeout_ms=TIMEOUT_MS), version)
    return [
        (topic.name, each.partition_index, each.error_code, each.low_watermark)
        for topic in response.topics
        for each in topic.partitions
    ]


def one(connection: Connection, name: str, offset: int, version: int = 2) -> tuple[int, int]:
    """(error code, low watermark) for partition 0."""
    ((_, _, error_code, low_watermark),) = delete(connection, (name, 0, offset), version=version)
    return error_code, low_watermark


@pytest.fixture
def name(connection: Connection, new_topic: NewTopic) -> str:
    """Three batches: offsets 0 and 1, 2 and 3, 4."""
    created = new_topic(2)
    for values in ((b"a", b"b"), (b"c", b"d"), (b"e",)):
        assert produce(connection, created, made(values)).error_code == 0
    return created


@pytest.mark.parametrize("version", range(3))
def test_a_log_starts_at_the_offset_that_delete_records_requested(
    connection: Connection, name: str, version: int
) -> None:
    assert one(connection, name, 3, version) == (0, 3)
    assert list_offset(connection, name, EARLIEST).offset == 3
    assert list_offset(connection, name, LATEST).offset == 5
    assert produce(connection, name, made([b"f"]), version=9).log_start_offset == 3


@pytest.mark.parametrize("version", range(3))
def test_delete_records_before_offset_minus_1_deletes_up_to_the_high_watermark(
    connection: Connection, name: str, version: int
) -> None:
    assert one(connection, name, -1, version) == (0, 5)
    assert list_offset(connection, name, EARLIEST).offset == 5


def test_deleting_already_deleted_records_succeeds(connection: Connection, name: str) -> None:
    assert one(connection, name, 4) == (0, 4)
    assert one(connection, name, 2) == (0, 4)
    assert one(connection, name, 0) == (0, 4)
    assert one(connection, name, 4) == (0, 4)


def test_delete_records_of_an_empty_log_deletes_nothing(connection: Connection, new_topic: NewTopic) -> None:
    name = new_topic()
    assert one(connection, name, 0) == (0, 0)
    assert one(connection, name, -1) == (0, 0)
    assert one(connection, name, 1) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


@pytest.mark.parametrize("offset", [6, 1 << 62, -2, -(1 << 63)])
def test_deleting_records_before_an_invalid_offset_is_out_of_range(
    connection: Connection, name: str, offset: int
) -> None:
    assert one(connection, name, offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert list_offset(connection, name, EARLIEST).offset == 0


@pytest.mark.parametrize(
    ("policy", "answer"),
    [
        ("compact", (ErrorCode.POLICY_VIOLATION, -1)),
        ("compact,delete", (0, 1)),
        ("delete", (0, 1)),
        ("", (0, 1)),
    ],
)
def test_delete_records_is_rejected_for_a_topic_that_is_only_compacted(
    connection: Connection, new_topic: NewTopic, policy: str, answer: tuple[int, int]
) -> None:
    name = new_topic(cleanup_policy=policy)
    assert produce(connection, name, made([Record(b"v", b"k")])).error_code == 0
    assert one(connection, name, 1) == answer


def test_deleting_records_of_unknown_partitions_is_rejected(connection: Connection, name: str) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert sorted(delete(connection, (name, 7, 0), ("no-such-topic", 0, 0), (name, 0, 1))) == sorted(
        [(name, 7, unknown, -1), ("no-such-topic", 0, unknown, -1), (name, 0, 0, 1)]
    )


def test_the_last_of_duplicate_partitions_decides_the_offset(connection: Connection, name: str) -> None:
    assert delete(connection, (name, 0, 1), (name, 0, 3)) == [(name, 0, 0, 3)]
    assert delete(connection, (name, 0, 5), (name, 0, 4)) == [(name, 0, 0, 4)]


def test_an_empty_delete_records_has_an_empty_response(connection: Connection) -> None:
    assert delete(connection) == []


def test_a_fetch_within_a_batch_at_the_log_start_returns_the_whole_batch(connection: Connection, name: str) -> None:
    assert one(connection, name, 3) == (0, 3)
    out_of_range = fetched(connection.ask(fetch_request({name: [asked(0, 2)]}), 12))[name, 0]
    assert out_of_range.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    found = fetched(connection.ask(fetch_request({name: [asked(0, 3)]}), 12))[name, 0]
    assert (found.error_code, found.log_start_offset, found.first_offsets) == (0, 3, (2, 4))


def test_producer_sequences_survive_deleted_records(
    connection: Connection, connect: Callable[[], Connection], name: str
) -> None:
    assert one(connection, name, -1) == (0, 5)
    with connect() as other:
        earliest = repeated(partial(list_offset, other, name, EARLIEST), lambda seen: seen.offset == 5)
        assert earliest.error_code == 0
        assert produce(other, name, made([b"next"])).base_offset == 5


def test_the_largest_timestamp_is_that_of_a_record_after_the_log_start(
    connection: Connection, new_topic: NewTopic, differing: Differing
) -> None:
    name = new_topic()
    times = [Record(b"v", timestamp_delta=delta) for delta in (5, 80, 6)]
    assert produce(connection, name, made(times)).error_code == 0
    assert one(connection, name, 2) == (0, 2)
    why = "no consumer can read from an offset below the start"
    expected = differing(kafka=(1, NOW_MS + 80), minibroker=(2, NOW_MS + 6), because=why)
    assert largest(connection, name) == expected
    assert produce(connection, name, made(times)).error_code == 0
    assert largest(connection, name) == differing(kafka=(1, NOW_MS + 80), minibroker=(4, NOW_MS + 80), because=why)
    assert one(connection, name, -1) == (0, 6)
    assert largest(connection, name) == differing(kafka=(1, NOW_MS + 80), minibroker=(-1, -1), because=why)


def largest(connection: Connection, name: str) -> tuple[int, int]:
    """(offset, timestamp)."""
    answer = list_offset(connection, name, MAX_TIMESTAMP)
    assert answer.error_code == 0
    return answer.offset, answer.timestamp
