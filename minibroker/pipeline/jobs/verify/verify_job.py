"""The job `verify`: from a log directory to findings in a DataFrame. Spark checks the segments in parallel.

    plan of files ─> tasks of segments ─> findings and a summary of each ─> by partition: findings
                                       └> keys of what was cleaned ─> by key: findings

A task has some blocks of a segment and the producers' states in memory, whatever the size of the log. The checks are in
the other files of this package, without Spark, and `verify_local` runs them without Spark.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from minibroker.pipeline.jobs.spark_tasks import rows_of_tasks
from minibroker.pipeline.jobs.verify.compaction_checks import KEYS, duplicate_key
from minibroker.pipeline.jobs.verify.findings import CHECKS, MAX_OF_A_KIND, Finding
from minibroker.pipeline.jobs.verify.log_files import DirectoryPlan, PartitionPlan, SegmentPlan, plan_directory
from minibroker.pipeline.jobs.verify.partition_checks import check_partition, findings_about
from minibroker.pipeline.jobs.verify.segment_checks import check_segment, keys_of_segment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASK_BYTES: Final = 64 << 20  # small segments share a task up to this size
TASK_SEGMENTS: Final = 64

FINDINGS: Final = pa.schema(
    [
        ("topic", pa.string()),  # null for a file of the whole directory
        ("partition", pa.int32()),
        ("file", pa.string()),
        ("offset", pa.int64()),
        ("position", pa.int64()),
        ("kind", pa.string()),
        ("severity", pa.string()),
        ("detail", pa.string()),
    ]
)
_CHECKED: Final = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("checked", pa.binary())])


def verify(
    spark: SparkSession,
    path: str,
    *,
    topics: Collection[str] = (),
    checks: Iterable[str] = CHECKS,
    compacted: Collection[str] = (),
) -> DataFrame:
    """Return the findings about a log directory, or one partition's directory, as rows of `FINDINGS` in no order.

    `topics` limits them. `compacted` names compacted topics beside those in the directory's metadata. Raise
    `OptionError`, `OSError`; the query raises `OSError` if files disappear in the meantime.
    """
    return verify_plan(spark, plan_directory(path, topics=topics, checks=checks, compacted=compacted))


def verify_plan(spark: SparkSession, plan: DirectoryPlan) -> DataFrame:
    """Return the findings about the files of a plan, as `verify` does."""
    from minibroker.pipeline.sources.arrival import ship

    found = [*plan.findings]
    for partition in plan.partitions:
        if not partition.bases:
            found += check_partition(partition, [])
    schema = _spark_schema(FINDINGS)
    result = spark.createDataFrame([tuple(row_of(finding).values()) for finding in found], schema)
    if not plan.segments:
        return result
    checked = rows_of_tasks(spark, _tasks(plan.segments), _checked_segments, _CHECKED)
    by_partition = {(each.topic, each.partition): each for each in plan.partitions}
    result = result.union(
        checked.groupBy("topic", "partition").applyInArrow(ship(_partition_checks(by_partition)), schema)
    )
    cleaned = [each for each in plan.segments if each.is_cleaned]
    if cleaned:
        result = result.union(_duplicate_keys(rows_of_tasks(spark, _tasks(cleaned), _keys, KEYS)))
    return result


def findings_of(rows: pa.RecordBatch | pa.Table) -> list[Finding]:
    """Return the findings in rows of `FINDINGS`."""
    return [
        Finding(*(_none(name) if value is None else value for name, value in row.items())) for row in rows.to_pylist()
    ]


def table_of(findings: Sequence[Finding]) -> pa.Table:
    """Return findings as rows of `FINDINGS`."""
    return pa.Table.from_pylist([row_of(each) for each in findings], FINDINGS)


def row_of(finding: Finding) -> dict[str, Any]:
    """Return a finding as a row of `FINDINGS`, by column; None for what it does not have."""
    return {name: None if value == _none(name) else value for name, value in finding._asdict().items()}


def _none(name: str) -> Any:
    return -1 if name in ("partition", "offset", "position") else ""


def _spark_schema(schema: pa.Schema) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def _tasks(segments: Sequence[SegmentPlan]) -> list[list[SegmentPlan]]:
    """Return the segments of each task."""
    tasks: list[list[SegmentPlan]] = [[]]
    size = 0
    for segment in segments:
        if tasks[-1] and (size + segment.size_bytes > TASK_BYTES or len(tasks[-1]) >= TASK_SEGMENTS):
            tasks.append([])
            size = 0
        tasks[-1].append(segment)
        size += segment.size_bytes
    return tasks


def _checked_segments(segments: Iterable[SegmentPlan]) -> Iterator[pa.RecordBatch]:
    """Run in a task: from segments to findings and summaries."""
    for segment in segments:
        partition, checked = segment.partition, pickle.dumps(check_segment(segment))
        row = {"topic": partition.topic, "partition": partition.partition, "checked": checked}
        yield pa.RecordBatch.from_pylist([row], _CHECKED)


def _partition_checks(plans: dict[tuple[str, int], PartitionPlan]) -> Callable[[pa.Table], pa.Table]:
    """Return a function for a task: from the rows of one partition to all findings about it."""

    def fold(rows: pa.Table) -> pa.Table:
        key = rows.column("topic")[0].as_py(), rows.column("partition")[0].as_py()
        return table_of(findings_about(plans[key], map(pickle.loads, rows.column("checked").to_pylist())))

    return fold


def _keys(segments: Iterable[SegmentPlan]) -> Iterator[pa.RecordBatch]:
    for segment in segments:
        yield from keys_of_segment(segment)


def _duplicate_keys(keys: DataFrame) -> DataFrame:
    """Return a finding for each key that occurs more than once, at its first place."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    from minibroker.pipeline.sources.arrival import ship

    place = F.struct("offset", "file", "position")
    groups = keys.groupBy("topic", "partition", "key").agg(
        F.count("*").alias("count"), F.min(place).alias("first"), F.max("offset").alias("last")
    )
    order = Window.partitionBy("topic", "partition").orderBy("first.offset")
    twice = groups.where("count > 1").withColumn("number", F.row_number().over(order))
    return (
        twice.where(F.col("number") <= MAX_OF_A_KIND)
        .select("topic", "partition", "key", "count", "first.*", "last")
        .mapInArrow(ship(_duplicates), _spark_schema(FINDINGS))
    )


def _duplicates(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        found = [
            duplicate_key(row["topic"], row["partition"], row["key"], row["count"], row, row["last"])
            for row in batch.to_pylist()
        ]
        yield from table_of(found).to_batches()
