"""S3 on this machine: moto's server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pyarrow.fs import S3FileSystem, copy_files

from conformance import builds
from tests.running import PATIENCE_S

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
        jars = ",".join(map(str, builds.hadoop_s3()))
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
