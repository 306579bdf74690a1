"""Changes of committed offsets: recorded first, then applied, and answered once the record is kept.

What may be changed by whom is checked before, by each kind of group and by the handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from struct import Struct
from typing import TYPE_CHECKING, Final

from minibroker.broker.groups.group_entries import EMPTY_STRING, encode_offset_entries, encode_offset_entry
from minibroker.broker.groups.offsets_of_group import NO_EXPIRY, CommittedOffset
from minibroker.broker.metadata.partitions import COLLECTED_BYTES
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.records.batch import (
    CRC_START,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TIMESTAMPS_END,
    TIMESTAMPS_POSITION,
    BatchHeader,
)
from minibroker.protocol.records.building import assemble_plain_batch
from minibroker.protocol.records.crc import crc32c
from minibroker.protocol.steps import FEW_ITEMS, Steps

if TYPE_CHECKING:
    from minibroker.broker.coordination.coordinator_logs import Entry
    from minibroker.broker.groups.group import Group
    from minibroker.broker.groups.group_coordinator import GroupCoordinator

CommittedPartition = tuple[str, int, CommittedOffset]  # topic, partition, what is committed for it
SAID: Final = Struct(">qiBq")  # offset, leader epoch, metadata and time of the commit, as they lie in a record
MARK: Final = CommittedOffset(-0x0101010101010102, -0x01010102, "", -0x0101010101010102)  # no text has such bytes


def commit_offsets(
    coordinator: GroupCoordinator,
    group_id: str,
    offsets: Sequence[CommittedPartition],
    check_commit_allowed: Callable[[], None],
    producer: tuple[int, int] | None = None,
) -> Steps[None]:
    """Record (topic, partition, offset) for a group, all or none; create the group if there is none.

    With a `producer` (id and epoch) they are part of its transaction, and pending until that ends.
    `check_commit_allowed` is called in the last step, in which all that changes is changed; nothing is if it raises.
    Raises KafkaError with the code for the client.
    """
    batch = yield from _build_offsets_batch_in_steps(coordinator, group_id, offsets, producer)
    check_commit_allowed()
    if batch is not None:
        _append_and_apply_offsets(coordinator, group_id, offsets, batch, producer)


class CommitTemplate:
    """The batch of a commit for the same partitions again, without metadata: only offsets, epochs and time are new."""

    __slots__ = ("_group_id", "_pack", "_topic_ids", "_values", "_where")

    def __init__(self, coordinator: GroupCoordinator, group_id: str, offsets: Sequence[CommittedPartition]) -> None:
        """Raise ValueError if a batch of these cannot be made so."""
        self._group_id = group_id
        self._where = [(topic, partition) for topic, partition, _ in offsets]
        self._topic_ids = [committed.topic_id for _, _, committed in offsets]
        marked = [
            (*where, MARK._replace(topic_id=each)) for where, each in zip(self._where, self._topic_ids, strict=True)
        ]
        batch = bytes(coordinator.log.build_batch(encode_offset_entries(group_id, marked)))
        pieces = batch.split(SAID.pack(MARK.offset, MARK.leader_epoch, EMPTY_STRING, MARK.commit_timestamp_ms))
        if len(pieces) != len(offsets) + 1 or len(batch) > COLLECTED_BYTES:
            raise ValueError(f"{len(pieces)} pieces, {len(batch)} bytes")
        head, rest = pieces[0][CRC_START:TIMESTAMPS_POSITION], pieces[0][TIMESTAMPS_END:]
        self._pack = Struct(f">{len(head)}sqq" + "qiBq".join(f"{len(piece)}s" for piece in (rest, *pieces[1:]))).pack
        self._values: list[bytes | int] = [head, 0, 0, rest]
        for piece in pieces[1:]:
            self._values += (0, 0, EMPTY_STRING, 0, piece)

    def append_and_apply_offsets(
        self, coordinator: GroupCoordinator, group: Group, offsets: Sequence[int], epochs: Sequence[int]
    ) -> None:
        """Record an offset and a leader epoch for each partition. Raises KafkaError with the code for the client."""
        now_ms, count = coordinator.cluster.clock.wall_ms(), len(self._where)
        values = self._values
        values[1] = values[2] = now_ms
        if count == 1:  # which are most: a list of one takes more time than what is in it
            values[4], values[5], values[7] = offsets[0], epochs[0], now_ms
        else:
            values[4::5], values[5::5], values[7::5] = offsets, epochs, [now_ms] * count
        body: bytes = self._pack(*values)
        crc = crc32c(body)
        batch = assemble_plain_batch(body, crc)
        # As `build_plain_batch` has written it; reading it again takes three times as long.
        fields = 0, len(batch) - LOG_OVERHEAD_BYTES, -1, MAGIC, crc, 0, count - 1, now_ms, now_ms, -1, -1, -1, count
        coordinator.append_batch(self._group_id, batch, header=tuple.__new__(BatchHeader, fields))
        if count == 1:
            topic, partition = self._where[0]
            one = tuple.__new__(CommittedOffset, (offsets[0], epochs[0], "", now_ms, NO_EXPIRY, self._topic_ids[0]))
            group.offsets.apply_offset(topic, partition, one)
            return
        committed = zip(offsets, epochs, repeat(""), repeat(now_ms), repeat(NO_EXPIRY), self._topic_ids)
        group.offsets.apply_offsets_of_partitions(self._where, map(tuple.__new__, repeat(CommittedOffset), committed))


def _append_and_apply_offsets(
    coordinator: GroupCoordinator,
    group_id: str,
    offsets: Sequence[CommittedPartition],
    batch: memoryview,
    producer: tuple[int, int] | None,
) -> None:
    """Append the batch, and apply its offsets: as committed ones, or with a `producer` (id, epoch) as pending ones."""
    coordinator.append_batch(group_id, batch, producer)
    if producer is not None:
        shard = coordinator.get_shard_of_coordinator_key(group_id)
        for topic, partition, committed in offsets:
            shard.add_pending_offset(producer[0], group_id, topic, partition, committed)
        return
    group = coordinator.groups.get(group_id) or coordinator.find_or_make_classic_group(group_id)
    group.offsets.apply_offsets(offsets)


def _build_offsets_batch_in_steps(
    coordinator: GroupCoordinator,
    group_id: str,
    offsets: Sequence[CommittedPartition],
    producer: tuple[int, int] | None,
) -> Steps[memoryview | None]:
    """Build the batch that records the offsets, for `append_batch`; None if there are no offsets.

    Raises KafkaError as soon as they are more, uncompressed, than a batch has room for, as Kafka answers that.
    """
    if not offsets:
        return None
    topic = coordinator.log
    entries: list[Entry] = []
    size_bytes = HEADER_BYTES
    limit_bytes = topic.get_partition(topic.get_partition_index(group_id)).log.settings.max_message_bytes
    for offset in offsets:
        key, value = encode_offset_entry(group_id, *offset)
        entries.append((key, value))
        size_bytes += len(key) + len(value or b"")
        if size_bytes > limit_bytes:
            message = f"The offsets of {len(offsets)} partitions take more than the {limit_bytes} bytes of a batch."
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message)
        yield
    if len(entries) <= FEW_ITEMS:
        return topic.build_batch(entries, producer)
    return (yield from topic.build_batch_in_steps(entries, producer))
