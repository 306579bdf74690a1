"""The job `rewrite`: writes a log directory in another message format, codec or batch size, one Spark task per segment.

`minibroker.pipeline.rewriting` rewrites segments and assembles the new directory.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from minibroker.pipeline.jobs.spark_tasks import rows_of_tasks
from minibroker.pipeline.rewriting.directory import Rewriting, rewrite_segment, survey_segment
from minibroker.pipeline.rewriting.report import Report
from minibroker.pipeline.rewriting.rewrite_settings import RewriteSettings
from minibroker.pipeline.rewriting.segment_rewriting import NewSegment, SegmentTask
from minibroker.pipeline.rewriting.transaction_rewriting import Survey

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# One row for each segment to rewrite: the fields of `SegmentTask`, and its log's open transactions (producer id, first
# offset), which are null unless only committed records are kept.
SEGMENTS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("baseOffset", pa.int64()),
        ("sizeInBytes", pa.int64()),
        ("isLast", pa.bool_()),
        ("isTorn", pa.bool_()),
        ("openTransactions", pa.map_(pa.int64(), pa.int64())),
    ]
)
# One row for each written segment: its partition, and the fields of `NewSegment`. `records` is null if a wrapper was
# copied unread.
WRITTEN: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("baseOffset", pa.int64()),
        ("nextOffset", pa.int64()),
        ("sizeInBytes", pa.int64()),
        ("batches", pa.int64()),
        ("records", pa.int64()),
        ("sourceSizeInBytes", pa.int64()),
        ("droppedBatches", pa.int64()),
        ("lostBytes", pa.int64()),
    ]
)
SURVEYS: Final = pa.schema([("survey", pa.binary())])


def rewrite(segments: DataFrame, source: str, target: str, settings: RewriteSettings) -> DataFrame:
    """Rewrite segments (`SEGMENTS`) of the log directory `source` into `target`. Return a row for each (`WRITTEN`).

    `Rewriting.finish` then makes logs of the files. Both directories must be the same on all machines. A segment that
    was rewritten already is only reported.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    from minibroker.pipeline.sources.arrival import ship

    def written(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                *fields, opened = (row[name] for name in SEGMENTS.names)
                task = SegmentTask(*fields)
                open = None if opened is None else dict(opened)
                yield _rows(task, rewrite_segment(task, source, target, settings, open))

    return segments.mapInArrow(ship(written), from_arrow_schema(WRITTEN))


def run(
    spark: SparkSession, source: str, target: str, settings: RewriteSettings, topics: Collection[str] = ()
) -> Report:
    """Rewrite a log directory that no broker uses: these topics, or all but the internal ones.

    Everything else is copied. A call after a killed one continues with the remaining segments. Raises `RewriteError` if
    the directory cannot be rewritten, if possible before anything is written. Raises `OSError` and Spark's errors.
    """
    with Rewriting(source, target, settings, topics) as rewriting:
        return rewriting.finished or run_begun(spark, rewriting)


def run_begun(spark: SparkSession, rewriting: Rewriting) -> Report:
    """Do the rest of a rewriting whose directories are checked and locked. Raises what `run` raises."""
    settings = rewriting.settings
    open: dict[str, dict[int, int]] | None = None
    if settings.is_old:
        open = rewriting.open_transactions(_surveys(spark, rewriting.plan.tasks, rewriting.source))
    left = rewriting.left()
    if left:
        segments = segments_of(spark, left, open if settings.committed_only else None)
        rewrite(segments, rewriting.source, rewriting.target, settings).count()
    return rewriting.finish()


def segments_of(
    spark: SparkSession, tasks: Sequence[SegmentTask], open: Mapping[str, Mapping[int, int]] | None = None
) -> DataFrame:
    """Return the segments as rows (`SEGMENTS`), each in a Spark partition, and so a task, of its own."""
    rows = []
    for task in tasks:
        opened = None if open is None else list(open.get(task.log, {}).items())
        rows.append(dict(zip(SEGMENTS.names, (*astuple(task), opened), strict=True)))
    return rows_of_tasks(spark, rows, lambda row: [pa.RecordBatch.from_pylist([row], SEGMENTS)], SEGMENTS)


def _surveys(spark: SparkSession, tasks: Sequence[SegmentTask], source: str) -> list[tuple[str, Survey]]:
    """Return what `survey_segment` returns for each segment."""

    def row(task: SegmentTask) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"survey": [pickle.dumps(survey_segment(task, source))]}, SURVEYS)

    return [pickle.loads(found.survey) for found in rows_of_tasks(spark, tasks, row, SURVEYS).collect()]


def _rows(task: SegmentTask, segments: Iterable[NewSegment]) -> pa.RecordBatch:
    rows = []
    for segment in segments:
        row = dict(zip(WRITTEN.names, (task.topic, task.partition, *segment), strict=True))
        rows.append(row if segment.record_count >= 0 else {**row, "records": None})
    return pa.RecordBatch.from_pylist(rows, WRITTEN)
