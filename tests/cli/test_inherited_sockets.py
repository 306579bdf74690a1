"""Sockets that a supervisor opens, and hands over with `LISTEN_FDS`."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import pytest

from tests.running import PATIENCE_S, environment_for_broker, serve_command

Held = socket.socket | TextIO

# What a supervisor does: the sockets get the descriptors from 3 on, and the process becomes the broker.
SUPERVISOR = """
import fcntl, os, sys
sockets, pid, *command = sys.argv[1:]
copies = [fcntl.fcntl(int(each), fcntl.F_DUPFD, 100) for each in sockets.split(",")]
for at, each in enumerate(copies, 3):
    os.dup2(each, at)
os.environ |= {"LISTEN_FDS": str(len(copies)), "LISTEN_PID": pid or str(os.getpid())}
os.execv(command[0], command)
"""


def held(host: str = "127.0.0.1") -> socket.socket:
    """Return a socket as a supervisor holds it."""
    return socket.create_server((host, 0))


def command(directory: Path, *sockets: Held, pid: str = "", options: tuple[str, ...] = ()) -> list[str]:
    numbers = ",".join(str(each.fileno()) for each in sockets)
    return [sys.executable, "-c", SUPERVISOR, numbers, pid, *serve_command(directory), *options]


@contextmanager
def supervised(command: list[str], *sockets: socket.socket) -> Iterator[str]:
    """Serve with these sockets until the block ends; yield what was announced."""
    numbers = [each.fileno() for each in sockets]
    with subprocess.Popen(
        command, pass_fds=numbers, stdout=subprocess.PIPE, text=True, env=environment_for_broker({})
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().removeprefix("minibroker listens on ").strip()
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()


def refused(command: list[str], *sockets: Held) -> str:
    numbers = [each.fileno() for each in sockets]
    run = subprocess.run(command, pass_fds=numbers, capture_output=True, text=True, env=environment_for_broker({}))
    assert (run.returncode, run.stdout) == (2, "")
    return run.stderr.strip()


def ask(port: int) -> bytes:
    """Connect, and return the first bytes of the answer to ApiVersions."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client:
        client.sendall(bytes.fromhex("0000000a0012000000000001ffff"))
        return client.recv(8)[4:]


def test_the_broker_serves_on_the_socket_of_its_supervisor(tmp_path: Path) -> None:
    with held() as socket_:
        port = socket_.getsockname()[1]
        for _ in range(2):
            with supervised(command(tmp_path, socket_), socket_) as address:
                assert address == f"127.0.0.1:{port}"
                assert ask(port) == (1).to_bytes(4, "big")


def test_clients_wait_while_the_broker_restarts(tmp_path: Path) -> None:
    with held() as socket_:
        port = socket_.getsockname()[1]
        with supervised(command(tmp_path, socket_), socket_):
            pass
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client:
            client.sendall(bytes.fromhex("0000000a0012000000000007ffff"))
            with supervised(command(tmp_path, socket_), socket_):
                assert client.recv(8)[4:] == (7).to_bytes(4, "big")


def test_each_listener_takes_the_socket_with_its_address(tmp_path: Path) -> None:
    with held() as first, held() as second:
        ports = [each.getsockname()[1] for each in (second, first)]
        listeners = f"A://127.0.0.1:{ports[0]},B://127.0.0.1:{ports[1]}"
        options = ("--set", f"listeners={listeners}", "--set", "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT")
        with supervised(command(tmp_path, first, second, options=options), first, second) as address:
            assert address == ",".join(f"127.0.0.1:{port}" for port in ports)
            assert [ask(port) for port in ports] == [(1).to_bytes(4, "big")] * 2


def test_a_listener_on_port_0_does_not_take_the_sockets_of_other_listeners(tmp_path: Path) -> None:
    with held() as socket_:
        port = socket_.getsockname()[1]
        listeners = f"listeners=A://127.0.0.1:0,B://localhost:{port}"
        options = ("--set", listeners, "--set", "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT")
        with supervised(command(tmp_path, socket_, options=options), socket_) as address:
            free, own = address.split(",")
            assert own == f"localhost:{port}" and free != f"127.0.0.1:{port}"
            assert ask(port) == (1).to_bytes(4, "big")


def test_sockets_passed_for_another_process_are_not_used(tmp_path: Path) -> None:
    with held() as socket_, supervised(command(tmp_path, socket_, pid="1"), socket_) as address:
        assert address != f"127.0.0.1:{socket_.getsockname()[1]}"


def test_an_inherited_socket_without_a_matching_listener_is_rejected(tmp_path: Path) -> None:
    with held("0.0.0.0") as socket_:
        address = f"0.0.0.0:{socket_.getsockname()[1]}"
        assert refused(command(tmp_path, socket_), socket_) == (
            f"minibroker: LISTEN_FDS: no listener has the address {address}, which was handed over"
        )
        assert not any(tmp_path.iterdir())


def test_an_inherited_unix_socket_is_rejected(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as socket_:
        assert (
            refused(command(tmp_path, socket_), socket_) == "minibroker: LISTEN_FDS: descriptor 3 is not a TCP socket"
        )


def test_an_inherited_file_that_is_not_a_socket_is_rejected(tmp_path: Path) -> None:
    with open(tmp_path / "file", "w") as file:
        said = refused(command(tmp_path, file), file)
    assert said == "minibroker: LISTEN_FDS: descriptor 3: Socket operation on non-socket"


def test_an_inherited_connection_of_a_client_is_rejected(tmp_path: Path) -> None:
    with held() as socket_, socket.create_connection(socket_.getsockname()) as client:
        said = refused(command(tmp_path, client), client)
    assert said == "minibroker: LISTEN_FDS: a socket for PLAINTEXT does not listen: Invalid argument"


@pytest.mark.parametrize("option", ["--control=0", "--explorer"])
def test_the_test_kit_uses_no_inherited_sockets(tmp_path: Path, option: str) -> None:
    with held() as socket_:
        assert "only a broker without the test kit" in refused(command(tmp_path, socket_, options=(option,)), socket_)


def test_child_processes_do_not_inherit_the_socket_variables(tmp_path: Path) -> None:
    program = (
        "import os, socket; from minibroker.broker.network.inherited_sockets import InheritedSockets\n"
        "held = InheritedSockets(); print(*[name for name in os.environ if name.startswith('LISTEN_')], "
        "os.get_inheritable(3), held.addresses[0].port)"
    )
    with held() as socket_:
        words = [sys.executable, "-c", SUPERVISOR, str(socket_.fileno()), "", sys.executable, "-c", program]
        run = subprocess.run(words, pass_fds=[socket_.fileno()], capture_output=True, text=True, check=True)
        assert run.stdout.split() == ["False", str(socket_.getsockname()[1])]
