#!/usr/bin/env python3
"""Measure for how long one request of one client holds up all others, and what memory it takes.

    python3 benchmarks/holds.py --only arrays --size 1

A row is a request: an array of minimal items (`tests/protocol/array_frames.py`), or one of those that have held a
broker once (`hold_rows.py`). Each has a fresh broker; what others see of it is in `probing.py`. The socket is plain, as
the frames are ones that no client sends, and their answers too large to decode.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, NamedTuple

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import machine
import programs
import servers
import wire
from hold_rows import Row, array_rows, table_rows
from probing import Seen, prober
from servers import Server

MB = 1_000_000
SIZES_MB = (0, 1, 10)  # 0: the most that is let in
SLACK_BYTES = 16 << 20  # what a frame may take however small it is: buffers, and what is imported lazily
IDLE_SHARE = 0.3  # of a core: a server that uses less has nothing more to do for the request
LOOK_S = 0.25
SETTLE_S = 10.0
MOST_STOP_MS = 2_000  # for an orderly stop, in which nobody is served
STOP_S = 30.0
PROBED_TOPIC = "probed"
RECEIVE_BYTES = 1 << 20
WIDTH = 170


class Answer(NamedTuple):
    """How a request ended: with `answer_bytes`, or with `end`, which is why there was no answer."""

    took_ms: float
    answer_bytes: int
    end: str


class Figures(NamedTuple):
    """The figures of one row. `grown_bytes` is the peak of the resident memory above what there was before."""

    row: Row
    frame_bytes: int
    answer: Answer
    seen: Seen
    grown_bytes: int
    log_bytes: int
    tracebacks: int

    @property
    def times(self) -> float:
        """The growth as a multiple of the frame."""
        return self.grown_bytes / max(1, self.frame_bytes)

    def is_above(self, max_hold_ms: float, max_times: float) -> bool:
        """Whether another client waited too long, or memory grew out of proportion, or the server failed."""
        if self.row.stops:
            return self.answer.took_ms > MOST_STOP_MS
        too_large = self.grown_bytes > max_times * self.frame_bytes + SLACK_BYTES
        failed = self.seen.failure is not None or self.tracebacks > 0
        return self.seen.held_ms > max_hold_ms or too_large or failed


def measure(row: Row, give_up_s: float) -> Figures:
    """One row on a fresh broker."""
    with NamedTemporaryFile(prefix="minibroker-holds-") as log, _broker(row, log.file) as server:
        with wire.Client(server) as client:
            client.create_topic(PROBED_TOPIC)
            client.wait_for_leader(PROBED_TOPIC)
        row.set_up(server)
        frames = row.frames(server)
        sizes = sum(map(len, frames)) * row.connections
        probes = row.probes or (wire.api_versions_request(), wire.metadata_request(PROBED_TOPIC))
        before = machine.resident_kib(server.pid)
        with prober(server, probes) as probing:
            machine.forget_peak(server.pid)
            answer = _stopped(server) if row.stops else _ask_on_each(server, row.connections, frames, give_up_s)
            if answer.end != "gave up" and answer.end != "died":
                _settle(server)
            grown = _peak_kib(server) - before
            if answer.end == "gave up":
                os.kill(server.pid, signal.SIGKILL)
            seen = probing.stop()
        text = Path(log.name).read_bytes()
    return Figures(row, sizes, answer, seen, max(0, grown) << 10, len(text), text.count(b"Traceback"))


@contextmanager
def _broker(row: Row, log: IO[bytes]) -> Iterator[Server]:
    with (
        servers.data_directory() as folder,
        servers.minibroker_on(folder, settings=row.settings, log_level="info", stderr=log) as server,
    ):
        try:
            yield server
        finally:
            servers.end(server, STOP_S)


def _stopped(server: Server) -> Answer:
    """Stop the server in place of asking it."""
    started_at = time.monotonic()
    servers.end(server, STOP_S)
    return Answer((time.monotonic() - started_at) * 1000, 0, "stopped")


def _peak_kib(server: Server) -> int:
    try:
        return machine.peak_kib(server.pid)
    except OSError:
        return 0


def _ask_on_each(server: Server, connections: int, frames: Sequence[bytes], give_up_s: float) -> Answer:
    """Do as `ask` on so many connections at once, and add up the answers."""
    with ThreadPoolExecutor(connections) as pool:
        answers = list(pool.map(lambda _: ask(server, frames, give_up_s), range(connections)))
    ends = [answer.end for answer in answers if answer.end]
    took_ms = max(answer.took_ms for answer in answers)
    return Answer(took_ms, sum(answer.answer_bytes for answer in answers), ends[0] if ends else "")


def ask(server: Server, frames: Sequence[bytes], give_up_s: float) -> Answer:
    """Send the frames on one connection and read all answers to the end."""
    started_at = time.monotonic()
    received = 0
    end = ""
    with socket.create_connection((server.host, server.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            connection.settimeout(give_up_s)
            for frame in frames:
                connection.sendall(frame)
            for _ in frames:
                received += _answer_bytes(server, connection, started_at + give_up_s)
        except _NoAnswer as reason:
            end = str(reason)
        except TimeoutError:
            end = "gave up"
        except OSError:
            end = "closed" if machine.is_alive(server.pid) else "died"
    return Answer((time.monotonic() - started_at) * 1000, received, end)


class _NoAnswer(Exception):
    """Why there is none."""


def _answer_bytes(server: Server, connection: socket.socket, give_up_at: float) -> int:
    """Read one answer, and forget it."""
    size = left = 4
    prefix = b""
    while left:
        piece = _piece(server, connection, left, give_up_at)
        left -= len(piece)
        if len(prefix) < 4:
            prefix += piece
            if len(prefix) == 4:
                size = left = int.from_bytes(prefix, "big")
    return size + 4


def _piece(server: Server, connection: socket.socket, most: int, give_up_at: float) -> bytes:
    while True:
        wanted_s = _wanted_s(server)
        connection.settimeout(4 * LOOK_S)
        try:
            piece = connection.recv(min(most, RECEIVE_BYTES))
        except TimeoutError:
            if time.monotonic() > give_up_at:
                raise _NoAnswer("gave up") from None
            if _wanted_s(server) - wanted_s < 4 * LOOK_S * IDLE_SHARE:
                raise _NoAnswer("waits") from None
            continue
        if not piece:
            raise ConnectionResetError
        return piece


def _settle(server: Server) -> None:
    """Wait until the server has nothing more to do: what it puts off may hold others, too."""
    give_up_at = time.monotonic() + SETTLE_S
    while time.monotonic() < give_up_at:
        wanted_s = _wanted_s(server)
        time.sleep(LOOK_S)
        if _wanted_s(server) - wanted_s < LOOK_S * IDLE_SHARE:
            return


def _wanted_s(server: Server) -> float:
    """How long the server's loop was busy so far, or would have been; 0 if it is no more."""
    try:
        return machine.loop_time(server.pid).wanted_s
    except OSError:
        return 0.0


def table(figures: Sequence[Figures], max_hold_ms: float, max_times: float) -> Table:
    """All rows, the longest hold first."""
    made = Table(title="What another client waits while one request is answered, and what memory that takes")
    made.add_column("request", no_wrap=True)
    for title in ("frame", "answer", "after ms", "held ms", "on the clock", "quiet", "grown MB", "times", "log"):
        made.add_column(title, justify="right")
    for each in sorted(figures, key=lambda each: -each.seen.held_ms):
        style = "red" if each.is_above(max_hold_ms, max_times) else None
        made.add_row(*_cells(each), style=style)
    return made


def _cells(each: Figures) -> tuple[str, ...]:
    answer, seen = each.answer, each.seen
    ended = answer.end or _size(answer.answer_bytes)
    notes = ["" if each.row.stops else seen.failure or "", f"{each.tracebacks} tracebacks" if each.tracebacks else ""]
    return (
        " ".join([each.row.name, *filter(None, notes)]),
        _size(each.frame_bytes),
        ended,
        f"{answer.took_ms:,.0f}",
        f"{seen.held_ms:,.1f}",
        f"{seen.wall_ms:,.1f}",
        f"{seen.quiet_ms:.2f}",
        f"{each.grown_bytes / MB:,.1f}",
        f"{each.times:,.1f}" if each.grown_bytes > SLACK_BYTES else "",
        _size(each.log_bytes) if each.log_bytes else "",
    )


def _size(count: int) -> str:
    if count < 10_000:
        return f"{count} B"
    return f"{count / 1000:,.0f} kB" if count < 10 * MB else f"{count / MB:,.0f} MB"


def rows_wanted(only: Sequence[str], sizes_mb: Sequence[float], quick: bool, distinct: bool) -> list[Row]:
    """The rows whose name contains one of the words, or whose kind ("arrays", "table") is one."""
    rows = [*array_rows(sizes_mb, distinct=distinct), *table_rows(quick)]
    if not only:
        return rows
    words = [word.lower() for word in only]
    return [row for row in rows if row.kind in words or any(word in row.name.lower() for word in words)]


@click.command()
@click.option("--only", multiple=True, metavar="NAME", help="Rows with this in their name, or 'arrays', or 'table'.")
@click.option("--size", "sizes_mb", multiple=True, type=float, metavar="MB", help="Of the arrays; 0, 1 and 10.")
@click.option("--distinct", is_flag=True, help="Give each item of an array a name of its own.")
@click.option("--quick", is_flag=True, help="Arrays of 0 and 1 MB, and the rows of the table a tenth as large.")
@click.option("--give-up", "give_up_s", default=60.0, show_default=True, help="Seconds until a row is given up.")
@click.option("--max-hold-ms", default=20.0, show_default=True, help="The longest another client may wait.")
@click.option("--max-times", default=10.0, show_default=True, help="The most memory, as a multiple of the frame.")
@click.option("--list", "only_list", is_flag=True, help="Print the names of the rows, and measure nothing.")
def main(
    only: tuple[str, ...],
    sizes_mb: tuple[float, ...],
    distinct: bool,
    quick: bool,
    give_up_s: float,
    max_hold_ms: float,
    max_times: float,
    only_list: bool,
) -> None:
    """Measure holds and peaks, row by row. Exits with 1 when a row is above a limit."""
    rows = rows_wanted(only, sizes_mb or (SIZES_MB[:2] if quick else SIZES_MB), quick, distinct)
    if not rows:
        raise click.BadParameter(f"no row is called {', '.join(only)}")
    if only_list:
        click.echo("\n".join(row.name for row in rows))
        return
    load_before = machine.load_average()
    console = Console(stderr=True)
    figures: list[Figures] = []
    failed: list[str] = []
    with Progress(console=console, transient=True, disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task("", total=len(rows))
        for row in rows:
            progress.update(bar, description=row.name)
            try:
                figures.append(measure(row, give_up_s))
            except (programs.Failed, servers.NotListening, OSError) as reason:
                failed.append(f"{row.name}: {type(reason).__name__}: {reason}")
                click.echo(failed[-1], err=True)
            else:
                if progress.disable:
                    click.echo("  ".join(_cells(figures[-1])), err=True)
            progress.advance(bar)
    out = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    out.print(table(figures, max_hold_ms, max_times))
    for reason in failed:
        out.print(f"not measured: {reason}", style="red")
    above = sum(each.is_above(max_hold_ms, max_times) for each in figures)
    here = machine.describe(load_before)
    out.print(
        f"{len(figures)} rows, {above} above {max_hold_ms:g} ms or {max_times:g} times. Commit {here.commit}, "
        f"{here.date}, {here.cores} x {here.processor}, load {here.load_before:.1f} and {here.load_after:.1f}."
    )
    sys.exit(1 if above or failed else 0)


if __name__ == "__main__":
    main()
