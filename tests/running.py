"""A broker in a process of its own, for tests with real clients: started on a free port, and never left behind.

How a broker starts, says its address and stops is here once; what is asked of it is each test's business.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

# Far beyond what a start or a stop takes on a loaded machine: only a broker that hangs gets there.
PATIENCE_S = 60
ANNOUNCEMENT = "minibroker listens on "


class BrokerFailed(AssertionError):
    """The broker did not start or stop as it should; the message ends with what it wrote to stderr."""


class RunningBroker:
    """A broker process on the data directory `directory / "data"`, listening on free ports of 127.0.0.1.

    `bootstrap_servers` is the address it announced, of all nodes; it changes with `restart`.
    """

    def __init__(
        self, directory: Path, settings: tuple[str, ...], nodes: int, env: Mapping[str, str], options: tuple[str, ...]
    ) -> None:
        self.directory = directory
        self.stderr_file = directory / "broker.stderr"
        self.command = [*serve_command(directory, *settings, nodes=nodes), *options]
        self.environment = environment_for_broker(env)
        self.start()

    def start(self) -> None:
        """Start the process, and wait until it listens. Raises BrokerFailed."""
        self.launch()
        self.await_listening()

    def launch(self) -> None:
        """Start the process, and wait for nothing."""
        with self.stderr_file.open("ab") as stderr:
            self.process = subprocess.Popen(
                self.command, stdout=subprocess.PIPE, stderr=stderr, cwd=self.directory, env=self.environment
            )

    def await_listening(self) -> None:
        """Wait until the process that was launched listens. Raises BrokerFailed."""
        try:
            self.bootstrap_servers = self._announced()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> int:
        """Ask the broker to end (SIGTERM), and wait; its exit status. Raises BrokerFailed if it does not end."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise BrokerFailed(f"the broker does not stop\n{self.log}") from None
        finally:
            self.kill()

    def kill(self) -> None:
        """End the process as a crash would (SIGKILL), and wait until it is gone."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def restart(self) -> None:
        """Stop the broker if it runs, and start it again on the same data, on another free port."""
        self.stop()
        self.start()

    @property
    def log(self) -> str:
        """Return what the broker wrote to stderr, all its starts together."""
        return self.stderr_file.read_text(errors="replace")

    def _announced(self) -> str:
        line = self._first_line().decode().rstrip("\n")
        if not line.startswith(ANNOUNCEMENT):
            raise BrokerFailed(f"the broker did not start, status {self.process.poll()}: {line!r}\n{self.log}")
        return line.removeprefix(ANNOUNCEMENT)

    def _first_line(self) -> bytes:
        """The first line on stdout, or what there is of it if the broker ends or hangs."""
        assert self.process.stdout is not None
        descriptor, line, deadline = self.process.stdout.fileno(), b"", time.monotonic() + PATIENCE_S
        while not line.endswith(b"\n"):
            readable, _, _ = select.select([descriptor], [], [], max(0, deadline - time.monotonic()))
            piece = os.read(descriptor, 1) if readable else b""
            if not piece:
                break
            line += piece
        return line


def serve_command(directory: Path, *settings: str, nodes: int = 1) -> list[str]:
    """The command line of a broker with its data under `directory`, on free ports; `settings` are `key=value`."""
    assignments = ["listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={directory / 'data'}", *settings]
    options = [option for assignment in assignments for option in ("--set", assignment)]
    return [sys.executable, "-m", "minibroker", "serve", *options, "--nodes", str(nodes)]


def environment_for_broker(env: Mapping[str, str]) -> dict[str, str]:
    """This process's environment without settings of a broker, and with `env`."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MINIBROKER_")}
    return {**inherited, **env}


@contextmanager
def running_broker(
    directory: Path,
    *settings: str,
    nodes: int = 1,
    env: Mapping[str, str] | None = None,
    options: tuple[str, ...] = (),
) -> Iterator[RunningBroker]:
    """A broker for the length of a block; `settings` are `key=value`, `options` further ones of `minibroker serve`.

    The test may kill, stop or restart it. If it still runs at the end it is stopped, and must then exit with status 0.
    """
    broker = RunningBroker(directory, settings, nodes, env or {}, options)
    try:
        yield broker
        if broker.process.poll() is None:
            status = broker.stop()
            if status != 0:
                raise BrokerFailed(f"the broker stopped with status {status}\n{broker.log}")
    finally:
        broker.kill()
