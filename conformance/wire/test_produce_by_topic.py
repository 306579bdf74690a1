"""Produce where a topic's settings decide: keys, timestamps, sizes, codecs, and what a broker corrects in a batch.

Every literal is what Apache Kafka 4.4 answers.
"""

from __future__ import annotations

import gzip
import time

import pytest
import zstandard

from conformance.wire.batches import GZIP, ZSTD, Record, batch, encode_record, gzipped
from conformance.wire.conftest import NewTopic
from conformance.wire.connection import Connection
from conformance.wire.requests import Outcome, end_offset, produce, stored
from minibroker.protocol.errors import ErrorCode

NOW_MS = int(time.time() * 1000)


@pytest.mark.parametrize("version", [3, 7, 8, 9, 12])
def test_a_compacted_topic_rejects_a_record_without_a_key(
    connection: Connection, new_topic: NewTopic, version: int
) -> None:
    name = new_topic(cleanup_policy="compact")
    records = batch([Record(b"a", key=b"k"), b"b", Record(b"c", key=b""), b"d"], timestamp=NOW_MS)
    answer = produce(connection, name, records, version=version)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert [index for index, _ in answer.record_errors] == ([1, 3] if version >= 8 else [])
    assert all("without key" in complaint for _, complaint in answer.record_errors if complaint)
    assert end_offset(connection, name) == 0


HOUR_MS = 3_600_000


@pytest.mark.parametrize("version", [3, 7, 9])
def test_a_timestamp_too_far_in_the_future_is_rejected(
    connection: Connection, new_topic: NewTopic, version: int
) -> None:
    name = new_topic()
    records = batch([b"a", Record(b"b", timestamp_delta=2 * HOUR_MS)], timestamp=NOW_MS)
    answer = produce(connection, name, records, version=version)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_TIMESTAMP, -1)
    assert [index for index, _ in answer.record_errors] == ([1] if version >= 8 else [])
    assert end_offset(connection, name) == 0


def test_a_timestamp_too_far_in_the_past_is_rejected(connection: Connection, new_topic: NewTopic) -> None:
    name = new_topic(message_timestamp_before_max_ms=str(HOUR_MS))
    records = batch([b"a", Record(b"b", timestamp_delta=-2 * HOUR_MS), b"c"], timestamp=NOW_MS)
    answer = produce(connection, name, records)
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in answer.record_errors] == [1]


@pytest.mark.parametrize(("timestamp", "largest"), [(-1, -1), (-5, -1), (0, 0)])
def test_negative_timestamps_are_accepted(
    connection: Connection, new_topic: NewTopic, timestamp: int, largest: int
) -> None:
    name = new_topic()
    assert produce(connection, name, batch([b"a"], timestamp=timestamp)).error_code == 0
    (kept,) = stored(connection, name)
    assert (kept.base_timestamp, kept.max_timestamp) == (timestamp, largest)


@pytest.mark.parametrize("codec", [0, GZIP], ids=["plain", "gzip"])
def test_log_append_time_is_set_by_the_broker(connection: Connection, new_topic: NewTopic, codec: int) -> None:
    name = new_topic(message_timestamp_type="LogAppendTime")
    records = [Record(b"a"), Record(b"b", timestamp_delta=500)]
    sent = (gzipped if codec else batch)(records, timestamp=NOW_MS)
    answer = produce(connection, name, sent)
    assert answer.error_code == 0
    assert answer.log_append_time_ms >= NOW_MS
    (kept,) = stored(connection, name)
    assert (kept.attributes, kept.base_timestamp, kept.max_timestamp) == (codec | 8, NOW_MS, answer.log_append_time_ms)
    assert kept.crc_holds
    assert sent.endswith(kept.payload)


def test_log_append_time_accepts_any_timestamp(connection: Connection, new_topic: NewTopic) -> None:
    name = new_topic(message_timestamp_type="LogAppendTime")
    assert produce(connection, name, batch([b"a"], timestamp=NOW_MS + 1000 * HOUR_MS)).error_code == 0


@pytest.mark.parametrize("claimed", [5, -1, NOW_MS + 1], ids=["too small", "none", "not the largest"])
def test_a_wrong_largest_timestamp_is_corrected(connection: Connection, new_topic: NewTopic, claimed: int) -> None:
    name = new_topic()
    records = [Record(b"a", timestamp_delta=3), Record(b"b")]
    for build in (batch, gzipped):
        sent = build(records, timestamp=NOW_MS, max_timestamp=claimed)
        assert produce(connection, name, sent).error_code == 0
    assert [(kept.max_timestamp, kept.crc_holds) for kept in stored(connection, name)] == [(NOW_MS + 3, True)] * 2


def test_the_broker_sets_the_leader_epoch_and_the_timestamp_type(connection: Connection, new_topic: NewTopic) -> None:
    name = new_topic()
    assert produce(connection, name, batch([b"a"], timestamp=NOW_MS, leader_epoch=9, attributes=8)).error_code == 0
    (kept,) = stored(connection, name)
    assert (kept.leader_epoch, kept.attributes, kept.crc_holds) == (0, 0, True)


@pytest.mark.parametrize("version", [5, 9])
def test_a_batch_above_the_maximum_size_is_rejected(connection: Connection, new_topic: NewTopic, version: int) -> None:
    overhead = len(batch([b"a" * 100], timestamp=NOW_MS)) - 100
    name = new_topic(max_message_bytes=str(100 + overhead))
    largest, too_large = (batch([b"a" * size], timestamp=NOW_MS) for size in (100, 101))
    assert produce(connection, name, too_large, version=version) == Outcome(ErrorCode.MESSAGE_TOO_LARGE)
    assert produce(connection, name, largest, version=version) == Outcome(0, 0, log_start_offset=0)


@pytest.mark.parametrize(("version", "expected"), [(3, 76), (6, 76), (7, 0), (9, 0)])
def test_a_zstd_batch_requires_produce_version_7(
    connection: Connection, new_topic: NewTopic, version: int, expected: int
) -> None:
    data = zstandard.compress(encode_record(0, Record(b"a")))
    records = batch([b"a"], timestamp=NOW_MS, attributes=ZSTD, compressed=data)
    assert produce(connection, new_topic(), records, version=version).error_code == expected


def test_the_topics_own_codec_is_applied(connection: Connection, new_topic: NewTopic) -> None:
    name = new_topic(compression_type="gzip", max_message_bytes="2000")
    assert produce(connection, name, batch([b"a" * 1800], timestamp=NOW_MS)) == Outcome(0, 0, log_start_offset=0)
    (kept,) = stored(connection, name)
    assert (kept.attributes, kept.crc_holds) == (GZIP, True)
    assert gzip.decompress(kept.payload) == encode_record(0, Record(b"a" * 1800))
    too_large_as_sent = batch([b"a" * 3000], timestamp=NOW_MS)
    assert produce(connection, name, too_large_as_sent).error_code == ErrorCode.MESSAGE_TOO_LARGE
