"""Rewrites a whole directory. An engine rewrites its segments beside each other."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass
from types import TracebackType
from typing import Any

from minibroker.pipeline.engines import Engine, LocalEngine
from minibroker.pipeline.rewriting.rewrite_settings import RewriteError, RewriteSettings
from minibroker.pipeline.rewriting.segment_rewriting import NewSegment, SegmentRewriter, SegmentTask
from minibroker.pipeline.rewriting.workspace import RewritePlan, RewriteWorkspace, make_plan
from minibroker.storage.directories.log_directory import LOCK
from minibroker.storage.files import Disk


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

    def add_segment(self, segment: NewSegment) -> None:
        """Add a segment."""
        self.segments += 1
        self.batches += segment.batch_count
        self.records += segment.record_count
        self.bytes_before += segment.source_bytes
        self.bytes_after += segment.size_bytes
        self.lost_bytes += segment.lost_bytes


@dataclass(frozen=True)
class RewriteReport:
    """The topics that were rewritten, and the logs that were copied."""

    target: str
    topics: Sequence[TopicSpace]
    copied: Sequence[str]

    @property
    def total(self) -> TopicSpace:
        """The sum of all topics."""
        columns = zip(*(astuple(each)[1:] for each in self.topics), strict=True)
        return TopicSpace("(all)", *map(sum, columns))

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return {
            "target": self.target,
            "topics": [vars(each) | {"ratio": each.ratio} for each in self.topics],
            "copied": list(self.copied),
        }


def parse_report(target: str, parsed: Mapping[str, Any]) -> RewriteReport:
    """Return the report about `target` from `Report.as_json`."""
    topics = [
        TopicSpace(**{name: value for name, value in each.items() if name != "ratio"}) for each in parsed["topics"]
    ]
    return RewriteReport(target, topics, tuple(parsed["copied"]))


def measure_space(segments: Iterable[tuple[SegmentTask, Sequence[NewSegment]]]) -> list[TopicSpace]:
    """Return the sizes of each topic, sorted, by the results of the segments."""
    found: dict[str, TopicSpace] = {}
    for task, written in segments:
        space = found.setdefault(task.topic, TopicSpace(task.topic))
        space.partitions += task.is_last
        for segment in written:
            space.add_segment(segment)
    return [found[topic] for topic in sorted(found)]


class DirectoryRewriting:
    """A rewriting from `source`, which no broker may write to, to `target`, which is created.

    It is a context manager. Methods raise `RewriteError` and `OSError`.
    """

    def __init__(self, source: str, target: str, settings: RewriteSettings, topics: Collection[str] = ()) -> None:
        self.source, self.target = os.path.realpath(source), os.path.realpath(target)
        if os.path.commonpath((self.source, self.target)) in (self.source, self.target):
            raise RewriteError("neither of the two directories may be within the other one")
        self.settings = settings
        self._topics = topics
        self._workspace = RewriteWorkspace(self.target)
        self._locks = ExitStack()
        self._plan: RewritePlan | None = None
        self.finished: RewriteReport | None = None  # the report of an earlier run that has done all of it

    def __enter__(self) -> DirectoryRewriting:
        """Lock both directories."""
        try:
            self._lock_source()
            self._plan = make_plan(self.source, self._topics)
            done = self._workspace.read_report_if_finished(self._plan, self.settings)
            if done is not None:
                self.finished = parse_report(self.target, done)
                return self
            self._locks.callback(self._workspace.lock_target().close)
            self._workspace.begin_run(self._plan, self.settings)
        except BaseException:
            self._locks.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._locks.close()

    @property
    def plan(self) -> RewritePlan:
        """The plan of what to do."""
        assert self._plan is not None
        return self._plan

    def list_unfinished_segments(self) -> list[SegmentTask]:
        """Return the segments that are not done yet, the largest first."""
        finished = {log for log in self.plan.segments_by_log if os.path.exists(f"{self.target}/{log}")}
        tasks = [
            task
            for task in self.plan.tasks
            if task.log not in finished and self._workspace.read_finished_segments(task) is None
        ]
        return sorted(tasks, key=lambda task: -task.size_bytes)

    def finish(self) -> RewriteReport:
        """Complete the directory after all segments are done, and return the report."""
        plan, workspace = self.plan, self._workspace
        segments = [(task, workspace.read_finished_segments(task) or []) for task in plan.tasks]
        missing = next((task for task, written in segments if not written), None)
        if missing is not None:
            raise RewriteError(f"{missing.log}: the segment of offset {missing.base_offset} is not done")
        for log in plan.segments_by_log:
            workspace.finish_log(plan, log)
        for log in plan.copied:
            workspace.copy_log(plan, log)
        workspace.copy_other_files(plan)
        report = RewriteReport(self.target, measure_space(segments), plan.copied)
        workspace.finish_run(plan, self.settings, report.as_json())
        return report

    def _lock_source(self) -> None:
        """Lock out brokers, if the directory is a broker's and can be locked."""
        path = f"{self.source}/{LOCK}"
        if not os.access(path, os.W_OK):
            return
        lock = Disk().lock(path)
        if lock is None:
            raise RewriteError(f"{self.source} is in use by another process: stop the broker first")
        self._locks.callback(lock.close)


@dataclass(frozen=True, slots=True)
class SegmentRewriting:
    """Rewrites a segment unless that is done. It is pickled; several processes may do this at a time."""

    source: str
    target: str
    settings: RewriteSettings

    def __call__(self, task: SegmentTask) -> list[NewSegment]:
        """Return the new segments. Raises `RewriteError`, `CorruptData`, `OSError`."""
        workspace = RewriteWorkspace(self.target)
        done = workspace.read_finished_segments(task)
        if done is not None:
            return done
        disk, work = Disk(), workspace.make_work_directory()
        try:
            written = SegmentRewriter(task, self.source, work, self.settings).rewrite_segment()
            workspace.move_finished_files(task, work, written)
        except BaseException:
            disk.remove_tree(work)
            raise
        return written


def rewrite_directory(
    source: str, target: str, settings: RewriteSettings, topics: Collection[str] = (), engine: Engine | None = None
) -> RewriteReport:
    """Rewrite a log directory that no broker uses: these topics, or all but the internal ones. All else is copied.

    A call after an interrupted one continues it, one after a finished one does nothing. Raises `RewriteError`,
    `CorruptData`, `CorruptBatch`, `OSError`.
    """
    with DirectoryRewriting(source, target, settings, topics) as rewriting:
        return rewriting.finished or finish_rewriting(rewriting, engine or LocalEngine())


def finish_rewriting(rewriting: DirectoryRewriting, engine: Engine) -> RewriteReport:
    """Do the rest of a rewriting whose directories are checked and locked. Raises what `rewrite_directory` raises."""
    work = SegmentRewriting(rewriting.source, rewriting.target, rewriting.settings)
    for _ in engine.run_on_items(work, rewriting.list_unfinished_segments()):
        pass  # what was written is in the directory, which may have more from an earlier run
    return rewriting.finish()
