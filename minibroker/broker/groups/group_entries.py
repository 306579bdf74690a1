"""The records of `__consumer_offsets`: messages to bytes, in the versions that Kafka 4.3 writes.

From bytes to messages is `protocol.records.internal`; `group_coordinator` and the groups fold records in.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from minibroker.broker.coordination.coordinator_logs import Entry, encode_record_entry, encode_versioned_value
from minibroker.broker.groups.offsets_of_group import NO_EXPIRY, CommittedOffset
from minibroker.protocol.declare import Message
from minibroker.protocol.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from minibroker.protocol.primitives import ZERO_UUID

GROUP_METADATA_VERSION = 3
OFFSET_COMMIT_VERSION = 4
OFFSET_COMMIT_VERSION_WITH_EXPIRY = 1

_INT32 = Struct(">i")
_PLAIN_OFFSET = Struct(">hqiBqB")  # version, offset, leader epoch, metadata, commit timestamp, number of tags
_OFFSET_WITH_ID = Struct(">hqiBqBBB16s")  # then tag, size and topic id
EMPTY_STRING: Final = 1  # as its length is written in flexible versions


class GroupChange(NamedTuple):
    """One record: a key, and a value or None, which takes back what was recorded under the key."""

    key: Message
    value: Message | None


def encode_group_changes(changes: Iterable[GroupChange]) -> list[Entry]:
    """Return the log entries (key and value) of the changes, in the newest version."""
    return [encode_record_entry(key, value) for key, value in changes]


OffsetKey = OffsetCommitKey | LegacyOffsetCommitKey
OffsetValue = OffsetCommitValue | LegacyOffsetCommitValue


def encode_group_metadata_entry(group_id: str, value: GroupMetadataValue | None) -> Entry:
    """Return the record of a classic group, or (None) its tombstone."""
    return encode_record_entry(GroupMetadataKey(group=group_id), value, GROUP_METADATA_VERSION)


@lru_cache(maxsize=1024)  # a name takes 32 KiB at most
def _encode_offset_key_start(group_id: str, topic: str) -> bytes:
    return encode_record_entry(OffsetCommitKey(group=group_id, topic=topic, partition=0))[0][: -_INT32.size]


def encode_offset_entry(group_id: str, topic: str, partition: int, committed_offset: CommittedOffset | None) -> Entry:
    """Return the record of a committed offset, or (None) its tombstone."""
    key = _encode_offset_key_start(group_id, topic) + _INT32.pack(partition)
    return key, None if committed_offset is None else _encode_offset_value(committed_offset)


def encode_offset_entries(group_id: str, offsets: Iterable[tuple[str, int, CommittedOffset]]) -> list[Entry]:
    """Return the records of committed offsets, each a topic, a partition and an offset."""
    made: list[Entry] = []
    name, start = None, b""
    for topic, partition, committed in offsets:
        if topic != name:
            name, start = topic, _encode_offset_key_start(group_id, topic)
        made.append((start + _INT32.pack(partition), _encode_offset_value(committed)))
    return made


def _encode_offset_value(committed_offset: CommittedOffset) -> bytes:
    """Encode an offset. The usual case, without metadata and expiry, is packed by its layout."""
    offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id = committed_offset
    if not metadata and expire_ms == NO_EXPIRY:
        if topic_id == ZERO_UUID:
            return _PLAIN_OFFSET.pack(OFFSET_COMMIT_VERSION, offset, leader_epoch, EMPTY_STRING, commit_ms, 0)
        tag = 1, 0, len(topic_id), topic_id
        return _OFFSET_WITH_ID.pack(OFFSET_COMMIT_VERSION, offset, leader_epoch, EMPTY_STRING, commit_ms, *tag)
    value = OffsetCommitValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp=commit_ms,
        expire_timestamp=expire_ms,
        topic_id=topic_id,
    )
    return encode_versioned_value(
        value, OFFSET_COMMIT_VERSION if expire_ms == NO_EXPIRY else OFFSET_COMMIT_VERSION_WITH_EXPIRY
    )


def parse_committed_offset(value: OffsetValue) -> CommittedOffset:
    """Return the offset of a record."""
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
