"""Produce: what is accepted, what is refused with which code and words, and that a refusal appends nothing.

Every literal is what Apache Kafka 4.4 answers; where minibroker differs on purpose, `differing` says why.
"""

from __future__ import annotations

import gzip
import time

import pytest

from conformance.wire.batches import GZIP, LZ4, SNAPPY, ZSTD, Record, batch, encode_record, gzipped
from conformance.wire.conftest import Differing, NewTopic
from conformance.wire.connection import Connection, ConnectionClosed
from conformance.wire.requests import (
    Outcome,
    end_offset,
    metadata_of,
    outcome,
    produce,
    produce_request,
    stored,
)
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.produce import ProduceRequest

NOW_MS = int(time.time() * 1000)
GOOD = batch([b"a", b"b"], timestamp=NOW_MS)
VERSIONS = range(3, 14)

# Errors found before the records themselves are looked at do not tell where the log starts.
CORRUPT = Outcome(ErrorCode.CORRUPT_MESSAGE)
NOT_ONE_BATCH = Outcome(ErrorCode.INVALID_RECORD)
INVALID = Outcome(ErrorCode.INVALID_RECORD, log_start_offset=0)


@pytest.mark.parametrize("version", VERSIONS)
def test_consecutive_batches_are_appended(connection: Connection, new_topic: NewTopic, version: int) -> None:
    name = new_topic()
    topic = metadata_of(connection, name).topic_id if version >= 13 else name
    start = 0 if version >= 5 else -1
    assert produce(connection, topic, GOOD, version=version) == Outcome(0, 0, log_start_offset=start)
    assert produce(connection, topic, GOOD, version=version) == Outcome(0, 2, log_start_offset=start)
    assert end_offset(connection, name) == 4


@pytest.mark.parametrize("version", [3, 7, 9, 12])
@pytest.mark.parametrize("name", ["no-such-topic", "no topic at all", "__cluster_metadata"])
def test_producing_to_an_unknown_topic_is_rejected(connection: Connection, name: str, version: int) -> None:
    assert produce(connection, name, GOOD, version=version) == Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_producing_to_an_unknown_partition_is_rejected(connection: Connection, new_topic: NewTopic) -> None:
    name = new_topic()
    unknown = Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert produce(connection, name, GOOD, partition=7) == unknown
    assert produce(connection, metadata_of(connection, name).topic_id, GOOD, partition=7, version=13) == unknown


@pytest.mark.parametrize("topic_id", [bytes(16), b"\1" * 16], ids=["zero", "other"])
def test_producing_to_an_unknown_topic_id_is_rejected(connection: Connection, topic_id: bytes) -> None:
    request = produce_request(topic_id, (0, GOOD))
    (answer,) = connection.ask(request, 13).responses[0].partition_responses
    assert outcome(answer) == Outcome(ErrorCode.UNKNOWN_TOPIC_ID)


@pytest.mark.parametrize("acks", [5, 2, -2])
def test_invalid_required_acks_are_rejected(connection: Connection, new_topic: NewTopic, acks: int) -> None:
    name = new_topic()
    assert produce(connection, name, GOOD, acks=acks) == Outcome(ErrorCode.INVALID_REQUIRED_ACKS)
    assert produce(connection, name, GOOD, acks=acks, version=3) == Outcome(ErrorCode.INVALID_REQUIRED_ACKS)
    assert end_offset(connection, name) == 0


def test_required_acks_are_validated_after_the_topic(connection: Connection) -> None:
    unknown = Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert produce(connection, "no-such-topic", GOOD, acks=5) == unknown


@pytest.mark.parametrize("acks", [1, -1])
def test_valid_required_acks_are_accepted(connection: Connection, new_topic: NewTopic, acks: int) -> None:
    assert produce(connection, new_topic(), GOOD, acks=acks) == Outcome(0, 0, log_start_offset=0)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_topic_of_one_replica_with_min_insync_replicas_2_accepts_records(
    connection: Connection, new_topic: NewTopic, acks: int
) -> None:
    name = new_topic(min_insync_replicas="2")
    assert produce(connection, name, GOOD, acks=acks) == Outcome(0, 0, log_start_offset=0)


def test_a_batch_with_acks_0_is_appended_without_a_response(connection: Connection, new_topic: NewTopic) -> None:
    name = new_topic()
    connection.send(produce_request(name, (0, GOOD), acks=0), 9)
    assert end_offset(connection, name) == 2


@pytest.mark.parametrize("records", [GOOD[:-1] + b"x", GOOD + GOOD], ids=["bad checksum", "two batches"])
def test_an_error_with_acks_0_closes_the_connection(
    connection: Connection, new_topic: NewTopic, records: bytes
) -> None:
    connection.send(produce_request(new_topic(), (0, records), acks=0), 9)
    with pytest.raises(ConnectionClosed):
        connection.ask(MetadataRequest(topics=[]), 1)


def test_an_unknown_topic_with_acks_0_closes_the_connection(connection: Connection) -> None:
    connection.send(produce_request("no-such-topic", (0, GOOD), acks=0), 9)
    with pytest.raises(ConnectionClosed):
        connection.ask(MetadataRequest(topics=[]), 1)


DAMAGED = {
    "checksum": GOOD[:-2] + b"x" + GOOD[-1:],
    "length below a record's head": batch([b"a"], timestamp=NOW_MS, batch_length=10),
    "negative length": batch([b"a"], timestamp=NOW_MS, batch_length=-1),
    "magic 3": batch([b"a"], timestamp=NOW_MS, magic=3),
    "negative magic": batch([b"a"], timestamp=NOW_MS, magic=-1),
}


@pytest.mark.parametrize("records", DAMAGED.values(), ids=DAMAGED)
def test_a_corrupt_batch_is_rejected(connection: Connection, new_topic: NewTopic, records: bytes) -> None:
    name = new_topic()
    assert produce(connection, name, records) == CORRUPT
    assert end_offset(connection, name) == 0


def test_two_batches_in_one_partition_are_rejected(connection: Connection, new_topic: NewTopic) -> None:
    name = new_topic()
    assert produce(connection, name, GOOD + GOOD) == NOT_ONE_BATCH
    assert end_offset(connection, name) == 0


INCOMPLETE = {
    "nothing": b"",
    "half a header": GOOD[:30],
    "a header alone": GOOD[:61],
    "the last byte missing": GOOD[:-1],
    "length beyond the end": batch([b"a"], timestamp=NOW_MS, batch_length=1 << 30),
    "magic 0": batch([b"a"], timestamp=NOW_MS, magic=0),
    "magic 1": batch([b"a"], timestamp=NOW_MS, magic=1),
}


@pytest.mark.parametrize("records", INCOMPLETE.values(), ids=INCOMPLETE)
def test_bytes_without_a_complete_batch_of_format_2_are_rejected(
    connection: Connection, new_topic: NewTopic, differing: Differing, records: bytes
) -> None:
    name = new_topic()
    assert produce(connection, name, records) == differing(
        kafka=NOT_ONE_BATCH,
        minibroker=CORRUPT,
        because="Kafka counts whole batches and misses one; minibroker says what is wrong with the one that came",
    )
    assert end_offset(connection, name) == 0


@pytest.mark.parametrize("tail", [b"12345", GOOD[:40]], ids=["five bytes", "the start of a batch"])
def test_incomplete_bytes_after_a_batch_are_dropped(connection: Connection, new_topic: NewTopic, tail: bytes) -> None:
    name = new_topic()
    assert produce(connection, name, GOOD + tail) == Outcome(0, 0, log_start_offset=0)
    assert len(stored(connection, name)) == 1


def test_a_produce_with_null_records_is_rejected(connection: Connection, new_topic: NewTopic, against: str) -> None:
    if against == "minibroker":  # Kafka's handler fails, never answers and does not close
        assert produce(connection, new_topic(), None) == NOT_ONE_BATCH


TWO = [b"a", b"b"]
INCONSISTENT = {
    "count too high": batch(TWO, timestamp=NOW_MS, count=3),
    "count too high for the last offset": batch(TWO, timestamp=NOW_MS, count=3, last_offset_delta=1),
    "count too low": batch(TWO, timestamp=NOW_MS, count=1),
    "count too low for the last offset": batch(TWO, timestamp=NOW_MS, count=1, last_offset_delta=1),
    "count 0": batch(TWO, timestamp=NOW_MS, count=0),
    "negative count": batch(TWO, timestamp=NOW_MS, count=-1),
    "no records": batch([], timestamp=NOW_MS),
    "last offset too high": batch(TWO, timestamp=NOW_MS, last_offset_delta=5),
    "last offset too low": batch(TWO, timestamp=NOW_MS, last_offset_delta=0),
    "negative last offset": batch(TWO, timestamp=NOW_MS, last_offset_delta=-1),
    "first offset not 0": batch(TWO, timestamp=NOW_MS, base_offset=55),
    "control batch": batch(TWO, timestamp=NOW_MS, attributes=1 << 5),
    "producer id without sequence": batch(TWO, timestamp=NOW_MS, producer_id=77, producer_epoch=0),
    "record cut short": batch([b"a"], timestamp=NOW_MS, compressed=b"\x10\0\0\0\1\2a"),
    "record of negative length": batch([b"a"], timestamp=NOW_MS, compressed=b"\x01\0\0\0\1\2a\0"),
    "key longer than the record": batch([b"a"], timestamp=NOW_MS, compressed=b"\x0e\0\0\0\x40\2a\0"),
    "bytes after the records": batch([b"a"], timestamp=NOW_MS, compressed=encode_record(0, Record(b"a")) + b"xx"),
    "negative count of headers": batch([b"a"], timestamp=NOW_MS, compressed=b"\x0e\0\0\0\1\2a\1"),
    "header without a name": batch([b"a"], timestamp=NOW_MS, compressed=b"\x12\0\0\0\1\2a\2\1\1"),
    "compressed, count too high": gzipped([b"a"], timestamp=NOW_MS, count=2),
    "compressed, count 0": gzipped([b"a"], timestamp=NOW_MS, count=0, last_offset_delta=0),
    "compressed, bytes after the records": batch(
        [b"a"],
        timestamp=NOW_MS,
        attributes=GZIP,
        compressed=gzip.compress(encode_record(0, Record(b"a")) + b"xx"),
    ),
    "compressed, record cut short": batch(
        [b"a"], timestamp=NOW_MS, attributes=GZIP, compressed=gzip.compress(b"\x0e\0\0\0")
    ),
    "compressed, key longer than the record": batch(
        [b"a"], timestamp=NOW_MS, attributes=GZIP, compressed=gzip.compress(b"\x0e\0\0\0\x40\2a\0")
    ),
    "compressed nothing": batch([b"a"], timestamp=NOW_MS, attributes=GZIP, compressed=gzip.compress(b"")),
}


@pytest.mark.parametrize("records", INCONSISTENT.values(), ids=INCONSISTENT)
def test_a_batch_whose_header_contradicts_its_records_is_rejected(
    connection: Connection, new_topic: NewTopic, records: bytes
) -> None:
    name = new_topic()
    answer = produce(connection, name, records)
    assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (ErrorCode.INVALID_RECORD, -1, 0)
    assert end_offset(connection, name) == 0


WRONG_DELTAS = {"gap": (0, 2), "falling": (1, 0), "repeated": (0, 0), "not from 0": (5, 6), "negative": (-1, -7)}


def misnumbered(deltas: tuple[int, int]) -> list[Record]:
    return [Record(b"a", b"k", offset_delta=deltas[0]), Record(b"b", b"k", 5, offset_delta=deltas[1])]


@pytest.mark.parametrize("deltas", WRONG_DELTAS.values(), ids=WRONG_DELTAS)
@pytest.mark.parametrize("compression_type", ["producer", "uncompressed"])
def test_uncompressed_records_keep_even_wrong_offset_deltas(
    connection: Connection, new_topic: NewTopic, deltas: tuple[int, int], compression_type: str
) -> None:
    """Only the batch gets its offset; the records stay as they came."""
    name = new_topic(compression_type=compression_type)
    sent = batch(misnumbered(deltas), timestamp=NOW_MS, max_timestamp=NOW_MS)
    assert produce(connection, name, sent) == Outcome(0, 0, log_start_offset=0)
    assert produce(connection, name, sent) == Outcome(0, 2, log_start_offset=0)
    assert end_offset(connection, name) == 4
    payload = b"".join(encode_record(0, record) for record in misnumbered(deltas))
    for kept, offset in zip(stored(connection, name), (0, 2), strict=True):
        assert (kept.base_offset, kept.last_offset_delta, kept.payload) == (offset, 1, payload)
        assert kept.max_timestamp == NOW_MS + 5


@pytest.mark.parametrize("deltas", WRONG_DELTAS.values(), ids=WRONG_DELTAS)
def test_recompressed_records_get_consecutive_offset_deltas(
    connection: Connection, new_topic: NewTopic, deltas: tuple[int, int]
) -> None:
    numbered = b"".join(encode_record(place, record) for place, record in enumerate(misnumbered((0, 1))))
    squeezed, plain = new_topic(compression_type="gzip"), new_topic(compression_type="uncompressed")
    assert produce(connection, squeezed, batch(misnumbered(deltas), timestamp=NOW_MS)).error_code == 0
    assert produce(connection, plain, gzipped(misnumbered(deltas), timestamp=NOW_MS)).error_code == 0
    (kept,) = stored(connection, squeezed)
    assert (kept.attributes, gzip.decompress(kept.payload), kept.last_offset_delta) == (GZIP, numbered, 1)
    (kept,) = stored(connection, plain)
    assert (kept.attributes, kept.payload, kept.last_offset_delta) == (0, numbered, 1)


@pytest.mark.parametrize("deltas", WRONG_DELTAS.values(), ids=WRONG_DELTAS)
def test_compressed_records_must_have_consecutive_offsets(
    connection: Connection, new_topic: NewTopic, deltas: tuple[int, int], differing: Differing
) -> None:
    name = new_topic()
    expected = differing(
        kafka=ErrorCode.UNKNOWN_SERVER_ERROR,
        minibroker=ErrorCode.INVALID_RECORD,
        because="Kafka wants to number them anew, but its validator has left out keys and values and fails",
    )
    assert produce(connection, name, gzipped(misnumbered(deltas), timestamp=NOW_MS)).error_code == expected
    assert end_offset(connection, name) == 0


UNREADABLE = {
    "gzip": (GZIP, b"no gzip at all"),
    "gzip cut short": (GZIP, gzip.compress(encode_record(0, Record(b"a")))[:-12]),
    "snappy": (SNAPPY, b"no snappy at all"),
    "lz4": (LZ4, b"no lz4 at all"),
    "zstd": (ZSTD, b"no zstd at all"),
}


@pytest.mark.parametrize(("codec", "data"), UNREADABLE.values(), ids=UNREADABLE)
def test_records_that_cannot_be_decompressed_are_rejected(
    connection: Connection, new_topic: NewTopic, differing: Differing, codec: int, data: bytes
) -> None:
    name = new_topic()
    answer = produce(connection, name, batch([b"a"], timestamp=NOW_MS, attributes=codec, compressed=data))
    assert answer.error_code == differing(
        kafka=ErrorCode.UNKNOWN_SERVER_ERROR,
        minibroker=ErrorCode.CORRUPT_MESSAGE,
        because="Kafka's validator fails over it, though the sender is to blame",
    )
    assert end_offset(connection, name) == 0


def test_a_batch_of_an_unknown_codec_is_rejected(
    connection: Connection, new_topic: NewTopic, differing: Differing
) -> None:
    answer = produce(connection, new_topic(), batch([b"a"], timestamp=NOW_MS, attributes=5))
    assert answer.error_code == differing(
        kafka=ErrorCode.UNKNOWN_SERVER_ERROR,
        minibroker=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        because="Kafka's validator fails over it, though the sender is to blame",
    )


def test_each_partition_is_answered_separately(connection: Connection, new_topic: NewTopic) -> None:
    name = new_topic(2)
    request = produce_request(name, (0, GOOD), (1, GOOD + GOOD), (9, GOOD))
    (topic,) = connection.ask(request, 9).responses
    codes = {answer.index: answer.error_code for answer in topic.partition_responses}
    assert codes == {0: 0, 1: ErrorCode.INVALID_RECORD, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert [end_offset(connection, name, partition) for partition in (0, 1)] == [2, 0]


def test_a_produce_without_topics_has_an_empty_response(connection: Connection) -> None:
    assert connection.ask(ProduceRequest(acks=-1, timeout_ms=1000), 9).responses == []
