"""The offsets that one group has committed: a fold over the records of `__consumer_offsets`.

Who may commit is the group's business (`Group.check_offset_commit`), how it is asked for that of the handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from minibroker.protocol.primitives import ZERO_UUID

NO_EPOCH: Final = -1
NO_EXPIRY: Final = -1


class CommittedOffset(NamedTuple):
    """An offset that was committed, with the leader epoch (-1: none) and the metadata that came with it.

    `expire_timestamp_ms` is -1 unless a client of long ago has set it; `topic_id` is zero where the client knew the
    topic by its name only.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRY
    topic_id: bytes = ZERO_UUID

    def may_belong_to_topic(self, topic_id: bytes) -> bool:
        """Return whether the offset is of the topic with this id, or of an unknown one: a new topic has another id."""
        return topic_id == self.topic_id or ZERO_UUID in (topic_id, self.topic_id)

    def has_expired(self, now_ms: int, retention_ms: int, since_ms: int) -> bool:
        """Return whether the offset has expired, if its retention began at `since_ms` (KIP-211)."""
        if self.expire_timestamp_ms != NO_EXPIRY:
            return now_ms >= self.expire_timestamp_ms
        return now_ms - since_ms >= retention_ms


OffsetsByPartition = dict[tuple[str, int], CommittedOffset]


class CommittedOffsets:
    """Of one group, by (topic, partition). `pending` has, by producer id, what open transactions are to commit."""

    def __init__(self) -> None:
        self.by_partition: OffsetsByPartition = {}
        self.pending: dict[int, OffsetsByPartition] = {}

    def apply_offset(self, topic: str, partition: int, committed_offset: CommittedOffset | None) -> None:
        """Apply a record: set the committed offset, or with None delete it and those pending in open transactions."""
        if committed_offset is not None:
            self.by_partition[topic, partition] = committed_offset
            for pending in self.pending.values():
                if (topic, partition) in pending:
                    pending[topic, partition] = committed_offset  # what is committed later holds, whatever ends later
            return
        self.by_partition.pop((topic, partition), None)
        for producer_id, pending in list(self.pending.items()):
            pending.pop((topic, partition), None)
            if not pending:
                del self.pending[producer_id]

    def apply_offsets(self, offsets: Iterable[tuple[str, int, CommittedOffset]]) -> None:
        """Set the committed offset of each (topic, partition)."""
        if self.pending:
            for offset in offsets:
                self.apply_offset(*offset)
        else:
            for topic, partition, committed in offsets:
                self.by_partition[topic, partition] = committed

    def apply_offsets_of_partitions(
        self, partitions: Sequence[tuple[str, int]], committed_offsets: Iterable[CommittedOffset]
    ) -> None:
        """Set the committed offset of each (topic, partition) of `partitions`, in their order."""
        if self.pending:
            for (topic, partition), one in zip(partitions, committed_offsets, strict=True):
                self.apply_offset(topic, partition, one)
        else:
            self.by_partition.update(zip(partitions, committed_offsets, strict=True))

    def apply_or_drop_pending_offsets(self, producer_id: int, *, committed: bool) -> None:
        """End the producer's transaction: commit what was pending, or forget it."""
        pending = self.pending.pop(producer_id, {})
        if committed:
            self.by_partition.update(pending)

    @property
    def is_empty(self) -> bool:
        """Whether no offset is committed, and none is pending in an open transaction."""
        return not self.by_partition and not self.pending

    def find_offset(self, topic: str, partition: int, topic_id: bytes = ZERO_UUID) -> CommittedOffset | None:
        """Return what is committed for the partition, unless it is known to be of another topic of the same name."""
        committed = self.by_partition.get((topic, partition))
        return committed if committed is not None and committed.may_belong_to_topic(topic_id) else None

    def has_offset(self, topic: str, partition: int) -> bool:
        """Return whether the partition has a committed offset, or one that is pending in an open transaction."""
        return (topic, partition) in self.by_partition or self.is_offset_unstable(topic, partition)

    def is_offset_unstable(self, topic: str, partition: int) -> bool:
        """Return whether an open transaction is about to commit an offset of the partition (KIP-447)."""
        return any((topic, partition) in pending for pending in self.pending.values())

    def list_partitions(self) -> list[tuple[str, int]]:
        """Return each (topic, partition) that has a committed offset, or a pending one, once."""
        pending = (each for offsets in self.pending.values() for each in offsets)
        return list(dict.fromkeys([*self.by_partition, *pending]))

    def list_topic_partitions(self, topic: str, topic_id: bytes) -> list[int]:
        """Return the partitions that the topic with this name and id has offsets of, open transactions' included."""
        return sorted(
            {
                partition
                for offsets in (self.by_partition, *self.pending.values())
                for (name, partition), committed in offsets.items()
                if name == topic and committed.may_belong_to_topic(topic_id)
            }
        )

    def list_expired_partitions(
        self,
        now_ms: int,
        retention_ms: int,
        since_ms: Callable[[CommittedOffset], int | None],
        is_subscribed_to: Callable[[str], bool],
    ) -> list[tuple[str, int]]:
        """Return (topic, partition) of expired offsets; `since_ms` returns when the retention of one began, or None.

        `since_ms` says from when on the retention counts for an offset, None if it does not. What the group is
        subscribed to, and what an open transaction is about to commit, does not expire.
        """
        return [
            (topic, partition)
            for (topic, partition), committed in self.by_partition.items()
            if (since := since_ms(committed)) is not None
            and committed.has_expired(now_ms, retention_ms, since)
            and not is_subscribed_to(topic)
            and not self.is_offset_unstable(topic, partition)
        ]
