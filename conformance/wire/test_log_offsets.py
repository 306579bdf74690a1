"""ListOffsets and OffsetForLeaderEpoch: the ends of a log, offsets by time, and leader epochs.

Every literal is what Apache Kafka 4.4 answers.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from conformance.wire.batches import Record, batch, gzipped
from conformance.wire.conftest import NewTopic
from conformance.wire.connection import Connection
from conformance.wire.requests import EARLIEST, LATEST, MAX_TIMESTAMP, list_offset, produce
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.log_offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest

# Of the day, so that every process that collects these tests gives them the same names.
START_MS = int(time.time()) // 86_400 * 86_400_000 - 100_000
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6
NOTHING = (0, -1, -1, -1)
Found = tuple[int, int, int, int]


@pytest.fixture(scope="module", params=["plain", "gzip"])
def build(request: pytest.FixtureRequest) -> Any:
    return {"plain": batch, "gzip": gzipped}[request.param]


@pytest.fixture
def name(connection: Connection, new_topic: NewTopic, build: Any) -> str:
    """Five batches: offsets 0 and 1 at 0 and 500 ms, 2 and 3 at 1000 and 1500 ms, ...; then offset 10 at 1000 ms."""
    created = new_topic(2)
    for second in range(5):
        records = [Record(b"a"), Record(b"b", timestamp_delta=500)]
        assert produce(connection, created, build(records, timestamp=START_MS + 1000 * second)).error_code == 0
    assert produce(connection, created, build([b"late"], timestamp=START_MS + 1000)).error_code == 0
    return created


def found(answer: Any) -> Found:
    """(error code, timestamp, offset, leader epoch)."""
    return answer.error_code, answer.timestamp, answer.offset, answer.leader_epoch


def at(milliseconds: int, offset: int) -> Found:
    return 0, START_MS + milliseconds, offset, 0


@pytest.mark.parametrize("version", range(1, 12))
def test_earliest_and_latest_offsets_are_listed(connection: Connection, name: str, version: int) -> None:
    epoch = 0 if version >= 4 else -1
    assert found(list_offset(connection, name, LATEST, version=version)) == (0, -1, 11, epoch)
    assert found(list_offset(connection, name, EARLIEST, version=version)) == (0, -1, 0, epoch)


@pytest.mark.parametrize("timestamp", [LATEST, EARLIEST])
def test_earliest_and_latest_offsets_of_an_empty_log_are_listed(
    connection: Connection, name: str, timestamp: int
) -> None:
    assert found(list_offset(connection, name, timestamp, 1)) == (0, -1, 0, 0)


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [
        (-START_MS, at(0, 0)),
        (0, at(0, 0)),
        (1, at(500, 1)),
        (500, at(500, 1)),
        (501, at(1000, 2)),
        (2000, at(2000, 4)),
        (4500, at(4500, 9)),
        (4501, NOTHING),
    ],
)
def test_the_first_record_at_or_after_a_timestamp_is_found(
    connection: Connection, name: str, milliseconds: int, expected: Found
) -> None:
    assert found(list_offset(connection, name, START_MS + milliseconds)) == expected


def test_the_first_record_with_the_largest_timestamp_is_found(connection: Connection, name: str, build: Any) -> None:
    assert found(list_offset(connection, name, MAX_TIMESTAMP)) == at(4500, 9)
    produce(connection, name, build([b"as late"], timestamp=START_MS + 4500))
    assert found(list_offset(connection, name, MAX_TIMESTAMP)) == at(4500, 9)
    produce(connection, name, build([b"x", Record(b"later", timestamp_delta=1)], timestamp=START_MS + 4500))
    assert found(list_offset(connection, name, MAX_TIMESTAMP)) == at(4501, 13)


@pytest.mark.parametrize("timestamp", [MAX_TIMESTAMP, 0, START_MS])
def test_no_timestamp_is_found_in_an_empty_log(connection: Connection, name: str, timestamp: int) -> None:
    assert found(list_offset(connection, name, timestamp, 1)) == NOTHING


def test_tiered_offsets_without_tiered_storage_are_listed(connection: Connection, name: str) -> None:
    assert found(list_offset(connection, name, EARLIEST_LOCAL, version=8)) == (0, -1, 0, 0)
    assert found(list_offset(connection, name, LATEST_TIERED, version=9)) == NOTHING
    assert found(list_offset(connection, name, EARLIEST_PENDING_UPLOAD, version=11)) == NOTHING


@pytest.mark.parametrize(
    ("timestamp", "version"),
    [(MAX_TIMESTAMP, 6), (EARLIEST_LOCAL, 7), (LATEST_TIERED, 8), (EARLIEST_PENDING_UPLOAD, 10), (-7, 11), (-100, 11)],
)
def test_special_timestamps_of_later_versions_are_rejected(
    connection: Connection, name: str, timestamp: int, version: int
) -> None:
    answer = list_offset(connection, name, timestamp, version=version)
    assert found(answer) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1)


@pytest.mark.parametrize("version", [1, 4, 7, 11])
def test_listing_offsets_of_unknown_partitions_is_rejected(connection: Connection, name: str, version: int) -> None:
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1)
    assert found(list_offset(connection, name, LATEST, 7, version=version)) == unknown
    assert found(list_offset(connection, "no-such-topic", LATEST, version=version)) == unknown


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(-1, 0), (0, 0), (1, ErrorCode.UNKNOWN_LEADER_EPOCH), (-5, ErrorCode.FENCED_LEADER_EPOCH)],
)
def test_a_wrong_current_leader_epoch_in_an_offset_request_is_rejected(
    connection: Connection, name: str, epoch: int, code: int
) -> None:
    assert list_offset(connection, name, LATEST, current_leader_epoch=epoch).error_code == code
    assert epoch_end(connection, name, 0, current_leader_epoch=epoch)[0] == code


def test_a_partition_requested_twice_is_rejected(connection: Connection, name: str) -> None:
    listed = ListOffsetsRequest.ListOffsetsTopic
    twice = [listed.ListOffsetsPartition(partition_index=0, timestamp=each) for each in (LATEST, EARLIEST)]
    request = ListOffsetsRequest(replica_id=-1, topics=[listed(name=name, partitions=twice)])
    answers = connection.ask(request, 7).topics[0].partitions
    assert {found(each) for each in answers} == {(ErrorCode.INVALID_REQUEST, -1, -1, -1)}


def epoch_end(
    connection: Connection, topic: str, leader_epoch: int, partition: int = 0, *, version: int = 3, **fields: int
) -> tuple[int, int, int]:
    """(error code, leader epoch, end offset)."""
    listed = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    wanted = listed.OffsetForLeaderPartition(partition=partition, leader_epoch=leader_epoch, **fields)
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[listed(topic=topic, partitions=[wanted])])
    (answer,) = connection.ask(request, version).topics[0].partitions
    assert answer.partition == partition
    return answer.error_code, answer.leader_epoch, answer.end_offset


@pytest.mark.parametrize("version", [2, 3, 4])
def test_a_leader_epoch_ends_at_its_end_offset(connection: Connection, name: str, version: int) -> None:
    assert epoch_end(connection, name, 0, version=version) == (0, 0, 11)
    assert epoch_end(connection, name, 0, 1, version=version) == (0, 0, 0)


@pytest.mark.parametrize(
    ("epoch", "expected"), [(1, (0, -1, -1)), (5, (0, -1, -1)), (-1, (0, -1, -1)), (-2, (0, -2, 0))]
)
def test_unused_leader_epochs_have_no_end_offset(
    connection: Connection, name: str, epoch: int, expected: tuple[int, int, int]
) -> None:
    assert epoch_end(connection, name, epoch) == expected


def test_leader_epochs_of_unknown_partitions_are_rejected(connection: Connection, name: str) -> None:
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert epoch_end(connection, name, 0, 7) == unknown
    assert epoch_end(connection, "no-such-topic", 0) == unknown
