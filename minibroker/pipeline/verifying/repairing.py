"""Repairs what `verify` finds in logs and a start does not rebuild, into a copy of the log directory.

A start truncates the newest segment, rebuilds indexes and snapshots, and serves what it finds of closed segments. So
two things are left: a directory of a partition that the metadata log does not have, and a closed segment that is
damaged, lost its end, or is missing. Of the first, the copy's name ends with `-stray`; of the second, the copy's log
begins behind the damage. The directory itself stays as it is: what the copy lacks can still be read from there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from minibroker.pipeline.engines import Engine
from minibroker.pipeline.log_source import OptionError, TopicPartition
from minibroker.pipeline.verifying.findings import BY_CODE, Finding
from minibroker.pipeline.verifying.log_files import DirectoryPlan, PartitionPlan, plan_directory
from minibroker.pipeline.verifying.verify_job import verify_plan
from minibroker.storage.checkpoints.checkpoint_texts import (
    LOG_START_OFFSET_CHECKPOINT,
    format_offsets,
    parse_offsets,
)
from minibroker.storage.directories.log_directory import LOCK
from minibroker.storage.names import LOG_SUFFIX, STRAY_LOG_SUFFIX, make_segment_name, parse_offset_in

OF_BATCHES: Final = frozenset(("layout", "offsets", "crc", "records"))  # checks of what no start can rebuild
UNKNOWN: Final = "partition-unknown"


class Step(NamedTuple):
    """What becomes of one log: it is set aside, or begins at the segment with this base offset (None: set aside)."""

    directory: str
    partition: TopicPartition
    begin: int | None
    reason: str

    def __str__(self) -> str:
        if self.begin is None:
            return f"{self.directory}: becomes {self.directory}{STRAY_LOG_SUFFIX}, as {self.reason}"
        return f"{self.directory}: begins at offset {self.begin}, behind {self.reason}"


def plan_repair(path: str, engine: Engine | None = None) -> list[Step]:
    """Return what to do for a log directory. Raises `OptionError`, `OSError`."""
    plan = plan_directory(path)
    if any(os.path.abspath(path) != each.root for each in plan.partitions):
        raise OptionError(f"{path} is the directory of one partition: name the log directory")
    found = verify_plan(plan, engine)
    unknown = {(each.topic, each.partition): each.detail for each in found if each.kind == UNKNOWN}
    steps = []
    for partition in plan.partitions:
        key = TopicPartition(partition.topic, partition.partition)
        if key in unknown:
            steps.append(Step(partition.directory, key, None, unknown[key]))
            continue
        step = _find_beginning(partition, key, _find_damage(partition, found))
        steps += [step] if step is not None else []
    return steps


def _find_damage(partition: PartitionPlan, found: Sequence[Finding]) -> dict[int, Finding]:
    """Return the first finding about batches of each closed segment, by its base offset."""
    damage: dict[int, Finding] = {}
    for each in found:
        name = each.file.rpartition("/")[2]
        base = parse_offset_in(name) if name.endswith(LOG_SUFFIX) else None
        is_here = (each.topic, each.partition) == (partition.topic, partition.partition)
        if is_here and base is not None and each.severity == "error" and BY_CODE[each.kind].check in OF_BATCHES:
            damage.setdefault(base, each)
    return damage


def _find_beginning(partition: PartitionPlan, key: TopicPartition, damage: Mapping[int, Finding]) -> Step | None:
    """Return where a log begins in the copy, or None if it begins as before: the newest segment is for a start."""
    newest = partition.bases[-1] if partition.bases else None
    damage = {base: each for base, each in damage.items() if base != newest or each.kind == "gap"}
    if not damage:
        return None
    last = max(damage)
    # A gap is a finding of the segment behind it, which is whole; all else is one of the damaged segment.
    is_whole = damage[last].kind == "gap" and damage[last].position <= 0
    begin = last if is_whole else next(base for base in (*partition.bases, last) if base > last)
    return Step(partition.directory, key, begin, f"{damage[last].file}: {damage[last].kind}, {damage[last].detail}")


def repair_into(path: str, output: str, steps: Sequence[Step]) -> DirectoryPlan:
    """Copy a log directory, and do the steps in the copy. Return the copy's plan. Raises `OptionError`, `OSError`."""
    if os.path.exists(output):
        raise OptionError(f"{output} exists")
    shutil.copytree(path, output, symlinks=True, ignore=shutil.ignore_patterns(LOCK))
    begins: dict[TopicPartition, int] = {}
    for step in steps:
        directory = f"{output}/{step.directory}"
        if step.begin is None:
            os.rename(directory, f"{directory}{STRAY_LOG_SUFFIX}")
            continue
        begins[step.partition] = step.begin
        for name in os.listdir(directory):
            offset = parse_offset_in(name)
            if offset is not None and name < make_segment_name(step.begin):
                os.remove(f"{directory}/{name}")
    _note_beginnings(f"{output}/{LOG_START_OFFSET_CHECKPOINT}", begins)
    return plan_directory(output)


def _note_beginnings(file: str, begins: Mapping[TopicPartition, int]) -> None:
    """Note the new log start offsets in the copy's checkpoint."""
    if not begins:
        return
    known: dict[tuple[str, int], int] = {}
    if os.path.exists(file):
        with open(file, "rb") as stored:
            known = parse_offsets(stored.read())
    with open(file, "wb") as stored:
        stored.write(format_offsets(known | dict(begins.items())))
