"""The records of committed offsets: what is packed by its layout is what the declared messages say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from minibroker.broker.groups.group_entries import encode_offset_entries, encode_offset_entry, parse_committed_offset
from minibroker.broker.groups.offsets_of_group import CommittedOffset
from minibroker.broker.metadata.partitions import GROUPS_TOPIC
from minibroker.protocol.messages.group_records import OffsetCommitKey, OffsetCommitValue
from minibroker.protocol.primitives import ZERO_UUID
from minibroker.protocol.records.internal import decode_internal_record

NAMES = st.text(max_size=20)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
COMMITTED = st.builds(
    CommittedOffset,
    INT64,
    st.integers(-1, (1 << 31) - 1),
    st.sampled_from(["", "note", "\N{GRINNING FACE}" * 50]),
    INT64,
    st.just(-1) | st.integers(0, 1 << 50),
    st.just(ZERO_UUID) | st.binary(min_size=16, max_size=16),
)


@given(group=NAMES, offsets=st.lists(st.tuples(NAMES, st.integers(0, 1 << 30), COMMITTED), max_size=5))
def test_directly_packed_offset_records_equal_their_encoded_key_and_value_messages(
    group: str, offsets: list[tuple[str, int, CommittedOffset]]
) -> None:
    assert encode_offset_entries(group, offsets) == [encode_offset_entry(group, *each) for each in offsets]
    for topic, partition, committed in offsets:
        entry = encode_offset_entry(group, topic, partition, committed)
        key, value = decode_internal_record(GROUPS_TOPIC, *entry)
        assert key.message == OffsetCommitKey(group=group, topic=topic, partition=partition)
        assert value is not None and isinstance(value.message, OffsetCommitValue)
        expires = committed.expire_timestamp_ms != -1  # whose version has no topic id, and an epoch only
        expected = committed._replace(topic_id=ZERO_UUID, leader_epoch=-1) if expires else committed
        assert parse_committed_offset(value.message) == expected
        assert entry[1] is not None
        assert entry[1][2:] == value.message.encode(value.version)
