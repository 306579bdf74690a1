"""Ctrl-C ends every command at once: servers with status 0, once their files are closed, all others with 130."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.running import RunningBroker, environment_for_broker

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no SIGINT to one process")
INTERRUPTED = (130, -2)  # Python ends by the signal if it came within an eval() of text; shells say 130 to both
LISTENER = ("--set", "listeners=PLAINTEXT://127.0.0.1:0")
SERVERS = {
    "serve": LISTENER,
    "serve --metrics-port 0": LISTENER,
    "serve --control 127.0.0.1:0": LISTENER,
    "serve --registry 127.0.0.1:0": LISTENER,
    "serve --explorer": LISTENER,
    "explore .": (),
    "proxy --listen 127.0.0.1:0": ("--upstream", "{broker}"),
}
CLIENTS = (
    "acls list",
    "brokers list",
    "groups describe g",
    "groups list",
    "handover",
    "quotas list",
    "records delete t --before 1",
    "tokens describe",
    "topics create t",
    "transactions list",
    "users list",
)


@contextmanager
def running(directory: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command that is killed at the end of the block, should it still run."""
    with subprocess.Popen(
        [sys.executable, "-m", "minibroker", *arguments],
        cwd=directory,
        env=environment_for_broker({}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("command", SERVERS)
def test_a_server_stops_in_order(tmp_path: Path, command: str, broker: RunningBroker) -> None:
    options = (each.format(broker=broker.bootstrap_servers) for each in SERVERS[command])
    with running(tmp_path, *command.split(), *options) as process:
        assert process.stdout is not None and process.stdout.readline()  # where it listens
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, "Traceback" in errors) == (0, False), errors


@pytest.mark.parametrize("command", CLIENTS)
def test_a_client_ends_while_it_waits(tmp_path: Path, command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with running(tmp_path, *command.split(), "-b", address, "--timeout", "100") as process, silent.accept()[0]:
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=60)
            assert process.returncode in INTERRUPTED and (output, errors.strip()) == ("", "")
