"""Kafka Connect's distributed workers, and MirrorMaker, as processes that a test may kill and start again."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from conformance import builds
from conformance.clients import JAVA_OPTIONS
from tests.clients.ports import free_ports

PATIENCE_S = 120
PAUSE_S = 0.1
WORKER = "org.apache.kafka.connect.cli.ConnectDistributed"
MIRROR_MAKER = "org.apache.kafka.connect.mirror.MirrorMaker"
STRINGS = "org.apache.kafka.connect.storage.StringConverter"
ONE_REPLICA = {f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")}
OF_WORKERS = {
    "group.id": "workers",
    "config.storage.topic": "connect-configs",
    "offset.storage.topic": "connect-offsets",
    "offset.storage.partitions": "3",
    "status.storage.topic": "connect-status",
    **ONE_REPLICA,
    "key.converter": STRINGS,
    "value.converter": STRINGS,
    "exactly.once.source.support": "enabled",
    "scheduled.rebalance.max.delay.ms": "0",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "500",
}


class JavaProcess:
    """A program of Kafka Connect's jars that reads a file of properties. Not started by its making."""

    def __init__(
        self, directory: Path, main: str, properties: Mapping[str, str], plugins: tuple[Path, ...] = ()
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        file = directory / "properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        classes = ":".join(f"{folder}/*" for folder in (builds.kafka_connect(), *plugins))
        self._command = ["java", *JAVA_OPTIONS, "-Xmx512m", "-cp", classes, main, str(file)]
        self._log = directory / "log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """Return what it has logged, all its starts together."""
        return self._log.read_text(errors="replace")

    def start(self) -> None:
        """Start it, and wait for nothing."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        """End it as a crash would, if it runs."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def pause(self) -> None:
        """Stop its time: it says nothing until it is resumed."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def await_true(self, what: Callable[[], bool]) -> None:
        """Wait until something is true, while this runs."""
        deadline = time.monotonic() + PATIENCE_S
        while not what():
            assert self._process is not None and self._process.poll() is None, self.log[-4000:]
            assert time.monotonic() < deadline, self.log[-4000:]
            time.sleep(PAUSE_S)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)


class Worker(JavaProcess):
    """A worker of the one group of workers; its REST API has an address that stays."""

    def __init__(self, directory: Path, bootstrap_servers: str, plugins: tuple[Path, ...] = ()) -> None:
        self._url = f"http://127.0.0.1:{free_ports()}"
        properties = {**OF_WORKERS, "bootstrap.servers": bootstrap_servers, "listeners": self._url}
        super().__init__(directory, WORKER, properties, plugins)

    def run_connector(self, name: str, config: Mapping[str, str]) -> None:
        """Create a connector, once the workers have a leader, and wait until its one task runs."""

        def is_created() -> bool:
            return self._ask("PUT", f"/connectors/{name}/config", config) is not None

        self.await_true(is_created)
        self.await_true(lambda: self._task(name).get("state") == "RUNNING")

    def has_task(self, name: str) -> bool:
        """Return whether this worker runs the task of a connector."""
        return self._url.endswith("/" + self._task(name).get("worker_id", "none"))

    def _task(self, name: str) -> dict[str, Any]:
        status = self._ask("GET", f"/connectors/{name}/status") or {}
        (task,) = status.get("tasks") or [{}]
        return task

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return an answer, or None as long as there is none: the worker starts, or its group has no leader yet."""
        data = None if body is None else json.dumps(body).encode()
        request = Request(self._url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urlopen(request, timeout=PATIENCE_S) as answer:
                return json.load(answer)
        except (URLError, ConnectionError):
            return None


@contextmanager
def running(*processes: JavaProcess) -> Iterator[None]:
    """Start processes, and kill them at the end of the block."""
    try:
        for process in processes:
            process.start()
        yield
    finally:
        for process in processes:
            process.kill()
