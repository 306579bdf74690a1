"""Repairs what `verify` finds in logs and a start does not rebuild, into a copy of the log directory.

A start truncates the newest segment, rebuilds indexes and snapshots, and serves what it finds of closed segments. So
two things are left: a directory of a partition that the metadata log does not have, and a closed segment that is
damaged, lost its end, or is missing. Of the first, the copy's name ends with `-stray`; of the second, the copy's log
begins behind the damage, without the intact segments before it: a log has no holes. The directory itself stays as it
is: what the copy lacks can still be read from there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from minibroker.pipeline.engines import Engine
from minibroker.pipeline.log_source import OptionError, TopicPartition
from minibroker.pipeline.verifying.findings import BY_CODE, Finding
from minibroker.pipeline.verifying.log_files import DirectoryPlan, PartitionPlan, plan_verification_of_directory
from minibroker.pipeline.verifying.verify_job import verify_plan
from minibroker.storage.checkpoints.checkpoint_texts import (
    LOG_START_OFFSET_CHECKPOINT,
    format_offset_checkpoint,
    parse_offset_checkpoint,
)
from minibroker.storage.directories.log_directory import LOCK
from minibroker.storage.names import LOG_SUFFIX, STRAY_LOG_SUFFIX, make_segment_name, parse_base_offset

OF_BATCHES: Final = frozenset(("layout", "offsets", "crc", "records"))  # checks of what no start can rebuild
UNKNOWN: Final = "partition-unknown"


class RepairStep(NamedTuple):
    """What becomes of one log: it begins at the segment with this base offset, or is set aside (None).

    `intact` has the base offsets of the segments that the copy lacks, though they are not damaged.
    """

    directory: str
    partition: TopicPartition
    begin: int | None
    reason: str
    intact: tuple[int, ...] = ()

    def __str__(self) -> str:
        if self.begin is None:
            return f"{self.directory}: becomes {self.directory}{STRAY_LOG_SUFFIX}, as {self.reason}"
        said = f"{self.directory}: begins at offset {self.begin}, behind {self.reason}"
        if not self.intact:
            return said
        segments = "segment is" if len(self.intact) == 1 else "segments are"
        return f"{said}; {len(self.intact)} intact {segments} left out before it, the first at offset {self.intact[0]}"


def plan_repair(path: str, engine: Engine | None = None) -> list[RepairStep]:
    """Return the steps that repair a log directory. Raises `OptionError`, `OSError`."""
    plan = plan_verification_of_directory(path)
    if any(os.path.abspath(path) != each.root for each in plan.partitions):
        raise OptionError(f"{path} is the directory of one partition: name the log directory")
    found = verify_plan(plan, engine)
    unknown = {(each.topic, each.partition): each.detail for each in found if each.kind == UNKNOWN}
    steps = []
    for partition in plan.partitions:
        key = TopicPartition(partition.topic, partition.partition)
        if key in unknown:
            steps.append(RepairStep(partition.directory, key, None, unknown[key]))
            continue
        step = _plan_new_log_start(partition, key, found)
        steps += [step] if step is not None else []
    return steps


def _iterate_batch_findings(partition: PartitionPlan, findings: Sequence[Finding]) -> Iterator[tuple[int, Finding]]:
    """Yield the findings about batches of a partition, each with the base offset of its segment."""
    for each in findings:
        name = each.file.rpartition("/")[2]
        base = parse_base_offset(name) if name.endswith(LOG_SUFFIX) else None
        is_here = (each.topic, each.partition) == (partition.topic, partition.partition)
        if is_here and base is not None and each.severity == "error" and BY_CODE[each.kind].check in OF_BATCHES:
            yield base, each


def _plan_new_log_start(
    partition: PartitionPlan, key: TopicPartition, findings: Sequence[Finding]
) -> RepairStep | None:
    """Return where a log begins in the copy, or None if it begins as before."""
    before: dict[int, Finding] = {}  # gaps are findings of the segment behind them, which is whole
    inside: dict[int, Finding] = {}
    for base, each in _iterate_batch_findings(partition, findings):
        (before if each.kind == "gap" and each.position <= 0 else inside).setdefault(base, each)
    if partition.bases:
        inside.pop(partition.bases[-1], None)  # a start truncates the newest segment
    if not before and not inside:
        return None
    last = max((*before, *inside))
    begin = next(base for base in partition.bases if base > last) if last in inside else last
    intact = tuple(base for base in partition.bases if base < begin and base not in inside)
    cause = inside.get(last) or before[last]
    return RepairStep(partition.directory, key, begin, f"{cause.file}: {cause.kind}, {cause.detail}", intact)


def repair_into(path: str, output: str, steps: Sequence[RepairStep]) -> DirectoryPlan:
    """Copy a log directory, and do the steps in the copy. Return the copy's plan. Raises `OptionError`, `OSError`.

    Links become what they lead to: the steps must not reach the old files through them.
    """
    if os.path.exists(output):
        raise OptionError(f"{output} exists")
    if os.path.realpath(output).startswith(f"{os.path.realpath(path)}/"):
        raise OptionError(f"{output} is in {path}: name a place outside of it")
    shutil.copytree(path, output, ignore=shutil.ignore_patterns(LOCK))
    begins: dict[TopicPartition, int] = {}
    for step in steps:
        directory = f"{output}/{step.directory}"
        if step.begin is None:
            os.rename(directory, f"{directory}{STRAY_LOG_SUFFIX}")
            continue
        begins[step.partition] = step.begin
        for name in os.listdir(directory):
            offset = parse_base_offset(name)
            if offset is not None and name < make_segment_name(step.begin):
                os.remove(f"{directory}/{name}")
    _write_log_start_offsets(f"{output}/{LOG_START_OFFSET_CHECKPOINT}", begins)
    return plan_verification_of_directory(output)


def _write_log_start_offsets(file: str, log_starts: Mapping[TopicPartition, int]) -> None:
    """Note the new log start offsets in the copy's checkpoint."""
    if not log_starts:
        return
    known: dict[tuple[str, int], int] = {}
    if os.path.exists(file):
        with open(file, "rb") as stored:
            known = parse_offset_checkpoint(stored.read())
    with open(file, "wb") as stored:
        stored.write(format_offset_checkpoint(known | dict(log_starts.items())))
