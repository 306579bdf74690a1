"""Apache Kafka 4.4 as a process, from the jars of Maven Central, so that the same tests can be asked of it.

One combined broker and controller in a directory of the caller's, which may have been used before; what the tests ask
of it lives in the tests.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from conformance import builds
from tests.class_archives import archive_options, locked
from tests.clients.ports import free_ports

START_TIMEOUT_S = 180
STOP_TIMEOUT_S = 180
JVM_OPTIONS = [*builds.QUICK_JAVA, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
OF_TOOLS = ["-Xmx256m", *JVM_OPTIONS]
CLUSTER_ID = "bWluaWJyb2tlci10ZXN0cw"  # 16 bytes, base64url
CONTROL_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "0",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "controller.quorum.append.linger.ms": "0",  # each change of the metadata would wait for others, 25 ms
}


def kafka_command(*arguments: str) -> list[str]:
    """Return the command line of a program of Apache Kafka's jars: the name of a class, or a source file, and more."""
    return _command([*OF_TOOLS, *_archive()], arguments)


def _command(options: Sequence[str], arguments: Sequence[str]) -> list[str]:
    return ["java", *options, "-cp", f"{builds.apache_kafka()}/*", *arguments]


@functools.cache
def _archive() -> list[str]:
    """Return the options for an archive of what a broker loads from its start to its end."""

    def run_broker(options: list[str]) -> None:
        with tempfile.TemporaryDirectory() as directory:
            broker = KafkaProcess(Path(directory), {}, options=options)
            broker.start()
            broker.stop()

    return archive_options(builds.apache_kafka(), builds.apache_kafka().with_name("classes.jsa"), run_broker)


class KafkaProcess:
    """A broker with a fixed address and directory; it can be killed and started again. Not started by its making.

    `logs` is the data directory, formatted unless it is already; with `dynamic`, the voters of the controllers' quorum
    are then in the metadata log (kraft.version=1), not in the properties. `options` are the JVM's, if not those for
    the archive.
    """

    format_options: tuple[str, ...] = ()  # more options of the tool that formats

    @property
    def jvm_options(self) -> list[str]:
        """Return the options of the broker's JVM."""
        return ["-Xmx512m", *JVM_OPTIONS, *self._options]

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, str],
        *,
        logs: Path | None = None,
        dynamic: bool = False,
        options: Sequence[str] | None = None,
    ) -> None:
        self._options = _archive() if options is None else options
        self._directory = directory
        self._logs = logs or directory / "logs"
        self._dynamic = dynamic
        self._port = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None
        self.bootstrap_servers = f"127.0.0.1:{self._port}"
        self._node_id = properties.get("node.id", CONTROL_PROPERTIES["node.id"])
        self._write_properties(self._port + 1, properties)
        self._format()

    def start(self) -> None:
        """Returns when the broker answers; raises RuntimeError with the end of its log if it does not."""
        with self._log_file.open("ab") as log:
            command = _command(self.jvm_options, ["kafka.Kafka", str(self._properties)])
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"Apache Kafka did not start:\n{self.log[-4000:]}")
            time.sleep(0.1)

    def kill(self) -> None:
        """Ends the process as a crash would, and waits until it is gone."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Shuts the broker down in order, and waits until it has."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

    @property
    def _properties(self) -> Path:
        return self._directory / "server.properties"

    @property
    def log(self) -> str:
        """Return what the broker wrote to stderr, all its starts together."""
        return self._log_file.read_text(errors="replace")

    @property
    def _log_file(self) -> Path:
        return self._directory / "server.log"

    def _write_properties(self, controller_port: int, properties: Mapping[str, str]) -> None:
        controller = f"127.0.0.1:{controller_port}"
        settings = {
            **CONTROL_PROPERTIES,
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://{controller}",
            "log.dirs": str(self._logs),
            **properties,
        }
        if self._dynamic:
            settings["controller.quorum.bootstrap.servers"] = controller
        else:
            settings["controller.quorum.voters"] = f"{self._node_id}@{controller}"
        self._directory.mkdir(parents=True, exist_ok=True)
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def _format(self) -> None:
        """Format the data directory unless it is: as a copy of what the tool made once."""
        if (self._logs / "meta.properties").exists():
            return
        if self._dynamic or self.format_options:  # then more is in it: the controller's address, or users
            self._run_tool(*(["--standalone"] if self._dynamic else []), *self.format_options)
            return
        formatted = builds.apache_kafka().with_name(f"formatted-{self._node_id}")
        with locked(formatted.with_suffix(".lock")):
            if not formatted.exists():
                self._run_tool()
                shutil.copytree(self._logs, formatted)
        shutil.copytree(formatted, self._logs, dirs_exist_ok=True)

    def _run_tool(self, *options: str) -> None:
        arguments = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._properties), *options]
        subprocess.run(_command([*OF_TOOLS, *self._options], arguments), check=True, stdout=subprocess.DEVNULL)

    def _answers(self) -> bool:
        """An ApiVersions request is answered: the broker opens its listener only when it has caught up.

        The socket is plain, as `minibroker.client` would try again for some time while nothing listens.
        """
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=5) as connection:
                connection.sendall(bytes.fromhex("0000000a0012000000000000ffff"))
                return len(connection.recv(4)) == 4
        except OSError:
            return False


@contextlib.contextmanager
def running_kafka(
    tmp_path: Path, properties: Mapping[str, str] | None = None, *, logs: Path | None = None
) -> Iterator[KafkaProcess]:
    """A started Apache Kafka in `tmp_path`; properties are server properties by Kafka's names. Killed at the end."""
    broker = KafkaProcess(tmp_path, properties or {}, logs=logs)
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()
