"""The job `verify` in this process, without Spark: the same checks, one segment after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, islice

import pyarrow as pa
import pyarrow.compute as pc

from minibroker.pipeline.jobs.verify.compaction_checks import KEYS, duplicate_key
from minibroker.pipeline.jobs.verify.findings import MAX_OF_A_KIND, Finding
from minibroker.pipeline.jobs.verify.log_files import DirectoryPlan, PartitionPlan, SegmentPlan
from minibroker.pipeline.jobs.verify.partition_checks import findings_about
from minibroker.pipeline.jobs.verify.segment_checks import check_segment, keys_of_segment


def verify_locally(plan: DirectoryPlan) -> list[Finding]:
    """Return the findings about the files of a plan, in no order. Raises `OSError`."""
    by_directory = groupby(plan.segments, lambda each: each.partition.directory)
    of_directory = {directory: list(segments) for directory, segments in by_directory}
    found = list(plan.findings)
    for partition in plan.partitions:
        found += _findings_of(partition, of_directory.get(partition.directory, []))
    return found


def _findings_of(partition: PartitionPlan, segments: Sequence[SegmentPlan]) -> list[Finding]:
    found = findings_about(partition, map(check_segment, segments))
    found += _duplicate_keys(partition, [segment for segment in segments if segment.is_cleaned])
    return found


def _duplicate_keys(partition: PartitionPlan, segments: Sequence[SegmentPlan]) -> Iterator[Finding]:
    """Yield a finding for each key that occurs more than once, at its first place."""
    if not segments:
        return
    keys = pa.Table.from_batches((each for segment in segments for each in keys_of_segment(segment)), KEYS)
    ordered = keys.sort_by([("offset", "ascending"), ("file", "ascending"), ("position", "ascending")])
    groups = ordered.group_by("key", use_threads=False).aggregate(
        [("offset", "count"), ("offset", "first"), ("offset", "last"), ("file", "first"), ("position", "first")]
    )
    twice = groups.filter(pc.field("offset_count") > 1).sort_by("offset_first")
    for row in islice(twice.to_pylist(), MAX_OF_A_KIND):
        first = {"offset": row["offset_first"], "file": row["file_first"], "position": row["position_first"]}
        yield duplicate_key(
            partition.topic, partition.partition, row["key"], row["offset_count"], first, row["offset_last"]
        )
