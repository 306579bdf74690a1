"""Which files a log directory holds, and what is to be known of all before one is judged: plans that travel to tasks.

What the files say is judged elsewhere; only checkpoints and the topics' cleanup policies are read here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from minibroker.pipeline.jobs.verify.checkpoint_checks import (
    CLEANER,
    LEADER_EPOCHS,
    LOG_START,
    OFFSET_CHECKPOINTS,
    TopicPartition,
    read_offsets,
)
from minibroker.pipeline.jobs.verify.findings import CHECKS, Finding, Findings
from minibroker.pipeline.jobs.verify.policies import compacted_topics
from minibroker.pipeline.jobs.verify.side_file_checks import expected_ids
from minibroker.pipeline.log_source import OptionError
from minibroker.storage.checkpoints.checkpoint_texts import (
    ABORTED_TRANSACTIONS_CHECKPOINT,
    PARTITION_METADATA,
)

LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT = ".log", ".index", ".timeindex", ".txnindex", ".snapshot"
OTHERS = (LEADER_EPOCHS, PARTITION_METADATA, ABORTED_TRANSACTIONS_CHECKPOINT)
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
MAX_TRANSACTION_MS = 15 * 60 * 1000  # transaction.max.timeout.ms
_PARTITION = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})")
_IMAGE = re.compile(r"[0-9]{20}-[0-9]{10}\.checkpoint")  # of the metadata log: what all before an offset comes to
_FILE = re.compile(r"(?P<offset>[0-9]{20})(?P<suffix>\.[a-z]+)")


@dataclass(frozen=True)
class PartitionPlan:
    """The facts about a partition before its files are judged.

    `directory` is below `root`, the log directory. Below `clean_offset` the log was cleaned; `compacted` says that gaps
    are to be expected. `checkpoints` has the partition's offset in each checkpoint file that knows it, `images` the
    names of the metadata log's snapshots. `topic_id` is what `partition.metadata` should have, if it is known;
    `stopped` says that a broker has closed the log in order.
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
        """Up to where the cleaner has been."""
        return (self.checkpoints or {}).get(CLEANER, 0)

    @property
    def log_start(self) -> int:
        """Where the log begins to be readable, which may be within its first segment."""
        return max((self.checkpoints or {}).get(LOG_START, 0), self.bases[0] if self.bases else 0)

    def for_segment(self, base: int) -> PartitionPlan:
        """Return as much of it as the judgement of one segment needs: it travels with each."""
        names = self.names & {f"{base:020d}{suffix}" for suffix in (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX)}
        return replace(self, bases=self.bases[:1], snapshots=(), images=(), names=names)

    def path(self, name: str) -> Path:
        """The path of a file of the partition."""
        return Path(self.root, self.directory, name)

    def findings(self) -> Findings:
        """Return an empty collection for the findings about its files."""
        return Findings(self.topic, self.partition, self.directory, self.checks)

    def knows(self, name: str) -> bool:
        """Whether the partition had a file of this name when the plan was made."""
        return name in self.names


@dataclass(frozen=True)
class SegmentPlan:
    """One segment of a partition; `next_base` is where the next one begins, None for the last."""

    partition: PartitionPlan
    base_offset: int
    next_base: int | None
    size_bytes: int

    def name(self, suffix: str) -> str:
        """The name of one of its files."""
        return f"{self.base_offset:020d}{suffix}"


@dataclass(frozen=True)
class DirectoryPlan:
    """All partitions and segments of a log directory that are to be judged, and what is wrong with its own files."""

    partitions: tuple[PartitionPlan, ...]
    segments: tuple[SegmentPlan, ...]
    findings: tuple[Finding, ...]


def plan_directory(
    path: str, *, topics: Collection[str] = (), checks: Iterable[str] = CHECKS, compacted: Collection[str] = ()
) -> DirectoryPlan:
    """The plan for a log directory, or for one partition's directory; of some topics, if any are named.

    `compacted` names topics that are, besides those of which the directory tells. Raises `OptionError`, `OSError`.
    """
    chosen = frozenset(checks)
    unknown = chosen - CHECKS.keys()
    if unknown:
        raise OptionError(f"there is no check {', '.join(sorted(unknown))}; there are {', '.join(CHECKS)}")
    root, directories = _partition_directories(Path(path).absolute())
    of_directory = Findings("", -1, "", chosen)
    offsets = {name: _offsets_of(root, name, of_directory) for name in OFFSET_CHECKPOINTS}
    policies = compacted_topics(root) | set(compacted) | {topic for topic, _ in offsets[CLEANER]}
    missing = {*topics, *compacted} - {topic for topic, _ in directories}
    if missing:
        raise OptionError(f"{path} holds no topic {', '.join(sorted(missing))}")
    ids = expected_ids(root, directories) if "checkpoints" in chosen else {}
    stopped = (root / CLEAN_SHUTDOWN).exists()
    partitions = tuple(
        replace(
            _partition(root, directory, key, chosen, key[0] in policies, offsets),
            topic_id=ids.get(key[0]),
            stopped=stopped,
        )
        for key, directory in sorted(directories.items())
        if not topics or key[0] in topics
    )
    segments = tuple(segment for partition in partitions for segment in segments_of(partition))
    return DirectoryPlan(partitions, segments, tuple(of_directory))


def segments_of(partition: PartitionPlan) -> list[SegmentPlan]:
    """The segments of a partition, oldest first."""
    nexts = (*partition.bases[1:], None) if partition.bases else ()
    found = []
    for base, after in zip(partition.bases, nexts, strict=True):
        plan = partition.for_segment(base)
        found.append(SegmentPlan(plan, base, after, plan.path(f"{base:020d}{LOG}").stat().st_size))
    return found


def _partition_directories(path: Path) -> tuple[Path, dict[TopicPartition, str]]:
    """The log directory, and the partitions below it by name; of a partition's directory, itself alone."""
    if not path.is_dir():
        raise OptionError(f"{path} is no directory")
    if _PARTITION.fullmatch(path.name) and any(path.glob(f"*{LOG}")):
        return path.parent, dict([_named(path.name)])
    found = dict(_named(each.name) for each in path.iterdir() if each.is_dir() and _PARTITION.fullmatch(each.name))
    if not found:
        raise OptionError(f"{path} holds no partition, which would be a directory as orders-0")
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


def _partition(
    root: Path,
    directory: str,
    key: TopicPartition,
    checks: frozenset[str],
    compacted: bool,
    offsets: Mapping[str, Mapping[TopicPartition, int]],
) -> PartitionPlan:
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
        checks=checks,
        compacted=compacted,
        checkpoints={name: rows[key] for name, rows in offsets.items() if key in rows},
    )
