"""Spark's progress as a bar on stderr: the tasks of the running stages, polled twice a second.

What the jobs do is not known here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from pyspark import StatusTracker
    from pyspark.sql import SparkSession

INTERVAL_S: Final = 0.5
THREAD: Final = "spark-progress"


class Running(NamedTuple):
    """The tasks of the running stages."""

    stages: int
    tasks: int
    done: int


def sum_running(tracker: StatusTracker) -> Running:
    """Return the running tasks of all jobs together."""
    infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [info for info in infos if info is not None]
    return Running(len(known), sum(info.numTasks for info in known), sum(info.numCompletedTasks for info in known))


@contextmanager
def show_progress(spark: SparkSession, title: str, console: Console | None = None) -> Iterator[Progress]:
    """Show the progress of a session until the block ends, and then remove the bar."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    progress = Progress(*columns, console=console or Console(stderr=True), transient=True)
    watch = partial(_watch_tasks, spark.sparkContext.statusTracker(), progress, title)
    with progress, run_meanwhile(watch, THREAD):
        yield progress


@contextmanager
def run_meanwhile(watch: Callable[[threading.Event], None], name: str) -> Iterator[None]:
    """Run `watch` in a separate thread; the end of the block sets the event that it gets."""
    over = threading.Event()
    watcher = threading.Thread(target=watch, args=(over,), name=name, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _watch_tasks(tracker: StatusTracker, progress: Progress, title: str, over: threading.Event) -> None:
    bar = progress.add_task(title or "Spark", total=None)
    while not over.wait(INTERVAL_S):
        now = sum_running(tracker)
        if now.stages:
            what = f"{title}, {now.stages} stages" if now.stages > 1 else title
            progress.update(bar, description=what, total=now.tasks, completed=now.done)
