"""The plan of a rewriting, and its target directory with notes of what is done, so that a killed run can be continued.

    <target>/.lock                            held during a rewriting, so that no broker starts on it
    <target>/.rewrite/plan.json               the plan and settings; shows that the directory is ours
                      work/<unique>/          unfinished segments, one attempt each
                      logs/<log>/             finished segments
                      done/<log>.<offset>     notes about such a segment
    <target>/<log>/                           a finished log

In the end only the logs remain, and `.rewritten` with the plan and the report, so that it is not done again. That is a
file, as Kafka takes each directory for a log.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import groupby
from typing import Any
from uuid import uuid4

import minibroker.storage.names as file_names
from minibroker.pipeline.directory.finding import find_logs
from minibroker.pipeline.directory.reading_disk import DISK
from minibroker.pipeline.rewriting.rewrite_settings import RewriteError, RewriteSettings
from minibroker.pipeline.rewriting.segment_rewriting import NewSegment, SegmentTask
from minibroker.pipeline.selection import INTERNAL_TOPICS
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


FINISHED = ".rewritten"  # in the target of a rewriting: its plan and report


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
VERSION = 3
KEPT = {LEADER_EPOCH_CHECKPOINT, ABORTED_TRANSACTIONS_CHECKPOINT, PARTITION_METADATA}
OTHERS = {
    "version": "a rewriting by another version of minibroker",
    "source": "a rewriting of another directory",
    "topics": "a rewriting of other topics",
    "settings": "a rewriting with other settings",
    "digest": "a rewriting of a directory that has changed since",
}


class RewriteWorkspace:
    """The directory `target` of a plan. It can be pickled. Methods raise `OSError`."""

    def __init__(self, target: str) -> None:
        self.target = target
        self._state = f"{target}/{STATE}"
        self._disk = Disk()

    # --- the beginning ----------------------------------------------------------------------------

    def read_report_if_finished(self, plan: RewritePlan, settings: RewriteSettings) -> dict[str, Any] | None:
        """Return the report of a finished run of this plan as JSON, None if there is none.

        Raises `RewriteError` if another rewriting is finished here.
        """
        disk = self._disk
        if disk.exists(f"{self._state}/plan.json") or not disk.exists(f"{self.target}/{FINISHED}"):
            return None
        found = json.loads(disk.read_whole(f"{self.target}/{FINISHED}"))
        self._require_same_run(found["plan"], _describe_run(plan, settings), "remove the directory")
        report: dict[str, Any] = found["report"]
        return report

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
        """Write down the plan. Raises `RewriteError` if another rewriting has done something here."""
        path = f"{self._state}/plan.json"
        said = _describe_run(plan, settings)
        if self._disk.exists(path) and self._has_begun():
            self._require_same_run(
                json.loads(self._disk.read_whole(path)), said, "finish that one, or remove the directory"
            )
            self._disk.remove_tree(f"{self._state}/work")
            return
        for name in ("logs", "done"):
            self._disk.make_directory(f"{self._state}/{name}")
        self._disk.write_whole(path, json.dumps(said, indent=1).encode(), sync=True)

    def _require_same_run(self, stored: Mapping[str, Any], expected: Mapping[str, Any], remedy: str) -> None:
        for name, value in expected.items():
            if stored.get(name) != value:
                raise RewriteError(f"{self.target} has {OTHERS[name]}: {remedy}")

    def _has_begun(self) -> bool:
        """Return whether a segment or a log is done. A refused run, which has done nothing, is no obstacle."""
        others = set(self._disk.list_names(self.target)) - {LOCK, STATE}
        return bool(others or self._disk.list_names(f"{self._state}/done"))

    # --- segments, by whichever process -----------------------------------------------------------

    def read_finished_segments(self, task: SegmentTask) -> list[NewSegment] | None:
        """Return the new segments of a segment, or None if it is not done."""
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
        """Move the finished files of an attempt to those of the log, then note that."""
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
        """Give a log whose segments are all done its other files, then its name. Do nothing if it has that."""
        if self._disk.exists(f"{self.target}/{log}"):
            return
        path = self._make_log_path(log)
        for name in self._disk.list_names(f"{plan.source}/{log}"):
            if name in KEPT or name.endswith(file_names.SNAPSHOT_SUFFIX):
                self._copy_file(f"{plan.source}/{log}/{name}", f"{path}/{name}")
        self._write_log_name(path, log)

    def copy_log(self, plan: RewritePlan, log: str) -> None:
        """Copy a log as it is, unless that is done."""
        if self._disk.exists(f"{self.target}/{log}"):
            return
        path = self._make_log_path(log)
        self._disk.remove_tree(path)
        shutil.copytree(f"{plan.source}/{log}", path)
        self._write_log_name(path, log)

    def copy_other_files(self, plan: RewritePlan) -> None:
        """Copy the files beside the logs: identity and checkpoints, which are valid here too."""
        for name in plan.files:
            self._copy_file(f"{plan.source}/{name}", f"{self.target}/{name}")

    def finish_run(self, plan: RewritePlan, settings: RewriteSettings, report: Mapping[str, Any]) -> None:
        """Write the clean shutdown file if the source has it, and remove all that is not part of a log directory.

        The report is kept.

        The plan is removed first: with it, a later run would take the directory for unfinished, whatever a broker did
        to it.
        """
        kept = {name: value for name, value in report.items() if name != "target"}
        note = {"plan": _describe_run(plan, settings), "report": kept}
        self._disk.write_whole(f"{self.target}/{FINISHED}", json.dumps(note, indent=1).encode(), sync=True)
        self._disk.sync_directory(self.target)
        self._disk.remove(f"{self._state}/plan.json")
        if plan.is_clean:
            self._copy_file(f"{plan.source}/{file_names.CLEAN_SHUTDOWN}", f"{self.target}/{file_names.CLEAN_SHUTDOWN}")
        self._disk.remove_tree(self._state)
        self._disk.sync_directory(self.target)

    def _write_log_name(self, path: str, log: str) -> None:
        self._disk.sync_directory(path)
        self._disk.rename(path, f"{self.target}/{log}")

    def _copy_file(self, source: str, target: str) -> None:
        """Copy a small file, and sync it. It keeps its time of modification."""
        self._disk.write_whole(target, DISK.read_whole(source), sync=True)
        self._disk.set_modified_ms(target, self._disk.get_modified_ms(source))

    def _make_log_path(self, log: str) -> str:
        return f"{self._state}/logs/{log}"

    def _make_done_path(self, task: SegmentTask) -> str:
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
