"""The job `verify`: from a log directory to findings. An engine checks segments beside each other.

    plan of files ─> segments ─> findings and a summary of each ─> by partition: findings
                             └> keys of what was cleaned ─> by key: findings

A task has some blocks of a segment and the producers' states in memory, whatever the size of the log; and all keys of
the cleaned part of one partition. The checks are in the other files of this package.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import groupby, islice
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from minibroker.pipeline.engines import Engine, LocalEngine
from minibroker.pipeline.verifying import segment_checks
from minibroker.pipeline.verifying.findings import BY_CODE, CHECKS, MAX_OF_A_KIND, Finding, sort_findings
from minibroker.pipeline.verifying.log_files import DirectoryPlan, SegmentPlan, plan_verification_of_directory
from minibroker.pipeline.verifying.partition_checks import collect_findings

TASK_BYTES: Final = 64 << 20  # small segments share a task up to this size
TASK_SEGMENTS: Final = 64
SHOWN_KEY_BYTES: Final = 60

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


def verify(
    path: str,
    *,
    topics: Collection[str] = (),
    checks: Iterable[str] = CHECKS,
    compacted: Collection[str] = (),
    engine: Engine | None = None,
) -> pa.Table:
    """Return the findings about a log directory, or one partition's directory, as rows of `FINDINGS`.

    `topics` limits them. `compacted` names compacted topics beside those in the directory's metadata. Raises
    `OptionError`, and `OSError`, also if files disappear in the meantime.
    """
    plan = plan_verification_of_directory(path, topics=topics, checks=checks, compacted=compacted)
    return make_findings_table(sort_findings(verify_plan(plan, engine)))


def verify_plan(plan: DirectoryPlan, engine: Engine | None = None) -> list[Finding]:
    """Return the findings about the files of a plan, in no order. Raises `OSError`."""
    engine = engine or LocalEngine()
    partitions = {each.directory: each for each in plan.partitions}
    found = list(plan.findings)
    tasks = _group_into_tasks(plan.segments)
    checked = (
        (each.partition.directory, one)
        for pair in zip(tasks, engine.run_on_items(_check_segments_of_task, tasks), strict=True)
        for each, one in zip(*pair, strict=True)
    )
    for directory, group in groupby(checked, lambda each: each[0]):
        found += collect_findings(partitions.pop(directory), (one for _, one in group))
    for partition in partitions.values():
        found += collect_findings(partition, [])
    cleaned = groupby((each for each in plan.segments if each.is_cleaned), lambda each: each.partition.directory)
    of_keys = [list(segments) for _, segments in cleaned]
    for of_partition in engine.run_on_items(_find_duplicate_keys, of_keys):
        found += of_partition
    return found


def _check_segments_of_task(segments: Sequence[SegmentPlan]) -> list[segment_checks.CheckedSegment]:
    return [segment_checks.check_segment(segment) for segment in segments]


def _find_duplicate_keys(segments: Sequence[SegmentPlan]) -> list[Finding]:
    """Return a finding for each key that occurs more than once in a partition, at its first place."""
    partition = segments[0].partition
    keys = pa.Table.from_batches(
        (each for segment in segments for each in segment_checks.find_cleaned_keys_of_segment(segment)),
        segment_checks.KEYS,
    )
    ordered = keys.sort_by([("offset", "ascending"), ("file", "ascending"), ("position", "ascending")])
    groups = ordered.group_by("key", use_threads=False).aggregate(
        [("offset", "count"), ("offset", "first"), ("offset", "last"), ("file", "first"), ("position", "first")]
    )
    twice = groups.filter(pc.field("offset_count") > 1).sort_by("offset_first")
    found = []
    kind = BY_CODE["duplicate-key"]
    for row in islice(twice.to_pylist(), MAX_OF_A_KIND):
        shown = repr(row["key"][:SHOWN_KEY_BYTES])[1:] + ("..." if len(row["key"]) > SHOWN_KEY_BYTES else "")
        detail = f"key {shown} occurs {row['offset_count']} times, last at offset {row['offset_last']}"
        place = row["file_first"], row["offset_first"], row["position_first"]
        found.append(Finding(partition.topic, partition.partition, *place, kind.code, kind.severity, detail))
    return found


def _group_into_tasks(segments: Sequence[SegmentPlan]) -> list[list[SegmentPlan]]:
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


def make_findings_table(findings: Sequence[Finding]) -> pa.Table:
    """Return findings as rows of `FINDINGS`."""
    return pa.Table.from_pylist([make_finding_row(each) for each in findings], FINDINGS)


def make_finding_row(finding: Finding) -> dict[str, Any]:
    """Return a finding as a row of `FINDINGS`, by column; None for what it does not have."""
    return {name: None if value == _make_missing_value(name) else value for name, value in finding._asdict().items()}


def _make_missing_value(name: str) -> Any:
    """Return what a finding has in this column if it is about no partition, offset or the like: -1, or ""."""
    return -1 if name in ("partition", "offset", "position") else ""
