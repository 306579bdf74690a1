"""The log cleaner: compacts the dirtiest logs first, in `log.cleaner.threads` threads.

`storage` cleans a log. A damaged log is not cleaned again until the next start; after a failure of the disk, the next
try is after `log.cleaner.backoff.ms`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from minibroker.broker.cluster import Cluster
from minibroker.broker.configs.settings import Settings
from minibroker.broker.metadata.partitions import Partition
from minibroker.broker.upkeep.cleaner_statistics import CleanerStatistics
from minibroker.broker.upkeep.housekeeping import delete_old_segments
from minibroker.broker.upkeep.partition_chores import run_chore_on_each_partition
from minibroker.operating_system import find_thread_clock
from minibroker.protocol.errors import KafkaError
from minibroker.storage.checkpoints.checkpoint_texts import CLEANER_OFFSET_CHECKPOINT
from minibroker.storage.compaction.batch_reading import UncleanableLog
from minibroker.storage.compaction.cleaning import CleaningAborted, CleaningThrottle, LogCleaning
from minibroker.storage.compaction.dirtiness import LogDirtiness, is_cleaning_due, measure_dirtiness
from minibroker.storage.compaction.rewriting import CleaningLimits, SyncFailed
from minibroker.storage.compaction.thread_pauses import ThreadPauses
from minibroker.storage.environment import RunAside
from minibroker.storage.log import Log
from minibroker.storage.log_settings import COMPACT

log = logging.getLogger("minibroker.cleaner")

TICK_MS = 1000  # a changed setting takes effect within this time
SHORTEST_WAIT_MS = 10  # Kafka allows a backoff of 0
MAX_KEYS_BYTES = 0x7FFFFFFF  # as in Kafka, the most that a thread can use of the buffer
MB = 1_000_000


class LogCleaner:
    """The cleanings of a cluster. It does nothing before `start_checks`.

    `run_in_thread(work, done)` runs work in a thread, without delaying a stop, as it may take minutes. The work pauses
    with `wait(seconds)`, which may return early. `statistics` counts the results.

    A check of all logs finds those that are due, and deletes old segments of compacted ones; as in Kafka, this happens
    only between two cleanings of a log. Then the logs that are due are cleaned, the dirtiest first, before the next
    check.
    """

    def __init__(
        self,
        cluster: Cluster,
        run_in_thread: RunAside,
        wait: Callable[[float], object],
        statistics: CleanerStatistics | None = None,
    ) -> None:
        self.statistics = statistics or CleanerStatistics()
        self._cluster = cluster
        self._run_aside = run_in_thread
        self._throttle = CleaningThrottle(float("inf"), cluster.clock.monotonic_ms, wait)
        self._due: list[tuple[float, Log]] = []  # (dirty share, log), the dirtiest last
        self._running: dict[str, LogCleaning] = {}  # by directory, which a new topic of the same name would share
        self._uncleanable: set[Log] = set()
        self._resting: set[Log] = set()
        self._looked_ms = -float("inf")
        self._looking = False
        self._closed = False

    def start_checks(self) -> None:
        """Check for dirty logs now, and then every `log.cleaner.backoff.ms`, unless `log.cleaner.enable` is off."""
        if self._cluster.settings["log.cleaner.enable"]:
            self._cluster.clock.call_later(0, self._start_search_if_interval_is_over)

    def close(self) -> None:
        """Begin no more cleanings, and cancel the running ones."""
        self._closed = True
        for cleaning in self._running.values():
            cleaning.cancel()

    @property
    def uncleanable_logs(self) -> frozenset[Log]:
        """Return the logs that are no longer compacted because they cannot be read."""
        return frozenset(self._uncleanable)

    # --- when -----------------------------------------------------------------------------------

    def _start_search_if_interval_is_over(self) -> None:
        """Start a search for due logs if `log.cleaner.backoff.ms` is over since the last one."""
        if self._closed:
            return
        clock, settings = self._cluster.clock, self._cluster.settings
        self._throttle.bytes_per_second = settings["log.cleaner.io.max.bytes.per.second"]
        backoff_ms = max(settings["log.cleaner.backoff.ms"], SHORTEST_WAIT_MS)
        if clock.monotonic_ms() >= self._looked_ms + backoff_ms:
            self._resting.clear()
            self._start_search_for_due_logs()
        else:
            self._begin_next_cleanings()
        rest_ms = self._looked_ms + backoff_ms - clock.monotonic_ms()
        clock.call_later(min(max(rest_ms, SHORTEST_WAIT_MS), TICK_MS), self._start_search_if_interval_is_over)

    def _start_search_for_due_logs(self) -> None:
        """Check all logs in slices, and then clean those that are due."""
        if self._looking or self._closed:
            return
        self._looking = True
        self._looked_ms = self._cluster.clock.monotonic_ms()
        self._uncleanable = {dirty_logs for dirty_logs in self._uncleanable if dirty_logs.is_open_and_online}
        self.statistics.uncleanable = len(self._uncleanable)
        dirty_logs: list[tuple[float, Log]] = []
        ratios = [0.0]
        run_chore_on_each_partition(
            self._cluster,
            lambda partition: self._add_log_if_cleaning_due(partition, dirty_logs, ratios),
            lambda: self._clean_due_logs(dirty_logs, max(ratios)),
        )

    def _add_log_if_cleaning_due(
        self, partition: Partition, due_logs: list[tuple[float, Log]], ratios: list[float]
    ) -> None:
        """Add the partition's dirty ratio to `ratios`, and its log to `due_logs` if it must be cleaned."""
        kept = partition.log
        if COMPACT not in kept.settings.cleanup_policy or kept in self._uncleanable or kept.directory in self._running:
            return
        delete_old_segments(partition)
        dirt = self._measure_dirtiness(kept)
        if dirt is not None:
            ratios.append(dirt.ratio)
            if is_cleaning_due(kept, dirt):
                due_logs.append((dirt.ratio, kept))

    def _clean_due_logs(self, due_logs: list[tuple[float, Log]], max_ratio: float) -> None:
        """Begin to clean the due logs, each a (dirty ratio, log); `max_ratio` is the largest one of all logs."""
        self._looking = False
        self._due = sorted(due_logs, key=lambda due: due[0])
        self.statistics.max_dirty_ratio = max_ratio
        self.statistics.looked_ms = self._cluster.clock.wall_ms()
        self._begin_next_cleanings()

    def _measure_dirtiness(self, compacted_log: Log) -> LogDirtiness | None:
        """Return how much of the log is dirty, or None if it cannot be cleaned now."""
        if (
            not compacted_log.is_open_and_online
            or compacted_log in self._uncleanable
            or compacted_log in self._resting
            or compacted_log.directory in self._running
        ):
            return None
        try:
            return measure_dirtiness(compacted_log, self._cluster.clock.wall_ms())
        except (OSError, KafkaError) as error:
            self._mark_log_uncleanable(compacted_log, error)
            return None

    # --- one cleaning ---------------------------------------------------------------------------

    def _begin_next_cleanings(self) -> None:
        """Begin to clean the dirtiest logs, as many as `log.cleaner.threads` allows at a time."""
        while self._due and not self._closed and len(self._running) < self._cluster.settings["log.cleaner.threads"]:
            _, dirty = self._due.pop()
            dirt = self._measure_dirtiness(dirty)  # since the check, it may have been deleted or got other settings
            if dirt is not None and is_cleaning_due(dirty, dirt) and COMPACT in dirty.settings.cleanup_policy:
                self._begin_cleaning(dirty, dirt)

    def _begin_cleaning(self, dirty_log: Log, dirtiness: LogDirtiness) -> None:
        clock = self._cluster.clock
        limits, rest = get_cleaning_limits(self._cluster.settings), ThreadPauses(find_thread_clock()).sleep_if_due
        cleaning = LogCleaning(dirty_log, dirtiness, limits, self._throttle, clock.wall_ms(), rest)
        self._running[dirty_log.directory] = cleaning
        self.statistics.running = len(self._running)
        self._run_cleaning_step(cleaning, clock.monotonic_ms())

    def _run_cleaning_step(self, cleaning: LogCleaning, began_ms: float) -> None:
        has_written = []
        self._run_aside(
            lambda: has_written.append(cleaning.clean_next_segment()),
            lambda error: self._continue_or_end_cleaning(
                cleaning, began_ms, error, bool(has_written and has_written[0])
            ),
        )

    def _continue_or_end_cleaning(
        self, cleaning: LogCleaning, began_ms: float, error: Exception | None, has_written: bool
    ) -> None:
        """Replace the cleaned segments and continue, or end the cleaning and begin the next one."""
        cleaned = cleaning.log
        try:
            if error is not None:
                raise error
            if has_written:
                cleaning.replace_cleaned_segments()
                self._run_cleaning_step(cleaning, began_ms)
                return
            cleaning.set_clean_offset()
        except CleaningAborted as reason:
            log.info("%s", reason)
            self._resting.add(cleaned)
        except SyncFailed as failure:
            cleaned.take_offline_after_sync_error(failure)
        except OSError as failure:
            log.error("%s-%d could not be compacted: %s", cleaned.topic, cleaned.partition, failure)
            self._resting.add(cleaned)
        except Exception as failure:
            self._mark_log_uncleanable(cleaned, failure)
        else:
            self._end_cleaning(cleaning, began_ms)
        del self._running[cleaned.directory]
        self._add_cleaning_to_statistics(cleaning, began_ms)
        self._cluster.clock.call_later(0, self._begin_next_cleanings if self._due else self._start_search_for_due_logs)

    def _add_cleaning_to_statistics(self, cleaning: LogCleaning, began_ms: float) -> None:
        """Add the cleaning to the statistics, whether it succeeded or not."""
        total = self.statistics
        total.running = len(self._running)
        total.last_seconds = (self._cluster.clock.monotonic_ms() - began_ms) / 1000
        total.seconds += total.last_seconds
        if cleaning.rewriter is not None:
            counts = cleaning.rewriter.counts
            total.read_bytes += counts.read_bytes
            total.written_bytes += counts.written_bytes
            total.read_records += counts.read_records
            total.written_records += counts.written_records

    def _end_cleaning(self, cleaning: LogCleaning, began_ms: float) -> None:
        self.statistics.cleanings += 1
        self._cluster.logs.find_directory_of_log(cleaning.log).write_checkpoint_soon(CLEANER_OFFSET_CHECKPOINT)
        _log_cleaning(cleaning, self._cluster.clock.monotonic_ms() - began_ms)

    def _mark_log_uncleanable(self, dirty_log: Log, error: Exception) -> None:
        """Stop cleaning the log, and log a traceback if the error is a bug and not damage."""
        self._uncleanable.add(dirty_log)
        self.statistics.uncleanable = len(self._uncleanable)
        expected = isinstance(error, UncleanableLog | KafkaError | OSError)
        name = f"{dirty_log.topic}-{dirty_log.partition}"
        log.error("%s is not compacted any more: %s", name, error, exc_info=None if expected else error)


def get_cleaning_limits(settings: Settings) -> CleaningLimits:
    """Return the memory that the settings allow each of the cleaner's threads."""
    threads = settings["log.cleaner.threads"]
    return CleaningLimits(
        keys_bytes=min(settings["log.cleaner.dedupe.buffer.size"] // threads, MAX_KEYS_BYTES),
        load_factor=min(settings["log.cleaner.io.buffer.load.factor"], 1.0),
        buffer_bytes=settings["log.cleaner.io.buffer.size"] // threads // 2,
    )


def _log_cleaning(cleaning: LogCleaning, took_ms: float) -> None:
    cleaned, rewriter = cleaning.log, cleaning.rewriter
    if rewriter is None:
        return
    counts, seconds = rewriter.counts, max(took_ms, 1) / 1000
    log.info(
        "%s-%d is compacted up to offset %d: %d segments became %d, %s became %s, %d of %d records stay; "
        "%.1f s, %s/s, %d keys in %s",
        *(cleaned.topic, cleaned.partition, cleaned.clean_offset, cleaning.segments, cleaning.replacements),
        *(
            _format_size(counts.read_bytes),
            _format_size(counts.written_bytes),
            counts.written_records,
            counts.read_records,
        ),
        *(
            seconds,
            _format_size(counts.read_bytes / seconds),
            rewriter.keys.count,
            _format_size(rewriter.keys.size_bytes),
        ),
    )
    if counts.keyless_records:
        log.warning(
            "%s-%d: %d records without a key were dropped", cleaned.topic, cleaned.partition, counts.keyless_records
        )


def _format_size(size_bytes: float) -> str:
    return f"{size_bytes / MB:.1f} MB" if size_bytes >= MB else f"{size_bytes / 1000:.1f} kB"
