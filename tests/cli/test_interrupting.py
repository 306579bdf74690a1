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
INTERRUPTED = 130
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
def test_an_interrupted_server_stops_cleanly(tmp_path: Path, command: str, broker: RunningBroker) -> None:
    options = (each.format(broker=broker.bootstrap_servers) for each in SERVERS[command])
    with running(tmp_path, *command.split(), *options) as process:
        assert process.stdout is not None and process.stdout.readline()  # where it listens
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, "Traceback" in errors) == (0, False), errors


@pytest.mark.parametrize("command", CLIENTS)
def test_a_waiting_client_command_can_be_interrupted(tmp_path: Path, command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with running(tmp_path, *command.split(), "-b", address, "--timeout", "100") as process, silent.accept()[0]:
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=60)
            assert process.returncode == INTERRUPTED and (output, errors.strip()) == ("", "")


def test_an_interrupt_within_an_exec_ends_with_status_130(tmp_path: Path) -> None:
    (tmp_path / "interrupted.py").write_text(
        "from minibroker.cli import main, shared\n"
        "TEXT = 'import os, signal; os.kill(os.getpid(), signal.SIGINT)\\nwhile True: pass'\n"
        "shared.OneLineGroup.invoke = lambda *_: exec(TEXT)\n"
        "main.main(['formats'])\n"
    )
    ended = subprocess.run([sys.executable, "-m", "interrupted"], cwd=tmp_path, stderr=subprocess.PIPE, timeout=60)
    assert (ended.returncode, ended.stderr.strip()) == (130, b"")
