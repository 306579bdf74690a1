"""What another client sees: a process of its own that asks a server every millisecond, and remembers the longest wait.

Machines are shared. So that a hold is the server's and not the scheduler's, the time in which the server's loop, or the
prober itself, was ready to run and had no core is counted (`/proc/PID/task/TID/schedstat`) and taken off. Its socket is
plain: a client would take longer than the answers that it times.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from statistics import median
from typing import NamedTuple

from servers import Server

PAUSE_S = 0.001
QUIET_S = 0.2
PATIENCE_S = 600


class Seen(NamedTuple):
    """The waits that the prober saw, in milliseconds. `held_ms` is the longest wait without the time for which there
    was no core, and without the `quiet_ms` that an answer takes when nothing else happens; `wall_ms` is the longest on
    the clock."""

    held_ms: float
    wall_ms: float
    quiet_ms: float
    answers: int
    failure: str | None


class Prober:
    """Asks until it is stopped. `stop` gives what it saw."""

    def __init__(self, process: multiprocessing.Process, pipe: Connection) -> None:
        self._process = process
        self._pipe = pipe

    def stop(self) -> Seen:
        """Return what was seen since the quiet before. Waits for the answer that is on its way."""
        self._pipe.send(None)
        if not self._pipe.poll(PATIENCE_S):
            self._process.kill()
            return Seen(PATIENCE_S * 1000, PATIENCE_S * 1000, 0.0, 0, "no answer at all")
        seen: Seen = self._pipe.recv()
        return seen


@contextmanager
def prober(server: Server, frames: Sequence[bytes]) -> Iterator[Prober]:
    """A process that asks `frames` in turn; the block runs once it has seen how long a quiet server takes."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_probe, args=(server, frames, theirs), daemon=True)
    process.start()
    try:
        ours.recv()
        yield Prober(process, ours)
    finally:
        process.kill()
        process.join()


def _probe(server: Server, frames: Sequence[bytes], pipe: Connection) -> None:
    waits: list[tuple[float, float]] = []
    failure = None
    with socket.create_connection((server.host, server.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        asking = _Asking(server.pid, connection, frames)
        quiet_until = time.monotonic() + QUIET_S
        quiet = []
        while time.monotonic() < quiet_until:
            quiet.append(asking.ask()[0])
        pipe.send(None)
        try:
            while not pipe.poll(0):
                waits.append(asking.ask())
        except OSError as error:
            failure = f"{type(error).__name__}: {error}"
            waits.append((asking.waiting_s, asking.waiting_s))
    quiet_s = median(quiet)
    held_s = max((wait[0] for wait in waits), default=0.0)
    wall_s = max((wait[1] for wait in waits), default=0.0)
    pipe.send(Seen(max(0.0, held_s - quiet_s) * 1000, wall_s * 1000, quiet_s * 1000, len(waits), failure))


class _Asking:
    def __init__(self, pid: int, connection: socket.socket, frames: Sequence[bytes]) -> None:
        self._connection = connection
        self._frames = frames
        self._asked = 0
        self._asked_at = 0.0
        paths = (f"/proc/{pid}/task/{pid}/schedstat", f"/proc/{os.getpid()}/task/{threading.get_native_id()}/schedstat")
        self._files = [os.open(path, os.O_RDONLY) for path in paths]

    def ask(self) -> tuple[float, float]:
        """Ask once, and pause: the seconds until the answer, without and with the time for which there was no core."""
        frame = self._frames[self._asked % len(self._frames)]
        self._asked += 1
        self._asked_at = time.perf_counter()
        before = self._times()
        self._connection.sendall(frame)
        self._receive()
        ran_s, server_s, own_s = (after - first for after, first in zip(self._times(), before, strict=True))
        took = self.waiting_s
        time.sleep(PAUSE_S)
        # Both may have been without a core at once, so their sum may be too much: what the server ran is held, too.
        return min(took - max(server_s, own_s), max(took - server_s - own_s, ran_s)), took

    @property
    def waiting_s(self) -> float:
        """Seconds since the last question."""
        return time.perf_counter() - self._asked_at

    def _times(self) -> tuple[float, float, float]:
        """Seconds so far in which the server's loop ran, in which it waited for a core, and in which we did."""
        (ran, server), (_, own) = (map(int, os.pread(file, 100, 0).split()[:2]) for file in self._files)
        return ran / 1e9, server / 1e9, own / 1e9

    def _receive(self) -> None:
        size = int.from_bytes(self._exactly(4), "big")
        self._exactly(size)

    def _exactly(self, count: int) -> bytes:
        received = self._connection.recv(count, socket.MSG_WAITALL)
        if len(received) < count:
            raise ConnectionError("the server closed the connection")
        return received
