"""The bar of what Spark does: the tasks of all stages that run, and nothing left of it at the end."""

from __future__ import annotations

import io
import threading
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from minibroker.cli.pipeline import pipeline_progress
from minibroker.cli.pipeline.pipeline_progress import show_progress, sum_running


class Tracker:
    """Spark's status tracker, with two stages that run and one that has gone since it was listed."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def getActiveStageIds(self) -> list[int]:
        return [4, 5, 6]

    def getStageInfo(self, stage: int) -> Any:
        infos = {
            4: SimpleNamespace(numTasks=8, numCompletedTasks=3),
            5: SimpleNamespace(numTasks=2, numCompletedTasks=2),
        }
        if stage == 6:
            self.asked.set()
        return infos.get(stage)


def test_the_tasks_of_all_stages_are_counted() -> None:
    tracker: Any = Tracker()
    assert sum_running(tracker) == (2, 10, 5)


def test_the_progress_bar_is_removed_at_the_end(monkeypatch: Any) -> None:
    monkeypatch.setattr(pipeline_progress, "INTERVAL_S", 0.001)
    tracker = Tracker()
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with show_progress(spark, "reading", console) as progress:
        for _ in range(2):  # when it asks again, what it saw the first time is shown
            assert tracker.asked.wait(10)
            tracker.asked.clear()
        (task,) = progress.tasks
        assert (task.description, task.total, task.completed) == ("reading, 2 stages", 10, 5)
    assert pipeline_progress.THREAD not in [thread.name for thread in threading.enumerate()]
