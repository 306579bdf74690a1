"""One partition's log: its segments in order, and reading, finding, flushing and cutting by offset.

Appending is in `log_end.py`; a log is opened, and recovered, by `recovery.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from minibroker.protocol.errors import CorruptBatch, ErrorCode, KafkaError
from minibroker.storage.environment import Environment as Environment
from minibroker.storage.environment import attempt
from minibroker.storage.files import TOO_MANY_FILES
from minibroker.storage.flushing import Flush, Flusher, Waiter
from minibroker.storage.log_end import LogEnd
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.names import CLEANED_SUFFIX, SWAP_SUFFIX
from minibroker.storage.pending import Pending
from minibroker.storage.producers.aborted_transactions import AbortedTransaction
from minibroker.storage.removal import unlink_later
from minibroker.storage.retention import Extent, expired
from minibroker.storage.segment import Finding, Region, Segment
from minibroker.storage.side_files import LogContents

logger = logging.getLogger(__name__)


class Log(LogEnd):
    """The log of (`topic`, `partition`) in `directory`. `topic_id` has 16 bytes, zeros if it is not known.

    Offsets: `log_start_offset` is the first that may be read, `log_end_offset` the next to be given out; consumers see
    what is below `high_watermark`, or below `last_stable_offset` if they read committed records only. What is below
    `recovery_point` is known to be on the disk itself. What is below `clean_offset` has been compacted.

    `truncation_generation` counts how often the log was truncated or let go; what was planned for it before is void.

    An append by which the log reaches `flush_at` should be acknowledged only when a flush has covered it
    (`flush.messages`). `offline` says why the log is of no use until the next start, and is empty as long as it is one:
    after a sync that failed, nobody knows what is on the disk, and a second one would not tell.

    Methods raise `KafkaError`: KAFKA_STORAGE_ERROR when the disk fails, and CORRUPT_MESSAGE when it holds nonsense.
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
        self.flusher = Flusher(self, environment.run_aside)

    def __repr__(self) -> str:
        return f"<Log {self.topic}-{self.partition} [{self.log_start_offset}, {self.log_end_offset})>"

    @property
    def size_bytes(self) -> int:
        """The size of all segments' batches."""
        return self._segments.size_bytes

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
            return self._segments.read(offset, max_bytes, (limit, end_offset), minimum_one, self.clean_offset)
        except (OSError, CorruptBatch) as error:
            raise self._failure(f"read offset {offset}", error) from error

    def offset_for_timestamp_in_steps(self, timestamp: int) -> Finding:
        """The first record whose timestamp is at least `timestamp`, in ms since 1970; the log may change between."""
        return self._found(f"find timestamp {timestamp}", lambda start: self._segments.first_at(timestamp, start))

    def offset_of_max_timestamp_in_steps(self) -> Finding:
        """The first record with the largest timestamp of all (KIP-734), or None; the log may change between."""
        return self._found("find the largest timestamp", self._segments.first_of_largest_timestamp)

    def _found(self, what: str, find: Callable[[int], Finding]) -> Finding:
        while True:  # it is looked for anew where only the log's own change kept it from being read
            generation, segments = self.truncation_generation, list(self.segments)
            try:
                return (yield from find(self.log_start_offset))
            except (OSError, CorruptBatch) as error:
                if self._closed or (generation, segments) == (self.truncation_generation, self.segments):
                    raise self._failure(what, error) from error

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(the largest epoch at or below `epoch`, where it ends), or (-1, -1) if that is not known (KIP-101)."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> Sequence[AbortedTransaction]:
        """Return the aborted transactions that may have records from `start_offset` on and below `end_offset`."""
        return self._aborted.between(start_offset, end_offset)

    def flush_soon(self, waiter: Waiter | None = None) -> None:
        """Bring all that was appended to the disk itself, and call `waiter` when it is there, or with why it is not."""
        self.flusher.request(waiter)

    def flush(self) -> None:
        """Return once everything is on the disk itself, indexes and all. Slow: never in the event loop's thread."""
        self._settle()
        self._flush_now(name=True)

    def _flush_now(self, *, name: bool) -> None:
        flush = None if self._synced_to == self.log_end_offset else self.begin_flush(whole=True)
        if flush is not None and not name:
            flush = flush._replace(directories=[path for path in flush.directories if path == self.directory])
        if flush is not None and (failure := self.finish_flush(flush, attempt(flush.sync))):
            raise failure

    def begin_flush(self, *, whole: bool = False) -> Flush | None:
        """Return what must be synced so that a start after a crash finds all that the log holds now; None if nothing.

        Such a start makes the indexes of the segment with the recovery point anew: only with `whole` they are synced.
        """
        if not self._closed:
            self.write_pending()  # if that fails, those are told who wait for it, and no flush was promised to them
        if self._closed or (self.recovery_point == self.log_end_offset and not whole):
            return None
        with self._disk_work("flush"):
            self._trim()
            files, directories = self._beside.collect()
            for segment in self._segments.since(self.recovery_point):
                files += segment.files_to_sync(indexes=whole or segment is not self._active)
        self._beside.note_synced()
        self.flush_at = self.log_end_offset + self.settings.flush_messages
        self.flushed_ms = self._environment.now_ms()
        ends = self.log_end_offset, self._active.base_offset
        return Flush(*ends, self.truncation_generation, whole, files, directories, self._disk.sync_directory)

    def finish_flush(self, flush: Flush, error: Exception | None) -> KafkaError | None:
        """Move the recovery point now that the flush was synced; what to tell those who waited for it.

        If it was not (`error`), the log goes offline; but where only a directory could not be opened to be synced, the
        next flush does it.
        """
        if self._closed:
            return None
        if isinstance(error, OSError) and error.errno in TOO_MANY_FILES:
            self._beside.names_change()
            self.flush_at = self.recovery_point + self.settings.flush_messages
            return self._failure("flush", error)
        if error is not None:
            return self._go_offline("flush", error)
        if flush.truncation_generation == self.truncation_generation:
            rolled = flush.active_base_offset != self._active.base_offset
            self.recovery_point = max(self.recovery_point, flush.end_offset - rolled)
            if flush.whole:
                self._synced_to = flush.end_offset
        return None

    def sync_failed(self, error: Exception) -> KafkaError:
        """Go offline, as somebody else's sync of a segment has failed; what to tell whoever asks."""
        return self._go_offline("flush", error)

    def distrust_disk(self) -> None:
        """Take nothing that is there for synced."""
        self._synced_to = -1
        self._beside.names_change()

    def close(self) -> None:
        """Write down what makes the next start cheap, flush, and let go of the files. Raises if it is offline.

        The name of the log's own directory is not synced: who closes thousands of logs does that once for all. Nor is
        a file that the next start makes anew if a power cut has spoilt it.
        """
        self.write_pending()  # if that fails, those are told who wait for it
        with self._disk_work("close"):
            self._check_online()
            self._trim()
            for segment in self._segments.all:
                segment.finish()
            self._beside.finish_segment(self._segments.base_offsets, last=True)
        self._flush_now(name=False)
        self.abandon()

    def abandon(self) -> None:
        """Let go of the files and leave them as they are."""
        lost, self.pending = self.pending, Pending()
        lost.end(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic}-{self.partition} is closed."))
        self.truncation_generation += 1
        self._closed = True
        for segment in self._segments.all:
            segment.close()

    def truncate_to(self, offset: int) -> None:
        """Remove the batch that contains `offset` and all after it, from the disk itself. Slow.

        Before, the recovery point checkpoint must have been written with an offset below that batch's: a start after a
        crash looks at nothing before the segment with that offset.
        """
        self._settle()
        if offset < self.log_end_offset:
            try:
                self._truncate(max(offset, self._segments.base_offsets[0]))
            except OSError as error:  # half of it may be done
                raise self._go_offline("truncate", error) from error

    def delete_before(self, offset: int) -> None:
        """Let the log begin at `offset`, and remove the segments that lie wholly before.

        Raises `KafkaError` OFFSET_OUT_OF_RANGE beyond the high watermark. An offset that is gone already is well.
        """
        if offset > self.high_watermark:
            raise self._out_of_range(offset)
        if offset > self.log_start_offset:
            self._settle()
            with self._disk_work("delete"):
                self._begin_at(offset)

    def delete_old_segments(self) -> int:
        """Remove the segments whose time is over, as `retention.py` has it; how many. The log start offset follows."""
        self._settle()
        with self._disk_work("delete old segments"):
            extent = Extent(self.log_start_offset, self.high_watermark, self.log_end_offset)
            reasons = expired(self.segments, extent, self.settings, self._environment.now_ms())
            for segment, reason in zip(self.segments, reasons, strict=False):
                logger.info("%s: the segment is deleted, as %s", segment.path, reason.value)
            if reasons:
                if len(reasons) == len(self.segments):
                    self._trim()
                    self._roll()
                self._begin_at(max(self.log_start_offset, self._segments.base_offsets[len(reasons)]))
        return len(reasons)

    def _begin_at(self, offset: int) -> None:
        self.log_start_offset = offset
        self.last_stable_offset = self.producers.stable_offset(self.log_start_offset, self.log_end_offset)
        self.epochs.truncate_from_start(offset)
        self._remove_segments(self._segments.before(offset))
        self._beside.begin_at(self._segments.base_offsets[0])

    def replace_segments(
        self, old: Sequence[Segment], new: Segment, aborted: Sequence[AbortedTransaction] = ()
    ) -> None:
        """Let one segment stand for some neighbours, the active one excluded, whose records it holds after compaction.

        `aborted` is what its transaction index lists. Its files are whole, on the disk itself, and end in `.cleaned`;
        once they all end in `.swap`, a start completes the rest. Raises `ValueError` if the old ones are gone.
        """
        if self._active in old:
            raise ValueError(f"{self} is still written to in a segment that is to be replaced")
        place = self._segments.place_of(old)
        with self._disk_work("replace segments"):
            new.change_suffix(CLEANED_SUFFIX, SWAP_SUFFIX)
        self._segments.replace(place, new)
        self._aborted.renew(new.base_offset, self._segments.base_offsets[place.start + 1], aborted)
        try:
            for segment in old:
                unlink_later(self._environment, segment.mark_deleted(), self.settings.file_delete_delay_ms)
                segment.close()
            new.change_suffix(SWAP_SUFFIX, "")
            new.close()
            self._beside.keep_of(self._segments.base_offsets)
        except OSError as error:
            new.index_anew(f"they may have the names of others: {error}")
            raise self._failure("replace segments", error) from error

    def update_settings(self, settings: LogSettings) -> None:
        """Run under other settings from now on."""
        self.flush_at += settings.flush_messages - self.settings.flush_messages
        self.settings = settings
        for segment in self.segments:
            segment.update_settings(settings)

    def _truncate(self, offset: int) -> None:
        self._trim()
        segment, *_ = self._segments.since(offset)
        position, offset = segment.batch_of(offset)  # a batch is removed whole
        _, *later = self._segments.since(offset)
        self._remove_segments(later[::-1])  # the last one first: a crash between must leave no hole
        segment.truncate(position, offset)
        segment.file.sync()  # or a power cut may bring back what follows, after what will be appended
        self._disk.sync_directory(self.directory)
        self._active = segment
        self.truncation_generation += 1
        self.recovery_point = min(self.recovery_point, offset)
        self.clean_offset = min(self.clean_offset, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.log_end_offset = self.high_watermark = offset
        self._beside.end_at(offset, self.segments)
        self.last_stable_offset = self.producers.stable_offset(self.log_start_offset, self.log_end_offset)

    def _remove_segments(self, segments: Sequence[Segment]) -> None:
        """Take segments off the log, in this order, and remove their files after `file.delete.delay.ms`."""
        self._beside.names_change()
        self._synced_to = -1
        for segment in list(segments):
            paths = segment.mark_deleted()
            self._segments.remove(segment)
            segment.close()
            unlink_later(self._environment, paths, self.settings.file_delete_delay_ms)

    def _out_of_range(self, offset: int) -> KafkaError:
        return KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{self.topic}-{self.partition} reaches from {self.log_start_offset} to {self.log_end_offset}: no {offset}",
        )
