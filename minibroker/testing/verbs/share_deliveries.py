"""What was delivered to share groups, for tests: from the share partitions, and from `__share_group_state` (KIP-932).

A share partition keeps only the records in flight. What has been settled before is in the coordinator's log, as long as
that is not pruned. What only a call needs is imported when it comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from minibroker.broker.metadata.partitions import SHARE_STATE_TOPIC
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.testing.seen.log_reading import Record, iterate_records

if TYPE_CHECKING:
    from minibroker.broker.assembly import Broker
    from minibroker.broker.groups.share.share_group import ShareGroup
    from minibroker.broker.share.runs import StateBatch
    from minibroker.broker.share.states import ShareKey
    from minibroker.testing.embedded.embedded_broker import EmbeddedBroker


class Delivery(NamedTuple):
    """Records of a partition, from the offset `first` to `last`, with the same state and number of deliveries.

    `state` is "acquired" (by `member`), "available" (released, or its lock has ended), "acknowledged", "archived"
    (rejected, or delivered as often as the group allows), or "archiving" until its dead letter is written.
    """

    topic: str
    partition: int
    first: int
    last: int
    state: str
    deliveries: int
    member: str | None = None

    def __str__(self) -> str:
        """Describe the delivery in a line."""
        by = "" if self.member is None else f" by {self.member}"
        where = f"{self.topic}-{self.partition} offsets {self.first} to {self.last}"
        return f"{where}: delivered {self.deliveries} times, {self.state}{by}"


class DeliveryHistory:
    """The states of share partitions as `__share_group_state` has them, those of settled records included.

    The log is read from where the last reading ended, and after a reset or a restart from its start.
    """

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker
        self._cluster: Broker | None = None
        self._positions: dict[int, int] = {}
        self._known: dict[ShareKey, tuple[int, tuple[StateBatch, ...]]] = {}  # the state epoch, and the batches

    def list_deliveries(self, group_id: str, topic: str | None = None) -> list[Delivery]:
        """Return what was delivered to a share group, of one topic or all, in order. Raises KafkaError."""
        cluster = self._broker.running.cluster
        if cluster is not self._cluster:
            self._cluster, self._positions, self._known = cluster, {}, {}
        group = find_share_group(cluster, group_id)
        return [
            delivery
            for key, name in (() if group is None else iterate_share_keys(group))
            if topic in (None, name)
            for delivery in self._iterate_deliveries_of_partition(cluster, key, name)
        ]

    def _iterate_deliveries_of_partition(self, cluster: Broker, key: ShareKey, name: str) -> Iterator[Delivery]:
        """Yield what was delivered of a share partition: settled ranges, then current ones."""
        from minibroker.broker.share.runs import DeliveryState

        share = cluster.shares.find_share_partition(key)
        for first, last, state, count in self._get_state_batches(cluster, key):
            if share is not None:
                last = min(last, share.deliveries.start_offset - 1)
            if count and first <= last:
                yield Delivery(name, key.partition, first, last, DeliveryState(state).name.lower(), count)
        for run in () if share is None else share.deliveries.list_runs():
            if run.count:
                state_name = run.state.name.lower()
                yield Delivery(name, key.partition, run.first, run.last, state_name, run.count, run.member_id or None)

    def _get_state_batches(self, cluster: Broker, key: ShareKey) -> tuple[StateBatch, ...]:
        """Return a share partition's state batches, after reading the coordinator's new records."""
        log = cluster.share_states.log
        partition = (
            None if log.topic is None else log.topic.find_partition(log.get_partition_index(key.coordinator_key))
        )
        if partition is not None and partition.has_local_log:
            for record in iterate_records(partition, self._positions.get(partition.index, 0)):
                self._positions[partition.index] = record.offset + 1
                self._apply_state_record(record)
        return self._known.get(key, (0, ()))[1]

    def _apply_state_record(self, record: Record) -> None:
        """Apply a record to the state batches as the coordinator does, but keep those before the start offset."""
        from minibroker.broker.share.states import ShareKey, combine_state_batches, parse_state_batches
        from minibroker.protocol.messages.share_state_records import (
            ShareSnapshotKey,
            ShareSnapshotValue,
            ShareUpdateKey,
            ShareUpdateValue,
        )
        from minibroker.protocol.records.internal import decode_internal_record

        named, value = decode_internal_record(SHARE_STATE_TOPIC, record.key, record.value)
        key = named.message
        assert isinstance(key, ShareSnapshotKey | ShareUpdateKey)
        share_key = ShareKey(key.group_id, key.topic_id, key.partition)
        if value is None:
            self._known.pop(share_key, None)
            return
        message = value.message
        assert isinstance(message, ShareSnapshotValue | ShareUpdateValue)
        epoch, before = self._known.get(share_key, (0, ()))
        if isinstance(message, ShareSnapshotValue) and message.state_epoch != epoch:
            epoch, before = message.state_epoch, ()  # somebody has set the start offset: deliveries are counted anew
        self._known[share_key] = epoch, combine_state_batches([*before, *parse_state_batches(message.state_batches)], 0)


def find_share_group(cluster: Broker, group_id: str) -> ShareGroup | None:
    """Return a share group, None if there is no group.

    Raises KafkaError(GROUP_ID_NOT_FOUND) for a group of another type.
    """
    from minibroker.broker.groups.share.share_group import ShareGroup

    group = cluster.groups.groups.get(group_id)
    if group is not None and not isinstance(group, ShareGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} is a {group.type} group")
    return group


def iterate_share_keys(group: ShareGroup) -> Iterator[tuple[ShareKey, str]]:
    """Yield the share partitions of a group, with the names of their topics, in order."""
    from minibroker.broker.share.states import ShareKey

    for topic_id, (name, indexes) in sorted(group.initialized.items(), key=lambda each: each[1][0]):
        for index in sorted(indexes):
            yield ShareKey(group.group_id, topic_id, index), name


def find_start_offset(cluster: Broker, key: ShareKey) -> int | None:
    """Return the first offset of a share partition that is not settled; None if nothing was delivered yet."""
    share = cluster.shares.find_share_partition(key)
    if share is not None:
        return share.deliveries.start_offset
    known = cluster.share_states.states.get(key.coordinator_key)
    if known is None or known[1].start_offset < 0:
        return None
    state = known[1]
    from minibroker.broker.share.deliveries import Deliveries

    return Deliveries(state.start_offset, state.batches).start_offset  # which passes over what is settled
