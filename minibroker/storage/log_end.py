"""Appending to a log: offsets, pending batches, writes, and new segments. `validation.py` checks batches before."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, ClassVar

from minibroker.protocol.errors import CorruptBatch, ErrorCode, KafkaError
from minibroker.protocol.records.batch import CONTROL_BIT, LOG_OVERHEAD_BYTES, MAGIC, BatchHeader, set_offset_and_epoch
from minibroker.storage.environment import Environment as Environment
from minibroker.storage.files import Bytes
from minibroker.storage.flushing import LogFlusher
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.log_state_files import LogContents, LogStateFiles
from minibroker.storage.names import LOG_SUFFIX, make_segment_name
from minibroker.storage.pending import MAX_PENDING_BYTES, PendingBatches
from minibroker.storage.producers.transaction_markers import read_marker
from minibroker.storage.recovery import failed_sync
from minibroker.storage.segment import Segment
from minibroker.storage.segments import LogSegments

if TYPE_CHECKING:
    from minibroker.protocol.records.validation import RecordRules

logger = logging.getLogger("minibroker.storage.log")


class LogEnd:
    """The part of a log that appends. `Log` documents the attributes.

    A failed append leaves the log as it was. `failures` counts how often logs of this process went offline.
    """

    failures: ClassVar[int] = 0

    __slots__ = (
        "topic",
        "partition",
        "topic_id",
        "directory",
        "settings",
        "log_start_offset",
        "log_end_offset",
        "high_watermark",
        "is_watermark_held",
        "last_stable_offset",
        "recovery_point",
        "clean_offset",
        "truncation_generation",
        "flush_at",
        "flushed_ms",
        "offline",
        "producers",
        "epochs",
        "_environment",
        "_disk",
        "_segments",
        "_active",
        "_beside",
        "_aborted",
        "flusher",
        "pending",
        "_torn",
        "_closed",
        "_synced_to",
        "plain_rules",
    )

    flusher: LogFlusher

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
        self.plain_rules: tuple[int, LogSettings, RecordRules | None] = (
            0,
            settings,
            None,
        )  # when and for what it was made
        self.log_start_offset = contents.log_start_offset
        self.log_end_offset = self.high_watermark = contents.log_end_offset
        self.is_watermark_held = False
        self.recovery_point = contents.recovery_point
        self.clean_offset = 0
        self.truncation_generation = 0
        self.producers = contents.producers
        self.last_stable_offset = self.producers.find_stable_offset(self.log_start_offset, self.log_end_offset)
        self.epochs = contents.epochs
        self._environment = environment
        self._disk = environment.disk
        self._segments = LogSegments(contents.segments)
        self._set_active_segment(contents.segments[-1])
        self._beside = LogStateFiles(self._disk, directory, contents)
        self._aborted = contents.aborted
        self.pending = PendingBatches()
        self.flush_at = self.recovery_point + settings.flush_messages
        self.flushed_ms = environment.now_ms()  # when the last flush began
        self.offline = ""
        self._torn = False  # a failed append may have left bytes behind the end, or a failed roll a file
        self._closed = False
        self._synced_to = self.log_end_offset if contents.synced else -1  # with all indexes; -1: unknown

    @property
    def leader_epoch(self) -> int:
        """The epoch of the newest batch, -1 if there has never been one."""
        return self.epochs.latest

    @property
    def next_offset(self) -> int:
        """The offset of the next record, behind pending batches."""
        return self.pending.next_offset if self.pending.headers else self.log_end_offset

    @property
    def pending_batches(self) -> PendingBatches | None:
        """The pending batches, None if all is written."""
        return self.pending if self.pending.headers else None

    @property
    def is_open_and_online(self) -> bool:
        """Whether the log is neither offline nor closed."""
        return not (self.offline or self._closed)

    @property
    def environment(self) -> Environment:
        """The log's environment."""
        return self._environment

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments, oldest first. The last one is the active one."""
        return self._segments.all

    def append(self, records: memoryview | bytearray, batches: Sequence[BatchHeader], leader_epoch: int) -> int:
        """Set the offsets of the batches in `records`, in place, and write them. Return the first offset.

        The caller has validated them (`validation.py`), and their sequence numbers. `batches` are their headers.
        Messages of formats 0 and 1 already have their offsets, from `log_end_offset` on; a wrapper's header covers the
        messages in it. Pending batches are written first.
        """
        self._write_pending_before_change()
        first_offset = next_offset = self.log_end_offset
        max_timestamp = -1
        position = 0
        for header in batches:
            if header.magic == MAGIC:  # the checksums of older formats cover the offsets, which are set already
                set_offset_and_epoch(records, position, next_offset, leader_epoch)
            position += header.batch_length + LOG_OVERHEAD_BYTES
            next_offset += header.last_offset_delta + 1
            if header.max_timestamp > max_timestamp:
                max_timestamp = header.max_timestamp
        try:
            self._roll_segment_if_full(position, next_offset - 1, max_timestamp)
            self._write_batches(records, first_offset, batches)
        except OSError as error:
            raise self._make_storage_error("append", error) from error
        if leader_epoch != self.epochs.latest and batches[0].magic == MAGIC:
            self._beside.epoch_file.assign_epoch(leader_epoch, first_offset)
        position, offset = 0, first_offset
        for header in batches:
            if header.producer_id >= 0:
                if header.attributes & CONTROL_BIT:
                    self._end_transaction(header, offset, records[position:])
                else:
                    self.producers.apply_appended_batch(header, offset)
            position += header.batch_length + LOG_OVERHEAD_BYTES
            offset += header.last_offset_delta + 1
        self.producers.end_offset = next_offset
        self._set_log_end_offset(next_offset)
        return first_offset

    def _set_log_end_offset(self, next_offset: int) -> None:
        """Set the log end offset, the high watermark unless it is held, and the last stable offset."""
        if self.is_watermark_held:
            self.log_end_offset = next_offset
            self._update_stable_offset()
            return
        self.log_end_offset = self.high_watermark = self.last_stable_offset = next_offset
        if self.producers.open_transactions:
            self.last_stable_offset = self.producers.find_stable_offset(self.log_start_offset, next_offset)

    def _update_stable_offset(self) -> None:
        stable_offset = self.producers.find_stable_offset(self.log_start_offset, self.log_end_offset)
        self.last_stable_offset = min(stable_offset, self.high_watermark)

    def hold_or_release_high_watermark(self, *, is_held: bool) -> None:
        """Hold the high watermark where it is, or (not `is_held`) let it follow the log end offset again."""
        self.is_watermark_held = is_held
        self._set_log_end_offset(self.log_end_offset)

    def append_to_pending_batches(self, records: memoryview | bytearray, header: BatchHeader, leader_epoch: int) -> int:
        """Append a batch as `append` does, but leave writing it to `write_pending_batches`. Return its offset.

        Return -1, and append nothing, for a batch that needs `append`: one that begins a segment or an epoch, or ends a
        transaction. Raises `KafkaError` if too much was pending, and writing it has failed.
        """
        size_bytes = len(records)
        if len(self.pending.data) + size_bytes > MAX_PENDING_BYTES:
            self._write_pending_before_change()
        pending = self.pending
        if pending.headers:
            first_offset = pending.next_offset
        else:
            first_offset = self.log_end_offset
            if self._active.indexes.room_bytes <= MAX_PENDING_BYTES:
                return -1
        active = self._active
        if (
            self._torn
            or leader_epoch != self.epochs.latest
            or header.attributes & CONTROL_BIT
            or header.magic != MAGIC
            or not active.size_bytes
        ):
            return -1
        now_ms = 0 if active.first_timestamp >= 0 else self._environment.now_ms()
        end = first_offset + header.last_offset_delta
        if not active.has_room_for_batch(len(pending.data) + size_bytes, end, header.max_timestamp, now_ms):
            return -1
        pending.add_batch(records, header, first_offset, leader_epoch)
        if header.producer_id >= 0:
            self.producers.apply_appended_batch(header, first_offset)
            pending.has_producers = True
        self.producers.end_offset = end + 1
        return first_offset

    def write_pending_batches(self) -> KafkaError | None:
        """Write the pending batches in one write. If it fails, all are lost; return the error."""
        pending = self.pending
        if not pending.headers:
            return None
        self.pending = PendingBatches()
        failure = self._write_pending_batches_or_get_error(pending)
        if failure is not None:
            self._forget_failed_pending_batches(pending)
        pending.mark_written_or_failed(failure)
        return failure

    def _write_pending_batches_or_get_error(self, pending_batches: PendingBatches) -> KafkaError | None:
        """Write the pending batches; return the error if that fails, else None."""
        try:
            self._check_online()  # a sync may have failed since they were appended
            self._write_batches(pending_batches.data, self.log_end_offset, pending_batches.headers)
        except OSError as error:
            return self._make_storage_error("append", error)
        except KafkaError as offline:
            return offline
        self._set_log_end_offset(pending_batches.next_offset)
        return None

    def _write_batches(self, data: Bytes, first_offset: int, batches: Sequence[BatchHeader]) -> None:
        """Write batches to the active segment. Raises `OSError`; then it removes what was written, if it can."""
        self._torn = True
        try:
            self._active.append(data, first_offset, batches)
        except OSError:
            with suppress(OSError):
                self._remove_partial_write()  # at once: a start after a crash would accept whole batches that are left
            raise
        self._torn = False

    def _forget_failed_pending_batches(self, pending_batches: PendingBatches) -> None:
        """Forget batches, and read the producer states from the log again, as they included these batches."""
        self.producers.end_offset = self.log_end_offset
        if pending_batches.has_producers:
            try:
                self._beside.restore_producer_states(self.log_end_offset, self.segments)
            except (OSError, CorruptBatch) as error:
                self._take_offline_after_error("read its producers again", error)
        self._set_log_end_offset(self.log_end_offset)

    def _write_pending_before_change(self) -> None:
        """Write pending batches before another change of the log. Raises `KafkaError` if it fails."""
        failure = self.write_pending_batches()
        if failure is not None:
            raise failure

    def _end_transaction(self, header: BatchHeader, offset: int, batch: memoryview | bytearray) -> None:
        """End the producer's transaction by its marker, and list the transaction if it was aborted."""
        aborted = self.producers.end_transaction(header, offset, read_marker(batch))
        if aborted is not None:
            self._aborted.add_transaction(self._active.path, aborted)

    def roll_segment_if_used(self) -> None:
        """Begin a new segment, unless the active one is empty."""
        self._write_pending_before_change()
        with self._raise_disk_errors_as_kafka_errors("roll"):
            self._remove_partial_write()
            if self._active.size_bytes:
                self._roll_segment()

    def _take_offline_after_error(self, action: str, error: Exception) -> KafkaError:
        """Take the log offline, and mark it on the disk. Return the error to raise."""
        failure = self._make_storage_error(action, error)
        failed_sync.mark_failed_sync(self._disk, self.directory)
        self.take_offline(f"it could not {action}: {error}")
        self._torn = True  # so that the next append checks `offline`
        return failure

    def take_offline(self, reason: str) -> None:
        """Make the log unusable until the next start, and log why."""
        LogEnd.failures += 1
        self.offline = f"{self.topic}-{self.partition} is offline until the next start: {reason}"
        logger.critical("%s", self.offline)

    def _roll_segment_if_full(self, size_bytes: int, last_offset: int, max_timestamp: int) -> None:
        """Begin a new segment unless batches of this size, last offset and timestamp fit into the active one."""
        if self._torn:
            self._remove_partial_write()
        active = self._active
        now_ms = 0 if active.first_timestamp >= 0 else self._environment.now_ms()
        if not active.has_room_for_batch(size_bytes, last_offset, max_timestamp, now_ms):
            self._roll_segment()

    def _remove_partial_write(self) -> None:
        """Remove the bytes of a failed append or roll, which the next start would take for damage."""
        if self._torn:
            self._check_online()
            if self._active.base_offset != self.log_end_offset:
                self._disk.remove(f"{self.directory}/{make_segment_name(self.log_end_offset)}{LOG_SUFFIX}")
            self._active.close()  # it may have been opened while the file system was read-only
            self._active.file.truncate(self._active.size_bytes)
            self._torn = False

    def _check_online(self) -> None:
        if self.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.offline)

    def _roll_segment(self) -> None:
        """Begin a new segment, and sync the old one, as Kafka does."""
        self._active.finish_indexes()
        self._beside.write_files_before_roll(self._segments.base_offsets)
        base_offset = self.log_end_offset
        self._beside.mark_directory_unsynced()
        self._torn = True  # if this fails, the new file must be removed before the next append
        segment = Segment.create(self._disk, self.directory, base_offset, self.settings, self._environment.now_ms())
        self._torn = False
        self._segments.add_segment(segment)
        self._set_active_segment(segment)
        # Until the old segment's indexes are synced, a start after a crash must read it.
        self.recovery_point = min(self.recovery_point, base_offset - 1)
        self.flusher.request_flush()
        self._check_online()

    def _set_active_segment(self, segment: Segment) -> None:
        """Append to this segment from now on. It rolls earlier by a random part of `segment.jitter.ms`."""
        self._active = segment
        jitter_ms = min(self.settings.segment_jitter_ms, self.settings.max_segment_ms)
        segment.jitter_ms = self._environment.random.randrange(jitter_ms) if jitter_ms else 0

    @contextmanager
    def _raise_disk_errors_as_kafka_errors(self, action: str) -> Iterator[None]:
        """Log errors of the disk, and raise them as `KafkaError`. Fast paths do the same by hand."""
        try:
            yield
        except (OSError, CorruptBatch) as error:
            raise self._make_storage_error(action, error) from error

    def _make_storage_error(self, action: str, error: Exception) -> KafkaError:
        code = error.code if isinstance(error, CorruptBatch) else ErrorCode.KAFKA_STORAGE_ERROR
        reason = error.message if isinstance(error, CorruptBatch) else error
        logger.error("%s-%d: cannot %s: %s", self.topic, self.partition, action, reason)
        return KafkaError(code, f"{self.topic}-{self.partition}: cannot {action}: {reason}")
