"""Rewrites a whole directory. An engine rewrites its segments beside each other."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType

from minibroker.pipeline.decode.aborted import AbortedRanges
from minibroker.pipeline.engines import Engine, Here
from minibroker.pipeline.rewriting.plan import Plan, plan_of
from minibroker.pipeline.rewriting.report import Report, measure_space, report_from
from minibroker.pipeline.rewriting.rewrite_settings import RewriteError, RewriteSettings
from minibroker.pipeline.rewriting.segment_rewriting import NewSegment, SegmentRewriter, SegmentTask
from minibroker.pipeline.rewriting.topic_configs import update_configs
from minibroker.pipeline.rewriting.transaction_rewriting import (
    Survey,
    open_transactions,
    read_aborted_ranges,
    survey_segment,
)
from minibroker.pipeline.rewriting.workspace import Workspace
from minibroker.storage.directories.log_directory import LOCK
from minibroker.storage.files import Disk
from minibroker.storage.names import LOG_SUFFIX, list_offsets_with


class Rewriting:
    """A rewriting from `source`, which no broker may write to, to `target`, which is created.

    It is a context manager. Methods raise `RewriteError` and `OSError`.
    """

    def __init__(self, source: str, target: str, settings: RewriteSettings, topics: Collection[str] = ()) -> None:
        self.source, self.target = os.path.realpath(source), os.path.realpath(target)
        if os.path.commonpath((self.source, self.target)) in (self.source, self.target):
            raise RewriteError("neither of the two directories may be within the other one")
        self.settings = settings
        self._topics = topics
        self._workspace = Workspace(self.target)
        self._locks = ExitStack()
        self._plan: Plan | None = None
        self.finished: Report | None = None  # the report of an earlier run that has done all of it

    def __enter__(self) -> Rewriting:
        """Lock both directories."""
        try:
            self._lock_source()
            self._plan = plan_of(self.source, self._topics)
            if self.settings.committed_only and not self._plan.is_clean:
                # The recovery at the next start would take the gaps of removed markers for losses, and truncate the log
                # there.
                raise RewriteError(f"{self.source} was not stopped cleanly: start a broker on it and stop it first")
            done = self._workspace.finished(self._plan, self.settings)
            if done is not None:
                self.finished = report_from(self.target, done)
                return self
            self._locks.callback(self._workspace.lock().close)
            self._workspace.begin(self._plan, self.settings)
        except BaseException:
            self._locks.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._locks.close()

    @property
    def plan(self) -> Plan:
        """The plan of what to do."""
        assert self._plan is not None
        return self._plan

    def left(self) -> list[SegmentTask]:
        """Return the segments that are not done yet, the largest first."""
        finished = {log for log in self.plan.logs if os.path.exists(f"{self.target}/{log}")}
        tasks = [task for task in self.plan.tasks if task.log not in finished and self._workspace.done(task) is None]
        return sorted(tasks, key=lambda task: -task.size_bytes)

    def open_transactions(self, surveys: Sequence[tuple[str, Survey]]) -> dict[str, dict[int, int]]:
        """Return the transactions without an end, by log. `surveys` are of all segments of all logs.

        Raises `RewriteError` if there are transactions, but no place for them, and the settings do not say what to do.
        """
        by_log: dict[str, list[Survey]] = {}
        for log, each in surveys:
            if each.has_transactions and not self.settings.committed_only:
                raise RewriteError(
                    f"{log} holds transactions, which formats 0 and 1 do not have: keep only what is committed"
                )
            by_log.setdefault(log, []).append(each)
        return {log: open_transactions(found) for log, found in by_log.items()}

    def finish(self) -> Report:
        """Complete the directory after all segments are done, and return the report."""
        plan, workspace = self.plan, self._workspace
        segments = [(task, workspace.done(task) or []) for task in plan.tasks]
        missing = next((task for task, written in segments if not written), None)
        if missing is not None:
            raise RewriteError(f"{missing.log}: the segment of offset {missing.base_offset} is not done")
        for log in plan.logs:
            workspace.finish_log(plan, log, is_old=self.settings.is_old)
        for log in plan.copied:
            workspace.copy_log(plan, log)
        workspace.copy_files(plan)
        configs, are_made = update_configs(self.target, plan.topics, self.settings, is_clean=plan.is_clean)
        report = Report(self.target, *measure_space(segments), plan.copied, configs, are_made)
        workspace.end(plan, self.settings, report.as_json())
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
class Surveying:
    """Surveys the transactions of a segment. It is pickled."""

    source: str

    def __call__(self, task: SegmentTask) -> tuple[str, Survey]:
        """Return a segment's log, and its transactions. Raises `CorruptBatch`, `OSError`."""
        return task.log, survey_segment(Disk(), f"{self.source}/{task.log}", task.base_offset, is_torn=task.is_torn)


@dataclass(frozen=True, slots=True)
class SegmentRewriting:
    """Rewrites a segment unless that is done. It is pickled; several processes may do this at a time.

    `open` are the transactions without an end, by log, if only committed records are kept.
    """

    source: str
    target: str
    settings: RewriteSettings
    open: Mapping[str, Mapping[int, int]] | None = None

    def __call__(self, task: SegmentTask) -> list[NewSegment]:
        """Return the new segments. Raises `RewriteError`, `CorruptData`, `OSError`."""
        workspace = Workspace(self.target)
        done = workspace.done(task)
        if done is not None:
            return done
        disk, work = Disk(), workspace.attempt()
        try:
            written = SegmentRewriter(task, self.source, work, self.settings, self._find_hidden(disk, task)).run()
            workspace.take(task, work, written)
        except BaseException:
            disk.remove_tree(work)
            raise
        return written

    def _find_hidden(self, disk: Disk, task: SegmentTask) -> AbortedRanges | None:
        """Return what is not committed, if that is to be left out."""
        if self.open is None:
            return None
        directory = f"{self.source}/{task.log}"
        bases = list_offsets_with(disk.names(directory), LOG_SUFFIX)
        return read_aborted_ranges(disk, directory, bases, self.open.get(task.log, {}))


def rewrite_directory(
    source: str,
    target: str,
    settings: RewriteSettings,
    topics: Collection[str] = (),
    engine: Engine | None = None,
) -> Report:
    """Rewrite a log directory that no broker uses: these topics, or all but the internal ones. All else is copied.

    A call after an interrupted one continues it, one after a finished one does nothing. Raises `RewriteError`,
    `CorruptData`, `CorruptBatch`, `OSError`.
    """
    with Rewriting(source, target, settings, topics) as rewriting:
        return rewriting.finished or rewrite_begun(rewriting, engine or Here())


def rewrite_begun(rewriting: Rewriting, engine: Engine) -> Report:
    """Do the rest of a rewriting whose directories are checked and locked. Raises what `rewrite_directory` raises."""
    settings = rewriting.settings
    open: Mapping[str, Mapping[int, int]] | None = None
    if settings.is_old:
        surveys = list(engine.run(Surveying(rewriting.source), rewriting.plan.tasks))
        open = rewriting.open_transactions(surveys)
    work = SegmentRewriting(rewriting.source, rewriting.target, settings, open if settings.committed_only else None)
    for _ in engine.run(work, rewriting.left()):
        pass  # what was written is in the directory, which may have more from an earlier run
    return rewriting.finish()
