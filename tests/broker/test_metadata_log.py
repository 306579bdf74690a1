"""The metadata log: Kafka's frame around records, all or nothing, and damage that is told with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.broker.metadata_log import (
    KINDS,
    MetadataError,
    MetadataLog,
    UnknownMetadata,
    decode_record,
    encode_record,
)
from minibroker.protocol.declare import Message
from minibroker.protocol.messages import metadata_records as records
from minibroker.protocol.primitives import MalformedMessage
from minibroker.protocol.records.batch import read_header
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record
from tests.broker.harness import Harness

ID = bytes(15) + b"\x07"
TOPIC = records.TopicRecord(name="t", topic_id=ID)


def replayed(log: MetadataLog) -> list[Message]:
    seen: list[Message] = []
    log.replay(seen.append)
    return seen


def metadata_file(harness: Harness) -> Path:
    return harness.directory / "data" / "__cluster_metadata-0" / "00000000000000000000.log"


@pytest.fixture
def log(harness: Harness) -> MetadataLog:
    """The log of a new cluster, which has one record: the level of metadata.version."""
    return harness.cluster.metadata_log


def append_value(log: MetadataLog, value: bytes | None) -> None:
    batch = memoryview(build_batch([Record(0, 0, None, value, ())]))
    log.storage.append(batch, [read_header(batch)], 1)


# --- one record ---------------------------------------------------------------------------------


def test_the_frame_is_kafkas() -> None:
    # frame version 1, type 2 (TopicRecord), version 0; compact string "t", the id, no tagged fields
    assert encode_record(TOPIC) == b"\x01\x02\x00" + b"\x02t" + ID + b"\x00"
    assert decode_record(b"\x01\x02\x00" + b"\x02t" + ID + b"\x00") == TOPIC


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.__name__)
def test_every_kind_of_record_is_written_and_read(kind: type[Message]) -> None:
    assert decode_record(encode_record(kind())) == kind()


def test_partitions_are_written_in_the_version_of_kafka_4_3() -> None:
    assert encode_record(records.PartitionRecord())[:3] == b"\x01\x03\x02"
    assert encode_record(records.RegisterBrokerRecord())[:3] == b"\x01\x00\x04"


@pytest.mark.parametrize(
    "value", [b"", b"\x01", b"\x01\x02", b"\x02\x02\x00", b"\x01\x63\x00", b"\x01\x02\x05", b"\xff\xff\xff\xff\xff\xff"]
)
def test_a_value_of_no_known_kind_is_refused(value: bytes) -> None:
    with pytest.raises(UnknownMetadata):
        decode_record(value)


@pytest.mark.parametrize("value", [b"\x01\x02\x00", b"\x01\x02\x00\x02t", encode_record(TOPIC) + b"\x00"])
def test_a_known_kind_must_be_whole(value: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_record(value)


# --- the log ------------------------------------------------------------------------------------


def test_what_was_appended_is_replayed_in_order(log: MetadataLog) -> None:
    before = replayed(log)
    appended = [TOPIC, records.RemoveTopicRecord(topic_id=ID), records.NoOpRecord()]
    log.append(appended, 5, 1)
    log.append([TOPIC], 6, 1)
    assert replayed(log) == [*before, *appended, TOPIC]


def test_no_records_are_no_batch(log: MetadataLog) -> None:
    end_offset = log.storage.log_end_offset
    log.append([], 5, 1)
    assert log.storage.log_end_offset == end_offset


def test_a_log_of_several_segments_is_replayed_as_a_whole(log: MetadataLog) -> None:
    for name in ("a", "b", "c"):
        log.append([records.TopicRecord(name=name, topic_id=ID)], 5, 1)
        log.storage.roll()
    assert [record.name for record in replayed(log) if isinstance(record, records.TopicRecord)] == ["a", "b", "c"]


def test_control_batches_are_passed_over(log: MetadataLog) -> None:
    before = replayed(log)
    batch = memoryview(build_batch([Record(0, 0, b"\0\0\0\2", b"\0\0", ())], control=True))
    log.storage.append(batch, [read_header(batch)], 1)
    assert replayed(log) == before


@pytest.mark.parametrize("crash", [False, True])
def test_records_outlive_a_restart(harness: Harness, crash: bool) -> None:
    harness.cluster.metadata_log.append([TOPIC], 5, 1)
    harness.restart(crash=crash)
    assert TOPIC in replayed(harness.cluster.metadata_log)


# --- damage -------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [b"", None, b"\x01\x63\x00", b"\x01\x02\x00\x02t"])
def test_a_record_that_cannot_be_read_is_told_with_its_offset(log: MetadataLog, value: bytes | None) -> None:
    log.append([TOPIC], 5, 1)
    offset = log.storage.log_end_offset
    append_value(log, value)
    with pytest.raises(MetadataError, match=f"__cluster_metadata-0 cannot be used, offset {offset}: ") as raised:
        replayed(log)
    assert "\n" not in str(raised.value)


def test_a_record_that_contradicts_the_others_is_told_with_its_offset(harness: Harness, log: MetadataLog) -> None:
    offset = log.storage.log_end_offset
    log.append([records.RemoveTopicRecord(topic_id=ID)], 5, 1)
    with pytest.raises(MetadataError, match=f"offset {offset}: there is no topic with the id"):
        log.replay(harness.cluster.image.apply)


def test_a_flipped_byte_is_found_after_a_clean_stop(harness: Harness) -> None:
    harness.create_topic("t")
    harness.stop()
    file = metadata_file(harness)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(MetadataError, match="cannot be used, offset"):
        harness.start()


def test_a_torn_end_is_cut_after_a_crash_and_all_before_it_is_there(harness: Harness) -> None:
    harness.create_topic("t")
    size = metadata_file(harness).stat().st_size
    harness.create_topic("u")
    harness.stop(crash=True)
    with metadata_file(harness).open("r+b") as file:
        file.truncate(size + 30)
    harness.start()
    assert list(harness.cluster.image.topics) == ["t"]


def test_a_log_whose_beginning_is_in_a_snapshot_is_not_taken_for_whole(log: MetadataLog) -> None:
    log.append([TOPIC], 5, 1)
    log.storage.roll()
    log.storage.delete_before(1)
    with pytest.raises(MetadataError, match="the log begins at 1, and snapshots"):
        replayed(log)
