"""A share partition on its leader: deliveries, their locks, and what is kept of them (KIP-932).

What `Deliveries` changes is sent to the share coordinator before anybody is answered. If that fails, the share
partition is given up, and read from the coordinator again.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from minibroker.broker.clock import Timer
from minibroker.broker.configs.group_settings import DEAD_LETTER_TOPIC, get_group_config
from minibroker.broker.metadata.features import SHARE_VERSION
from minibroker.broker.metadata.partitions import Partition, Waiter
from minibroker.broker.share.deliveries import Deliveries
from minibroker.broker.share.runs import (
    AcquiredRecords,
    DeliveryState,
    GivenUpRecords,
    RangeAcknowledgement,
    ShareLimits,
    StateBatch,
)
from minibroker.broker.share.states import ShareKey, ShareState
from minibroker.broker.turn import AppendWait
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.records.batch import BatchHeader
from minibroker.storage.batch_scanning import iterate_headers
from minibroker.storage.producers.aborted_transactions import AbortedTransaction
from minibroker.storage.segment import Region

if TYPE_CHECKING:
    from minibroker.broker.share.share_partitions import SharePartitions

log = logging.getLogger("minibroker.share")

READ_COMMITTED: Final = "read_committed"
FIRST_WITH_DEAD_LETTERS: Final = 2  # the level of share.version


class DeliveredBatches(NamedTuple):
    """Records for a member: the batches that they are in, and which of them it has acquired."""

    region: Region
    acquired: list[AcquiredRecords]


class SharePartition:
    """A group's view of a partition that this node leads. `waiters` are the fetches that wait for released records."""

    def __init__(self, shares: SharePartitions, key: ShareKey, partition: Partition, state: ShareState) -> None:
        self._shares = shares
        self._cluster = shares.cluster
        self._state_epoch = state.state_epoch
        self._timer: Timer | None = None
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.deliveries = Deliveries(state.start_offset, state.batches)
        self.waiters: set[Waiter] = set()
        self._resume_writing_dead_letters()

    def __repr__(self) -> str:
        return f"{self.partition} for share group {self.key.group_id}"

    @property
    def limits(self) -> ShareLimits:
        """Return the group's limits, as they are now."""
        return ShareLimits(
            self._get_group_config("share.delivery.count.limit"),
            self._get_group_config("share.partition.max.record.locks"),
            self._get_group_config("share.record.lock.duration.ms"),
            may_renew=self._get_group_config("share.renew.acknowledge.enable"),
            has_dead_letters=self._are_dead_letters_enabled(),
        )

    def _get_group_config(self, name: str) -> Any:
        return get_group_config(self._cluster, self.key.group_id, name)

    def _are_dead_letters_enabled(self) -> bool:
        level = self._cluster.image.features.get(SHARE_VERSION, 0)
        return level >= FIRST_WITH_DEAD_LETTERS and bool(self._get_group_config(DEAD_LETTER_TOPIC))

    # --- delivering -------------------------------------------------------------------------------

    def read_region_to_acquire(self, max_bytes: int) -> Region | None:
        """Return the batches with the next records that can be acquired, or None. Raises KafkaError."""
        log_start, deliveries = self.partition.log.log_start_offset, self.deliveries
        if deliveries.advance_start_offset(log_start):
            self._persist_changed_batches([])
        if not self.has_room_for_records:
            return None
        return self.partition.log.read(
            deliveries.find_next_offset(), max_bytes, limit_offset=self._get_end_of_readable_records()
        )

    @property
    def has_room_for_records(self) -> bool:
        """Whether there are records to acquire again, or room for new ones."""
        return self.deliveries.has_room_for_deliveries(self.limits)

    def _get_end_of_readable_records(self) -> int:
        """Return the offset behind the records that the group may read: last stable offset or high watermark."""
        kept = self.partition.log
        return kept.last_stable_offset if self._reads_committed_only() else kept.high_watermark

    def _reads_committed_only(self) -> bool:
        return bool(self._get_group_config("share.isolation.level") == READ_COMMITTED)

    def acquire_records(
        self, member_id: str, region: Region, max_records: int, batch_size: int, *, strict: bool
    ) -> DeliveredBatches | None:
        """Acquire records of a region from `read_region_to_acquire`; None if there are none. Raises KafkaError."""
        deliveries, limits, start = self.deliveries, self.limits, self.deliveries.start_offset
        headers = _list_batch_headers(
            region, deliveries.find_last_offset_to_acquire(min(max_records, limits.record_locks))
        )
        bounds = [(header.base_offset, header.last_offset) for _, header in headers]
        now_ms = int(self._cluster.clock.monotonic_ms())
        acquired = deliveries.acquire_records(member_id, bounds, limits, now_ms, max_records, batch_size, strict=strict)
        changed: list[StateBatch] = []
        if acquired and self._reads_committed_only():
            acquired, changed = self._archive_aborted_records(acquired, [header for _, header in headers])
        if changed or deliveries.start_offset != start:
            self._persist_changed_batches(changed)
        self._restart_lock_timer()
        if not acquired:
            return None
        delivered_region = _cut_region_to_acquired(region, headers, acquired)
        self.partition.log.expect_read_after(delivered_region)
        return DeliveredBatches(delivered_region, acquired)

    def _archive_aborted_records(
        self, acquired_records: Sequence[AcquiredRecords], headers: Sequence[BatchHeader]
    ) -> tuple[list[AcquiredRecords], list[StateBatch]]:
        """Archive the acquired records of aborted transactions; return the others, and the changed batches."""
        left: list[AcquiredRecords] = []
        changed: list[StateBatch] = []
        aborted = self._find_aborted_batches(headers)
        position = 0
        for one in acquired_records:
            first = one.first
            while position < len(aborted) and aborted[position].base_offset <= one.last:
                start, stop = max(aborted[position].base_offset, first), min(aborted[position].last_offset, one.last)
                if start <= stop:
                    changed += self.deliveries.archive_offsets(start, stop)
                    if first < start:
                        left.append(one._replace(first=first, last=start - 1))
                    first = stop + 1
                if aborted[position].last_offset > one.last:
                    break  # the next range may have records of it, too
                position += 1
            if first <= one.last:
                left.append(one._replace(first=first))
        return left, changed

    def _find_aborted_batches(self, headers: Sequence[BatchHeader]) -> list[BatchHeader]:
        """Return the batches that belong to aborted transactions."""
        ended: dict[int, list[AbortedTransaction]] = {}
        for one in self.partition.log.list_aborted_transactions(headers[0].base_offset, headers[-1].last_offset + 1):
            ended.setdefault(one.producer_id, []).append(one)
        return [header for header in headers if header.is_transactional and _is_aborted(header, ended)]

    def undo_acquisition(self, member_id: str, delivered_batches: DeliveredBatches) -> None:
        """Undo an acquisition whose records are not sent."""
        self.deliveries.undo_acquisition(member_id, delivered_batches.acquired)
        self._restart_lock_timer()
        self._wake_waiters()

    # --- what members say -------------------------------------------------------------------------

    def acknowledge_records(self, member_id: str, acknowledgements: Sequence[RangeAcknowledgement]) -> AppendWait:
        """Apply acknowledgements, all or none; return the wait until they are durable. Raises KafkaError."""
        now_ms = int(self._cluster.clock.monotonic_ms())
        changed = self.deliveries.acknowledge_records(member_id, acknowledgements, self.limits, now_ms)
        if changed:
            return self._persist_changed_batches(changed)
        self._restart_lock_timer()  # the locks may have been renewed
        return self._shares.coordinator.make_durability_wait(self.key.coordinator_key)

    def release_records_of_member(self, member_id: str) -> None:
        """Release the records of a member whose session has ended."""
        changed = self.deliveries.release_acquired_runs(self.limits, lambda run: run.member_id == member_id)
        if changed:
            self._persist_changed_batches_or_log_error(changed)

    def release_expired_locks(self, *, release_all: bool = False) -> None:
        """Release the records whose locks have ended, or all."""
        now_ms = self._cluster.clock.monotonic_ms()
        changed = self.deliveries.release_acquired_runs(
            self.limits, lambda run: release_all or run.lock_end_ms <= now_ms
        )
        if changed:
            log.info("%s: the locks of %d ranges of records have ended", self, len(changed))
            self._persist_changed_batches_or_log_error(changed)
        self._restart_lock_timer()

    def _persist_changed_batches_or_log_error(self, changed_batches: list[StateBatch]) -> None:
        try:
            self._persist_changed_batches(changed_batches)
        except KafkaError as error:
            log.error("%s cannot be kept: %s", self, error)

    def _persist_changed_batches(self, changed_batches: list[StateBatch]) -> AppendWait:
        """Write changed batches to the coordinator, and wake waiting fetches. Raises KafkaError, and closes itself.

        As in Kafka, the start offset moves afterwards: the coordinator learns of it with the next change.
        """
        deliveries, coordinator = self.deliveries, self._shares.coordinator
        start, done = deliveries.start_offset, deliveries.final_count
        try:
            coordinator.write_share_state(self.key, self._state_epoch, self.leader_epoch, start, done, changed_batches)
        except KafkaError:
            self._shares.close_share_partition(self)
            raise
        deliveries.drop_final_records()
        coordinator.call_when_durable(self.key.coordinator_key, self._close_or_write_dead_letters)
        self._restart_lock_timer()
        self._wake_waiters()
        return coordinator.make_durability_wait(self.key.coordinator_key)

    def _wake_waiters(self) -> None:
        for waiter in self.waiters:
            waiter.count_appended_bytes(self.partition, 0)

    def _close_or_write_dead_letters(self, failure: KafkaError | None) -> None:
        """After a change of state is written, write the dead letters of given-up records; after a failure, close."""
        if failure is not None:
            log.error("%s could not be kept: %s", self, failure)
            self._shares.close_share_partition(self)
        else:
            self._write_dead_letters()

    # --- dead letters -----------------------------------------------------------------------------

    def _resume_writing_dead_letters(self) -> None:
        """Write the dead letters that were still to be written when this share partition was closed."""
        limit = self.limits.deliveries
        for run in self.deliveries.list_runs():
            if run.state == DeliveryState.ARCHIVING:
                is_rejected = run.count < limit  # which is all that is known of the reason
                self.deliveries.given_up.append(GivenUpRecords(run.first, run.last, run.count, is_rejected))
        self._cluster.clock.call_later(0, self._write_dead_letters)

    def _write_dead_letters(self) -> None:
        """Write dead letters for the given-up records, whose state is durable now, and then archive them."""
        given_up, self.deliveries.given_up = self.deliveries.given_up, []
        if given_up and self._shares.find_share_partition(self.key) is self:
            archive = partial(self._archive_given_up_records, given_up)
            self._shares.dead_letters.write_dead_letters(self.key.group_id, self.partition, given_up, archive)

    def _archive_given_up_records(self, record_ranges: Sequence[GivenUpRecords]) -> None:
        if self._shares.find_share_partition(self.key) is self:
            changed = [batch for one in record_ranges for batch in self.deliveries.archive_offsets(one.first, one.last)]
            self._persist_changed_batches_or_log_error(changed)

    # --- locks ------------------------------------------------------------------------------------

    def _restart_lock_timer(self) -> None:
        """Start the timer for the first acquisition lock that ends."""
        self._cancel_lock_timer()
        end_ms = self.deliveries.find_next_lock_end_ms()
        if end_ms is not None:
            delay_ms = max(end_ms - self._cluster.clock.monotonic_ms(), 0) + 1
            self._timer = self._cluster.clock.call_later(delay_ms, self._release_expired_acquisitions)

    def _release_expired_acquisitions(self) -> None:
        self._timer = None
        self.release_expired_locks()

    def _cancel_lock_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close_and_wake_waiters(self) -> None:
        """Stop the lock timer, and let waiting fetches find the share partition anew."""
        self._cancel_lock_timer()
        for waiter in list(self.waiters):
            waiter.notify_partition_changed()


def _list_batch_headers(region: Region, last_needed_offset: int) -> list[tuple[int, BatchHeader]]:
    """Return position and header of the batches up to an offset, at least of one."""
    found: list[tuple[int, BatchHeader]] = []
    for position, header in iterate_headers(region.file, region.position, region.position + region.size_bytes):
        found.append((position, header))
        if header.last_offset >= last_needed_offset:
            break
    return found


def _is_aborted(header: BatchHeader, aborted_transactions: Mapping[int, Sequence[AbortedTransaction]]) -> bool:
    """Return whether a batch is of one of the `aborted_transactions`, which are by producer id, in order."""
    transactions = aborted_transactions.get(header.producer_id, ())
    index = bisect_right(transactions, header.base_offset, key=attrgetter("first_offset")) - 1
    return index >= 0 and not header.is_control and header.base_offset <= transactions[index].last_offset


def _cut_region_to_acquired(
    region: Region, headers: Sequence[tuple[int, BatchHeader]], acquired_records: Sequence[AcquiredRecords]
) -> Region:
    """Return the region from the first to the last batch with acquired records."""
    first, last = acquired_records[0].first, acquired_records[-1].last
    positions = [
        (position, position + header.size_bytes, header.last_offset)
        for position, header in headers
        if header.last_offset >= first and header.base_offset <= last
    ]
    start, end, next_offset = positions[0][0], positions[-1][1], positions[-1][2] + 1
    return Region(region.file, start, end - start, next_offset)


def translate_coordinator_error(error: KafkaError) -> KafkaError:
    """Return the error of the coordinator as clients of the partition see it, as in Kafka."""
    if error.code in (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ):
        return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
    if error.code == ErrorCode.FENCED_LEADER_EPOCH:
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message)
    return error
