"""A share partition on its leader: deliveries, their locks, and what is kept of them (KIP-932).

What `Deliveries` changes is sent to the share coordinator before anybody is answered. If that fails, the share
partition is given up, and read from the coordinator again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from minibroker.broker.clock import Timer
from minibroker.broker.configs.group_settings import group_value
from minibroker.broker.metadata.partitions import Partition, Waiter
from minibroker.broker.requests.turn import Wait
from minibroker.broker.share.deliveries import Acquired, Deliveries, DeliveryState, Limits, StateBatch
from minibroker.broker.share.states import ShareKey, ShareState
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.records.batch import BatchHeader
from minibroker.storage.batch_scanning import headers
from minibroker.storage.segment import Region

if TYPE_CHECKING:
    from minibroker.broker.share.share_partitions import SharePartitions

log = logging.getLogger("minibroker.share")

READ_COMMITTED = "read_committed"


class Acknowledgement(NamedTuple):
    """What a member says of the records `first` to `last`: one type for all, or one for each offset."""

    first: int
    last: int
    types: Sequence[int]


class Delivered(NamedTuple):
    """Records for a member: the batches that they are in, and which of them it has acquired."""

    region: Region
    acquired: list[Acquired]


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

    def __repr__(self) -> str:
        return f"{self.partition} for share group {self.key.group_id}"

    @property
    def limits(self) -> Limits:
        """Return the group's limits, as they are now."""
        return Limits(
            self._value("share.delivery.count.limit"),
            self._value("share.partition.max.record.locks"),
            self._value("share.record.lock.duration.ms"),
        )

    def _value(self, name: str) -> int:
        return int(group_value(self._cluster, self.key.group_id, name))

    # --- delivering -------------------------------------------------------------------------------

    def read(self, max_bytes: int) -> Region | None:
        """Return the batches with the next records that can be acquired, or None. Raises KafkaError."""
        log_start, deliveries = self.partition.log.log_start_offset, self.deliveries
        if deliveries.begin_at(log_start):
            self._keep([])
        if not deliveries.has_room(self.limits):
            return None
        return self.partition.log.read(deliveries.next_offset(), max_bytes, limit_offset=self._limit())

    def _limit(self) -> int:
        kept = self.partition.log
        return kept.last_stable_offset if self._is_committed() else kept.high_watermark

    def _is_committed(self) -> bool:
        return bool(group_value(self._cluster, self.key.group_id, "share.isolation.level") == READ_COMMITTED)

    def acquire(
        self, member_id: str, region: Region, max_records: int, batch_size: int, *, strict: bool
    ) -> Delivered | None:
        """Acquire records of the batches that `read` returned. Raises KafkaError."""
        found = list(headers(region.file, region.position, region.position + region.size_bytes))
        bounds = [(header.base_offset, header.last_offset) for _, header in found]
        now_ms = int(self._cluster.clock.monotonic_ms())
        deliveries, start = self.deliveries, self.deliveries.start_offset
        acquired = deliveries.acquire(member_id, bounds, self.limits, now_ms, max_records, batch_size, strict=strict)
        changed: list[StateBatch] = []
        if self._is_committed():
            acquired, changed = self._without_aborted(acquired, [header for _, header in found], region)
        if changed or deliveries.start_offset != start:
            self._keep(changed)
        self._arm()
        return None if not acquired else Delivered(_cut(region, found, acquired), acquired)

    def _without_aborted(
        self, acquired: list[Acquired], found: list[BatchHeader], region: Region
    ) -> tuple[list[Acquired], list[StateBatch]]:
        """Archive records of aborted transactions; return what is left, and what has changed."""
        aborted = self.partition.log.aborted_transactions(found[0].base_offset, region.next_offset)
        changed: list[StateBatch] = []
        for header in found:
            if (
                header.is_transactional
                and not header.is_control
                and any(
                    one.producer_id == header.producer_id and one.first_offset <= header.base_offset <= one.last_offset
                    for one in aborted
                )
            ):
                changed += self.deliveries.archive(header.base_offset, header.last_offset)
        if not changed:
            return acquired, changed
        first, last = acquired[0].first, acquired[-1].last
        left = [
            Acquired(run.first, run.last, run.count)
            for run in self.deliveries.runs()
            if run.state == DeliveryState.ACQUIRED and first <= run.first and run.last <= last
        ]
        return left, changed

    # --- what members say -------------------------------------------------------------------------

    def acknowledge(self, member_id: str, said: Sequence[Acknowledgement]) -> Wait:
        """Apply acknowledgements, all or none; return what to wait for before it is answered. Raises KafkaError."""
        limits, now_ms, start = self.limits, int(self._cluster.clock.monotonic_ms()), self.deliveries.start_offset
        before = self.deliveries.copy()
        changed: list[StateBatch] = []
        try:
            for one in (each for each in said if each.last >= start):  # no more than there are records in flight
                changed += self.deliveries.acknowledge(member_id, *one, limits, now_ms)
        except KafkaError:
            self.deliveries = before
            raise
        if changed:
            return self._keep(changed)
        self._arm()  # the locks may have been renewed
        return self._shares.coordinator.wait(self.key.text)

    def release(self, member_id: str) -> None:
        """Release the records of a member whose session has ended."""
        changed = self.deliveries.release(self.limits, lambda run: run.member_id == member_id)
        if changed:
            self._keep_or_give_up(changed)

    def expire_locks(self, *, all_of_them: bool = False) -> None:
        """Release the records whose locks have ended, or all."""
        now_ms = self._cluster.clock.monotonic_ms()
        changed = self.deliveries.release(self.limits, lambda run: all_of_them or run.lock_end_ms <= now_ms)
        if changed:
            log.info("%s: the locks of %d ranges of records have ended", self, len(changed))
            self._keep_or_give_up(changed)
        self._arm()

    def _keep_or_give_up(self, changed: list[StateBatch]) -> None:
        try:
            self._keep(changed)
        except KafkaError as error:
            log.error("%s cannot be kept: %s", self, error)

    def _keep(self, changed: list[StateBatch]) -> Wait:
        """Send what has changed to the coordinator, and wake who waits. Raises KafkaError, and is given up then.

        As in Kafka, the start offset moves afterwards: the coordinator learns of it with the next change.
        """
        deliveries, coordinator = self.deliveries, self._shares.coordinator
        start, done = deliveries.start_offset, deliveries.final_count
        try:
            coordinator.write(self.key, self._state_epoch, self.leader_epoch, start, done, changed)
        except KafkaError:
            self._shares.give_up(self)
            raise
        deliveries.settle()
        coordinator.when_durable(self.key.text, self._kept)
        self._arm()
        for waiter in list(self.waiters):
            self._cluster.turn.wake_soon(waiter)
        return coordinator.wait(self.key.text)

    def _kept(self, failure: KafkaError | None) -> None:
        if failure is not None:
            log.error("%s could not be kept: %s", self, failure)
            self._shares.give_up(self)

    # --- locks ------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Wait for the first lock to end."""
        self._disarm()
        end_ms = self.deliveries.next_lock_end_ms()
        if end_ms is not None:
            delay_ms = max(end_ms - self._cluster.clock.monotonic_ms(), 0) + 1
            self._timer = self._cluster.clock.call_later(delay_ms, self._due)

    def _due(self) -> None:
        self._timer = None
        self.expire_locks()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """End it: who waits looks again, and finds out why."""
        self._disarm()
        for waiter in list(self.waiters):
            waiter.changed()


def _cut(region: Region, found: Sequence[tuple[int, BatchHeader]], acquired: Sequence[Acquired]) -> Region:
    """Return the batches of a region that have acquired records, and those between."""
    first, last = acquired[0].first, acquired[-1].last
    positions = [
        (position, position + header.size_bytes, header.last_offset)
        for position, header in found
        if header.last_offset >= first and header.base_offset <= last
    ]
    start, end, next_offset = positions[0][0], positions[-1][1], positions[-1][2] + 1
    return Region(region.file, start, end - start, next_offset)


def refused(error: KafkaError) -> KafkaError:
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
