"""What a group has committed: kept by partition, taken back by tombstones, expired by KIP-211's rules."""

from __future__ import annotations

import pytest

from minibroker.broker.groups.offsets_of_group import NO_EXPIRY, CommittedOffset, CommittedOffsets

ID, OTHER_ID = bytes(range(16)), bytes(range(1, 17))


def committed(
    offset: int = 5, *, at_ms: int = 1000, until_ms: int = NO_EXPIRY, topic_id: bytes = ID
) -> CommittedOffset:
    return CommittedOffset(offset, 3, "note", at_ms, until_ms, topic_id)


@pytest.fixture
def offsets() -> CommittedOffsets:
    return CommittedOffsets()


def test_the_last_committed_offset_of_a_partition_is_returned(offsets: CommittedOffsets) -> None:
    offsets.apply_offset("t", 0, committed(5))
    offsets.apply_offset("t", 1, committed(6))
    offsets.apply_offset("t", 0, committed(4))
    assert [offsets.find_offset("t", partition) for partition in range(3)] == [committed(4), committed(6), None]
    assert offsets.find_offset("u", 0) is None


def test_a_tombstone_removes_a_committed_offset(offsets: CommittedOffsets) -> None:
    offsets.apply_offset("t", 0, committed())
    offsets.apply_offset("t", 1, None)
    assert not offsets.is_empty and offsets.list_partitions() == [("t", 0)]
    offsets.apply_offset("t", 0, None)
    assert offsets.is_empty and offsets.list_partitions() == []


def test_an_offset_of_a_recreated_topic_is_not_found(offsets: CommittedOffsets) -> None:
    offsets.apply_offset("t", 0, committed())
    assert offsets.find_offset("t", 0, ID) == offsets.find_offset("t", 0) == committed()
    assert offsets.find_offset("t", 0, OTHER_ID) is None
    unnamed = committed(topic_id=bytes(16))
    offsets.apply_offset("t", 0, unnamed)
    assert offsets.find_offset("t", 0, OTHER_ID) == unnamed


def test_offsets_of_a_topic_include_those_with_its_id_and_those_without_an_id(offsets: CommittedOffsets) -> None:
    offsets.apply_offset("t", 2, committed())
    offsets.apply_offset("t", 0, committed(topic_id=bytes(16)))
    offsets.apply_offset("t", 1, committed(topic_id=OTHER_ID))
    offsets.pending[9] = {("t", 3): committed(), ("u", 4): committed()}
    assert offsets.list_topic_partitions("t", ID) == [0, 2, 3]
    assert offsets.list_topic_partitions("v", ID) == []


def test_an_open_transaction_makes_its_partitions_unstable(offsets: CommittedOffsets) -> None:
    offsets.apply_offset("t", 0, committed())
    offsets.pending[9] = {("t", 0): committed(6), ("t", 1): committed(7)}
    assert [offsets.is_offset_unstable("t", partition) for partition in range(3)] == [True, True, False]
    assert offsets.list_partitions() == [("t", 0), ("t", 1)]
    assert offsets.find_offset("t", 0) == committed(5) and offsets.find_offset("t", 1) is None
    for partition in range(2):
        offsets.apply_offset("t", partition, None)
    assert offsets.is_empty


def test_offsets_expire_unless_they_are_subscribed_or_pending(offsets: CommittedOffsets) -> None:
    offsets.apply_offset("t", 0, committed(at_ms=1000))
    offsets.apply_offset("t", 1, committed(at_ms=1001))
    offsets.apply_offset("read", 0, committed(at_ms=0))
    offsets.apply_offset("open", 0, committed(at_ms=0))
    offsets.pending[9] = {("open", 0): committed()}

    def expired(now_ms: int) -> list[tuple[str, int]]:
        return offsets.list_expired_partitions(
            now_ms, 500, lambda each: each.commit_timestamp_ms, lambda topic: topic == "read"
        )

    assert expired(1499) == []
    assert expired(1500) == [("t", 0)]
    assert expired(1501) == [("t", 0), ("t", 1)]


def test_offsets_of_a_group_without_retention_do_not_expire(offsets: CommittedOffsets) -> None:
    offsets.apply_offset("t", 0, committed(until_ms=1))
    assert offsets.list_expired_partitions(1 << 60, 1, lambda _: None, lambda _: False) == []


def test_an_offset_committed_with_an_expiry_time_expires_at_that_time(offsets: CommittedOffsets) -> None:
    offsets.apply_offset("t", 0, committed(until_ms=9000))
    for now_ms, expired in ((8999, []), (9000, [("t", 0)])):
        assert offsets.list_expired_partitions(now_ms, 1, lambda _: 0, lambda _: False) == expired
