"""One cleaning of one log, in steps, in two threads.

    loop's thread    Cleaning()          swap()          swap()  ...           conclude()
    another thread              work()          work()          work(): False

Only the loop's thread changes the log, between two requests. If the log is truncated or closed, or its settings change,
the cleaning ends with `CleaningAborted` and leaves the log as it is. `rewriting.py` does the work in the other thread;
the broker's `cleaner.py` chooses the logs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock

from minibroker.protocol.errors import KafkaError
from minibroker.storage.compaction.batch_filter import NO_OFFSET, LastRecord
from minibroker.storage.compaction.batch_reading import UncleanableLog
from minibroker.storage.compaction.dirtiness import LogDirtiness, iterate_closed_segments
from minibroker.storage.compaction.rewriting import (
    CleaningLimits,
    CleaningPlan,
    LogRewriter,
    RewrittenSegment,
    SourceSegment,
)
from minibroker.storage.compaction.segment_writer import remove_half_swapped_files, remove_unfinished_cleaned_files
from minibroker.storage.compaction.thread_pauses import do_not_pause
from minibroker.storage.log import Log
from minibroker.storage.names import TRANSACTION_INDEX_SUFFIX

MAX_WAIT_SECONDS = 0.5  # a throttled cleaning checks at least this often whether it was aborted
MIN_WAIT_MS = 10  # a shorter wait is added to the next one


class CleaningThrottle:
    """A limit on the average rate. `bytes_per_second` may be changed at any time, from any thread.

    `monotonic_ms()` is a monotonic clock; `wait(seconds)` returns after that time or earlier.
    """

    def __init__(
        self, bytes_per_second: float, monotonic_ms: Callable[[], float], wait: Callable[[float], object]
    ) -> None:
        self.bytes_per_second = bytes_per_second
        self.wait = wait
        self.monotonic_ms = monotonic_ms
        self._due_ms = 0.0  # the time by which all bytes so far keep to the rate
        self._lock = Lock()

    def count_bytes_and_get_due_ms(self, size_bytes: int) -> float:
        """Count bytes that were read or written. Return when to continue, in ms of the monotonic clock."""
        with self._lock:
            start_ms = max(self._due_ms, self.monotonic_ms())
            self._due_ms = start_ms + size_bytes * 1000.0 / max(self.bytes_per_second, 1.0)
            return self._due_ms


class CleaningAborted(Exception):
    """The log has changed during the cleaning, or the cleaning was cancelled. This is not a failure."""


class LogCleaning:
    """A cleaning of the part of `log` that `dirt` says is cleanable at `now_ms`.

    `segments` is the number of replaced segments, `replacements` the number of new ones.
    """

    def __init__(
        self,
        log: Log,
        dirt: LogDirtiness,
        limits: CleaningLimits,
        throttle: CleaningThrottle,
        now_ms: int,
        pause_if_due: Callable[[], None] = do_not_pause,
    ) -> None:
        self.log = log
        self.dirt = dirt
        self.segments = self.replacements = 0
        self.rewriter: LogRewriter | None = None
        self._plan = make_cleaning_plan(log, dirt, limits, now_ms)
        self._generation = log.truncation_generation
        self._cancelled = False
        self._throttle = throttle
        self._pause_if_due = pause_if_due
        self._groups: deque[list[SourceSegment]] = deque()
        self._written: RewrittenSegment | None = None

    def cancel(self) -> None:
        """End the work soon with `CleaningAborted`. Any thread may call this."""
        self._cancelled = True

    def clean_next_segment(self) -> bool:
        """Write the next cleaned segment, for `replace_cleaned_segments` to swap in. Return False if none is left.

        Any thread may call this, but one at a time.
        Raises `CleaningAborted`, `UncleanableLog` if the log is damaged, `OSError`.
        """
        try:
            if self.rewriter is None:
                self.rewriter = LogRewriter(self._plan, self._wait_for_io_throttle, self._pause_if_due)
                self._groups.extend(self.rewriter.map_dirty_keys())
            else:
                self._plan.disk.sync_directory(self._plan.directory)  # makes the last swap durable
            if not self._groups:
                return False
            self._written = self.rewriter.write_cleaned_segment(self._groups[0])
            return True
        except (OSError, UncleanableLog):
            self._check_log_unchanged()  # the error may only mean that files were deleted or truncated
            raise

    def replace_cleaned_segments(self) -> None:
        """Replace the original segments by the one that was just written. For the loop's thread.

        Raises `CleaningAborted` if the log has changed, `KafkaError` KAFKA_STORAGE_ERROR.
        """
        group, written = self._groups.popleft(), self._written
        assert written is not None
        new, self._written = written.segment, None
        try:
            self._check_log_unchanged()
            self.log.replace_segments([source.segment for source in group], new, written.aborted)
        except ValueError as error:
            remove_unfinished_cleaned_files(self._plan.disk, new.path)
            raise CleaningAborted(str(error)) from None
        except (CleaningAborted, KafkaError):
            if new not in self.log.segments:
                remove_half_swapped_files(self._plan.disk, new.path)
            raise
        self.segments += len(group)
        self.replacements += 1

    def set_clean_offset(self) -> None:
        """Set the log's clean offset after all replacements. For the loop's thread. Raises `CleaningAborted`."""
        self._check_log_unchanged()
        if self.rewriter is not None:
            self.log.clean_offset = max(self.dirt.first_dirty_offset, self.rewriter.keys.latest_offset + 1)

    def _check_log_unchanged(self) -> None:
        """Raise `CleaningAborted` if the log has changed. For any thread, as it only reads the log's attributes."""
        if self._cancelled or self.log.truncation_generation != self._generation or self.log.offline:
            raise CleaningAborted(f"the cleaning of {self.log} was aborted")
        if self.log.settings is not self._plan.settings and self.log.settings != self._plan.settings:
            raise CleaningAborted(f"the settings of {self.log} have changed while it was cleaned")

    def _wait_for_io_throttle(self, size_bytes: int) -> None:
        """Count bytes, and wait as long as the throttle says."""
        self._check_log_unchanged()
        throttle = self._throttle
        due_ms = throttle.count_bytes_and_get_due_ms(size_bytes)
        while (early_ms := due_ms - throttle.monotonic_ms()) >= MIN_WAIT_MS:
            throttle.wait(min(early_ms / 1000.0, MAX_WAIT_SECONDS))
            self._check_log_unchanged()


def make_cleaning_plan(log: Log, dirtiness: LogDirtiness, limits: CleaningLimits, now_ms: int) -> CleaningPlan:
    """Return the input of a cleaning. For the loop's thread."""
    sources = [
        SourceSegment(segment, segment.path, segment.base_offset, end_offset, segment.size_bytes)
        for segment, end_offset in iterate_closed_segments(log)
        if end_offset <= dirtiness.end_offset
    ]
    indexes = [segment.path + TRANSACTION_INDEX_SUFFIX for segment in log.segments]
    return CleaningPlan(
        log.environment.disk,
        log.directory,
        sources,
        indexes,
        log.list_aborted_transactions(0, log.log_end_offset + 1),
        _find_last_record_of_producers(log),
        log.recovery_point,
        log.settings,
        dirtiness,
        limits,
        now_ms,
    )


def _find_last_record_of_producers(log: Log) -> dict[int, LastRecord]:
    """Return the last record of each producer that the log has state of."""
    return {
        producer_id: LastRecord(entry.batches[-1][2] if entry.batches else NO_OFFSET, entry.epoch)
        for producer_id, entry in log.producers.iterate_entries()
    }
