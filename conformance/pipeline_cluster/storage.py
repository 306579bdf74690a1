"""S3 and HDFS on this machine: moto's server, and Hadoop's own for tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pyarrow.fs import S3FileSystem, copy_files

from conformance import builds
from conformance.pipeline_cluster.standalone import PAUSE_S, START_PATIENCE_S
from minibroker.pipeline.java import find_java
from tests.running import PATIENCE_S
from tests.spark_settings import SHORT_LIVED

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "conformance", "AWS_SECRET_ACCESS_KEY": "conformance", "AWS_REGION": "us-east-1"}
MOTO = """
import sys, threading
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(*server.get_host_and_port(), sep=":", flush=True)
sys.stdin.read()
server.stop()
"""
HDFS = "org.apache.hadoop.mapreduce.MiniHadoopClusterManager"


class ObjectStore(NamedTuple):
    """A server of S3."""

    address: str

    def settings(self) -> dict[str, str]:
        """Return the settings with which Spark's own readers and writers, and Python's on executors, reach it."""
        hadoop = {
            "endpoint": f"http://{self.address}",
            "endpoint.region": CREDENTIALS["AWS_REGION"],
            "path.style.access": "true",
            "access.key": CREDENTIALS["AWS_ACCESS_KEY_ID"],
            "secret.key": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        }
        jars = ",".join(map(str, builds.hadoop("s3")))
        environment = {f"spark.executorEnv.{name}": value for name, value in CREDENTIALS.items()}
        return {
            "spark.jars": jars,
            **environment,
            **{f"spark.hadoop.fs.s3a.{name}": each for name, each in hadoop.items()},
        }

    def make(self, bucket: str) -> None:
        """Make an empty bucket."""
        self._system().create_dir(bucket)

    def copy(self, directory: Path, place: str) -> None:
        """Copy a directory into a new bucket."""
        self._system().create_dir(place)
        copy_files(str(directory), place, destination_filesystem=self._system())

    def _system(self) -> S3FileSystem:
        return S3FileSystem(endpoint_override=self.address, scheme="http", allow_bucket_creation=True)

    def url(self, place: str) -> str:
        """Return the URL of a log directory, for the pipeline's readers."""
        return f"s3a://{place}?endpoint_override={self.address}&scheme=http"


@contextmanager
def running_object_store() -> Iterator[ObjectStore]:
    """A server of S3 for the length of a block."""
    environment = {**os.environ, "PYTHONPATH": str(builds.moto())}
    with _program([sys.executable, "-c", MOTO], environment) as address:
        yield ObjectStore(address)


@contextmanager
def _program(command: list[str], environment: dict[str, str]) -> Iterator[str]:
    """A program that runs until its stdin ends; the line that it prints."""
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdin is not None and process.stdout is not None
            line = process.stdout.readline().strip()
            assert line, f"{command[0]} ends with status {process.wait(PATIENCE_S)}"
            yield line
            process.stdin.close()
            process.wait(PATIENCE_S)
        finally:
            process.kill()


@contextmanager
def running_hdfs(directory: Path) -> Iterator[str]:
    """HDFS of a name node and a data node for the length of a block, with its files in a directory; its URL."""
    details = directory / "details.json"  # written once it serves
    classes = ":".join(map(str, builds.hadoop("hadoop")))
    options = ["-nomr", "-format", "-nnport", "0", "-datanodes", "1", "-writeDetails", str(details)]
    command = [str(find_java().program), *SHORT_LIVED.split(), "-Xmx384m", "-cp", classes, HDFS, *options]
    with (directory / "hdfs.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + START_PATIENCE_S
        while not details.exists() or not details.read_text().endswith("}"):
            assert process.poll() is None and time.monotonic() < deadline, (directory / "hdfs.log").read_text()
            time.sleep(PAUSE_S)
        yield f"hdfs://127.0.0.1:{json.loads(details.read_text())['namenode_port']}"
    finally:
        process.kill()
        process.wait()
