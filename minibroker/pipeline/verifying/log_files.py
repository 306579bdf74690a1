"""The files of a log directory, and what must be known before one is checked: plans that are sent to tasks.

Only checkpoints and the topics' cleanup policies are read here.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import minibroker.storage.checkpoints.checkpoint_texts as texts
import minibroker.storage.names as file_names
from minibroker.pipeline.directory.cluster_metadata import ClusterMetadata, read_metadata
from minibroker.pipeline.directory.finding import find_logs, make_absolute
from minibroker.pipeline.directory.reading_disk import DISK, is_remote, normalize_path
from minibroker.pipeline.log_source import OptionError
from minibroker.pipeline.verifying.checkpoint_checks import (
    OFFSET_CHECKPOINTS,
    find_expected_topic_ids,
    find_wrong_node_identity,
    read_offsets,
    read_topic_id,
)
from minibroker.pipeline.verifying.findings import CHECKS, Finding, Findings, Problem
from minibroker.protocol.messages.metadata_records import METADATA_TOPIC
from minibroker.protocol.records.internal import TRANSACTIONS_TOPIC

TRIES = 5  # to list the files of a partition while a broker removes some
IMAGE_SUFFIX = ".checkpoint"  # of a snapshot of the metadata log


@dataclass(frozen=True)
class PartitionPlan:
    """The facts about a partition before its files are checked.

    `directory` is below `root`, the log directory. The log was cleaned below `clean_offset`; `compacted` means that
    gaps are normal. `checkpoints` has the partition's offset in each checkpoint file that lists it, `images` the names
    of the metadata log's snapshots. `topic_id` is the right id in `partition.metadata`, if known. `stopped` means that
    the last stop was clean, `in_use` that a broker is running. `has_coordinators` means that all transactions of the
    cluster are known in this directory, `begins_elsewhere` that older segments are in remote storage, or were just
    removed. `names`, `bases`, `snapshots` and `images` are those of the files in the directory.
    """

    root: str
    directory: str
    topic: str
    partition: int
    checks: frozenset[str]
    compacted: bool
    checkpoints: Mapping[str, int]
    topic_id: bytes | None
    stopped: bool
    in_use: bool = False
    has_coordinators: bool = False
    begins_elsewhere: bool = False
    names: frozenset[str] = frozenset()
    bases: tuple[int, ...] = ()
    snapshots: tuple[int, ...] = ()
    images: tuple[str, ...] = ()

    @property
    def clean_offset(self) -> int:
        """The offset up to which the log was cleaned."""
        return self.checkpoints.get(texts.CLEANER_OFFSET_CHECKPOINT, 0)

    @property
    def log_start(self) -> int:
        """The log start offset, which may be within the first segment."""
        return max(self.checkpoints.get(texts.LOG_START_OFFSET_CHECKPOINT, 0), self.bases[0] if self.bases else 0)

    def refresh_file_names(self) -> PartitionPlan:
        """Return the plan with the names of the files that exist now. Raises `FileNotFoundError`."""
        names = frozenset(
            name for name, is_directory in DISK.list_names_and_kinds(self.make_path("")).items() if not is_directory
        )
        images = (
            name for name in names if name.endswith(IMAGE_SUFFIX) and file_names.parse_base_offset(name) is not None
        )
        return replace(
            self,
            names=names,
            bases=tuple(file_names.list_offsets_with_suffix(names, file_names.LOG_SUFFIX)),
            snapshots=tuple(file_names.list_offsets_with_suffix(names, file_names.SNAPSHOT_SUFFIX)),
            images=tuple(sorted(images)),
        )

    def make_plan_for_segment(self, base: int) -> PartitionPlan:
        """Return the plan with only the file names that the check of one segment needs, as it is sent to a task."""
        names = self.names & {file_names.make_segment_name(base) + suffix for suffix in file_names.SEGMENT_SUFFIXES}
        return replace(self, bases=self.bases[:1], snapshots=(), images=(), names=names)

    def make_path(self, name: str) -> str:
        """Return the path of a file of the partition."""
        return f"{self.root}/{self.directory}/{name}".rstrip("/")

    def make_findings(self) -> Findings:
        """Return an empty collection for findings about its files."""
        return Findings(self.topic, self.partition, self.directory, self.checks)


@dataclass(frozen=True)
class SegmentPlan:
    """One segment of a partition. `next_base` is where the next one begins, None for the last."""

    partition: PartitionPlan
    base_offset: int
    next_base: int | None
    size_bytes: int

    @property
    def is_cleaned(self) -> bool:
        """Whether its keys are to be compared: a part of it is below the clean offset, and the check is on."""
        partition = self.partition
        wanted = partition.compacted and "compaction" in partition.checks
        return wanted and self.base_offset < partition.clean_offset and self.size_bytes > 0

    def make_file_name(self, suffix: str) -> str:
        """Return the name of one of its files."""
        return file_names.make_segment_name(self.base_offset) + suffix


@dataclass(frozen=True)
class DirectoryPlan:
    """The partitions and segments of a log directory to check, and the findings about its own files."""

    partitions: tuple[PartitionPlan, ...]
    segments: tuple[SegmentPlan, ...]
    findings: tuple[Finding, ...]


def is_in_use(path: str) -> bool:
    """Return whether a broker holds the lock of this log directory, or of this partition's log directory."""
    from minibroker.storage.directories.log_directory import LOCK
    from minibroker.storage.files import Disk

    if is_remote(normalize_path(path)):
        return False
    lock = next((each for each in (f"{path}/{LOCK}", f"{path}/../{LOCK}") if os.path.isfile(each)), None)
    if lock is None or not os.access(lock, os.W_OK):
        return False
    held = Disk().lock(lock)
    if held is not None:
        held.close()
    return held is None


def plan_verification_of_directory(
    path: str,
    *,
    topics: Collection[str] = (),
    checks: Iterable[str] = CHECKS,
    compacted: Collection[str] = (),
    in_use: bool = False,
) -> DirectoryPlan:
    """Return the plan for a log directory, or for one partition's directory. `topics` limits it.

    `compacted` names compacted topics beside those in the directory's metadata; `in_use` is whether a broker is
    running. Raises `OptionError`, `OSError`.
    """
    chosen = require_known_checks(checks)
    root, directories = _find_partition_directories(path)
    of_directory = Findings("", -1, "", chosen)
    offsets = {name: _read_checkpoint_offsets(root, name, of_directory) for name in OFFSET_CHECKPOINTS}
    metadata = read_metadata(root)
    policies = metadata.compacted | set(compacted) | {topic for topic, _ in offsets[texts.CLEANER_OFFSET_CHECKPOINT]}
    whole = root == make_absolute(path)
    lost = _find_lost_partitions(directories, offsets, metadata, chosen) if whole else []
    if whole:
        of_directory.add_problems(texts.META_PROPERTIES, find_wrong_node_identity(root, metadata))
        lost += _find_unknown_partitions(root, directories, metadata, chosen)
    unknown_topics = {*topics, *compacted} - {topic for topic, _ in directories} - {each.topic for each in lost}
    if unknown_topics:
        raise OptionError(f"{path} has no topic {', '.join(sorted(unknown_topics))}")
    stopped = DISK.exists(f"{root}/{file_names.CLEAN_SHUTDOWN}")
    coordinated = _has_all_coordinators(metadata, directories)
    known = PartitionPlan(root, "", "", -1, chosen, False, {}, None, stopped, in_use, coordinated)
    ids = find_expected_topic_ids(root, directories, metadata.ids) if "checkpoints" in chosen else {}
    partitions: list[PartitionPlan] = []
    segments: list[SegmentPlan] = []
    for (topic, partition), directory in sorted(directories.items()):
        if topics and topic not in topics:
            continue
        of_partition = replace(
            known,
            directory=directory,
            topic=topic,
            partition=partition,
            compacted=topic in policies,
            checkpoints={name: rows[topic, partition] for name, rows in offsets.items() if (topic, partition) in rows},
            topic_id=ids.get(topic),
            begins_elsewhere=metadata.configs.get(topic, {}).get("remote.storage.enable") == "true",
        )
        plan = _plan_partition_segments(of_partition)
        if plan is not None:
            partitions.append(plan[0])
            segments += plan[1]
    lost = [each for each in lost if not topics or each.topic in topics]
    return DirectoryPlan(tuple(partitions), tuple(segments), (*of_directory, *lost))


def require_known_checks(checks: Iterable[str]) -> frozenset[str]:
    """Return the checks. Raises `OptionError` for unknown ones."""
    chosen = frozenset(checks)
    unknown = chosen - CHECKS.keys()
    if unknown:
        raise OptionError(f"unknown check {', '.join(sorted(unknown))}; the checks are {', '.join(CHECKS)}")
    return chosen


def _has_all_coordinators(metadata: ClusterMetadata, directories: Mapping[texts.TopicPartition, str]) -> bool:
    """Return whether all partitions of `__transaction_state` are here, by a metadata log that can be read."""
    coordinators = {each for each in metadata.partitions if each[0] == TRANSACTIONS_TOPIC}
    return bool(metadata.ids) and not metadata.unreadable and coordinators <= directories.keys()


def _find_lost_partitions(
    directories: Mapping[texts.TopicPartition, str],
    offsets: Mapping[str, Mapping[texts.TopicPartition, int]],
    metadata: ClusterMetadata,
    checks: frozenset[str],
) -> list[Finding]:
    """Return a finding for each partition that the checkpoint names and the metadata log has, without a directory."""
    found: list[Finding] = []
    named = offsets[texts.RECOVERY_POINT_CHECKPOINT]
    for topic, partition in sorted(named.keys() - directories.keys()):
        if metadata.ids and (topic, partition) not in metadata.partitions:
            continue  # it was deleted just before a kill
        findings = Findings(topic, partition, "", checks)
        also = " and the metadata log has" if metadata.ids else ""
        detail = f"it names{also} {topic}-{partition}, and there is no such directory"
        findings.add_problem(
            texts.RECOVERY_POINT_CHECKPOINT, Problem("partition-missing", -1, named[topic, partition], detail)
        )
        found += findings
    return found


def _find_unknown_partitions(
    root: str, directories: Mapping[texts.TopicPartition, str], metadata: ClusterMetadata, checks: frozenset[str]
) -> list[Finding]:
    """Return a finding for each directory of a partition that the metadata log does not have, if all of it is there."""
    found: list[Finding] = []
    known = metadata.partitions | {(METADATA_TOPIC, 0)}
    for topic, partition in sorted(directories.keys() - known if metadata.ids and not metadata.unreadable else ()):
        directory = directories[topic, partition]
        if read_topic_id(f"{root}/{directory}/{texts.PARTITION_METADATA}")[0] in metadata.removed:
            continue  # it was deleted just before a kill
        findings = Findings(topic, partition, directory, checks)
        which = "this partition" if topic in metadata.ids else "this topic"
        detail = f"the metadata log does not have {which}: a start sets the directory aside"
        findings.add_problem(texts.PARTITION_METADATA, Problem("partition-unknown", -1, -1, detail))
        found += findings
    return found


def list_segment_plans(partition: PartitionPlan) -> list[SegmentPlan]:
    """Return the segments of a partition, the oldest first. Raises `FileNotFoundError` if one is gone meanwhile."""
    nexts = (*partition.bases[1:], None) if partition.bases else ()
    found = []
    for base, after in zip(partition.bases, nexts, strict=True):
        size_bytes = DISK.size_bytes(partition.make_path(file_names.make_segment_name(base) + file_names.LOG_SUFFIX))
        found.append(SegmentPlan(partition.make_plan_for_segment(base), base, after, size_bytes))
    return found


def _find_partition_directories(path: str) -> tuple[str, dict[texts.TopicPartition, str]]:
    """Return the log directory, and the names of the partitions' directories; only one for a partition's directory."""
    found = find_logs([path])
    if not found:
        raise OptionError(f"{path} has no partitions: directories with names like orders-0")
    (root,) = {log.log_directory for log in found.values()}
    return root, {partition: log.path.rpartition("/")[2] for partition, log in found.items()}


def _read_checkpoint_offsets(root: str, name: str, findings: Findings) -> dict[texts.TopicPartition, int]:
    """Return the offsets of a checkpoint, empty without the file; add its problems to `findings`."""
    try:
        offsets, problems = read_offsets(f"{root}/{name}")
    except FileNotFoundError:
        return {}
    findings.add_problems(name, problems)
    return offsets


def _plan_partition_segments(partition: PartitionPlan) -> tuple[PartitionPlan, list[SegmentPlan]] | None:
    """Return the plan of a partition and its segments, or None if it has just been deleted. Raises `OSError`."""
    for tries_left in reversed(range(TRIES)):
        try:
            plan = partition.refresh_file_names()
            return plan, list_segment_plans(plan)
        except FileNotFoundError:  # a broker is running, and retention or compaction has removed a segment
            if not DISK.exists(partition.make_path("")):
                return None
            if not tries_left:
                raise
    return None
