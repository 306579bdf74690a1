"""The records of `__consumer_offsets`: messages to bytes, in the versions that Kafka 4.3 writes.

From bytes to messages is `protocol.records.internal`; what the records mean is each kind of group's business.
"""

from __future__ import annotations

from minibroker.broker.coordination.coordinator_logs import Entry, entry
from minibroker.broker.groups.offsets import NO_EXPIRY, CommittedOffset
from minibroker.protocol.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

GROUP_METADATA_VERSION = 3
OFFSET_COMMIT_VERSION = 4
OFFSET_COMMIT_VERSION_WITH_EXPIRY = 1

OffsetKey = OffsetCommitKey | LegacyOffsetCommitKey
OffsetValue = OffsetCommitValue | LegacyOffsetCommitValue


def group_metadata_entry(group_id: str, value: GroupMetadataValue | None) -> Entry:
    """What a classic group's membership is now; None if it is gone."""
    return entry(GroupMetadataKey(group=group_id), value, GROUP_METADATA_VERSION)


def offset_entry(group_id: str, topic: str, partition: int, committed: CommittedOffset | None) -> Entry:
    """What a group has committed for a partition; None takes it back."""
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    if committed is None:
        return entry(key)
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
        topic_id=committed.topic_id,
    )
    expires = committed.expire_timestamp_ms != NO_EXPIRY
    return entry(key, value, OFFSET_COMMIT_VERSION_WITH_EXPIRY if expires else OFFSET_COMMIT_VERSION)


def committed_offset(value: OffsetValue) -> CommittedOffset:
    """What a record says was committed."""
    if isinstance(value, LegacyOffsetCommitValue):
        return CommittedOffset(value.offset, -1, value.metadata, value.commit_timestamp)
    return CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
    )
