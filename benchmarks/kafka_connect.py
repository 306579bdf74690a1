"""Kafka Connect in a process of its own, with sinks that write the values of a topic to a file."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from machine import ROOT

sys.path.insert(0, str(ROOT))

from conformance.builds import kafka_connect  # noqa: E402
from tests.clients.ports import free_ports  # noqa: E402

PATIENCE_S = 120
PAUSE_S = 0.01
POLL_S = 0.2  # between looks at a worker that starts
MEMORY = ["-Xms256m", "-Xmx2g"]  # those of Kafka's own script


class Sink:
    """A file that a connector writes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def size(self) -> int:
        return self._path.stat().st_size if self._path.exists() else 0

    def await_size(self, size_bytes: int) -> None:
        """Wait until so much is written."""
        deadline = time.monotonic() + PATIENCE_S
        while (size := self.size()) < size_bytes:
            assert time.monotonic() < deadline, f"{self._path} has {size} of {size_bytes} bytes"
            time.sleep(PAUSE_S)


class Connect:
    """A standalone worker, with its REST API."""

    def __init__(self, directory: Path, bootstrap_servers: str) -> None:
        self._directory = directory
        self._url = f"http://127.0.0.1:{free_ports(1)}"
        properties = {
            "bootstrap.servers": bootstrap_servers,
            "listeners": self._url,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "offset.storage.file.filename": str(directory / "offsets"),
        }
        file = directory / "connect.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        classes = f"{kafka_connect()}/*"
        command = ["java", *MEMORY, "-cp", classes, "org.apache.kafka.connect.cli.ConnectStandalone", str(file)]
        self._log = directory / "connect.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        self.pid = self._process.pid

    def await_ready(self) -> None:
        """Wait until it answers."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            assert self._process.poll() is None and time.monotonic() < deadline, self._log.read_text()[-3000:]
            try:
                self._ask("GET", "/connectors")
                return
            except (URLError, ConnectionError):
                time.sleep(POLL_S)

    @contextmanager
    def sink(self, topic: str, tasks: int) -> Iterator[Sink]:
        """A connector for the length of a block."""
        name = f"{topic}-{tasks}"
        path = self._directory / name
        config = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "tasks.max": str(tasks),
            "topics": topic,
            "file": str(path),
            "consumer.override.auto.offset.reset": "earliest",
        }
        self._ask("POST", "/connectors", {"name": name, "config": config})
        try:
            yield Sink(path)
        finally:
            self._ask("DELETE", f"/connectors/{name}")
            path.unlink(missing_ok=True)

    def _ask(self, method: str, path: str, body: Any = None) -> None:
        data = None if body is None else json.dumps(body).encode()
        request = Request(self._url + path, data, {"Content-Type": "application/json"}, method=method)
        with urlopen(request, timeout=PATIENCE_S):
            pass

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def running_connect(directory: Path, bootstrap_servers: str) -> Iterator[Connect]:
    """A worker for the length of a block."""
    connect = Connect(directory, bootstrap_servers)
    try:
        connect.await_ready()
        yield connect
    finally:
        connect.close()
