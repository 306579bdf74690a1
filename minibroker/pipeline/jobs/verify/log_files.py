"""The files of a log directory, and what must be known before one is checked: plans that are sent to tasks.

Only checkpoints and the topics' cleanup policies are read here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from minibroker.pipeline.directory.cluster_metadata import ClusterMetadata, read_metadata
from minibroker.pipeline.jobs.verify.checkpoint_checks import (
    CLEANER,
    LEADER_EPOCHS,
    LOG_START,
    OFFSET_CHECKPOINTS,
    RECOVERY_POINT,
    TopicPartition,
    read_offsets,
)
from minibroker.pipeline.jobs.verify.findings import CHECKS, Finding, Findings, Problem
from minibroker.pipeline.jobs.verify.side_file_checks import expected_ids
from minibroker.pipeline.log_source import OptionError
from minibroker.storage.checkpoints.checkpoint_texts import (
    ABORTED_TRANSACTIONS_CHECKPOINT,
    PARTITION_METADATA,
)
from minibroker.storage.names import CLEAN_SHUTDOWN

LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT = ".log", ".index", ".timeindex", ".txnindex", ".snapshot"
OTHERS = (LEADER_EPOCHS, PARTITION_METADATA, ABORTED_TRANSACTIONS_CHECKPOINT)
MAX_TRANSACTION_MS = 15 * 60 * 1000  # transaction.max.timeout.ms
TRIES = 5  # to list the files of a partition while a broker removes some
_PARTITION = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})")
_IMAGE = re.compile(r"[0-9]{20}-[0-9]{10}\.checkpoint")  # a snapshot of the metadata log
_FILE = re.compile(r"(?P<offset>[0-9]{20})(?P<suffix>\.[a-z]+)")


@dataclass(frozen=True)
class PartitionPlan:
    """The facts about a partition before its files are checked.

    `directory` is below `root`, the log directory. The log was cleaned below `clean_offset`; `compacted` means that
    gaps are normal. `checkpoints` has the partition's offset in each checkpoint file that lists it, `images` the names
    of the metadata log's snapshots. `topic_id` is the right id in `partition.metadata`, if known. `stopped` means that
    the last stop was clean.
    """

    root: str
    directory: str
    topic: str
    partition: int
    bases: tuple[int, ...]
    snapshots: tuple[int, ...]
    names: frozenset[str]
    checks: frozenset[str]
    compacted: bool = False
    checkpoints: Mapping[str, int] | None = None
    images: tuple[str, ...] = ()
    topic_id: bytes | None = None
    stopped: bool = False
    max_transaction_ms: int = MAX_TRANSACTION_MS

    @property
    def clean_offset(self) -> int:
        """The offset up to which the log was cleaned."""
        return (self.checkpoints or {}).get(CLEANER, 0)

    @property
    def log_start(self) -> int:
        """The log start offset, which may be within the first segment."""
        return max((self.checkpoints or {}).get(LOG_START, 0), self.bases[0] if self.bases else 0)

    def for_segment(self, base: int) -> PartitionPlan:
        """Return the part of it that a segment's check needs, as each segment's plan is sent to a task."""
        names = self.names & {f"{base:020d}{suffix}" for suffix in (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX)}
        return replace(self, bases=self.bases[:1], snapshots=(), images=(), names=names)

    def path(self, name: str) -> Path:
        """Return the path of a file of the partition."""
        return Path(self.root, self.directory, name)

    def findings(self) -> Findings:
        """Return an empty collection for findings about its files."""
        return Findings(self.topic, self.partition, self.directory, self.checks)

    def knows(self, name: str) -> bool:
        """Return whether the partition had a file of this name when the plan was made."""
        return name in self.names


@dataclass(frozen=True)
class SegmentPlan:
    """One segment of a partition. `next_base` is where the next one begins, None for the last."""

    partition: PartitionPlan
    base_offset: int
    next_base: int | None
    size_bytes: int

    @property
    def is_cleaned(self) -> bool:
        """Whether its keys are compared: a part of it was cleaned, and the check is on."""
        partition = self.partition
        wanted = partition.compacted and "compaction" in partition.checks
        return wanted and self.base_offset < partition.clean_offset and self.size_bytes > 0

    def name(self, suffix: str) -> str:
        """Return the name of one of its files."""
        return f"{self.base_offset:020d}{suffix}"


@dataclass(frozen=True)
class DirectoryPlan:
    """The partitions and segments of a log directory to check, and the findings about its own files."""

    partitions: tuple[PartitionPlan, ...]
    segments: tuple[SegmentPlan, ...]
    findings: tuple[Finding, ...]


def plan_directory(
    path: str, *, topics: Collection[str] = (), checks: Iterable[str] = CHECKS, compacted: Collection[str] = ()
) -> DirectoryPlan:
    """Return the plan for a log directory, or for one partition's directory. `topics` limits it.

    `compacted` names compacted topics beside those in the directory's metadata. Raises `OptionError`, `OSError`.
    """
    chosen = frozenset(checks)
    unknown = chosen - CHECKS.keys()
    if unknown:
        raise OptionError(f"unknown check {', '.join(sorted(unknown))}; the checks are {', '.join(CHECKS)}")
    root, directories = _partition_directories(Path(path).absolute())
    of_directory = Findings("", -1, "", chosen)
    offsets = {name: _offsets_of(root, name, of_directory) for name in OFFSET_CHECKPOINTS}
    metadata = read_metadata(root)
    policies = metadata.compacted | set(compacted) | {topic for topic, _ in offsets[CLEANER]}
    whole = root == Path(path).absolute()
    lost = _lost_partitions(directories, offsets, metadata, chosen) if whole else []
    unknown_topics = {*topics, *compacted} - {topic for topic, _ in directories} - {each.topic for each in lost}
    if unknown_topics:
        raise OptionError(f"{path} has no topic {', '.join(sorted(unknown_topics))}")
    ids = expected_ids(root, directories, metadata.ids) if "checkpoints" in chosen else {}
    stopped = (root / CLEAN_SHUTDOWN).exists()
    partitions: list[PartitionPlan] = []
    segments: list[SegmentPlan] = []
    for key, directory in sorted(directories.items()):
        if topics and key[0] not in topics:
            continue
        facts = _Facts(chosen, key[0] in policies, offsets, ids.get(key[0]), stopped)
        plan = _partition(root, directory, key, facts)
        if plan is not None:
            partitions.append(plan[0])
            segments += plan[1]
    lost = [each for each in lost if not topics or each.topic in topics]
    return DirectoryPlan(tuple(partitions), tuple(segments), (*of_directory, *lost))


def _lost_partitions(
    directories: Mapping[TopicPartition, str],
    offsets: Mapping[str, Mapping[TopicPartition, int]],
    metadata: ClusterMetadata,
    checks: frozenset[str],
) -> list[Finding]:
    """Return a finding for each partition that the checkpoint names and the metadata log has, without a directory."""
    found: list[Finding] = []
    named = offsets[RECOVERY_POINT]
    for topic, partition in sorted(named.keys() - directories.keys()):
        if metadata.ids and (topic, partition) not in metadata.partitions:
            continue  # it was deleted just before a kill
        findings = Findings(topic, partition, "", checks)
        also = " and the metadata log has" if metadata.ids else ""
        detail = f"it names{also} {topic}-{partition}, and there is no such directory"
        findings.add(RECOVERY_POINT, Problem("partition-missing", -1, named[topic, partition], detail))
        found += findings
    return found


def segments_of(partition: PartitionPlan) -> list[SegmentPlan]:
    """Return the segments of a partition, the oldest first. Raises `FileNotFoundError` if one is gone meanwhile."""
    nexts = (*partition.bases[1:], None) if partition.bases else ()
    found = []
    for base, after in zip(partition.bases, nexts, strict=True):
        plan = partition.for_segment(base)
        found.append(SegmentPlan(plan, base, after, plan.path(f"{base:020d}{LOG}").stat().st_size))
    return found


def _partition_directories(path: Path) -> tuple[Path, dict[TopicPartition, str]]:
    """Return the log directory, and the names of the partitions' directories; only one for a partition's directory."""
    if not path.is_dir():
        raise OptionError(f"{path} is not a directory")
    if _PARTITION.fullmatch(path.name) and any(path.glob(f"*{LOG}")):
        return path.parent, dict([_named(path.name)])
    found = dict(_named(each.name) for each in path.iterdir() if each.is_dir() and _PARTITION.fullmatch(each.name))
    if not found:
        raise OptionError(f"{path} has no partitions: directories with names like orders-0")
    return path, found


def _named(name: str) -> tuple[TopicPartition, str]:
    match = _PARTITION.fullmatch(name)
    assert match is not None
    return (match["topic"], int(match["partition"])), name


def _offsets_of(root: Path, name: str, findings: Findings) -> dict[TopicPartition, int]:
    try:
        offsets, problems = read_offsets(root / name)
    except FileNotFoundError:
        return {}
    findings.extend(name, problems)
    return offsets


@dataclass(frozen=True)
class _Facts:
    """What is known of a partition without its directory: the fields of `PartitionPlan` of these names."""

    checks: frozenset[str]
    compacted: bool
    offsets: Mapping[str, Mapping[TopicPartition, int]]
    topic_id: bytes | None
    stopped: bool


def _partition(
    root: Path, directory: str, key: TopicPartition, facts: _Facts
) -> tuple[PartitionPlan, list[SegmentPlan]] | None:
    """Return the plan of a partition and its segments, or None if it has just been deleted. Raises `OSError`."""
    for tries_left in reversed(range(TRIES)):
        try:
            plan = _listed(root, directory, key, facts)
            return plan, segments_of(plan)
        except FileNotFoundError:  # a broker is running, and retention or compaction has removed a segment
            if not (root / directory).exists():
                return None
            if not tries_left:
                raise
    return None


def _listed(root: Path, directory: str, key: TopicPartition, facts: _Facts) -> PartitionPlan:
    names = frozenset(each.name for each in (root / directory).iterdir() if each.is_file())
    by_suffix: dict[str, list[int]] = {}
    for name in sorted(names):
        match = _FILE.fullmatch(name)
        if match:
            by_suffix.setdefault(match["suffix"], []).append(int(match["offset"]))
    return PartitionPlan(
        root=str(root),
        directory=directory,
        topic=key[0],
        partition=key[1],
        bases=tuple(by_suffix.get(LOG, ())),
        snapshots=tuple(by_suffix.get(SNAPSHOT, ())),
        images=tuple(sorted(name for name in names if _IMAGE.fullmatch(name))),
        names=frozenset(name for name in names if _FILE.fullmatch(name) or name in OTHERS),
        checks=facts.checks,
        compacted=facts.compacted,
        checkpoints={name: rows[key] for name, rows in facts.offsets.items() if key in rows},
        topic_id=facts.topic_id,
        stopped=facts.stopped,
    )
