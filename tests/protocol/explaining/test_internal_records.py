"""Explained records of Kafka's own topics: each byte of keys and values has its field, and what is damaged says so."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.declare import Message
from minibroker.protocol.explaining.messages import explain_records
from minibroker.protocol.explaining.parts import ExplainedPart
from minibroker.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from minibroker.protocol.messages.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from minibroker.protocol.messages.group_records import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey
from minibroker.protocol.messages.metadata_records import (
    METADATA_KINDS,
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    TopicRecord,
)
from minibroker.protocol.primitives import encode_unsigned_varint
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.control import make_control_record, make_transaction_marker
from minibroker.protocol.records.internal import COORDINATOR_KINDS, GROUPS_TOPIC
from minibroker.protocol.records.record import Record
from tests.cases import for_each
from tests.protocol.explaining.explained import check_that_each_byte_has_one_part, named
from tests.protocol.explaining.test_messages import read_back
from tests.protocol.random_messages import random_message

COORDINATOR_RECORDS = [
    (topic, keys[kind], value) for topic, (keys, values) in COORDINATOR_KINDS.items() for kind, value in values.items()
]


def explained(topic: str, key: bytes | None, value: bytes | None, **batch: Any) -> tuple[ExplainedPart, ExplainedPart]:
    """Return the explained key and value of a record of a topic."""
    data = bytes(build_batch([Record(key=key, value=value)], **batch))
    whole = explain_records(data, topic=topic)
    check_that_each_byte_has_one_part(whole, 0, len(data))
    record = named(whole, "record [0]")
    found = {each.name: each for each in record.parts}
    return found["key"], found["value"]


def int16(number: int) -> bytes:
    return number.to_bytes(2, "big")


@for_each(("topic", "key_kind", "value_kind"), COORDINATOR_RECORDS)
def test_each_coordinator_record_is_explained_in_all_versions(
    topic: str, key_kind: type[Message], value_kind: type[Message]
) -> None:
    asked = random_message(key_kind, 0, 1)
    for version in value_kind.versions:
        said = random_message(value_kind, version, 1)
        encoded = int16(version) + said.encode(version)
        key, value = explained(topic, int16(key_kind.api_key) + asked.encode(0), encoded)
        assert key.meaning == f"{key_kind.__name__} version 0"
        assert value.meaning == f"{value_kind.__name__} version {version}"
        assert [*key.iterate_problems(), *value.iterate_problems()] == []
        read_back(ExplainedPart("", "", 0, 0, parts=key.parts[1:]), asked)
        read_back(ExplainedPart("", "", 0, 0, parts=value.parts[1:]), value_kind.decode(encoded, version, 2))


@for_each("kind", METADATA_KINDS.values())
def test_each_metadata_record_is_explained_in_all_versions(kind: type[Message]) -> None:
    for version in kind.versions:
        data = (
            encode_unsigned_varint(1)
            + encode_unsigned_varint(kind.api_key)
            + encode_unsigned_varint(version)
            + random_message(kind, version, 1).encode(version)
        )
        _, value = explained(METADATA_TOPIC, None, bytes(data))
        assert value.meaning == f"{kind.__name__} version {version}"
        assert list(value.iterate_problems()) == []
        assert named(value, "type").meaning == kind.__name__


@pytest.mark.parametrize(
    "message",
    [
        LeaderChangeMessage(leader_id=3),
        SnapshotHeaderRecord(last_contained_log_timestamp=7),
        SnapshotFooterRecord(),
        KRaftVersionRecord(k_raft_version=1),
        VotersRecord(),
    ],
)
def test_quorum_control_records_are_explained(message: Any) -> None:
    record = make_control_record(message, timestamp=0)
    key, value = explained(METADATA_TOPIC, record.key, record.value, control=True)
    assert value.meaning == type(message).__name__
    assert [*key.iterate_problems(), *value.iterate_problems()] == []
    read_back(ExplainedPart("", "", 0, 0, parts=value.parts), message)


def test_a_transaction_marker_is_explained_with_its_coordinator_epoch() -> None:
    marker = make_transaction_marker(committed=False, coordinator_epoch=5, timestamp=0)
    key, value = explained("orders", marker.key, marker.value, control=True, transactional=True)
    assert key.meaning == "control record: ABORT"
    assert (named(key, "type").value, named(key, "type").meaning) == (0, "ABORT")
    assert named(value, "coordinator_epoch").value == 5


def test_a_control_record_of_a_later_kafka_is_shown_as_bytes() -> None:
    key, value = explained("orders", int16(0) + int16(99), b"later", control=True)
    assert key.meaning == "control record of an unknown type"
    assert value.value == b"later"


def test_records_of_other_topics_are_shown_as_bytes() -> None:
    key, value = explained("orders", int16(1), b"\x00\x01")
    assert (key.value, value.value) == (int16(1), b"\x00\x01")


def test_a_null_value_is_explained_as_a_tombstone() -> None:
    asked = OffsetCommitKey(group="readers", topic="orders", partition=2)
    key, value = explained(GROUPS_TOPIC, int16(1) + asked.encode(0), None)
    assert named(key, "group").value == "readers"
    assert value.meaning == "null: a tombstone, which deletes the key"


def test_assignments_in_records_of_classic_groups_are_explained() -> None:
    said = int16(0) + ConsumerProtocolAssignment().encode(0)
    member = GroupMetadataValue.MemberMetadata(member_id="m", assignment=said)
    written = int16(3) + GroupMetadataValue(members=[member]).encode(3)
    _, value = explained(GROUPS_TOPIC, int16(2) + GroupMetadataKey(group="g").encode(0), written)
    assert named(value, "assignment").meaning == "ConsumerProtocolAssignment"


@for_each(
    ("topic", "key", "value", "problem"),
    [
        (GROUPS_TOPIC, int16(999), b"", "there is no type 999"),
        (GROUPS_TOPIC, b"\x00", b"", "2 bytes are needed, and 1 are left"),
        (GROUPS_TOPIC, int16(2) + GroupMetadataKey().encode(0), int16(99), "has no version 99, only 0 to 4"),
        (GROUPS_TOPIC, int16(2) + GroupMetadataKey().encode(0) + b"more", b"", "4 bytes follow the end of the message"),
        (METADATA_TOPIC, None, b"\x01\x63\x00", "there is no type 99"),
        (METADATA_TOPIC, None, b"\x02\x02\x00", "there is no version 2 of the frame"),
        (METADATA_TOPIC, None, b"\x01\x02", "the bytes end in a varint"),
    ],
)
def test_an_unreadable_record_is_explained_with_the_reason(
    topic: str, key: bytes | None, value: bytes, problem: str
) -> None:
    parts = explained(topic, key, value)
    assert any(each.problem.endswith(problem) for part in parts for each in part.iterate_problems())


def test_the_topic_of_a_fetched_record_is_known_by_its_id() -> None:
    from minibroker.protocol.explaining.messages import explain_message
    from minibroker.protocol.messages.fetch import FetchResponse

    written = bytes(
        encode_unsigned_varint(1) + encode_unsigned_varint(TopicRecord.api_key) + encode_unsigned_varint(0)
    ) + TopicRecord(name="orders").encode(0)
    partition = FetchResponse.FetchableTopicResponse.PartitionData(
        records=memoryview(build_batch([Record(value=written)]))
    )
    topic = FetchResponse.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[partition])
    part = explain_message(FetchResponse(responses=[topic]).encode(17), FetchResponse, 17)
    assert named(part, "value").meaning == "TopicRecord version 0"
    assert named(part, "topic_id").meaning == f"AAAAAAAAAAAAAAAAAAAAAQ, {METADATA_TOPIC}"


@given(
    st.sampled_from([*COORDINATOR_KINDS, METADATA_TOPIC]),
    st.none() | st.binary(max_size=60),
    st.none() | st.binary(max_size=60),
    st.booleans(),
)
def test_explaining_arbitrary_keys_and_values_never_raises(
    topic: str, key: bytes | None, value: bytes | None, control: bool
) -> None:
    explained(topic, key, value, control=control)
