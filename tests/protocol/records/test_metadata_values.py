"""The values of metadata records: Kafka's frame around a message, in the version of a level of metadata.version."""

from __future__ import annotations

import pytest

from minibroker.protocol.declare import Message
from minibroker.protocol.messages import metadata_records as records
from minibroker.protocol.messages.metadata_records import METADATA_KINDS
from minibroker.protocol.primitives import MalformedMessage
from minibroker.protocol.records.metadata_values import (
    UnknownMetadata,
    choose_record_version,
    decode_metadata_record,
    encode_metadata_record,
    read_metadata_frame,
)
from tests.cases import for_each

LEVEL = 30  # of metadata.version
ID = bytes(15) + b"\x07"
TOPIC = records.TopicRecord(name="t", topic_id=ID)


def test_metadata_records_are_encoded_with_kafkas_frame() -> None:
    # frame version 1, type 2 (TopicRecord), version 0; compact string "t", the id, no tagged fields
    assert encode_metadata_record(TOPIC, LEVEL) == b"\x01\x02\x00" + b"\x02t" + ID + b"\x00"
    assert decode_metadata_record(b"\x01\x02\x00" + b"\x02t" + ID + b"\x00") == TOPIC


@for_each("kind", METADATA_KINDS.values())
def test_every_type_of_metadata_record_is_encoded_and_decoded(kind: type[Message]) -> None:
    assert decode_metadata_record(encode_metadata_record(kind(), LEVEL)) == kind()


def test_partition_records_have_the_version_of_kafka_4_3() -> None:
    assert encode_metadata_record(records.PartitionRecord(), LEVEL)[:3] == b"\x01\x03\x02"
    assert encode_metadata_record(records.RegisterBrokerRecord(), LEVEL)[:3] == b"\x01\x00\x04"


@for_each(
    "value", [b"", b"\x01", b"\x01\x02", b"\x02\x02\x00", b"\x01\x63\x00", b"\x01\x02\x05", b"\xff\xff\xff\xff\xff\xff"]
)
def test_a_metadata_record_of_an_unknown_type_is_rejected(value: bytes) -> None:
    with pytest.raises(UnknownMetadata):
        decode_metadata_record(value)


@pytest.mark.parametrize(
    "value", [b"\x01\x02\x00", b"\x01\x02\x00\x02t", encode_metadata_record(TOPIC, LEVEL) + b"\x00"]
)
def test_a_truncated_metadata_record_is_rejected(value: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_metadata_record(value)


def test_the_frame_of_an_unknown_metadata_record_can_be_decoded() -> None:
    assert read_metadata_frame(b"\x01\xe3\x07\x02rest") == (995, 2, 4)


@pytest.mark.parametrize(
    ("kind", "levels"),
    [
        (records.RegisterBrokerRecord, {7: 1, 8: 2, 16: 2, 17: 3, 29: 3, 30: 4}),
        (records.BrokerRegistrationChangeRecord, {16: 1, 17: 2, 29: 2, 30: 3}),
        (records.PartitionRecord, {7: 0, 16: 0, 17: 1, 22: 1, 23: 2, 30: 2}),
        (records.PartitionChangeRecord, {7: 0, 16: 0, 17: 1, 22: 1, 23: 2, 30: 2}),
        (records.TopicRecord, {7: 0, 30: 0}),
    ],
)
def test_record_versions_follow_the_metadata_version(kind: type[Message], levels: dict[int, int]) -> None:
    # metadata.version to record version, as Kafka 4.3's MetadataVersion has it
    assert {level: choose_record_version(kind, level) for level in levels} == levels
