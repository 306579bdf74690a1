"""What all tests share: a derandomised hypothesis profile, so that a run in CI is short, and telling of other seeds."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.leaving import leaves_sockets

__all__ = ["leaves_sockets"]

settings.register_profile(
    "ci", derandomize=True, max_examples=40, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("long", max_examples=2000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_collection_finish() -> None:
    """Let no garbage collection look through all tests again: they stay, and a full one took 0.3 s with them."""
    gc.collect()
    gc.freeze()


def uses_spark(file: Path) -> bool:
    """Whether a file of tests says that Spark runs in them: by the type of the fixture, or by the mark."""
    text = file.read_text()
    return "SparkSession" in text or 'xdist_group("spark")' in text


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """One worker more than there are cores, if nobody says how many: clients wait for timers in many tests."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Deal tests out one by one, but those with Spark to one worker: a session costs 20 s of CPU.

    That is what `--dist loadgroup` is for, which with pytest 9.2 takes no notice of groups (pytest-xdist issue 1386).
    """
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling

    of_spark: dict[str, bool] = {}

    class SparkTogether(LoadGroupScheduling):  # type: ignore[misc, unused-ignore]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            if file not in of_spark:
                of_spark[file] = uses_spark(config.rootpath / file)
            return "spark" if of_spark[file] else str(super()._split_scope(nodeid))

    return SparkTogether(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell the seeds that tests have chosen (`record_property("seed", ...)`), also of those that passed."""
    for report in (*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")):
        for name, value in report.user_properties:
            if name == "seed":
                terminalreporter.write_line(f"{report.nodeid}: seed {value}")
