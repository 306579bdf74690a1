"""Rewrites a whole directory, with notes of what is done in the target, so that a killed run can be continued.

    <target>/.lock                            held during a rewriting, so that no broker starts on it
    <target>/.rewrite/plan.json               the plan and settings; shows that the directory is ours
                      work/<unique>/          unfinished segments, one attempt each
                      logs/<log>/             finished segments
                      done/<log>.<offset>     notes about such a segment
    <target>/<log>/                           a finished log

In the end only the logs and the files of a log directory remain, and `.rewritten` with the plan and the report, so that
it is not done again. An engine rewrites segments beside each other.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, astuple, dataclass
from hashlib import sha256
from itertools import groupby
from types import TracebackType
from typing import Any
from uuid import uuid4

import minibroker.storage.names as file_names
from minibroker.pipeline.directory.finding import find_logs
from minibroker.pipeline.directory.reading_disk import DISK
from minibroker.pipeline.engines import Engine, LocalEngine
from minibroker.pipeline.log_source import INTERNAL_TOPICS
from minibroker.pipeline.rewriting.batch_conversion import RewriteError, RewriteSettings
from minibroker.pipeline.rewriting.segment_rewriting import NewSegment, SegmentRewriter, SegmentTask
from minibroker.storage.checkpoints.checkpoint_texts import (
    ABORTED_TRANSACTIONS_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
)
from minibroker.storage.directories.log_directory import LOCK
from minibroker.storage.files import Disk, File
from minibroker.storage.recovery.failed_sync import FAILED_SYNC


@dataclass(frozen=True)
class RewritePlan:
    """The segments to rewrite, the logs to copy, the files beside them.

    `is_clean` is whether the last stop was clean.
    """

    source: str
    tasks: tuple[SegmentTask, ...]
    copied: tuple[str, ...]
    files: tuple[str, ...]
    is_clean: bool
    digest: str

    @property
    def segments_by_log(self) -> dict[str, list[SegmentTask]]:
        """The segments of each log that is rewritten, by the name of its directory."""
        return {log: list(tasks) for log, tasks in groupby(self.tasks, key=lambda task: task.log)}

    @property
    def topics(self) -> list[str]:
        """The topics to rewrite, sorted."""
        return sorted({task.topic for task in self.tasks})


def make_plan(source: str, topics: Collection[str] = ()) -> RewritePlan:
    """Return the plan for the log directory `source`: rewrite these topics, or all but internal ones.

    Raises `RewriteError` for unknown and internal topics, and if a broker must start on the directory first.
    """
    disk = Disk()
    logs = sorted(partition for partition, log in find_logs([source]).items() if log.log_directory == source)
    if not logs:
        raise RewriteError(f"{source} has no logs")
    _check_topics(topics, {each.topic for each in logs})
    is_clean = disk.exists(f"{source}/{file_names.CLEAN_SHUTDOWN}")
    tasks: list[SegmentTask] = []
    copied: list[str] = []
    for each in logs:
        chosen = each.topic in topics if topics else each.topic not in INTERNAL_TOPICS
        segments = _list_segments(disk, f"{source}/{each}") if chosen else []
        if segments:
            tasks += _make_tasks(disk, f"{source}/{each}", *each, segments, is_clean)
        else:
            copied.append(str(each))
    return RewritePlan(
        source, tuple(tasks), tuple(copied), _list_files(disk, source), is_clean, _compute_digest(source, tasks)
    )


def _check_topics(topics: Iterable[str], known_topics: set[str]) -> None:
    for topic in topics:
        if topic not in known_topics:
            raise RewriteError(f"there is no topic {topic} in the directory")
        if topic in INTERNAL_TOPICS:
            raise RewriteError(f"{topic} is an internal topic, which is copied as it is")


def _list_segments(disk: Disk, directory: str) -> list[int]:
    """Return the base offsets of a log's segments. Raises `RewriteError` if a change of them was interrupted."""
    names = disk.list_names(directory)
    for each in names:
        if each.endswith((file_names.SWAP_SUFFIX, file_names.CLEANED_SUFFIX)) or each == FAILED_SYNC:
            raise RewriteError(
                f"{directory}/{each}: left by a crash: start a broker on the directory and stop it first"
            )
    return file_names.list_offsets_with_suffix(names, file_names.LOG_SUFFIX)


def _make_tasks(
    disk: Disk, directory: str, topic: str, partition: int, segments: list[int], is_clean: bool
) -> list[SegmentTask]:
    """Return a task for each segment of a log; `is_clean` is whether its broker was shut down cleanly."""
    tasks = []
    for base_offset in segments:
        size_bytes = disk.size_bytes(f"{directory}/{file_names.make_segment_name(base_offset)}{file_names.LOG_SUFFIX}")
        is_last = base_offset == segments[-1]
        tasks.append(SegmentTask(topic, partition, base_offset, size_bytes, is_last, is_last and not is_clean))
    return tasks


def _list_files(disk: Disk, source: str) -> tuple[str, ...]:
    """Return the files beside the logs to copy. The clean shutdown file is last, after all others."""
    left = (LOCK, file_names.CLEAN_SHUTDOWN, FINISHED)
    return tuple(
        name
        for name in disk.list_names(source)
        if name not in left and not name.endswith(file_names.TEMPORARY_SUFFIX) and os.path.isfile(f"{source}/{name}")
    )


def _compute_digest(source: str, tasks: Iterable[SegmentTask]) -> str:
    """Return a digest that changes if a segment does."""
    lines = []
    for task in tasks:
        path = f"{source}/{task.log}/{file_names.make_segment_name(task.base_offset)}{file_names.LOG_SUFFIX}"
        lines.append(f"{path} {task.size_bytes} {os.stat(path).st_mtime_ns}")
    return sha256("\n".join(lines).encode()).hexdigest()


STATE = ".rewrite"
FINISHED = ".rewritten"  # the plan and the report of a finished run
VERSION = 3
KEPT = {LEADER_EPOCH_CHECKPOINT, ABORTED_TRANSACTIONS_CHECKPOINT, PARTITION_METADATA}
# What another rewriting may be, by what `plan.json` says of it.
OTHERS = {
    "version": "by another version of minibroker",
    "source": "of another directory",
    "topics": "of other topics",
    "settings": "with other settings",
    "digest": "of a directory that has changed since",
}


class RewriteWorkspace:
    """The directory `target` of a plan. It can be pickled. Methods raise `OSError`."""

    def __init__(self, target: str) -> None:
        self.target = target
        self._state = f"{target}/{STATE}"
        self._disk = Disk()

    # --- the beginning ----------------------------------------------------------------------------

    def read_report_if_finished(self, plan: RewritePlan, settings: RewriteSettings) -> RewriteReport | None:
        """Return the report of a finished run of this plan. Raises `RewriteError` if another is finished here."""
        path = f"{self.target}/{FINISHED}"
        if self._disk.exists(f"{self._state}/plan.json") or not self._disk.exists(path):
            return None
        note = json.loads(self._disk.read_whole(path))
        self._require_same_run(note["plan"], _describe_run(plan, settings), "remove the directory")
        topics = [TopicSpace(*fields) for fields in note["topics"]]
        return RewriteReport(self.target, topics, plan.copied)

    def lock_target(self) -> File:
        """Create the directory, or check that it is ours or empty. Lock out brokers and other runs.

        Raises `RewriteError` for a directory with content that is not from a rewriting.
        """
        disk = self._disk
        if disk.exists(self.target) and not disk.exists(f"{self._state}/plan.json"):
            others = [name for name in disk.list_names(self.target) if name not in (LOCK, STATE)]
            if others:
                raise RewriteError(f"{self.target} is not empty, and not an interrupted rewriting")
        disk.make_directory(self.target)
        lock = disk.lock(f"{self.target}/{LOCK}")
        if lock is None:
            raise RewriteError(f"{self.target} is in use by another process")
        return lock

    def begin_run(self, plan: RewritePlan, settings: RewriteSettings) -> None:
        """Write down the plan, to recognize it in the next run. Raises `RewriteError` if another one was begun here."""
        path = f"{self._state}/plan.json"
        said = _describe_run(plan, settings)
        if self._disk.exists(path) and self._has_begun():
            stored = json.loads(self._disk.read_whole(path))
            self._require_same_run(stored, said, "finish that one, or remove the directory")
            self._disk.remove_tree(f"{self._state}/work")
            return
        for name in ("logs", "done"):
            self._disk.make_directory(f"{self._state}/{name}")
        self._disk.write_whole(path, json.dumps(said, indent=1).encode(), sync=True)

    def _require_same_run(self, stored: Mapping[str, Any], expected: Mapping[str, Any], remedy: str) -> None:
        for name, other in OTHERS.items():
            if stored.get(name) != expected[name]:
                raise RewriteError(f"{self.target} has a rewriting {other}: {remedy}")

    def _has_begun(self) -> bool:
        """Return whether a segment or a log is done. A refused run, which has done nothing, is no obstacle."""
        others = set(self._disk.list_names(self.target)) - {LOCK, STATE}
        return bool(others or self._disk.list_names(f"{self._state}/done"))

    # --- segments, by whichever process -----------------------------------------------------------

    def read_finished_segments(self, task: SegmentTask) -> list[NewSegment] | None:
        """Return the new segments that were written for this old one, or None if it is not done."""
        path = self._make_done_path(task)
        if not self._disk.exists(path):
            return None
        return [NewSegment(*fields) for fields in json.loads(self._disk.read_whole(path))]

    def make_work_directory(self) -> str:
        """Create and return a directory for the files of one attempt at a segment."""
        path = f"{self._state}/work/{uuid4().hex}"
        self._disk.make_directory(path)
        return path

    def move_finished_files(self, task: SegmentTask, work_directory: str, segments: list[NewSegment]) -> None:
        """Move the files of a finished attempt into the log's directory, and record the segment as done."""
        directory = self._make_log_path(task.log)
        self._disk.make_directory(directory)
        for name in self._disk.list_names(work_directory):
            self._disk.rename(f"{work_directory}/{name}", f"{directory}/{name}")
        self._disk.sync_directory(directory)
        said = f"{work_directory}/done"
        self._disk.write_whole(said, json.dumps(segments).encode(), sync=True)
        self._disk.rename(said, self._make_done_path(task))
        self._disk.remove_tree(work_directory)

    # --- the end ----------------------------------------------------------------------------------

    def finish_log(self, plan: RewritePlan, log: str) -> None:
        """Copy the other files of a log whose segments are all rewritten, and move it into the target, if not done."""
        if self._disk.exists(f"{self.target}/{log}"):
            return
        path = self._make_log_path(log)
        for name in self._disk.list_names(f"{plan.source}/{log}"):
            if name in KEPT or name.endswith(file_names.SNAPSHOT_SUFFIX):
                self._copy_file(f"{plan.source}/{log}/{name}", f"{path}/{name}")
        self._move_log_into_target(path, log)

    def copy_log(self, plan: RewritePlan, log: str) -> None:
        """Copy a log as it is, unless that is done."""
        if self._disk.exists(f"{self.target}/{log}"):
            return
        path = self._make_log_path(log)
        self._disk.remove_tree(path)
        shutil.copytree(f"{plan.source}/{log}", path)
        self._move_log_into_target(path, log)

    def copy_other_files(self, plan: RewritePlan) -> None:
        """Copy the files beside the logs: identity and checkpoints, which are valid here too."""
        for name in plan.files:
            self._copy_file(f"{plan.source}/{name}", f"{self.target}/{name}")

    def finish_run(self, plan: RewritePlan, settings: RewriteSettings, topics: Sequence[TopicSpace]) -> None:
        """Write the note of a finished rewriting, and the clean shutdown file if the source has it; remove work files.

        The plan is removed first: with it, a later run would take the directory for unfinished, whatever a broker did
        to it.
        """
        note = {"plan": _describe_run(plan, settings), "topics": [astuple(space) for space in topics]}
        self._disk.write_whole(f"{self.target}/{FINISHED}", json.dumps(note, indent=1).encode(), sync=True)
        self._disk.sync_directory(self.target)
        self._disk.remove(f"{self._state}/plan.json")
        if plan.is_clean:
            self._copy_file(f"{plan.source}/{file_names.CLEAN_SHUTDOWN}", f"{self.target}/{file_names.CLEAN_SHUTDOWN}")
        self._disk.remove_tree(self._state)
        self._disk.sync_directory(self.target)

    def _move_log_into_target(self, path: str, log: str) -> None:
        """Move the directory of a finished log into the target."""
        self._disk.sync_directory(path)
        self._disk.rename(path, f"{self.target}/{log}")

    def _copy_file(self, source: str, target: str) -> None:
        """Copy a small file, and sync it. It keeps its time of modification."""
        self._disk.write_whole(target, DISK.read_whole(source), sync=True)
        self._disk.set_modified_ms(target, self._disk.get_modified_ms(source))

    def _make_log_path(self, log: str) -> str:
        return f"{self._state}/logs/{log}"

    def _make_done_path(self, task: SegmentTask) -> str:
        """Return the path of the file that lists the new segments of an old one; it exists once that is done."""
        return f"{self._state}/done/{task.log}.{file_names.make_segment_name(task.base_offset)}"


def _describe_run(plan: RewritePlan, settings: RewriteSettings) -> dict[str, Any]:
    """Return what must be the same in each run of a rewriting, as JSON."""
    said = {
        "version": VERSION,
        "source": plan.source,
        "digest": plan.digest,
        "topics": plan.topics,
        "settings": asdict(settings),
    }
    parsed: dict[str, Any] = json.loads(json.dumps(said))
    return parsed


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
        """Add the old and new sizes and the counts of a segment."""
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


def measure_space(segments: Iterable[tuple[SegmentTask, Sequence[NewSegment]]]) -> list[TopicSpace]:
    """Return the old and new size of each topic, sorted by name, by adding up its segments."""
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
            self.finished = self._workspace.read_report_if_finished(self._plan, self.settings)
            if self.finished is None:
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
        workspace.finish_run(plan, self.settings, report.topics)
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
