"""The offsets that one group has committed: what is known of each partition, and how a record says so.

Who may commit is each kind of group's business, and when the records are appended is the coordinator's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import NamedTuple

from minibroker.protocol.messages.group_records import LegacyOffsetCommitValue, OffsetCommitKey, OffsetCommitValue
from minibroker.protocol.primitives import ZERO_UUID

NEVER = -1  # of a commit that expires by the broker's retention only
NO_EPOCH = -1
VALUE_VERSION = 4
VALUE_VERSION_WITH_EXPIRY = 1  # the only one that says when the offset expires

Entry = tuple[bytes, bytes | None]  # key and value of a record; no value takes back what was said

_INT16 = Struct(">h")
_KEY_TYPE = _INT16.pack(OffsetCommitKey.api_key)


class CommittedOffset(NamedTuple):
    """The next record that the group wants of a partition, and what its client noted beside it.

    Timestamps are in ms since the epoch; `expire_timestamp_ms` is NEVER unless an old client said how long to keep the
    offset. `topic_id` is 16 raw bytes, zero where the client knew the topic by its name only.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NEVER
    topic_id: bytes = ZERO_UUID

    @classmethod
    def of_value(cls, value: OffsetCommitValue | LegacyOffsetCommitValue) -> CommittedOffset:
        """What the value of a record says, in any of its versions."""
        if isinstance(value, LegacyOffsetCommitValue):
            return cls(value.offset, NO_EPOCH, value.metadata, value.commit_timestamp)
        return cls(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
        )

    def is_of(self, topic_id: bytes) -> bool:
        """Whether it may belong to the topic with this id: a topic that was created anew has another one."""
        return topic_id == self.topic_id or ZERO_UUID in (topic_id, self.topic_id)

    def has_expired(self, now_ms: int, retention_ms: int, base_ms: int) -> bool:
        """Whether its time is over, where the retention counts from `base_ms` (KIP-211)."""
        if self.expire_timestamp_ms != NEVER:
            return now_ms >= self.expire_timestamp_ms
        return now_ms - base_ms >= retention_ms


class CommittedOffsets:
    """All that one group has committed.

    `pending` has, by producer id, what transactions that are still open will have committed: {(topic, partition): ...}.
    """

    def __init__(self) -> None:
        self._topics: dict[str, dict[int, CommittedOffset]] = {}
        self.pending: dict[int, dict[tuple[str, int], CommittedOffset]] = {}

    def __iter__(self) -> Iterator[tuple[str, dict[int, CommittedOffset]]]:
        """(topic, its offsets by partition), each topic once."""
        return iter(self._topics.items())

    @property
    def is_empty(self) -> bool:
        """Whether nothing is committed, and no open transaction is about to commit something."""
        return not self._topics and not self.pending

    def get(self, topic: str, partition: int, topic_id: bytes = ZERO_UUID) -> CommittedOffset | None:
        """What is committed for the partition, unless it is known to be of another topic of the same name."""
        partitions = self._topics.get(topic)
        committed = None if partitions is None else partitions.get(partition)
        return committed if committed is not None and committed.is_of(topic_id) else None

    def put(self, topic: str, partition: int, committed: CommittedOffset) -> None:
        """Apply a commit."""
        self._topics.setdefault(topic, {})[partition] = committed

    def remove(self, topic: str, partition: int) -> None:
        """Apply a tombstone, which also takes back what open transactions have of the partition."""
        partitions = self._topics.get(topic)
        if partitions is not None:
            partitions.pop(partition, None)
            if not partitions:
                del self._topics[topic]
        for producer_id, pending in list(self.pending.items()):
            pending.pop((topic, partition), None)
            if not pending:
                del self.pending[producer_id]

    def is_unstable(self, topic: str, partition: int) -> bool:
        """Whether an open transaction is about to commit an offset of the partition (KIP-447)."""
        return any((topic, partition) in pending for pending in self.pending.values())

    def is_known(self, topic: str, partition: int) -> bool:
        """Whether a tombstone would take something back."""
        return partition in self._topics.get(topic, ()) or self.is_unstable(topic, partition)

    def partitions(self) -> list[tuple[str, int]]:
        """Each (topic, partition) that a tombstone would take something back of, once."""
        committed = [(topic, partition) for topic, partitions in self for partition in partitions]
        return list(dict.fromkeys([*committed, *(each for pending in self.pending.values() for each in pending)]))

    def of_topic(self, topic: str, topic_id: bytes) -> list[int]:
        """The partitions with an offset of the topic with this name and id, open transactions' included."""
        found = {each for each, committed in self._topics.get(topic, {}).items() if committed.is_of(topic_id)}
        for pending in self.pending.values():
            found |= {partition for (name, partition), it in pending.items() if name == topic and it.is_of(topic_id)}
        return sorted(found)

    def expired(
        self,
        now_ms: int,
        retention_ms: int,
        base_ms: Callable[[CommittedOffset], int],
        is_subscribed: Callable[[str], bool],
    ) -> list[tuple[str, int]]:
        """The (topic, partition) of all offsets whose time is over.

        `base_ms` says from when the retention counts for an offset. What the group is subscribed to, and what an open
        transaction is about to commit, does not expire.
        """
        return [
            (topic, partition)
            for topic, partitions in self
            if not is_subscribed(topic)
            for partition, committed in partitions.items()
            if committed.has_expired(now_ms, retention_ms, base_ms(committed))
            and not self.is_unstable(topic, partition)
        ]


def commit_entry(group_id: str, topic: str, partition: int, committed: CommittedOffset) -> Entry:
    """The record that says what a group has committed for a partition."""
    version = VALUE_VERSION if committed.expire_timestamp_ms == NEVER else VALUE_VERSION_WITH_EXPIRY
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
        topic_id=committed.topic_id,
    )
    return _key(group_id, topic, partition), _INT16.pack(version) + value.encode(version)


def tombstone_entry(group_id: str, topic: str, partition: int) -> Entry:
    """The record that takes back what a group has committed for a partition."""
    return _key(group_id, topic, partition), None


def _key(group_id: str, topic: str, partition: int) -> bytes:
    return _KEY_TYPE + OffsetCommitKey(group=group_id, topic=topic, partition=partition).encode(0)
