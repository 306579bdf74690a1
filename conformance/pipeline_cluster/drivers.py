"""Drivers of Spark as processes of their own, which do what `driver.py` can do, and may be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from conformance.pipeline_cluster.standalone import application_settings

REPOSITORY = Path(__file__).parents[2]


class Cluster(Protocol):
    """Where a driver's executors run."""

    @property
    def url(self) -> str:
        """What Spark takes as its master."""
        ...

    @property
    def directory(self) -> Path:
        """Where a driver keeps what it writes: if it is killed, 114 MB stay there."""
        ...

    def driver_environment(self) -> dict[str, str]:
        """Return the environment of a driver."""
        ...


class DriverFailed(AssertionError):
    """Something that the driver could not do; the message is what users see."""


class RunningDriver:
    """A driver on a cluster. Without an archive, its executors have what their own Python has."""

    def __init__(self, cluster: Cluster, archive: Path | None, settings: Mapping[str, str]) -> None:
        shipped = {"spark.archives": f"{archive}#minibroker", "spark.executorEnv.PYTHONPATH": "minibroker"}
        settings = {**application_settings(cluster.directory), **(shipped if archive else {}), **settings}
        words = [f"{name}={value}" for name, value in settings.items()]
        command = [sys.executable, "-m", "conformance.pipeline_cluster.driver", cluster.url, *words]
        self._process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env=cluster.driver_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def ask(self, what: str, **arguments: Any) -> dict[str, Any]:
        """Return the answer. Raises DriverFailed with an error that the driver has caught."""
        self.tell(what, **arguments)
        return self.answer()

    def tell(self, what: str, **arguments: Any) -> None:
        """Let the driver begin."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, **arguments}).encode() + b"\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Wait for the driver's answer, and return it. Raises DriverFailed."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the driver says nothing more, status {self._process.poll()}"
        said: dict[str, Any] = json.loads(line)
        if "error" in said:
            raise DriverFailed(said["error"])
        return said

    def run(self, *arguments: str) -> str:
        """Run a job of `minibroker pipeline` on the cluster; what it prints on stdout."""
        done = self.ask("command", arguments=arguments)
        assert done["status"] == 0, done["err"]
        out: str = done["out"]
        return out

    def kill(self) -> None:
        """End Python and its JVM as a crash of the machine would."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


@contextmanager
def running_driver(cluster: Cluster, archive: Path | None, **settings: str) -> Iterator[RunningDriver]:
    """A driver for the length of a block, which may kill it; `settings` are Spark's."""
    driver = RunningDriver(cluster, archive, settings)
    try:
        yield driver
    finally:
        driver.kill()
