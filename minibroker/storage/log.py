"""One partition's log: its segments in order, the offsets it gives out, and reading, finding and cutting by offset.

What may be appended is decided in `admission.py`; a log is opened, and recovered, by `recovery.py`.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.records.batch import CONTROL_BIT, LOG_OVERHEAD_BYTES, BatchHeader, assign
from minibroker.storage.checkpoints import LEADER_EPOCH_CHECKPOINT, epochs_text
from minibroker.storage.files import Disk
from minibroker.storage.leader_epochs import LeaderEpochs
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.names import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX
from minibroker.storage.producer_snapshots import ProducerSnapshots, replay
from minibroker.storage.producer_state import ProducerStates, marker_epoch
from minibroker.storage.scanning import spans
from minibroker.storage.segment import Region, Segment, TimestampOffset

logger = logging.getLogger(__name__)


class Environment(NamedTuple):
    """What every log is given from outside.

    `now_ms()` is the wall clock, ms since 1970; `schedule(delay_ms, callback)` has `callback()` called after a while.
    """

    disk: Disk
    now_ms: Callable[[], int]
    schedule: Callable[[int, Callable[[], None]], object]


class LogContents(NamedTuple):
    """What a log is made of: found on the disk by `recovery.py`. There is at least one segment, oldest first."""

    segments: list[Segment]
    epochs: LeaderEpochs
    producers: ProducerStates
    snapshots: ProducerSnapshots
    log_start_offset: int
    log_end_offset: int
    recovery_point: int


class Log:
    """The log of (`topic`, `partition`) in `directory`. `topic_id` has 16 bytes, zeros if it is not known.

    Offsets: `log_start_offset` is the first that may be read, `log_end_offset` the next to be given out; consumers see
    what is below `high_watermark`, or below `last_stable_offset` if they read committed records only. What is below
    `recovery_point` is known to be on the disk itself. What is below `clean_offset` has been compacted.

    `cuts` counts how often the log lost its end or was let go: what was planned for it before is void then.

    Methods raise `KafkaError`: KAFKA_STORAGE_ERROR when the disk fails, and CORRUPT_MESSAGE when it holds nonsense.
    A failed append leaves the log as it was.
    """

    __slots__ = (
        "topic",
        "partition",
        "topic_id",
        "directory",
        "settings",
        "log_start_offset",
        "log_end_offset",
        "high_watermark",
        "last_stable_offset",
        "recovery_point",
        "clean_offset",
        "cuts",
        "producers",
        "epochs",
        "_environment",
        "_disk",
        "_segments",
        "_base_offsets",
        "_active",
        "_snapshots",
        "_torn",
        "_truncated",
        "_epochs_synced",
    )

    def __init__(
        self,
        environment: Environment,
        directory: str,
        topic_partition: tuple[str, int],
        topic_id: bytes,
        settings: LogSettings,
        contents: LogContents,
    ) -> None:
        self.topic, self.partition = topic_partition
        self.topic_id = topic_id
        self.directory = directory
        self.settings = settings
        self.log_start_offset = contents.log_start_offset
        self.log_end_offset = self.high_watermark = self.last_stable_offset = contents.log_end_offset
        self.recovery_point = contents.recovery_point
        self.clean_offset = 0
        self.cuts = 0
        self.producers = contents.producers
        self.epochs = contents.epochs
        self._environment = environment
        self._disk = environment.disk
        self._segments = contents.segments
        self._base_offsets = [segment.base_offset for segment in self._segments]
        self._active = self._segments[-1]
        self._snapshots = contents.snapshots
        self._torn = False  # bytes of a failed append may lie beyond the end of the active segment
        self._truncated = False  # since the last flush
        self._epochs_synced = False  # the checkpoint on the disk itself is the one that was written last

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
    def environment(self) -> Environment:
        """What the log was given from outside."""
        return self._environment

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
            position += header.batch_length + LOG_OVERHEAD_BYTES
            next_offset += header.last_offset_delta + 1
            if header.max_timestamp > max_timestamp:
                max_timestamp = header.max_timestamp
        try:
            self._make_room(position, next_offset - 1, max_timestamp)
            self._torn = True
            self._active.append(records, first_offset, batches)
            self._torn = False
        except OSError as error:
            raise self._failure("append", error) from error
        if leader_epoch != self.epochs.latest:
            self._assign_epoch(leader_epoch, first_offset)
        position, offset = 0, first_offset
        for header in batches:
            if header.producer_id >= 0:
                epoch = marker_epoch(records[position:]) if header.attributes & CONTROL_BIT else -1
                self.producers.update(header, offset, epoch)
            position += header.batch_length + LOG_OVERHEAD_BYTES
            offset += header.last_offset_delta + 1
        self.producers.end_offset = next_offset
        self.log_end_offset = self.high_watermark = self.last_stable_offset = next_offset
        return first_offset

    def read(
        self, offset: int, max_bytes: int, *, limit_offset: int | None = None, minimum_one: bool = True
    ) -> Region | None:
        """Whole batches from the one on that contains `offset`, of one segment, below `limit_offset`.

        At most `max_bytes`, except that with `minimum_one` the first batch is given whatever its size. None if nothing
        is there. Raises `KafkaError` OFFSET_OUT_OF_RANGE below the log start offset and above the log end offset.
        """
        end_offset = self.log_end_offset
        if offset >= end_offset or offset < self.log_start_offset:
            if offset != end_offset:
                raise self._out_of_range(offset)
            self._active.remember(offset, self._active.size_bytes)
            return None
        limit = end_offset if limit_offset is None or limit_offset > end_offset else limit_offset
        if offset >= limit:
            return None
        try:
            if limit == end_offset and offset >= self._active.base_offset:
                return self._active.read(offset, max_bytes, (self._active.size_bytes, end_offset), minimum_one)
            return self._read_from(self._index_of(offset), offset, max_bytes, limit, minimum_one)
        except OSError as error:
            raise self._failure("read", error) from error

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record whose timestamp is at least `timestamp`, in ms since 1970."""
        with self._disk_work("read"):
            for segment in self._segments:
                segment.load()
                if segment.indexes.max_timestamp >= timestamp:
                    found = segment.find_timestamp(timestamp, self.log_start_offset)
                    if found:
                        return found
        return None

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The first record with the largest timestamp of all (KIP-734); None if no record has one."""
        with self._disk_work("read"):
            for segment in self._segments:
                segment.load()
            segment = max(self._segments, key=lambda segment: segment.indexes.max_timestamp)
            if segment.indexes.max_timestamp < 0:
                return None
            return segment.find_timestamp(segment.indexes.max_timestamp, self.log_start_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(the largest epoch at or below `epoch`, where it ends), or (-1, -1) if that is not known (KIP-101)."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def roll(self) -> None:
        """Begin another segment, unless the present one is still empty."""
        with self._disk_work("roll"):
            self._trim()
            if self._active.size_bytes:
                self._roll()

    def flush(self) -> None:
        """Return once everything is on the disk itself, and move the recovery point. Slow."""
        if self.recovery_point == self.log_end_offset and not self._truncated:
            return
        with self._disk_work("flush"):
            self._trim()
            for segment in self._segments[self._index_of(self.recovery_point) :]:
                if segment is not self._active:
                    segment.finish()
                segment.sync()
            self._write_epochs(sync=True)
            self._disk.sync_directory(self.directory)
        self.recovery_point = self.log_end_offset
        self._truncated = False

    def close(self) -> None:
        """Write down what makes the next start cheap, flush, and let go of the files."""
        with self._disk_work("close"):
            self._trim()
            for segment in self._segments:
                segment.finish()
            self._snapshots.take(self.producers, self._base_offsets[0])
        self.flush()
        self.abandon()

    def abandon(self) -> None:
        """Let go of the files and leave them as they are."""
        self.cuts += 1
        for segment in self._segments:
            segment.close()

    def truncate_to(self, offset: int) -> None:
        """Remove the batch that contains `offset` and all after it."""
        if offset < self.log_end_offset:
            with self._disk_work("truncate"):
                self._truncate(max(offset, self._base_offsets[0]))

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
        with self._disk_work("delete"):
            self._remove_segments(self._segments[: self._index_of(offset)])
            self._snapshots.remove_before(self._base_offsets[0])
            self._write_epochs(sync=False)

    def replace_segments(self, old: Sequence[Segment], new: Segment) -> None:
        """Let one segment stand for some neighbours, the active one excluded, whose records it holds after compaction.

        The files of `new` are whole, on the disk itself, and end in `.cleaned`. From when they all end in `.swap`, a
        start completes what is left to do. Raises `ValueError` if the log no longer has the old ones.
        """
        index = self._segments.index(old[0])
        if self._segments[index : index + len(old)] != list(old) or self._active in old:
            raise ValueError(f"{self} has no longer the segments that are to be replaced")
        with self._disk_work("replace segments"):
            new.change_suffix(CLEANED_SUFFIX, SWAP_SUFFIX)
            self._segments[index : index + len(old)] = [new]
            self._base_offsets[index : index + len(old)] = [new.base_offset]
            for segment in old:
                self._remove_later(segment.mark(DELETED_SUFFIX))
                segment.close()
            new.change_suffix(SWAP_SUFFIX, "")
            new.close()
            self._snapshots.remove_strays(self._base_offsets)

    def update_settings(self, settings: LogSettings) -> None:
        """Run under other settings from now on."""
        self.settings = settings
        for segment in self._segments:
            segment.update_settings(settings)

    def _make_room(self, size_bytes: int, last_offset: int, max_timestamp: int) -> None:
        """Have an active segment that takes batches of this size, last offset and largest timestamp."""
        if self._torn:
            self._trim()
        active = self._active
        now_ms = 0 if active.first_timestamp >= 0 else self._environment.now_ms()
        if not active.accepts(size_bytes, last_offset, max_timestamp, now_ms):
            self._roll()

    def _trim(self) -> None:
        """Cut off what a failed append has left, so that the next start does not take it for damage."""
        if self._torn:
            self._active.file.truncate(self._active.size_bytes)
            self._torn = False

    def _roll(self) -> None:
        self._active.finish()
        self._snapshots.take(self.producers, self._base_offsets[0])
        base_offset = self.log_end_offset
        segment = Segment.create(self._disk, self.directory, base_offset, self.settings, self._environment.now_ms())
        self._segments.append(segment)
        self._base_offsets.append(base_offset)
        self._active = segment

    def _read_from(self, index: int, offset: int, max_bytes: int, limit: int, minimum_one: bool) -> Region | None:
        """Read from the segment at `index`, or the next: compaction may have left one without `offset` or any after."""
        ends = [*self._base_offsets[index + 1 :], self.log_end_offset]
        for segment, end_offset in zip(self._segments[index:], ends, strict=True):
            end = segment.size_bytes, end_offset
            if limit < end_offset:
                end = segment.position_of(limit), limit
            region = segment.read(offset, max_bytes, end, minimum_one)
            if region or limit <= end_offset or segment.position_of(offset) < segment.size_bytes:
                return region
            offset = end_offset
        return None

    def _index_of(self, offset: int) -> int:
        """The index of the segment that `offset` belongs to."""
        return max(bisect_right(self._base_offsets, offset) - 1, 0)

    def _truncate(self, offset: int) -> None:
        self._trim()
        segment = self._segments[self._index_of(offset)]
        position = segment.position_of(offset)
        for _, _, base_offset, _ in spans(segment.file, position, segment.size_bytes):
            offset = min(offset, base_offset)  # a batch is removed whole
            break
        later = self._segments[self._index_of(offset) + 1 :]
        self._remove_segments(later[::-1])  # the last one first: a crash between must leave no hole
        segment.truncate(position, offset)
        self._active = segment
        self._truncated = True
        self.cuts += 1
        self.recovery_point = min(self.recovery_point, offset)
        self.clean_offset = min(self.clean_offset, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.log_end_offset = self.high_watermark = self.last_stable_offset = offset
        self.epochs.truncate_from_end(offset)
        self._write_epochs(sync=False)
        self._snapshots.remove_after(offset)
        self._snapshots.load(self.producers, self._base_offsets[0], offset)
        replay(self.producers, self._segments, offset)

    def _remove_segments(self, segments: Sequence[Segment]) -> None:
        """Rename the files now and remove them after `file.delete.delay.ms`."""
        for segment in list(segments):
            paths = segment.mark(DELETED_SUFFIX)
            index = self._segments.index(segment)
            del self._segments[index], self._base_offsets[index]
            segment.close()
            self._remove_later(paths)

    def _remove_later(self, paths: list[str]) -> None:
        self._environment.schedule(self.settings.file_delete_delay_ms, partial(self._remove_files, paths))

    def _remove_files(self, paths: list[str]) -> None:
        for path in paths:
            try:
                self._disk.remove(path)
            except OSError as error:
                logger.warning("%s stays until the next start: %s", path, error)

    def _assign_epoch(self, leader_epoch: int, first_offset: int) -> None:
        self.epochs.assign(leader_epoch, first_offset)
        try:
            self._write_epochs(sync=False)
        except OSError as error:
            # The batches are in the log and bear the epoch, where recovery finds it; the next flush writes it again.
            logger.warning("%s-%d: the leader epochs could not be written: %s", self.topic, self.partition, error)

    def _write_epochs(self, *, sync: bool) -> None:
        if self.epochs.changed or (sync and not self._epochs_synced):
            path = f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}"
            self._disk.write_whole(path, epochs_text(self.epochs.entries()), sync=sync)
            self.epochs.changed = False
            self._epochs_synced = sync

    def _out_of_range(self, offset: int) -> KafkaError:
        return KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{self.topic}-{self.partition} reaches from {self.log_start_offset} to {self.log_end_offset}: no {offset}",
        )

    @contextmanager
    def _disk_work(self, what: str) -> Iterator[None]:
        """Let an `OSError` inside be a `KafkaError`; where speed matters, the same is written out."""
        try:
            yield
        except OSError as error:
            raise self._failure(what, error) from error

    def _failure(self, what: str, error: OSError) -> KafkaError:
        logger.error("%s-%d: cannot %s: %s", self.topic, self.partition, what, error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic}-{self.partition}: cannot {what}: {error}")
