"""Topics and partitions in memory, built from the metadata log.

The controller changes them; `storage` has their logs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.records.batch import BatchHeader
from minibroker.storage.log_settings import MAX_LONG, LogSettings

if TYPE_CHECKING:
    from minibroker.storage.log import Log

NO_LEADER: Final = -1
NO_EPOCH: Final = -1
COLLECTED_BYTES: Final = 16 << 10  # a larger batch is written at once, as copying it would cost more than a write
MAXIMUM_NAME_LENGTH: Final = 249
LEGAL_NAME: Final = r"[a-zA-Z0-9._-]+"
GROUPS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
SHARE_STATE_TOPIC: Final = "__share_group_state"
INTERNAL_TOPICS: Final = frozenset({GROUPS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC})
METADATA_TOPIC: Final = "__cluster_metadata"


class Waiter(Protocol):
    """A delayed fetch that an append may complete, or records that other members of a share group release."""

    def count_appended_bytes(self, partition: Partition, size_bytes: int) -> None:
        """Note that `size_bytes` of new records of the partition are readable, or that others released records."""

    def on_turn_ended(self) -> None:
        """Check whether enough records were appended in the turn of the loop that ends."""

    def notify_partition_changed(self) -> None:
        """Check again, as the partition was deleted or has a new leader."""


class Turn(Protocol):
    """The current turn of the loop, to which a partition reports its appends."""

    @property
    def may_delay_appends(self) -> bool:
        """Return whether small appends may wait for the end of the turn."""

    def write_log_at_turn_end(self, partition: Partition, size_bytes: int) -> None:
        """Write the partition's log at the end of the turn, and then wake those who wait for its records."""


class Partition:
    """A partition. `leader_id` is NO_LEADER while none of its replicas' nodes is running.

    It has a `log` only if `has_local_log`: in a cluster that ran in several processes, all replicas may be elsewhere.
    `eligible_leader_replicas` are those that may lead although they are not in sync, `last_known_elr` the one that led
    before there were none (KIP-966). While a reassignment is under way, `adding_replicas` and `removing_replicas` are
    those of the `replicas` that come and go (KIP-455). `directories` has the id of the log directory of each replica,
    zeros where it is not known (KIP-858).
    """

    __slots__ = (
        "adding_replicas",
        "directories",
        "eligible_leader_replicas",
        "index",
        "isr",
        "last_known_elr",
        "leader_epoch",
        "leader_id",
        "log",
        "partition_epoch",
        "removing_replicas",
        "replicas",
        "topic",
        "waiters",
    )

    log: Log

    def __init__(self, topic: Topic, index: int, replicas: list[int], isr: list[int], leader_id: int) -> None:
        self.topic = topic
        self.index = index
        self.replicas = replicas
        self.isr = isr
        self.leader_id = leader_id
        self.leader_epoch = 0
        self.partition_epoch = 0
        self.eligible_leader_replicas: list[int] = []
        self.last_known_elr: list[int] = []
        self.adding_replicas: list[int] = []
        self.removing_replicas: list[int] = []
        self.directories: list[bytes] = []
        self.waiters: set[Waiter] = set()

    def __repr__(self) -> str:
        return f"{self.topic.name}-{self.index}"

    @property
    def has_local_log(self) -> bool:
        """Return whether the log is in this process, as a leader's always is."""
        return hasattr(self, "log")

    @property
    def is_offline(self) -> bool:
        """Return whether the log is in this process and offline, so that no replica here can lead."""
        return self.has_local_log and bool(self.log.offline)

    @property
    def is_reassigning(self) -> bool:
        """Return whether a reassignment is in progress."""
        return bool(self.adding_replicas or self.removing_replicas)

    def get_directory_ids(self) -> dict[int, bytes]:
        """Return the recorded ids of log directories by replica."""
        return dict(zip(self.replicas, self.directories, strict=False))

    @property
    def is_under_min_isr(self) -> bool:
        """Return whether fewer replicas are in sync than min.insync.replicas.

        As in Kafka, a partition with fewer replicas than that needs all of them.
        """
        return len(self.isr) < self.topic.min_insync_replicas and len(self.isr) < len(self.replicas)

    def check_min_isr(self) -> None:
        """Raise KafkaError(NOT_ENOUGH_REPLICAS) below min.insync.replicas, as for acks=all."""
        if self.is_under_min_isr:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, f"{self} has {len(self.isr)} in-sync replica(s).")

    def hold_high_watermark_while_under_min_isr(self) -> None:
        """Let consumers see new records only while enough replicas are in sync (KIP-966); wake them if there are."""
        held = self.is_under_min_isr
        if self.has_local_log and self.log.is_watermark_held != held:
            self.log.hold_or_release_high_watermark(is_held=held)
            if not held:
                self.wake_all_waiters()

    def append_batches(self, turn: Turn, records: memoryview | bytearray, headers: Sequence[BatchHeader]) -> int:
        """Append validated batches, wake those who wait for them, and return the first offset.

        A small batch is written at the end of the turn; answers that report it wait for that, and so do readers.
        Raises KafkaError(KAFKA_STORAGE_ERROR).
        """
        if turn.may_delay_appends and len(records) <= COLLECTED_BYTES and len(headers) == 1:
            offset = self.log.append_to_pending_batches(records, headers[0], self.leader_epoch)
            if offset >= 0:
                turn.write_log_at_turn_end(self, len(records))
                return offset
        offset = self.log.append(records, headers, self.leader_epoch)
        if self.waiters:  # a marker makes earlier records stable, however many
            self.notify_waiters_of_records(MAX_LONG if headers[0].is_control else len(records))
        return offset

    def notify_waiters_of_records(self, size_bytes: int) -> None:
        """Notify those who wait for records of `size_bytes` more."""
        for waiter in self.waiters:
            waiter.count_appended_bytes(self, size_bytes)

    def check_leader_epoch(self, epoch: int) -> None:
        """Check the leader epoch that a client sends, -1 for none (KIP-320).

        Raises KafkaError: FENCED_LEADER_EPOCH for an older epoch, UNKNOWN_LEADER_EPOCH for a newer one.
        """
        if epoch in (NO_EPOCH, self.leader_epoch):
            return
        code = ErrorCode.FENCED_LEADER_EPOCH if epoch < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        raise KafkaError(code, f"{self} is in leader epoch {self.leader_epoch}, not {epoch}.")

    def find_end_offset_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (epoch, end offset) of the largest epoch at or below `epoch`, (-1, -1) if there is none (KIP-101).

        The log records an epoch with its first record; the leader's epoch begins earlier, at the log's end.
        """
        log = self.log
        known = log.leader_epoch
        if epoch == self.leader_epoch:
            return epoch, log.log_end_offset
        if known == NO_EPOCH != epoch and epoch < self.leader_epoch:
            return epoch, log.log_end_offset  # the leader's epoch is the first one
        if known < epoch < self.leader_epoch:
            return known, log.log_end_offset
        return log.find_end_offset_of_epoch(epoch)

    def wake_all_waiters(self) -> None:
        """Tell everything that waits at the partition to check again."""
        for waiter in list(self.waiters):
            waiter.notify_partition_changed()


class Topic:
    """A topic.

    `topic_id` is 16 raw bytes, `overrides` has its own configs as text, and `settings` those of its logs.
    """

    __slots__ = ("internal", "min_insync_replicas", "name", "overrides", "partitions", "settings", "topic_id")

    settings: LogSettings
    min_insync_replicas: int

    def __init__(self, name: str, topic_id: bytes) -> None:
        self.name = name
        self.topic_id = topic_id
        self.internal = name in INTERNAL_TOPICS
        self.overrides: dict[str, str] = {}
        self.partitions: list[Partition] = []

    def copy_topic(self) -> Topic:
        """Return another topic with the same partitions, to which more may be added."""
        copy = Topic(self.name, self.topic_id)
        copy.overrides = self.overrides
        copy.partitions = list(self.partitions)
        return copy

    def find_partition(self, index: int) -> Partition | None:
        """Return the partition with this number, or None."""
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


def check_topic_name(name: str) -> None:
    """Raise KafkaError(INVALID_TOPIC_EXCEPTION) for a name that Kafka does not allow."""
    reason = None
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > MAXIMUM_NAME_LENGTH:
        reason = f"the length of '{name}' is longer than the max allowed length {MAXIMUM_NAME_LENGTH}"
    elif not re.fullmatch(LEGAL_NAME, name):
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def make_metric_collision_key(name: str) -> str:
    """Return a key that is equal for names that collide in metric names, as they differ only in '.' and '_'."""
    return name.replace(".", "_")
