"""Share partitions: their keys, and what `__share_group_state` says of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from minibroker.broker.share.runs import StateBatch
from minibroker.protocol.messages.share_state_records import ShareSnapshotValue, ShareUpdateValue
from minibroker.protocol.primitives import format_uuid

UNSET: Final = -1  # a start offset, an epoch or a count


class ShareKey(NamedTuple):
    """A share partition."""

    group_id: str
    topic_id: bytes
    partition: int

    @property
    def coordinator_key(self) -> str:
        """Return the key (group:topic id:partition) whose hash determines the coordinator."""
        return f"{self.group_id}:{format_uuid(self.topic_id)}:{self.partition}"


class ShareState(NamedTuple):
    """The state of a share partition.

    `updates` counts the records since its last snapshot, which is at `snapshot_offset` in the log.
    """

    snapshot_epoch: int = 0
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = UNSET
    complete_count: int = UNSET
    created_ms: int = 0
    batches: tuple[StateBatch, ...] = ()
    updates: int = 0
    snapshot_offset: int = 0
    snapshot_ms: int = 0

    def make_updated_state(
        self, leader_epoch: int, start_offset: int, complete_count: int, batches: Iterable[StateBatch]
    ) -> ShareState:
        """Return the state after an update; -1 as leader epoch or start offset leaves that as it was."""
        start = self.start_offset if start_offset == UNSET else start_offset
        return self._replace(
            leader_epoch=self.leader_epoch if leader_epoch == UNSET else leader_epoch,
            start_offset=start,
            complete_count=complete_count,
            batches=combine_state_batches([*self.batches, *batches], start),
            updates=self.updates + 1,
        )

    def make_snapshot_record(self, now_ms: int) -> ShareSnapshotValue:
        """Return the record of the whole state."""
        return ShareSnapshotValue(
            snapshot_epoch=self.snapshot_epoch,
            state_epoch=self.state_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=self.start_offset,
            delivery_complete_count=self.complete_count,
            create_timestamp=self.created_ms,
            write_timestamp=now_ms,
            state_batches=[
                ShareSnapshotValue.StateBatch(
                    first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
                )
                for first, last, state, count in self.batches
            ],
        )


def parse_share_snapshot(value: ShareSnapshotValue, offset: int) -> ShareState:
    """Return the state of a snapshot that is at this offset."""
    return ShareState(
        value.snapshot_epoch,
        value.state_epoch,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        value.create_timestamp,
        parse_state_batches(value.state_batches),
        snapshot_offset=offset,
        snapshot_ms=value.write_timestamp,
    )


def parse_state_batches(
    batch_records: Iterable[ShareSnapshotValue.StateBatch | ShareUpdateValue.StateBatch],
) -> tuple[StateBatch, ...]:
    """Return the batches of a record."""
    return tuple(
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in batch_records
    )


def combine_state_batches(batches: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """Return batches without overlaps, in order, from `start_offset` on; equal neighbours are merged.

    Of batches that overlap, the one with more deliveries counts, then the one with the larger state, as in Kafka.
    """
    ordered = sorted(batch for batch in batches if batch.last >= start_offset)
    apart: Iterable[StateBatch] = ordered
    end = start_offset
    for batch in ordered:
        if batch.first < end:
            apart = _split_overlapping_batches(ordered, start_offset)
            break
        end = batch.last + 1
    result: list[StateBatch] = []
    for batch in apart:
        first, last, state, deliveries = batch
        before = result[-1] if result else None
        if before is not None and before[1:] == (first - 1, state, deliveries):
            result[-1] = StateBatch(before.first, last, state, deliveries)
        else:
            result.append(batch)
    return tuple(result)


def _split_overlapping_batches(ordered_batches: Sequence[StateBatch], start_offset: int) -> Iterator[StateBatch]:
    """Yield batches without overlaps, from `start_offset` on; where some overlap, the one that counts."""
    bounds = {start_offset}
    for batch in ordered_batches:
        bounds |= {batch.first, batch.last + 1}
    active: list[StateBatch] = []
    position = 0
    for first, following in pairwise(sorted(bounds)):
        while position < len(ordered_batches) and ordered_batches[position].first <= first:
            active.append(ordered_batches[position])
            position += 1
        active = [each for each in active if each.last >= first]
        if active and first >= start_offset:
            best = max(active, key=lambda each: (each.deliveries, each.state))
            yield StateBatch(first, following - 1, best.state, best.deliveries)
