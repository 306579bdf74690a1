"""Which of a log's oldest segments to delete: the rules of Kafka's UnifiedLog.deleteOldSegments, as a pure function.

Whole segments are deleted, the oldest first, for one of three reasons, which are checked in this order:

    START  all of it lies below the log start offset; this also applies to logs that are only compacted
    SIZE   without it, the log is still at least as large as `retention.bytes`
    TIME   its largest timestamp (its file's time, if no record has one: KIP-33) is older than `retention.ms`

Segments at or above the high watermark stay, and so does an empty last segment. The active segment may be deleted;
then a new one begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Protocol

from minibroker.named_tuples import NamedTuple
from minibroker.storage.log_settings import LogSettings

DELETE = "delete"


class DeletionReason(Enum):
    """Why a segment is deleted."""

    START = "it lies below the log start offset"
    SIZE = "the log is larger than retention.bytes"
    TIME = "its records are older than retention.ms"


class AgedSegment(Protocol):
    """What retention needs of a segment."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    def get_largest_timestamp(self) -> int:
        """Return the largest timestamp of a record, in ms since 1970. This may read the file."""


class LogExtent(NamedTuple):
    """The offsets of a log that matter for retention."""

    log_start_offset: int
    high_watermark: int
    log_end_offset: int


def list_deletion_reasons(
    segments: Sequence[AgedSegment], extent: LogExtent, settings: LogSettings, now_ms: int
) -> list[DeletionReason]:
    """Return a reason for each of the oldest segments to delete. `segments` are oldest first; the last one is active.

    Raises what `get_largest_timestamp` raises.
    """
    removable = segments[: _count_removable_segments(segments, extent)]
    reasons = [DeletionReason.START for _ in _iterate_segments_below_start(segments, extent.log_start_offset)][
        : len(removable)
    ]
    if DELETE in settings.cleanup_policy:
        reasons += _iterate_size_reasons(segments[len(reasons) :], removable[len(reasons) :], settings.retention_bytes)
        reasons += _iterate_age_reasons(removable[len(reasons) :], now_ms, settings.retention_ms)
    return reasons


def _count_removable_segments(segments: Sequence[AgedSegment], extent: LogExtent) -> int:
    """Return how many of the segments may be deleted at all."""
    ends = [*(segment.base_offset for segment in segments[1:]), extent.log_end_offset]
    count = sum(end <= extent.high_watermark for end in ends)
    return count - (count == len(segments) and segments[-1].size_bytes == 0)


def _iterate_segments_below_start(segments: Sequence[AgedSegment], log_start_offset: int) -> Iterator[AgedSegment]:
    """Yield the oldest segments that end at or before the log start offset."""
    for segment, following in zip(segments, segments[1:], strict=False):
        if following.base_offset > log_start_offset:
            return
        yield segment


def _iterate_size_reasons(
    segments: Sequence[AgedSegment], removable: Sequence[AgedSegment], retention_bytes: int
) -> Iterator[DeletionReason]:
    """Yield a reason for each oldest segment without which at least `retention_bytes` remain."""
    if retention_bytes < 0:
        return
    excess_bytes = sum(segment.size_bytes for segment in segments) - retention_bytes
    for segment in removable:
        excess_bytes -= segment.size_bytes
        if excess_bytes < 0:
            return
        yield DeletionReason.SIZE


def _iterate_age_reasons(removable: Sequence[AgedSegment], now_ms: int, retention_ms: int) -> Iterator[DeletionReason]:
    """Yield a reason for each oldest segment whose newest record is older than `retention_ms`."""
    if retention_ms < 0:
        return
    for segment in removable:
        if now_ms - segment.get_largest_timestamp() <= retention_ms:
            return
        yield DeletionReason.TIME
