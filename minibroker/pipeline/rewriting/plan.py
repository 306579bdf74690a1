"""Plans a rewriting: which logs are rewritten, which are copied, and the files beside them.

Nothing is written here; `workspace.py` does that.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby

from minibroker.pipeline.directory.finding import find_logs
from minibroker.pipeline.rewriting.rewrite_settings import RewriteError
from minibroker.pipeline.rewriting.segment_rewriting import SegmentTask
from minibroker.pipeline.selection import INTERNAL_TOPICS
from minibroker.storage.directories.log_directory import LOCK
from minibroker.storage.files import Disk
from minibroker.storage.names import (
    CLEAN_SHUTDOWN,
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    list_offsets_with_suffix,
    make_segment_name,
)
from minibroker.storage.recovery.failed_sync import FAILED_SYNC


@dataclass(frozen=True)
class Plan:
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
    def logs(self) -> dict[str, list[SegmentTask]]:
        """The segments of each log that is rewritten, by the name of its directory."""
        return {log: list(tasks) for log, tasks in groupby(self.tasks, key=lambda task: task.log)}

    @property
    def topics(self) -> list[str]:
        """The topics to rewrite, sorted."""
        return sorted({task.topic for task in self.tasks})


FINISHED = ".rewritten"  # in the target of a rewriting: its plan and report


def plan_of(source: str, topics: Collection[str] = ()) -> Plan:
    """Return the plan for the log directory `source`: rewrite these topics, or all but internal ones.

    Raises `RewriteError` for unknown and internal topics, and if a broker must start on the directory first.
    """
    disk = Disk()
    logs = sorted(partition for partition, log in find_logs([source]).items() if log.log_directory == source)
    if not logs:
        raise RewriteError(f"{source} has no logs")
    _check_topics(topics, {each.topic for each in logs})
    is_clean = disk.exists(f"{source}/{CLEAN_SHUTDOWN}")
    tasks: list[SegmentTask] = []
    copied: list[str] = []
    for each in logs:
        chosen = each.topic in topics if topics else each.topic not in INTERNAL_TOPICS
        segments = _list_segments(disk, f"{source}/{each}") if chosen else []
        if segments:
            tasks += _make_tasks(disk, f"{source}/{each}", *each, segments, is_clean)
        else:
            copied.append(str(each))
    return Plan(
        source, tuple(tasks), tuple(copied), _list_files(disk, source), is_clean, _compute_digest(source, tasks)
    )


def _check_topics(topics: Iterable[str], known: set[str]) -> None:
    for topic in topics:
        if topic not in known:
            raise RewriteError(f"there is no topic {topic} in the directory")
        if topic in INTERNAL_TOPICS:
            raise RewriteError(f"{topic} is an internal topic, which is copied as it is")


def _list_segments(disk: Disk, directory: str) -> list[int]:
    """Return the base offsets of a log's segments. Raises `RewriteError` if a change of them was interrupted."""
    names = disk.list_names(directory)
    for each in names:
        if each.endswith((SWAP_SUFFIX, CLEANED_SUFFIX)) or each == FAILED_SYNC:
            raise RewriteError(
                f"{directory}/{each}: left by a crash: start a broker on the directory and stop it first"
            )
    return list_offsets_with_suffix(names, LOG_SUFFIX)


def _make_tasks(
    disk: Disk, directory: str, topic: str, partition: int, segments: list[int], is_clean: bool
) -> list[SegmentTask]:
    tasks = []
    for base_offset in segments:
        size_bytes = disk.size_bytes(f"{directory}/{make_segment_name(base_offset)}{LOG_SUFFIX}")
        is_last = base_offset == segments[-1]
        tasks.append(SegmentTask(topic, partition, base_offset, size_bytes, is_last, is_last and not is_clean))
    return tasks


def _list_files(disk: Disk, source: str) -> tuple[str, ...]:
    """Return the files beside the logs to copy. The clean shutdown file is last, after all others."""
    left = (LOCK, CLEAN_SHUTDOWN, FINISHED)
    return tuple(
        name
        for name in disk.list_names(source)
        if name not in left and not name.endswith(TEMPORARY_SUFFIX) and os.path.isfile(f"{source}/{name}")
    )


def _compute_digest(source: str, tasks: Iterable[SegmentTask]) -> str:
    """Return a digest that changes if a segment does."""
    lines = []
    for task in tasks:
        path = f"{source}/{task.log}/{make_segment_name(task.base_offset)}{LOG_SUFFIX}"
        lines.append(f"{path} {task.size_bytes} {os.stat(path).st_mtime_ns}")
    return sha256("\n".join(lines).encode()).hexdigest()
