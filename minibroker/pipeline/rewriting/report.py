"""The result of a rewriting: the sizes of each topic before and after, and what was lost and reconfigured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from minibroker.pipeline.rewriting.segment_rewriting import NewSegment, SegmentTask
from minibroker.pipeline.rewriting.topic_configs import Change


@dataclass
class TopicSpace:
    """One topic. Bytes are those of its `.log` files. `lost_bytes` were torn by a crash."""

    topic: str
    partitions: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    lost_bytes: int = 0

    @property
    def ratio(self) -> float | None:
        """The new size relative to the old one, or None without an old one."""
        return self.bytes_after / self.bytes_before if self.bytes_before else None

    def add_topic(self, other: TopicSpace) -> None:
        """Add another topic's sums."""
        for name in ("partitions", "segments", "batches", "records", "bytes_before", "bytes_after", "lost_bytes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def add(self, segment: NewSegment) -> None:
        """Add a segment."""
        self.segments += 1
        self.batches += segment.batch_count
        self.records += segment.record_count
        self.bytes_before += segment.source_bytes
        self.bytes_after += segment.size_bytes
        self.lost_bytes += segment.lost_bytes


@dataclass(frozen=True)
class Report:
    """The topics that were rewritten, the logs that were copied, and the changes of configs.

    `configs_changed` is whether the changes were made. If not, the metadata is
    elsewhere and must be changed there.
    """

    target: str
    topics: Sequence[TopicSpace]
    copied: Sequence[str]
    configs: Sequence[Change]
    configs_changed: bool

    @property
    def total(self) -> TopicSpace:
        """The sum of all topics."""
        total = TopicSpace("(all)")
        for each in self.topics:
            total.add_topic(each)
        return total

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return {
            "target": self.target,
            "topics": [vars(each) | {"ratio": each.ratio} for each in self.topics],
            "copied": list(self.copied),
            "configs": [change._asdict() for change in self.configs],
            "configs_changed": self.configs_changed,
        }


def report_from(target: str, parsed: Mapping[str, Any]) -> Report:
    """Return the report about `target` from `Report.as_json`."""
    topics = [
        TopicSpace(**{name: value for name, value in each.items() if name != "ratio"}) for each in parsed["topics"]
    ]
    configs = [Change(**each) for each in parsed["configs"]]
    return Report(target, topics, tuple(parsed["copied"]), configs, parsed["configs_changed"])


def measure_space(segments: Iterable[tuple[SegmentTask, Sequence[NewSegment]]]) -> list[TopicSpace]:
    """Return the sizes of each topic, sorted, by the results of the segments."""
    found: dict[str, TopicSpace] = {}
    for task, written in segments:
        space = found.setdefault(task.topic, TopicSpace(task.topic))
        space.partitions += task.is_last
        for segment in written:
            space.add(segment)
    return [found[topic] for topic in sorted(found)]
