"""Spark's standalone master and its workers as processes of their own, from pyspark's own jars.

Each worker has a Python of its own: the first one that of the tests, the second one a new environment without any
package. Executors get no path of ours from this process, so that what they have is what Spark ships to them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark

from minibroker.pipeline.java import find_java
from tests.spark_settings import short_lived

SPARK_HOME = Path(pyspark.__file__).parent
LOCAL = {"SPARK_LOCAL_IP": "127.0.0.1"}
MASTER_STARTED = re.compile(r"Starting Spark master at (spark://\S+)")
START_PATIENCE_S = 300  # three JVMs start at once
PAUSE_S = 0.05  # between looks at a file, which tells nobody when it grows
REGISTERED = "Successfully registered with master"
INHERITED = ("HOME", "LANG", "TMPDIR", "USER")


class Daemon:
    """A master or a worker, with what it logs in a file."""

    def __init__(self, name: str, directory: Path, arguments: Sequence[str], env: Mapping[str, str]) -> None:
        self.name = name
        self.log_file = directory / f"{name}.log"
        command = [str(SPARK_HOME / "bin" / "spark-class"), *arguments]
        with self.log_file.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=directory, env=dict(env))
        self.pid = self._process.pid

    def await_line(self, pattern: str | re.Pattern[str]) -> re.Match[str]:
        """Wait until it logs this. Raises AssertionError if it ends before, or does not say it."""
        deadline = time.monotonic() + START_PATIENCE_S
        while (found := re.search(pattern, self.log)) is None:
            assert self._process.poll() is None and time.monotonic() < deadline, f"{self.name}: {self.log[-3000:]}"
            time.sleep(PAUSE_S)
        return found

    def await_registered(self) -> None:
        """Wait until the master knows this worker."""
        self.await_line(REGISTERED)

    @property
    def log(self) -> str:
        """Return all that it has logged."""
        return self.log_file.read_text(errors="replace")

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.kill()
        self._process.wait()


class StandaloneCluster:
    """A master and two workers, `equipped` and `bare`, each with a Python of its own, and cores for two drivers."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.paths = {"equipped": Path(sys.executable).parent, "bare": bare_python(directory / "bare")}
        master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        self.master = Daemon("master", directory, master, self._environment())
        self.workers: dict[str, Daemon] = {}
        try:
            self.url = self.master.await_line(MASTER_STARTED)[1]
            for name in self.paths:
                self.launch_worker(name)
            for worker in self.workers.values():
                worker.await_registered()
        except BaseException:
            self.close()
            raise

    def launch_worker(self, name: str) -> Daemon:
        """Start a worker, or one in the place of one that was killed."""
        work = self.directory / f"work-{name}"
        where = ["--host", "127.0.0.1", "--webui-port", "0", "--work-dir", str(work)]
        has = ["--cores", "2", "--memory", "1g"]
        command = ["org.apache.spark.deploy.worker.Worker", *where, *has, self.url]
        self.workers[name] = Daemon(name, self.directory, command, self._environment(self.paths[name]))
        return self.workers[name]

    def driver_environment(self) -> dict[str, str]:
        """Return the environment of a driver, which has everything, but plans queries with a bare Python."""
        return driver_environment(self.directory, self.paths["bare"])

    def close(self) -> None:
        """End all processes; executors end when their worker is gone."""
        for daemon in (*self.workers.values(), self.master):
            daemon.kill()

    def _environment(self, *paths: Path) -> dict[str, str]:
        path = os.pathsep.join((*map(str, paths), os.environ["PATH"]))
        return {**daemon_environment(self.directory), "PATH": path}


def daemon_environment(directory: Path) -> dict[str, str]:
    """Return the environment of a daemon that keeps what it writes in a directory."""
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    java = str(find_java().program.resolve().parents[1])
    places = {"JAVA_HOME": java, "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_DIRS": str(directory)}
    java_options = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": short_lived()}
    return {**inherited, **places, **java_options, **LOCAL}


def driver_environment(directory: Path, bare: Path) -> dict[str, str]:
    """Return this process's environment for a driver that plans queries with a Python without packages."""
    path = os.pathsep.join((str(bare), os.environ["PATH"]))
    places = {"PATH": path, "PYSPARK_PYTHON": "python3", "SPARK_LOCAL_DIRS": str(directory)}
    return {**os.environ, **LOCAL, **places}


def application_settings(directory: Path) -> dict[str, str]:
    """Return the settings for executors on small machines, and for a driver that all of them find."""
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "768m",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.cores.max": "2",  # an executor on each worker, and as much is left for a second driver
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # a query waits until both executors are there
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.driver.extraJavaOptions": f"{short_lived()} -Djava.io.tmpdir={directory}",
        "spark.executor.extraJavaOptions": short_lived(),
    }


def bare_python(directory: Path) -> Path:
    """Make a Python without any package; the directory with its programs."""
    venv.create(directory, with_pip=False, symlinks=True)
    return directory / "bin"


@contextmanager
def running_cluster(directory: Path) -> Iterator[StandaloneCluster]:
    """A cluster for the length of a block."""
    cluster = StandaloneCluster(directory)
    try:
        yield cluster
    finally:
        cluster.close()
