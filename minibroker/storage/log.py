"""A partition's log: reading, searching, flushing and truncating. `log_end.py` appends, `recovery.py` opens a log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from minibroker.protocol.errors import CorruptBatch, ErrorCode, KafkaError
from minibroker.storage.environment import Environment as Environment
from minibroker.storage.environment import run_and_return_error
from minibroker.storage.files import TOO_MANY_FILES
from minibroker.storage.flushing import FlushWaiter, LogFlush, LogFlusher
from minibroker.storage.log_end import LogEnd
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.log_state_files import LogContents
from minibroker.storage.names import CLEANED_SUFFIX, SWAP_SUFFIX
from minibroker.storage.pending import PendingBatches
from minibroker.storage.producers.aborted_transactions import AbortedTransaction
from minibroker.storage.removal import remove_files_later
from minibroker.storage.retention import LogExtent, list_deletion_reasons
from minibroker.storage.segment import Region, Segment, TimestampSearch

logger = logging.getLogger(__name__)


class Log(LogEnd):
    """The log of (`topic`, `partition`) in `directory`. `topic_id` has 16 bytes, zeros if it is not known.

    Offsets: `log_start_offset` is the first that may be read, `log_end_offset` is that of the next record. Consumers
    read below `high_watermark`, or below `last_stable_offset` with read_committed. Everything below `recovery_point` is
    synced. Everything below `clean_offset` has been compacted.

    `truncation_generation` counts how often the log was truncated or closed. A change makes flushes and cleanings void
    that began before.

    An append that reaches `flush_at` should be acknowledged only after a flush (`flush.messages`). `offline` says why
    the log cannot be used until the next start, and is empty while it can: after a failed sync, what is on the disk is
    unknown, and a second sync would not show it.

    Methods raise `KafkaError`: KAFKA_STORAGE_ERROR if the disk fails, and CORRUPT_MESSAGE for corrupt data.
    """

    __slots__ = ()

    def __init__(
        self,
        environment: Environment,
        directory: str,
        topic_partition: tuple[str, int],
        topic_id: bytes,
        settings: LogSettings,
        contents: LogContents,
    ) -> None:
        super().__init__(environment, directory, topic_partition, topic_id, settings, contents)
        self.flusher = LogFlusher(self, environment.run_in_thread)

    def __repr__(self) -> str:
        return f"<Log {self.topic}-{self.partition} [{self.log_start_offset}, {self.log_end_offset})>"

    @property
    def size_bytes(self) -> int:
        """The size of the batches in all segments."""
        return self._segments.size_bytes

    def read(
        self, offset: int, max_bytes: int, *, limit_offset: int | None = None, minimum_one: bool = True
    ) -> Region | None:
        """Return whole batches of one segment, from the one that contains `offset` on, below `limit_offset`.

        They have at most `max_bytes`, but with `minimum_one` the first batch may be larger. None if there is nothing to
        read. Raises `KafkaError` OFFSET_OUT_OF_RANGE below the log start offset and above the log end offset.
        """
        end_offset = self.log_end_offset
        if offset >= end_offset or offset < self.log_start_offset:
            if offset != end_offset:
                raise self._make_out_of_range_error(offset)
            self._active.remember_position_of_offset(offset, self._active.size_bytes)
            return None
        limit = end_offset if limit_offset is None or limit_offset > end_offset else limit_offset
        if offset >= limit:
            return None
        try:
            if limit == end_offset and offset >= self._active.base_offset:
                return self._active.read(offset, max_bytes, (self._active.size_bytes, end_offset), minimum_one)
            return self._segments.read(offset, max_bytes, (limit, end_offset), minimum_one, self.clean_offset)
        except (OSError, CorruptBatch) as error:
            raise self._make_storage_error(f"read offset {offset}", error) from error

    def expect_read_after(self, region: Region) -> None:
        """Remember where `region`, a part of one that was read, ends: then the next read there searches for nothing."""
        if region.file is self._active.file:
            self._active.remember_position_of_offset(region.next_offset, region.position + region.size_bytes)

    def find_offset_for_timestamp_in_steps(self, timestamp: int) -> TimestampSearch:
        """Find the first record whose timestamp is at least `timestamp`, in ms. The log may change between steps."""
        return self._retry_search_if_log_changed(
            f"find timestamp {timestamp}", lambda start: self._segments.find_first_record_at_timestamp(timestamp, start)
        )

    def find_offset_of_max_timestamp_in_steps(self) -> TimestampSearch:
        """Find the first record with the largest timestamp (KIP-734), or None. The log may change between the steps."""
        return self._retry_search_if_log_changed(
            "find the largest timestamp", self._segments.find_first_of_largest_timestamp
        )

    def _retry_search_if_log_changed(
        self, searched_for: str, search_from: Callable[[int], TimestampSearch]
    ) -> TimestampSearch:
        """Search, and again if an error may come from a change of the log meanwhile. Raises `KafkaError`."""
        while True:  # search again if the error is only due to a change of the log
            generation, segments = self.truncation_generation, list(self.segments)
            try:
                return (yield from search_from(self.log_start_offset))
            except (OSError, CorruptBatch) as error:
                if self._closed or (generation, segments) == (self.truncation_generation, self.segments):
                    raise self._make_storage_error(searched_for, error) from error

    def find_end_offset_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (the largest epoch at or below `epoch`, its end offset), or (-1, -1) if that is unknown (KIP-101)."""
        return self.epochs.find_end_offset(epoch, self.log_end_offset)

    def list_aborted_transactions(self, start_offset: int, end_offset: int) -> Sequence[AbortedTransaction]:
        """Return the aborted transactions that may have records from `start_offset` on and below `end_offset`."""
        return self._aborted.list_transactions_between(start_offset, end_offset)

    def flush_soon(self, waiter: FlushWaiter | None = None) -> None:
        """Sync all that was appended, and then call `waiter`, with None or the error."""
        self.flusher.request_flush(waiter)

    def flush(self) -> None:
        """Sync everything, with all indexes. Slow: not for the event loop's thread."""
        self._write_pending_before_change()
        self._flush_in_this_thread(syncs_parent_directory=True)

    def _flush_in_this_thread(self, *, syncs_parent_directory: bool) -> None:
        """Sync everything with all indexes before returning. Raises `KafkaError`."""
        flush = None if self._synced_to == self.log_end_offset else self.begin_flush(with_indexes=True)
        if flush is not None and not syncs_parent_directory:
            flush = flush._replace(directories=[path for path in flush.directories if path == self.directory])
        if flush is not None and (failure := self.finish_flush(flush, run_and_return_error(flush.sync))):
            raise failure

    def begin_flush(self, *, with_indexes: bool = False) -> LogFlush | None:
        """Return what must be synced so that a start after a crash finds all present records; None for nothing.

        Such a start rebuilds the indexes of the segment with the recovery point, synced only `with_indexes`.
        """
        if not self._closed:
            self.write_pending_batches()  # a failure goes to those who wait for this write, not for the flush
        if self._closed or (self.recovery_point == self.log_end_offset and not with_indexes):
            return None
        with self._raise_disk_errors_as_kafka_errors("flush"):
            self._remove_partial_write()
            files, directories = self._beside.open_unsynced_files()
            for segment in self._segments.list_segments_from(self.recovery_point):
                files += segment.write_indexes_and_list_files(with_indexes=with_indexes or segment is not self._active)
        self._beside.mark_synced()
        self.flush_at = self.log_end_offset + self.settings.flush_messages
        self.flushed_ms = self._environment.now_ms()
        ends = self.log_end_offset, self._active.base_offset
        return LogFlush(*ends, self.truncation_generation, with_indexes, files, directories, self._disk.sync_directory)

    def finish_flush(self, flush: LogFlush, error: Exception | None) -> KafkaError | None:
        """Move the recovery point after the sync of a flush. Return the error for those who wait, or None.

        If the sync has failed (`error`), the log goes offline. But if only a directory could not be opened, as too many
        files were open, the next flush syncs it.
        """
        if self._closed:
            return None
        if isinstance(error, OSError) and error.errno in TOO_MANY_FILES:
            self._beside.mark_directory_unsynced()
            self.flush_at = self.recovery_point + self.settings.flush_messages
            return self._make_storage_error("flush", error)
        if error is not None:
            return self._take_offline_after_error("flush", error)
        if flush.truncation_generation == self.truncation_generation:
            rolled = flush.active_base_offset != self._active.base_offset
            self.recovery_point = max(self.recovery_point, flush.end_offset - rolled)
            if flush.whole:
                self._synced_to = flush.end_offset
        return None

    def take_offline_after_sync_error(self, error: Exception) -> KafkaError:
        """Go offline, as a sync of a segment outside of a flush has failed. Return the error."""
        return self._take_offline_after_error("flush", error)

    def mark_all_files_unsynced(self) -> None:
        """Treat nothing that is on the disk as synced."""
        self._synced_to = -1
        self._beside.mark_directory_unsynced()

    def close(self) -> None:
        """Write what makes the next start fast, flush, and close the files. Raises if the log is offline.

        The name of the log's directory is not synced: a caller with thousands of logs syncs the parent once. Files that
        the next start can rebuild after a power cut are not synced, either.
        """
        self.write_pending_batches()  # a failure goes to those who wait for this write
        with self._raise_disk_errors_as_kafka_errors("close"):
            self._check_online()
            self._remove_partial_write()
            for segment in self._segments.all:
                segment.finish_indexes()
            self._beside.write_files_before_roll(self._segments.base_offsets, with_last_snapshot=True)
        self._flush_in_this_thread(syncs_parent_directory=False)
        self.close_without_flush()

    def close_without_flush(self) -> None:
        """Close the files as they are. Pending batches fail."""
        lost, self.pending = self.pending, PendingBatches()
        lost.mark_written_or_failed(
            KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic}-{self.partition} is closed.")
        )
        self.truncation_generation += 1
        self._closed = True
        self.flusher.close()
        for segment in self._segments.all:
            segment.close()

    def truncate_to(self, offset: int) -> None:
        """Remove the batch that contains `offset` and all after it, and sync that. Slow.

        Before this call, write a recovery point below that batch's offset into the checkpoint: a start after a crash
        reads only from the segment of the recovery point on.
        """
        self._write_pending_before_change()
        if offset < self.log_end_offset:
            try:
                self._truncate_to(max(offset, self._segments.base_offsets[0]))
            except OSError as error:  # it may be half done
                raise self._take_offline_after_error("truncate", error) from error

    def delete_records_before(self, offset: int) -> None:
        """Move the log start offset to `offset`, and remove the segments before it.

        An offset below the log start offset changes nothing. Raises `KafkaError` OFFSET_OUT_OF_RANGE above the high
        watermark.
        """
        if offset > self.high_watermark:
            raise self._make_out_of_range_error(offset)
        if offset > self.log_start_offset:
            self._write_pending_before_change()
            with self._raise_disk_errors_as_kafka_errors("delete"):
                self._set_log_start_offset(offset)

    def delete_old_segments(self) -> int:
        """Remove the segments that retention expires (`retention.py`), and return how many."""
        self._write_pending_before_change()
        with self._raise_disk_errors_as_kafka_errors("delete old segments"):
            extent = LogExtent(self.log_start_offset, self.high_watermark, self.log_end_offset)
            reasons = list_deletion_reasons(self.segments, extent, self.settings, self._environment.now_ms())
            for segment, reason in zip(self.segments, reasons, strict=False):
                logger.info("%s: the segment is deleted, as %s", segment.path, reason.value)
            if reasons:
                if len(reasons) == len(self.segments):
                    self._remove_partial_write()
                    self._roll_segment()
                self._set_log_start_offset(max(self.log_start_offset, self._segments.base_offsets[len(reasons)]))
        return len(reasons)

    def _set_log_start_offset(self, offset: int) -> None:
        """Move the log start offset, and remove the segments and the state before it."""
        self.log_start_offset = offset
        self._update_stable_offset()
        self.epochs.truncate_from_start(offset)
        self._remove_segments(self._segments.list_segments_before(offset))
        self._beside.remove_files_before(self._segments.base_offsets[0])

    def replace_segments(
        self,
        old_segments: Sequence[Segment],
        new_segment: Segment,
        aborted_transactions: Sequence[AbortedTransaction] = (),
    ) -> None:
        """Replace neighbouring segments, of which none is active, by the one that compaction made of them.

        The new transaction index lists `aborted_transactions`. The new files are synced, and end in `.cleaned`. Once
        all end in `.swap`, a start after a crash completes the replacement. Raises `ValueError` if an old one is gone.
        """
        if self._active in old_segments:
            raise ValueError(f"{self} is still written to in a segment that is to be replaced")
        place = self._segments.find_slice_of_adjacent_segments(old_segments)
        with self._raise_disk_errors_as_kafka_errors("replace segments"):
            new_segment.change_file_suffix(CLEANED_SUFFIX, SWAP_SUFFIX)
        self._segments.replace_segments_in_slice(place, new_segment)
        self._aborted.replace_transactions_between(
            new_segment.base_offset, self._segments.base_offsets[place.start + 1], aborted_transactions
        )
        try:
            for segment in old_segments:
                remove_files_later(
                    self._environment, segment.rename_files_to_deleted(), self.settings.file_delete_delay_ms
                )
                segment.close()
            new_segment.change_file_suffix(SWAP_SUFFIX, "")
            new_segment.close()
            self._beside.remove_stray_snapshots(self._segments.base_offsets)
        except OSError as error:
            new_segment.rebuild_indexes(f"the files may be those of another segment: {error}")
            raise self._make_storage_error("replace segments", error) from error

    def update_settings(self, settings: LogSettings) -> None:
        """Use new settings from now on."""
        self.flush_at += settings.flush_messages - self.settings.flush_messages
        self.settings = settings
        for segment in self.segments:
            segment.update_settings(settings)

    def _truncate_to(self, offset: int) -> None:
        self._remove_partial_write()
        segment, *_ = self._segments.list_segments_from(offset)
        position, offset = segment.find_batch_at_offset(offset)  # a batch is removed whole
        _, *later = self._segments.list_segments_from(offset)
        self._remove_segments(later[::-1])  # the last one first, so that a crash leaves no gap
        segment.truncate(position, offset)
        segment.file.sync()  # otherwise a power cut may bring removed batches back, behind new ones
        self._disk.sync_directory(self.directory)
        self._active = segment
        self.truncation_generation += 1
        self.recovery_point = min(self.recovery_point, offset)
        self.clean_offset = min(self.clean_offset, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.log_end_offset = offset
        self.high_watermark = min(self.high_watermark, offset)
        self._beside.truncate_to(offset, self.segments)
        self._update_stable_offset()

    def _remove_segments(self, segments: Sequence[Segment]) -> None:
        """Remove segments from the log in this order, and their files after `file.delete.delay.ms`."""
        self._beside.mark_directory_unsynced()
        self._synced_to = -1
        for segment in list(segments):
            paths = segment.rename_files_to_deleted()
            self._segments.remove_segment(segment)
            segment.close()
            remove_files_later(self._environment, paths, self.settings.file_delete_delay_ms)

    def _make_out_of_range_error(self, offset: int) -> KafkaError:
        return KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{self.topic}-{self.partition} reaches from {self.log_start_offset} to {self.log_end_offset}: no {offset}",
        )
