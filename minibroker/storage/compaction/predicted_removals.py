"""What a cleaning would take of a log now, found by doing it without writing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from minibroker.protocol.records.streaming import stream_records
from minibroker.protocol.records.varints import Bytes
from minibroker.storage.compaction.batch_filter import HeaderAndBytes
from minibroker.storage.compaction.batch_reading import StoredBatch
from minibroker.storage.compaction.rewriting import CleaningPlan, LogRewriter, SourceSegment
from minibroker.storage.log_settings import MAX_LONG


class PredictedRemovals(NamedTuple):
    """What would be taken of one segment: so many of its records and bytes.

    `path` is the path of its files without suffix; `offsets` are those of the first records that would be taken.
    `taken_bytes` is negative if what stays grows, as it does by the time until which tombstones are kept.
    """

    path: str
    records: int
    taken_records: int
    size_bytes: int
    taken_bytes: int
    offsets: list[int]


def predict_removed_records(
    plan: CleaningPlan, path_of_listed_segment: str, max_offsets: int
) -> Iterator[PredictedRemovals]:
    """Yield what a cleaning would remove from each segment, oldest first; offsets only for `path_of_listed_segment`.

    It may run in any thread, and takes as long as a cleaning. Raises `UncleanableLog`, `KafkaError`, `OSError`.
    """
    rewriter = LogRewriter(plan._replace(recovery_point=MAX_LONG), lambda _: None)  # so that nothing is synced
    for group in rewriter.map_dirty_keys():
        for source in group:
            yield _predict_removed_records_of_segment(
                source, rewriter, max_offsets if source.path == path_of_listed_segment else 0
            )


def _predict_removed_records_of_segment(
    source: SourceSegment, rewriter: LogRewriter, max_offsets: int
) -> PredictedRemovals:
    """Return how many records and bytes a cleaning would remove from a segment, and the first offsets."""
    counts, offsets = rewriter.counts, list[int]()
    read_records, written_records, written_bytes = counts.read_records, counts.written_records, counts.written_bytes
    for batch, kept in rewriter.iterate_filtered_batches(source):
        if len(offsets) < max_offsets:
            offsets += _list_removed_offsets(batch, kept)
    records = counts.read_records - read_records
    taken_bytes = source.size_bytes - (counts.written_bytes - written_bytes)
    taken_records = records - (counts.written_records - written_records)
    return PredictedRemovals(source.path, records, taken_records, source.size_bytes, taken_bytes, offsets[:max_offsets])


def _list_removed_offsets(batch: StoredBatch, kept_batch: HeaderAndBytes | None) -> list[int]:
    """Return the offsets of the records of a batch that are not kept."""
    if kept_batch is not None and kept_batch[1] is batch.data:
        return []
    staying = set() if kept_batch is None else set(_iterate_record_offsets(kept_batch[1]))
    return [offset for offset in _iterate_record_offsets(batch.data) if offset not in staying]


def _iterate_record_offsets(batch: Bytes) -> Iterator[int]:
    return (record.offset for record in stream_records(batch, with_values=False) if record is not None)
