"""What a group has committed: kept by partition, taken back by tombstones, expired by KIP-211's rules."""

from __future__ import annotations

import pytest

from minibroker.broker.groups.offsets import (
    NEVER,
    CommittedOffset,
    CommittedOffsets,
    commit_entry,
    tombstone_entry,
)
from minibroker.protocol.messages.group_records import LegacyOffsetCommitValue, OffsetCommitKey, OffsetCommitValue
from minibroker.protocol.records.internal import GROUPS_TOPIC, decode_internal

ID, OTHER_ID = bytes(range(16)), bytes(range(1, 17))


def committed(offset: int = 5, *, at_ms: int = 1000, until_ms: int = NEVER, topic_id: bytes = ID) -> CommittedOffset:
    return CommittedOffset(offset, 3, "note", at_ms, until_ms, topic_id)


@pytest.fixture
def offsets() -> CommittedOffsets:
    return CommittedOffsets()


def test_the_last_commit_of_a_partition_counts(offsets: CommittedOffsets) -> None:
    offsets.put("t", 0, committed(5))
    offsets.put("t", 1, committed(6))
    offsets.put("t", 0, committed(4))
    assert [offsets.get("t", partition) for partition in range(3)] == [committed(4), committed(6), None]
    assert list(offsets) == [("t", {0: committed(4), 1: committed(6)})]
    assert offsets.get("u", 0) is None


def test_a_tombstone_takes_a_commit_back(offsets: CommittedOffsets) -> None:
    offsets.put("t", 0, committed())
    offsets.remove("t", 1)
    offsets.remove("u", 0)
    assert not offsets.is_empty and offsets.is_known("t", 0) and not offsets.is_known("t", 1)
    offsets.remove("t", 0)
    assert offsets.is_empty and list(offsets) == [] and not offsets.is_known("t", 0)


def test_an_offset_of_a_topic_that_was_created_anew_is_not_found(offsets: CommittedOffsets) -> None:
    offsets.put("t", 0, committed())
    assert offsets.get("t", 0, ID) == offsets.get("t", 0) == committed()
    assert offsets.get("t", 0, OTHER_ID) is None
    unnamed = committed(topic_id=bytes(16))
    offsets.put("t", 0, unnamed)
    assert offsets.get("t", 0, OTHER_ID) == unnamed


def test_a_deleted_topic_takes_along_its_own_offsets(offsets: CommittedOffsets) -> None:
    offsets.put("t", 2, committed())
    offsets.put("t", 0, committed(topic_id=bytes(16)))
    offsets.put("t", 1, committed(topic_id=OTHER_ID))
    offsets.pending[9] = {("t", 3): committed(), ("u", 4): committed()}
    assert offsets.of_topic("t", ID) == [0, 2, 3]
    assert offsets.of_topic("v", ID) == []


def test_an_open_transaction_makes_its_partitions_unstable(offsets: CommittedOffsets) -> None:
    offsets.put("t", 0, committed())
    offsets.pending[9] = {("t", 0): committed(6), ("t", 1): committed(7)}
    assert [offsets.is_unstable("t", partition) for partition in range(3)] == [True, True, False]
    assert offsets.partitions() == [("t", 0), ("t", 1)]
    assert offsets.get("t", 0) == committed(5) and offsets.get("t", 1) is None
    for partition in range(2):
        offsets.remove("t", partition)
    assert offsets.is_empty


def test_offsets_expire_by_retention_unless_they_are_subscribed_or_about_to_change(offsets: CommittedOffsets) -> None:
    offsets.put("t", 0, committed(at_ms=1000))
    offsets.put("t", 1, committed(at_ms=1001))
    offsets.put("read", 0, committed(at_ms=0))
    offsets.put("open", 0, committed(at_ms=0))
    offsets.pending[9] = {("open", 0): committed()}

    def expired(now_ms: int) -> list[tuple[str, int]]:
        return offsets.expired(now_ms, 500, lambda each: each.commit_timestamp_ms, lambda topic: topic == "read")

    assert expired(1499) == []
    assert expired(1500) == [("t", 0)]
    assert expired(1501) == [("t", 0), ("t", 1)]


def test_an_offset_that_says_itself_when_it_expires_does_so(offsets: CommittedOffsets) -> None:
    offsets.put("t", 0, committed(until_ms=9000))
    for now_ms, expired in ((8999, []), (9000, [("t", 0)])):
        assert offsets.expired(now_ms, 1, lambda _: 0, lambda _: False) == expired


@pytest.mark.parametrize(("until_ms", "version"), [(NEVER, 4), (9000, 1)])
def test_a_record_says_what_was_committed(until_ms: int, version: int) -> None:
    key, value = decode_internal(GROUPS_TOPIC, *commit_entry("g", "t", 7, committed(until_ms=until_ms)))
    assert key.message == OffsetCommitKey(group="g", topic="t", partition=7)
    assert value is not None and value.version == version and isinstance(value.message, OffsetCommitValue)
    found = CommittedOffset.of_value(value.message)
    if version == 4:
        assert found == committed()
    else:  # that version knows neither the epoch nor the topic's id
        assert found == CommittedOffset(5, -1, "note", 1000, 9000)


def test_a_tombstone_has_the_key_of_the_commit() -> None:
    assert tombstone_entry("g", "t", 7) == (commit_entry("g", "t", 7, committed())[0], None)


def test_a_commit_from_before_kafka_0_9_is_understood() -> None:
    value = LegacyOffsetCommitValue(offset=4, metadata="old", commit_timestamp=77)
    assert CommittedOffset.of_value(value) == CommittedOffset(4, -1, "old", 77)
