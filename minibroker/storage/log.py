"""One partition's log: its segments in order, the offsets it gives out, and reading, finding and cutting by offset.

What may be appended is decided in `admission.py`; a log is opened, and recovered, by `recovery.py`.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.records.batch import BatchHeader, assign
from minibroker.storage.checkpoints import LEADER_EPOCH_CHECKPOINT, epochs_text
from minibroker.storage.files import Disk
from minibroker.storage.leader_epochs import LeaderEpochs
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.producer_snapshots import ProducerSnapshots, replay
from minibroker.storage.producer_state import ProducerStates
from minibroker.storage.scanning import headers
from minibroker.storage.segment import Region, Segment, TimestampOffset

logger = logging.getLogger(__name__)

DELETED_SUFFIX = ".deleted"

Schedule = Callable[[int, Callable[[], None]], object]
"""`schedule(delay_ms, callback)`: have `callback` called after a while. Passed in, because time is."""


class Environment:
    """What every log of a directory is given: the disk, the wall clock in ms, and the scheduler."""

    __slots__ = ("disk", "now_ms", "schedule")

    def __init__(self, disk: Disk, now_ms: Callable[[], int], schedule: Schedule) -> None:
        self.disk = disk
        self.now_ms = now_ms
        self.schedule = schedule


class Log:
    """The log of (`topic`, `partition`) in `directory`.

    Offsets: `log_start_offset` is the first that may be read, `log_end_offset` the next to be given out; consumers see
    what is below `high_watermark`, or `last_stable_offset` if they read committed records only. Records below
    `recovery_point` are known to be on the disk itself.

    Methods raise `KafkaError` with KAFKA_STORAGE_ERROR when the disk fails, and CORRUPT_MESSAGE when it holds nonsense;
    the log is then as it was before the call.
    """

    __slots__ = (
        "topic",
        "partition",
        "topic_id",
        "directory",
        "settings",
        "producers",
        "epochs",
        "log_start_offset",
        "log_end_offset",
        "high_watermark",
        "last_stable_offset",
        "recovery_point",
        "_environment",
        "_disk",
        "_segments",
        "_base_offsets",
        "_active",
        "_snapshots",
        "_torn",
    )

    def __init__(
        self,
        environment: Environment,
        directory: str,
        topic_partition: tuple[str, int],
        topic_id: bytes,
        settings: LogSettings,
        segments: list[Segment],
        epochs: LeaderEpochs,
        producers: tuple[ProducerStates, ProducerSnapshots],
        offsets: tuple[int, int, int],
    ) -> None:
        """`offsets` are log start offset, log end offset and recovery point; there is at least one segment."""
        self.topic, self.partition = topic_partition
        self.topic_id = topic_id
        self.directory = directory
        self.settings = settings
        self.epochs = epochs
        self.producers, self._snapshots = producers
        self.log_start_offset, self.log_end_offset, self.recovery_point = offsets
        self.high_watermark = self.last_stable_offset = self.log_end_offset
        self._environment = environment
        self._disk = environment.disk
        self._segments = segments
        self._base_offsets = [segment.base_offset for segment in segments]
        self._active = segments[-1]
        self._torn = False  # bytes of a failed append may lie beyond the end of the active segment

    def __repr__(self) -> str:
        return f"<Log {self.topic}-{self.partition} [{self.log_start_offset}, {self.log_end_offset})>"

    @property
    def size_bytes(self) -> int:
        """The size of all segments' batches."""
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def leader_epoch(self) -> int:
        """The epoch of the newest batch, -1 if the log has never had one."""
        return self.epochs.latest

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments, oldest first; the last one is the one being appended to."""
        return self._segments

    def append(self, records: memoryview | bytearray, batches: Sequence[BatchHeader], leader_epoch: int) -> int:
        """Give the batches in `records` their offsets, in place, and write them; the first offset.

        They must be admitted: sound, and in sequence if they have a producer id. `batches` are their headers.
        """
        first_offset = next_offset = self.log_end_offset
        max_timestamp = -1
        position = 0
        for header in batches:
            assign(records, position, next_offset, leader_epoch)
            position += header.size_bytes
            next_offset += header.last_offset_delta + 1
            if header.max_timestamp > max_timestamp:
                max_timestamp = header.max_timestamp
        try:
            self._write(records, first_offset, batches, (next_offset, max_timestamp))
        except OSError as error:
            raise self._failed("append", error) from error
        if leader_epoch != self.epochs.latest:
            self._assign_epoch(leader_epoch, first_offset)
        producers = self.producers
        offset = first_offset
        for header in batches:
            if header.producer_id >= 0:
                producers.update(header, offset)
            offset += header.last_offset_delta + 1
        producers.end_offset = self.log_end_offset = self.high_watermark = self.last_stable_offset = next_offset
        return first_offset

    def read(
        self, offset: int, max_bytes: int, *, limit_offset: int | None = None, minimum_one: bool = True
    ) -> Region | None:
        """Whole batches from the one on that contains `offset`, of one segment, below `limit_offset`.

        At most `max_bytes`, except that with `minimum_one` the first batch is given whatever its size. None if nothing
        is there. Raises `KafkaError` OFFSET_OUT_OF_RANGE outside of log start offset to log end offset.
        """
        end_offset = self.log_end_offset
        if offset > end_offset or offset < self.log_start_offset:
            raise self._out_of_range(offset)
        if limit_offset is None or limit_offset > end_offset:
            limit_offset = end_offset
        try:
            return self._read(offset, max_bytes, limit_offset, minimum_one) if offset < limit_offset else None
        except OSError as error:
            raise self._failed("read", error) from error

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record whose timestamp is at least `timestamp`, in ms since 1970."""
        try:
            for segment in self._segments:
                segment.load()
                if segment.max_timestamp >= timestamp:
                    found = segment.find_timestamp(timestamp, self.log_start_offset)
                    if found:
                        return found
        except OSError as error:
            raise self._failed("read", error) from error
        return None

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The first record with the largest timestamp of all (KIP-734); None if no record has one."""
        try:
            for segment in self._segments:
                segment.load()
            segment = max(self._segments, key=lambda segment: segment.max_timestamp)
            if segment.max_timestamp < 0:
                return None
            return segment.find_timestamp(segment.max_timestamp, self.log_start_offset)
        except OSError as error:
            raise self._failed("read", error) from error

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(the largest epoch at or below `epoch`, where it ends), or (-1, -1) if that is not known (KIP-101)."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def roll(self) -> None:
        """Begin another segment, unless the present one is still empty."""
        if not self._active.size_bytes:
            return
        try:
            self._roll()
        except OSError as error:
            raise self._failed("roll", error) from error

    def flush(self) -> None:
        """Return once everything is on the disk itself, and move the recovery point. Slow."""
        try:
            self._trim()
            for segment in self._segments[self._index_of(self.recovery_point) :]:
                segment.sync()
            self._write_epochs(sync=True)
            self._disk.sync_directory(self.directory)
        except OSError as error:
            raise self._failed("flush", error) from error
        self.recovery_point = self.log_end_offset

    def close(self) -> None:
        """Write down what makes the next start cheap, and let go of the files. To make it last is `flush`'s work."""
        try:
            self._trim()
            for segment in self._segments[self._index_of(self.recovery_point) :]:
                segment.finish()
            self._snapshots.take(self.producers)
            self._write_epochs(sync=False)
        except OSError as error:
            raise self._failed("close", error) from error
        self.abandon()

    def abandon(self) -> None:
        """Let go of the files and leave them as they are."""
        for segment in self._segments:
            segment.close()

    def truncate_to(self, offset: int) -> None:
        """Remove the batch that contains `offset` and all after it."""
        if offset >= self.log_end_offset:
            return
        try:
            self._truncate(max(offset, self._base_offsets[0]))
        except OSError as error:
            raise self._failed("truncate", error) from error

    def delete_before(self, offset: int) -> None:
        """Let the log begin at `offset`, and remove the segments that lie wholly before.

        Raises `KafkaError` OFFSET_OUT_OF_RANGE beyond the high watermark. An offset that is gone already is well.
        """
        if offset > self.high_watermark:
            raise self._out_of_range(offset)
        if offset <= self.log_start_offset:
            return
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        try:
            self._remove_segments(self._segments[: self._index_of(offset)])
            self._snapshots.remove_before(self._base_offsets[0])
            self._write_epochs(sync=False)
        except OSError as error:
            raise self._failed("delete", error) from error

    def update_settings(self, settings: LogSettings) -> None:
        """Run under other settings from now on."""
        self.settings = settings
        for segment in self._segments:
            segment.update_settings(settings)

    def _write(
        self, records: memoryview | bytearray, first_offset: int, batches: Sequence[BatchHeader], last: tuple[int, int]
    ) -> None:
        """`last` is (next offset, largest timestamp) of the batches."""
        next_offset, max_timestamp = last
        active = self._active
        now_ms = 0 if active.first_timestamp >= 0 else self._environment.now_ms()
        if self._torn:
            self._trim()
        if not active.accepts(len(records), next_offset - 1, max_timestamp, now_ms):
            self._roll()
            active = self._active
        try:
            active.append(records, first_offset, batches)
        except OSError:
            self._torn = True
            raise

    def _trim(self) -> None:
        """Cut off what a failed append has left, so that the next start does not take it for a damage."""
        if self._torn:
            self._active.file.truncate(self._active.size_bytes)
            self._torn = False

    def _roll(self) -> None:
        self._trim()
        self._active.finish()
        self._snapshots.take(self.producers)
        self._add_segment(self.log_end_offset)

    def _add_segment(self, base_offset: int) -> None:
        segment = Segment.create(self._disk, self.directory, base_offset, self.settings, self._environment.now_ms())
        self._segments.append(segment)
        self._base_offsets.append(base_offset)
        self._active = segment

    def _read(self, offset: int, max_bytes: int, limit_offset: int, minimum_one: bool) -> Region | None:
        active = self._active
        if offset >= active.base_offset:
            if limit_offset == self.log_end_offset:
                return active.read(offset, max_bytes, (active.size_bytes, limit_offset), minimum_one)
            return active.read(offset, max_bytes, (active.position_of(limit_offset), limit_offset), minimum_one)
        return self._read_older(offset, max_bytes, limit_offset, minimum_one)

    def _read_older(self, offset: int, max_bytes: int, limit_offset: int, minimum_one: bool) -> Region | None:
        """Compaction may have left a segment without the offset or any after it: then the next one has the answer."""
        for index in range(self._index_of(offset), len(self._segments) - 1):
            segment, end_offset = self._segments[index], self._base_offsets[index + 1]
            end = (segment.size_bytes, end_offset)
            if limit_offset < end_offset:
                end = (segment.position_of(limit_offset), limit_offset)
            region = segment.read(offset, max_bytes, end, minimum_one)
            if region or limit_offset <= end_offset or segment.position_of(offset) < segment.size_bytes:
                return region
        return self._read(max(offset, self._active.base_offset), max_bytes, limit_offset, minimum_one)

    def _index_of(self, offset: int) -> int:
        """The index of the segment that `offset` belongs to."""
        return max(bisect_right(self._base_offsets, offset) - 1, 0)

    def _truncate(self, offset: int) -> None:
        self._trim()
        keep = self._index_of(offset)
        segment = self._segments[keep]
        position = segment.position_of(offset)
        for _, header in headers(segment.file, position, segment.size_bytes):
            offset = min(offset, header.base_offset)
            break
        self._remove_segments(self._segments[keep + 1 :])
        segment.truncate(position, offset)
        self._active = segment
        self.epochs.truncate_from_end(offset)
        self._write_epochs(sync=False)
        self.recovery_point = min(self.recovery_point, offset)
        self.log_end_offset = self.high_watermark = self.last_stable_offset = offset
        self._snapshots.remove_after(offset)
        self._snapshots.load(self.producers, self.log_start_offset, offset)
        replay(self.producers, self._segments[self._index_of(self.producers.end_offset) :], offset)

    def _remove_segments(self, segments: Sequence[Segment]) -> None:
        """Rename the files now and remove them after `file.delete.delay.ms`."""
        for segment in list(segments):
            names = segment.mark_deleted(DELETED_SUFFIX)
            index = self._segments.index(segment)
            del self._segments[index], self._base_offsets[index]
            segment.close()
            self._environment.schedule(self.settings.file_delete_delay_ms, partial(self._remove_files, names))

    def _remove_files(self, names: list[str]) -> None:
        for name in names:
            try:
                self._disk.remove(name)
            except OSError as error:
                logger.warning("%s-%d: %s stays: %s", self.topic, self.partition, name, error)

    def _assign_epoch(self, leader_epoch: int, first_offset: int) -> None:
        self.epochs.assign(leader_epoch, first_offset)
        try:
            self._write_epochs(sync=False)
        except OSError as error:
            # The batches are in the log and bear the epoch: recovery would find it there. `changed` stays set.
            logger.warning("%s-%d: the leader epochs could not be written: %s", self.topic, self.partition, error)

    def _write_epochs(self, *, sync: bool) -> None:
        if self.epochs.changed or sync:
            path = f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}"
            self._disk.write_whole(path, epochs_text(self.epochs.entries()), sync=sync)
            self.epochs.changed = False

    def _out_of_range(self, offset: int) -> KafkaError:
        return KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{self.topic}-{self.partition} reaches from {self.log_start_offset} to {self.log_end_offset}: no {offset}",
        )

    def _failed(self, what: str, error: OSError) -> KafkaError:
        logger.error("%s-%d: cannot %s: %s", self.topic, self.partition, what, error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic}-{self.partition}: cannot {what}: {error}")
