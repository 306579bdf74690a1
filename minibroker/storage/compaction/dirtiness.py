"""How much of a log is dirty, and whether to clean it, by the rules of Kafka's LogCleanerManager.

| clean: was compacted | dirty, cleanable        | dirty, but too new, unstable or still written to   |
    0                      first_dirty_offset        end_offset                                    log end
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from minibroker.storage.log import Log
from minibroker.storage.log_settings import MAX_LONG
from minibroker.storage.segment import Segment


class LogDirtiness(NamedTuple):
    """The sizes of the clean and the cleanable part of a log, and whether the cleanable part is overdue.

    `end_offset` is the base offset of a segment.
    """

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool

    @property
    def ratio(self) -> float:
        """The dirty ratio: the share of the cleanable bytes in the clean and cleanable ones, 0 to 1."""
        return self.cleanable_bytes / max(self.clean_bytes + self.cleanable_bytes, 1)


def measure_dirtiness(log: Log, now_ms: int) -> LogDirtiness:
    """Return how much of a log is clean and cleanable.

    Raises `OSError`, or `KafkaError` if it needs a timestamp that cannot be read.
    """
    first_dirty = find_first_dirty_offset(log)
    end_offset = _find_cleanable_end_offset(log, first_dirty, now_ms)
    clean_bytes = cleanable_bytes = 0
    for segment, segment_end in iterate_closed_segments(log):
        if segment.base_offset < first_dirty:
            clean_bytes += segment.size_bytes
        if first_dirty < segment_end <= end_offset:
            cleanable_bytes += segment.size_bytes
    is_overdue = _exceeds_max_compaction_lag(log, first_dirty, now_ms)
    return LogDirtiness(first_dirty, end_offset, clean_bytes, cleanable_bytes, is_overdue)


def is_cleaning_due(log: Log, dirtiness: LogDirtiness) -> bool:
    """Return whether to clean the log: enough of it is dirty, or something has been dirty for too long."""
    if dirtiness.cleanable_bytes == 0:
        return False
    return dirtiness.is_overdue or dirtiness.ratio > log.settings.min_cleanable_dirty_ratio


def find_first_dirty_offset(log: Log) -> int:
    """Return the first offset that was never compacted."""
    return max(log.clean_offset, log.log_start_offset)


def iterate_closed_segments(log: Log) -> Iterator[tuple[Segment, int]]:
    """Yield (segment, base offset of the next one) for all segments that are no longer written to, oldest first."""
    segments: Sequence[Segment] = log.segments
    for segment, following in zip(segments, segments[1:], strict=False):
        yield segment, following.base_offset


def _find_cleanable_end_offset(log: Log, first_dirty: int, now_ms: int) -> int:
    """Return where the cleanable part ends: before the first segment that is unstable or too new."""
    stable_offset = min(log.last_stable_offset, log.high_watermark)
    lag_ms = log.settings.min_compaction_lag_ms
    end_offset = log.segments[0].base_offset
    for segment, segment_end in iterate_closed_segments(log):
        if segment_end > stable_offset:
            break
        if lag_ms > 0 and segment_end > first_dirty and segment.get_largest_timestamp() > now_ms - lag_ms:
            break
        end_offset = segment_end
    return end_offset


def _exceeds_max_compaction_lag(log: Log, first_dirty: int, now_ms: int) -> bool:
    """Return whether a dirty segment began longer ago than `max.compaction.lag.ms`."""
    lag_ms = log.settings.max_compaction_lag_ms
    if lag_ms == MAX_LONG:
        return False
    for segment, segment_end in iterate_closed_segments(log):
        if segment_end > first_dirty:
            segment.load_last_entries()
            if 0 < segment.first_timestamp < now_ms - lag_ms:
                return True
    return False
