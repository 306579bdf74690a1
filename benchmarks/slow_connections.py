#!/usr/bin/env python3
"""Measure what 2,000 clients that get nowhere cost one that works, and what memory they hold.

    python3 benchmarks/slow_connections.py

A row is a kind of slow client, and has a fresh broker. Beside them one client produces and fetches, in requests of one
piece and of several, small and large; another process asks without a pause how long the loop is held (`probing.py`).
Their sockets are plain, as they stop in the middle of frames and leave answers unread.
"""

from __future__ import annotations

import resource
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

import click
from rich.console import Console
from rich.table import Table

import machine
import servers
import wire
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.groups import JoinGroupRequest
from probing import Seen, prober
from servers import Server

CONNECTIONS = 2_000
STALL_MS = 10_000
MOST_WAIT_MS = 1_000.0  # of the client that works, on the clock
MOST_LARGE_WAIT_MS = 2_000.0  # the same, until memory is taken from those that sent much and do not go on
MOST_MIB = 900  # the bounds of input and output, and what a process of this size needs beside
HUGE_BYTES = 100_000_000
IDLE, LARGE = "idle", "large"
RECORD_BYTES = 1_000_000
GROUP = "group"
JOIN_VERSION = 3  # new members wait with all that they bring
OLD_VERSION = 3  # of Fetch: its clients get records that are converted, and so are in memory
LARGE_VALUE_BYTES = 300_000
PIECES = 4
PAUSE_S = 0.005
RECEIVE_BUFFER_BYTES = 8192
NUMBER_OF_FILES_BESIDE = 100
WIDTH = 150


class Row(NamedTuple):
    """A kind of slow client: what it sends at once, and what it goes on to send, a byte at a time."""

    name: str
    count: int
    start: bytes
    more: bytes = b""


class Figures(NamedTuple):
    """The figures of one row. Waits are those of the client that works, the longest of each kind, in milliseconds."""

    row: Row
    small_ms: float
    large_ms: float
    fetch_ms: float
    rounds: int
    seen: Seen
    grown_mib: float
    open_during: int
    open_after: int

    @property
    def is_above(self) -> bool:
        """Whether the client that works had to wait, or memory grew too far."""
        waited = max(self.small_ms, self.fetch_ms) > MOST_WAIT_MS or self.large_ms > MOST_LARGE_WAIT_MS
        return waited or self.grown_mib > MOST_MIB or self.seen.failure is not None


def rows() -> list[Row]:
    """All kinds."""

    def begun(total_bytes: int, sent_bytes: int) -> bytes:
        return total_bytes.to_bytes(4, "big") + bytes(sent_bytes - 4)

    return [
        Row("24 bytes of 100 MB", CONNECTIONS, begun(HUGE_BYTES, 24)),
        Row("5,000 bytes of 64 KiB", CONNECTIONS, begun(65_000, 5_000)),
        Row("64,000 bytes of 64 KiB", CONNECTIONS, begun(65_000, 64_000)),
        Row("200 kB of 100 MB", CONNECTIONS, begun(HUGE_BYTES, 200_000)),
        Row("a byte at a time, of 100 MB", CONNECTIONS, begun(HUGE_BYTES, 24), bytes(100)),
        Row("a fetch that waits, and 200 kB behind it", CONNECTIONS, _waiting_fetch() + begun(HUGE_BYTES, 200_000)),
        Row("a JoinGroup of 200 kB that waits", CONNECTIONS, _waiting_join()),
        Row("an answer of 1 MB from memory, not read", CONNECTIONS, _fetch_of(OLD_VERSION)),
        Row("an answer of 1 MB from a file, not read", CONNECTIONS, _fetch_of(wire.FETCH_VERSION)),
    ]


def _fetch_of(version: int) -> bytes:
    return wire.fetch_request(LARGE, 2 * RECORD_BYTES, version=version)


def _waiting_fetch() -> bytes:
    partition = FetchRequest.FetchTopic.FetchPartition(partition=0, partition_max_bytes=1)
    topic = FetchRequest.FetchTopic(topic=IDLE, partitions=[partition])
    return wire.frame(FetchRequest(max_wait_ms=3_600_000, min_bytes=1, max_bytes=1, topics=[topic]), wire.FETCH_VERSION)


def _waiting_join() -> bytes:
    """A member that joins at once, in a group whose first member does not join again."""
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=bytes(200_000))
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=300_000,
        rebalance_timeout_ms=300_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    return wire.frame(request, JOIN_VERSION)


class Worker:
    """A client that produces and fetches, and remembers the longest wait of each kind, in seconds."""

    def __init__(self, server: Server, topic: str) -> None:
        self.small_s = self.large_s = self.fetch_s = 0.0
        self.rounds = 0
        self._socket = socket.create_connection((server.host, server.port), timeout=120)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._small = wire.produce_request(topic, wire.batch([b"x" * 100]))
        self._large = wire.produce_request(topic, wire.batch([b"x" * LARGE_VALUE_BYTES]))
        self._fetch = wire.fetch_request(topic, LARGE_VALUE_BYTES)

    def close(self) -> None:
        self._socket.close()

    def work(self) -> None:
        """One round."""
        self.small_s = max(self.small_s, self._ask(self._small, 1), self._ask(self._small, 2))
        self.large_s = max(self.large_s, self._ask(self._large, PIECES))
        self.fetch_s = max(self.fetch_s, self._ask(self._fetch, 2))
        self.rounds += 1

    def _ask(self, frame: bytes, pieces: int) -> float:
        """Send a request in pieces; return the seconds from the last of them to the answer's end."""
        step = -(-len(frame) // pieces)
        started_at = 0.0
        for start in range(0, len(frame), step):
            if start:
                time.sleep(PAUSE_S)
            started_at = time.perf_counter()
            self._socket.sendall(frame[start : start + step])
        wire.receive(self._socket)
        return time.perf_counter() - started_at


def measure(row: Row, seconds: float) -> Figures:
    """One row on a fresh broker."""
    settings = [f"connections.max.stall.ms={STALL_MS}"]
    with ExitStack() as stack:
        server = stack.enter_context(_broker(settings))
        topic = stack.enter_context(wire.topic(server))
        with wire.Client(server) as client:
            for name in (IDLE, LARGE):
                client.create_topic(name)
                client.wait_for_leader(name)
            client.wait_for_coordinator(GROUP)
            client.produce(LARGE, wire.batch([bytes(RECORD_BYTES)]))
        worker = Worker(server, topic)
        stack.callback(worker.close)
        worker.work()
        worker.small_s = worker.large_s = worker.fetch_s = 0.0
        before_kib = machine.resident_kib(server.pid)
        machine.forget_peak(server.pid)
        with prober(server, [wire.api_versions_request()]) as probing:
            crowd = [stack.enter_context(slow) for slow in _slow_ones(server, row, worker.work)]
            _go_on(crowd, row, seconds, worker.work)
            during = sum(map(_is_open, crowd))
            _go_on(crowd, row, 1.5 * STALL_MS / 1000 + 5, worker.work)
            seen = probing.stop()
        grown_mib = (machine.peak_kib(server.pid) - before_kib) / 1024
        after = sum(map(_is_open, crowd))
    waits = (1000 * wait_s for wait_s in (worker.small_s, worker.large_s, worker.fetch_s))
    return Figures(row, *waits, worker.rounds, seen, grown_mib, during, after)


@contextmanager
def _broker(settings: Sequence[str]) -> Iterator[Server]:
    with servers.data_directory() as folder, servers.minibroker_on(folder, settings=settings) as server:
        yield server


def _slow_ones(server: Server, row: Row, work: Callable[[], None]) -> Iterator[socket.socket]:
    """The slow clients, each of which has sent as much of its start as the server takes."""
    for number in range(row.count):
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        slow.connect((server.host, server.port))
        slow.setblocking(False)
        with suppress(OSError):  # it may be closed already, which counts as such at the end
            slow.send(row.start)
        yield slow
        if number % 20 == 0:
            work()


def _go_on(crowd: Sequence[socket.socket], row: Row, seconds: float, work: Callable[[], None]) -> None:
    """Let the slow clients go on for a time; the other one works."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for slow in crowd if row.more else ():
            with suppress(OSError):
                slow.send(row.more[:1])
        work()


def _is_open(slow: socket.socket) -> bool:
    """Whether the server has not closed the connection."""
    poll = select.poll()
    poll.register(slow, select.POLLRDHUP)
    return not poll.poll(0)


def table(figures: Sequence[Figures]) -> Table:
    """All rows."""
    made = Table(title="What one client waits beside many that get nowhere: milliseconds, the longest")
    made.add_column("the others, each", no_wrap=True)
    titles = ("how many", "small", "large", "fetch", "rounds", "loop held", "grown MiB", "open", "open at the end")
    for title in titles:
        made.add_column(title, justify="right")
    for each in figures:
        made.add_row(*_cells(each), style="red" if each.is_above else None)
    return made


def _cells(each: Figures) -> tuple[str, ...]:
    return (
        " ".join(filter(None, [each.row.name, each.seen.failure])),
        str(each.row.count),
        f"{each.small_ms:,.0f}",
        f"{each.large_ms:,.0f}",
        f"{each.fetch_ms:,.0f}",
        str(each.rounds),
        f"{each.seen.held_ms:,.1f}",
        f"{each.grown_mib:,.0f}",
        str(each.open_during),
        str(each.open_after),
    )


@click.command()
@click.option("--only", multiple=True, metavar="NAME", help="Rows with this in their name.")
@click.option("--seconds", default=5.0, show_default=True, help="How long to look before the slow ones are closed.")
def main(only: tuple[str, ...], seconds: float) -> None:
    """Measure row by row. Exits with 1 when the client that works had to wait, or memory grew too far."""
    wanted = [row for row in rows() if not only or any(word in row.name for word in only)]
    files = CONNECTIONS + NUMBER_OF_FILES_BESIDE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))  # the broker inherits it
    figures = []
    for row in wanted:
        figures.append(measure(row, seconds))
        click.echo("  ".join(_cells(figures[-1])), err=True)
    Console(width=WIDTH).print(table(figures))
    sys.exit(1 if any(each.is_above for each in figures) else 0)


if __name__ == "__main__":
    main()
