"""Periodic chores, which run in short slices, however busy the broker is.

They delete old segments, flush logs, write checkpoints, expire inactive producers, the offsets of groups and delegation
tokens, prune the states of share groups, and elect preferred replicas. `storage` does the work on each log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from minibroker.broker.assembly import Broker
from minibroker.broker.clock import Then, process_items_in_slices
from minibroker.broker.control.elections import elect_preferred_leaders
from minibroker.broker.metadata.partitions import GROUPS_TOPIC, SHARE_STATE_TOPIC, Partition
from minibroker.broker.upkeep.partition_chores import run_chore_on_each_partition
from minibroker.protocol.errors import KafkaError
from minibroker.storage.checkpoints.checkpoint_texts import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)
from minibroker.storage.log_settings import COMPACT

log = logging.getLogger("minibroker.housekeeping")

SHORTEST_INTERVAL_MS = 10  # Kafka allows some intervals to be 0, and would then do nothing else
DELAY = "log.initial.task.delay.ms"
# How often to check for due flushes, unless log.flush.scheduler.interval.ms is set or a topic's flush.ms is shorter.
# Kafka never checks then: a topic's flush.ms has no effect there without the broker's setting.
FLUSH_LOOK_MS = 1000
UNSET = (1 << 63) - 1


def delete_old_segments(partition: Partition) -> None:
    """Delete expired segments, and wake readers, whose offsets may be gone."""
    try:
        deleted = partition.log.delete_old_segments()
    except KafkaError as error:
        log.error("%s: old segments stay: %s", partition, error)
        return
    if deleted:
        partition.wake_all_waiters()


class Housekeeping:
    """The chores of a cluster. None runs before `start_chores`."""

    def __init__(self, cluster: Broker) -> None:
        self._cluster = cluster

    def start_chores(self) -> None:
        """Run each chore at its interval; those on files begin after `log.initial.task.delay.ms` instead."""
        self._repeat_chore(
            "log.retention.check.interval.ms",
            self._make_partition_chore(self.delete_old_segments),
            first_delay_setting=DELAY,
        )
        self._repeat_chore(
            "log.flush.offset.checkpoint.interval.ms",
            self._make_checkpoint_chore(RECOVERY_POINT_CHECKPOINT),
            first_delay_setting=DELAY,
        )
        begins = self._make_checkpoint_chore(LOG_START_OFFSET_CHECKPOINT)
        self._repeat_chore("log.flush.start.offset.checkpoint.interval.ms", begins, first_delay_setting=DELAY)
        self._call_after_delay(self._cluster.settings[DELAY], self._flush_due_logs_repeatedly)
        self._repeat_chore(
            "replica.high.watermark.checkpoint.interval.ms", self._make_checkpoint_chore(REPLICATION_OFFSET_CHECKPOINT)
        )
        self._repeat_chore(
            "producer.id.expiration.check.interval.ms", self._make_partition_chore(self.remove_expired_producers)
        )
        self._repeat_chore("offsets.retention.check.interval.ms", self._expire_offsets)
        self._repeat_chore("share.coordinator.state.topic.prune.interval.ms", self._prune_share_states)
        self._repeat_chore("leader.imbalance.check.interval.seconds", self._elect_preferred_leaders, unit_ms=1000)
        if self._cluster.image.tokens.are_enabled:
            self._repeat_chore("delegation.token.expiry.check.interval.ms", self._remove_expired_tokens)

    # --- chores ---------------------------------------------------------------------------------

    def delete_old_segments(self, partition: Partition) -> None:
        """Delete expired segments. In compacted logs the cleaner does that, between two cleanings."""
        if COMPACT not in partition.log.settings.cleanup_policy:
            delete_old_segments(partition)

    def remove_expired_producers(self, partition: Partition) -> None:
        """Remove producers that were inactive for `producer.id.expiration.ms`."""
        after_ms = self._cluster.settings["producer.id.expiration.ms"]
        partition.log.producers.remove_expired_producers(self._cluster.clock.wall_ms(), after_ms)

    def flush_log_if_due(self, partition: Partition) -> None:
        """Sync a log whose last flush began `flush.ms` ago, if it has grown since."""
        kept = partition.log
        waited_ms = self._cluster.clock.wall_ms() - kept.flushed_ms
        if waited_ms >= kept.settings.flush_ms and kept.recovery_point < kept.log_end_offset:
            kept.flush_soon()

    def _expire_offsets(self, callback: Then) -> None:
        """Delete expired offsets and empty groups, then call `callback`."""
        if GROUPS_TOPIC not in self._cluster.image.topics:
            callback()
            return
        from minibroker.broker.groups.group_expiry import expire_offsets_of_all_groups

        expire_offsets_of_all_groups(self._cluster.groups, callback)

    def _prune_share_states(self, callback: Then) -> None:
        """Delete replaced records of share states, then call `callback`."""
        if SHARE_STATE_TOPIC not in self._cluster.image.topics:
            callback()
            return
        partitions = self._cluster.share_states.log.iterate_local_partitions()
        process_items_in_slices(self._cluster.clock, self._prune_share_state_records, partitions, callback)

    def _prune_share_state_records(self, partition: Partition) -> None:
        try:
            self._cluster.share_states.prune_share_state_records(partition)
        except KafkaError as error:
            log.error("%s: superseded records stay: %s", partition, error)

    def _elect_preferred_leaders(self, callback: Then) -> None:
        """Elect preferred leaders where `auto.leader.rebalance.enable` asks for it, then call `callback`."""
        if self._cluster.settings["auto.leader.rebalance.enable"]:
            process_items_in_slices(
                self._cluster.clock,
                self._elect_preferred_leaders_of,
                self._cluster.iterate_partition_portions(),
                callback,
            )
        else:
            callback()

    def _elect_preferred_leaders_of(self, partitions: list[Partition]) -> None:
        try:
            elect_preferred_leaders(self._cluster, partitions)
        except KafkaError as error:
            log.error("leaders stay as they are: %s", error)

    def _remove_expired_tokens(self, callback: Then) -> None:
        """Remove expired delegation tokens, then call `callback`."""
        tokens = iter(list(self._cluster.image.tokens.by_id))
        process_items_in_slices(self._cluster.clock, self._remove_token_if_expired, tokens, callback)

    def _remove_token_if_expired(self, token_id: str) -> None:
        from minibroker.broker.control.token_changes import remove_token_if_expired  # most clusters have no tokens

        try:
            remove_token_if_expired(self._cluster, token_id)
        except KafkaError as error:
            log.error("the delegation token %s stays: %s", token_id, error)

    def _make_checkpoint_chore(self, checkpoint: str) -> Callable[[Then], None]:
        """Return a chore that writes the checkpoint files of this name."""

        def write_checkpoint(callback: Then) -> None:
            self._cluster.logs.write_checkpoint_soon(checkpoint)
            callback()

        return write_checkpoint

    # --- when -----------------------------------------------------------------------------------

    def _make_partition_chore(self, chore: Callable[[Partition], None]) -> Callable[[Then], None]:
        """Return a chore that calls `chore` for each partition with an open log here."""
        return lambda then: run_chore_on_each_partition(self._cluster, chore, then)

    def _repeat_chore(
        self, interval_setting: str, work: Callable[[Then], None], first_delay_setting: str = "", unit_ms: int = 1
    ) -> None:
        """Call `work(then)` at the interval that `interval_setting` names; it calls `then` when it is done.

        `first_delay_setting` is the setting with the time until the first call, if that is another.
        """

        def run_chore() -> None:
            work(run_chore_later)

        def run_chore_later() -> None:
            self._call_after_delay(self._cluster.settings[interval_setting] * unit_ms, run_chore)

        if first_delay_setting:
            self._call_after_delay(self._cluster.settings[first_delay_setting], run_chore)
        else:
            run_chore_later()

    def _flush_due_logs_repeatedly(self) -> None:
        def schedule_next_flush() -> None:
            self._call_after_delay(self._get_flush_interval_ms(), self._flush_due_logs_repeatedly)

        run_chore_on_each_partition(self._cluster, self.flush_log_if_due, schedule_next_flush)

    def _get_flush_interval_ms(self) -> int:
        """Return the time until the next check for due flushes."""
        interval_ms: int = self._cluster.settings["log.flush.scheduler.interval.ms"]
        if interval_ms != UNSET:
            return interval_ms
        return min([FLUSH_LOOK_MS, *(topic.settings.flush_ms for topic in self._cluster.image.topics.values())])

    def _call_after_delay(self, delay_ms: int, callback: Then) -> None:
        self._cluster.clock.call_later(max(delay_ms, SHORTEST_INTERVAL_MS), callback)
