"""Starts Hadoop's YARN on this machine: a resource manager and a node manager. Containers have a bare Python."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from conformance import builds
from conformance.pipeline_cluster.standalone import Daemon, bare_python, daemon_environment, driver_environment
from tests.clients.ports import free_ports
from tests.spark_settings import SHORT_LIVED

SERVER = "org.apache.hadoop.yarn.server"
ADDRESSES = (
    *("resourcemanager.address", "resourcemanager.scheduler.address", "resourcemanager.resource-tracker.address"),
    *("resourcemanager.admin.address", "resourcemanager.webapp.address", "nodemanager.address"),
    *("nodemanager.localizer.address", "nodemanager.webapp.address"),
)
SETTINGS = {
    "nodemanager.disk-health-checker.enable": "false",  # it refuses disks that are nearly full
    "nodemanager.pmem-check-enabled": "false",
    "nodemanager.vmem-check-enabled": "false",
    "nodemanager.resource.memory-mb": "4096",
    "nodemanager.resource.cpu-vcores": "4",
    "resourcemanager.scheduler.class": f"{SERVER}.resourcemanager.scheduler.fifo.FifoScheduler",
}


class YarnCluster:
    """A resource manager and one node."""

    url = "yarn"

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._bare = bare_python(directory / "bare")
        self._configuration = directory / "configuration"
        self._configuration.mkdir()
        port = free_ports(len(ADDRESSES))
        addresses = {name: f"127.0.0.1:{port + place}" for place, name in enumerate(ADDRESSES)}
        files = {f"nodemanager.{kind}-dirs": str(directory / kind) for kind in ("local", "log")}
        settings = {**SETTINGS, **addresses, **files}
        self._write("yarn-site.xml", {f"yarn.{name}": each for name, each in settings.items()})
        self._write("core-site.xml", {"fs.defaultFS": "file:///"})
        self._daemons: list[Daemon] = []

    def start(self) -> None:
        """Start both daemons, and wait until they serve."""
        environment = {
            **daemon_environment(self.directory),
            **self._said(),
            "PATH": os.pathsep.join((str(self._bare), os.environ["PATH"])),
            "SPARK_DIST_CLASSPATH": os.pathsep.join(map(str, builds.hadoop("hadoop"))),
            "JAVA_TOOL_OPTIONS": f"{SHORT_LIVED} -Dlog4j2.level=INFO -Dyarn.log.dir={self.directory}",
            "SPARK_DRIVER_MEMORY": "384m",  # of the daemon, for Spark's script
        }
        for name, program, started in (
            ("resource-manager", "resourcemanager.ResourceManager", "Transitioned to active state"),
            ("node-manager", "nodemanager.NodeManager", "Registered with ResourceManager"),
        ):
            daemon = Daemon(name, self.directory, [f"{SERVER}.{program}"], environment)
            self._daemons.append(daemon)
            daemon.await_line(started)

    def driver_environment(self) -> dict[str, str]:
        """Return the environment of a driver."""
        return {**driver_environment(self.directory, self._bare), **self._said()}

    def close(self) -> None:
        """End all processes."""
        for daemon in self._daemons:
            daemon.kill()

    def _said(self) -> dict[str, str]:
        return {"HADOOP_CONF_DIR": str(self._configuration)}

    def _write(self, name: str, settings: dict[str, str]) -> None:
        lines = (f"<property><name>{key}</name><value>{value}</value></property>" for key, value in settings.items())
        (self._configuration / name).write_text(f"<configuration>{''.join(lines)}</configuration>")


@contextmanager
def running_yarn(directory: Path) -> Iterator[YarnCluster]:
    """A cluster for the length of a block."""
    cluster = YarnCluster(directory)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
