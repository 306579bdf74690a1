"""One cleaning of one log, step by step, in two threads.

    loop's thread    Cleaning()          swap()          swap()  ...           conclude()
    another thread              work()          work()          work(): False

All that changes the log happens in the loop's thread, between two requests. A log that is cut, closed or given other
settings meanwhile makes the cleaning void: it ends with `CleaningAborted`, and the log is none the worse. What the work
consists of is in `rewriting.py`, which logs are cleaned in the broker's `cleaner.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock

from minibroker.protocol.errors import KafkaError
from minibroker.storage.compaction.batch_filter import NO_OFFSET, LastRecord
from minibroker.storage.compaction.batch_reading import Uncleanable
from minibroker.storage.compaction.dirtiness import Dirtiness, closed_segments
from minibroker.storage.compaction.rewriting import Limits, Plan, Rewriter, Rewritten, Source
from minibroker.storage.compaction.segment_writer import discard_cleaned, discard_half_swapped
from minibroker.storage.log import Log
from minibroker.storage.names import TRANSACTION_INDEX_SUFFIX

MAX_WAIT_SECONDS = 0.5  # between two looks at whether the cleaning is void, while it is throttled
MIN_WAIT_MS = 10  # less is waited for together with what follows


class Throttle:
    """A rate that holds on average. `bytes_per_second` may be changed at any time, from any thread.

    `monotonic_ms()` is a clock that never goes back, `wait(seconds)` returns after that time or earlier.
    """

    def __init__(
        self, bytes_per_second: float, monotonic_ms: Callable[[], float], wait: Callable[[float], object]
    ) -> None:
        self.bytes_per_second = bytes_per_second
        self.wait = wait
        self.monotonic_ms = monotonic_ms
        self._due_ms = 0.0  # when all that was done so far would be done at the rate
        self._lock = Lock()

    def took(self, size_bytes: int) -> float:
        """Note that so much was read or written; when the next may be, by the monotonic clock, in ms."""
        with self._lock:
            start_ms = max(self._due_ms, self.monotonic_ms())
            self._due_ms = start_ms + size_bytes * 1000.0 / max(self.bytes_per_second, 1.0)
            return self._due_ms


class CleaningAborted(Exception):
    """The log changed under the cleaning, or somebody wants it to end. Nothing is wrong."""


class Cleaning:
    """A cleaning of `log`, of what `dirt` says is cleanable at `now_ms`.

    `segments` counts those that were replaced, `replacements` those that replaced them.
    """

    def __init__(self, log: Log, dirt: Dirtiness, limits: Limits, throttle: Throttle, now_ms: int) -> None:
        self.log = log
        self.dirt = dirt
        self.segments = self.replacements = 0
        self.rewriter: Rewriter | None = None
        self._plan = _plan(log, dirt, limits, now_ms)
        self._generation = log.truncation_generation
        self._cancelled = False
        self._throttle = throttle
        self._groups: deque[list[Source]] = deque()
        self._written: Rewritten | None = None

    def cancel(self) -> None:
        """Make the work end soon, with `CleaningAborted`. Any thread may call it."""
        self._cancelled = True

    def work(self) -> bool:
        """Write the next segment, to be swapped in; False when there is none left. In any thread, one at a time.

        Raises `CleaningAborted`, `Uncleanable` if the log is damaged, `OSError`.
        """
        try:
            if self.rewriter is None:
                self.rewriter = Rewriter(self._plan, self._pace)
                self._groups.extend(self.rewriter.learn())
            else:
                self._plan.disk.sync_directory(self._plan.directory)  # what was swapped in stays so
            if not self._groups:
                return False
            self._written = self.rewriter.write(self._groups[0])
            return True
        except (OSError, Uncleanable):
            self._check()  # no wonder if files are gone, or cut
            raise

    def swap(self) -> None:
        """Put the segment that was just written in the place of its originals. In the loop's thread.

        Raises `CleaningAborted` if the log has changed, `KafkaError` KAFKA_STORAGE_ERROR.
        """
        group, written = self._groups.popleft(), self._written
        assert written is not None
        new, self._written = written.segment, None
        try:
            self._check()
            self.log.replace_segments([source.segment for source in group], new, written.aborted)
        except ValueError as error:
            discard_cleaned(self._plan.disk, new.path)
            raise CleaningAborted(str(error)) from None
        except (CleaningAborted, KafkaError):
            if new not in self.log.segments:
                discard_half_swapped(self._plan.disk, new.path)
            raise
        self.segments += len(group)
        self.replacements += 1

    def conclude(self) -> None:
        """Note up to where the log is clean, once the work is done. In the loop's thread. Raises `CleaningAborted`."""
        self._check()
        if self.rewriter is not None:
            self.log.clean_offset = max(self.dirt.first_dirty_offset, self.rewriter.keys.latest_offset + 1)

    def _check(self) -> None:
        """Go on, or raise `CleaningAborted`. From any thread: the log's attributes are only looked at."""
        if self._cancelled or self.log.truncation_generation != self._generation or self.log.offline:
            raise CleaningAborted(f"the cleaning of {self.log} was given up")
        if self.log.settings is not self._plan.settings and self.log.settings != self._plan.settings:
            raise CleaningAborted(f"{self.log} was given other settings while it was cleaned")

    def _pace(self, size_bytes: int) -> None:
        """Keep to the rate at which may be read and written."""
        self._check()
        throttle = self._throttle
        due_ms = throttle.took(size_bytes)
        while (early_ms := due_ms - throttle.monotonic_ms()) >= MIN_WAIT_MS:
            throttle.wait(min(early_ms / 1000.0, MAX_WAIT_SECONDS))
            self._check()


def _plan(log: Log, dirt: Dirtiness, limits: Limits, now_ms: int) -> Plan:
    sources = [
        Source(segment, segment.path, segment.base_offset, end_offset, segment.size_bytes)
        for segment, end_offset in closed_segments(log)
        if end_offset <= dirt.end_offset
    ]
    indexes = [segment.path + TRANSACTION_INDEX_SUFFIX for segment in log.segments]
    return Plan(
        log.environment.disk,
        log.directory,
        sources,
        indexes,
        log.aborted_transactions(0, log.log_end_offset + 1),
        _last_records(log),
        log.recovery_point,
        log.settings,
        dirt,
        limits,
        now_ms,
    )


def _last_records(log: Log) -> dict[int, LastRecord]:
    """Where each producer stands that the log still knows."""
    return {
        producer_id: LastRecord(entry.batches[-1][2] if entry.batches else NO_OFFSET, entry.epoch)
        for producer_id, entry in log.producers.entries()
    }
