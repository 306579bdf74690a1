"""Records of Kafka's own topics: from bytes to messages, and what is no such record."""

from __future__ import annotations

import pytest

from minibroker.protocol.messages.group_records import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from minibroker.protocol.messages.transaction_records import TransactionLogKey, TransactionLogValue
from minibroker.protocol.primitives import MalformedMessage
from minibroker.protocol.records.internal import DecodedMessage, UnknownRecord, decode_internal_record
from tests.cases import for_each

GROUPS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
KEY = b"\x00\x01\x00\x01g\x00\x05topic\x00\x00\x00\x03"  # type 1: group g, topic topic, partition 3


def test_an_offset_commit_record_is_decoded_as_kafka_writes_it() -> None:
    value = b"\x00\x03" + (77).to_bytes(8) + (4).to_bytes(4) + b"\x00\x04note" + (1700).to_bytes(8)
    key = OffsetCommitKey(group="g", topic="topic", partition=3)
    committed = OffsetCommitValue(offset=77, leader_epoch=4, metadata="note", commit_timestamp=1700)
    assert decode_internal_record(GROUPS, KEY, value) == (DecodedMessage(key, 0), DecodedMessage(committed, 3))


def test_a_tombstone_has_no_value() -> None:
    assert decode_internal_record(GROUPS, b"\x00\x02\x00\x01g", None) == (
        DecodedMessage(GroupMetadataKey(group="g"), 0),
        None,
    )


@pytest.mark.parametrize("version", TransactionLogValue.versions)
def test_a_transaction_record_is_decoded_in_each_version(version: int) -> None:
    value = TransactionLogValue(producer_id=5, transaction_status=2, transaction_partitions=None)
    data = version.to_bytes(2) + value.encode(version)
    key = TransactionLogKey(transactional_id="tx")
    assert decode_internal_record(TRANSACTIONS, b"\x00\x00" + key.encode(0), data) == (
        DecodedMessage(key, 0),
        DecodedMessage(value, version),
    )


@for_each(
    ("key", "value", "reason"),
    [
        (None, b"", "a key of 0 bytes"),
        (b"\x00", b"", "a key of 1 bytes"),
        (b"\x00\x63", b"", "a key of type 99"),
        (b"\xff\xff", b"", "a key of type -1"),
        (KEY, b"", "a value of 0 bytes"),
        (KEY, b"\x00\x09", "OffsetCommitValue version 9"),
    ],
)
def test_keys_and_values_that_kafka_never_writes_are_reported_as_unknown_records(
    key: bytes | None, value: bytes, reason: str
) -> None:
    with pytest.raises(UnknownRecord, match=reason):
        decode_internal_record(GROUPS, key, value)


def test_truncated_keys_are_malformed() -> None:
    with pytest.raises(MalformedMessage):
        decode_internal_record(GROUPS, KEY[:-1], None)


def test_records_of_other_topics_are_not_decoded() -> None:
    with pytest.raises(ValueError, match="the format of the records of orders is unknown"):
        decode_internal_record("orders", KEY, None)
