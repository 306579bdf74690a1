"""Many clients at once: how busy ones share a server, what idle ones cost them, and what slow readers do to the others.

The busy ones are `clients/exchange.c`, which asks and waits for its answer on every connection; the others are sockets
of this process. Every sample has a fresh server, where one can be started.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial

import exchanges
import wire
from machine import forget_peak, peak_kib, resident_kib
from report import Case, Column, Sample, Section
from servers import Server, Target

BUSY = (1, 50, 200)
IDLE = 2_000
IDLE_READERS = (5, 20, 100)  # that never read
READERS = 20  # that read slowly
NEIGHBOURS = 10  # busy connections beside the readers
READ_BYTES = 50_000_000  # what each reader asks for: far more than all buffers between hold
BATCH_BYTES = 999_000
SIP_BYTES = 16 << 10
SIP_SECONDS = 0.01  # between two sips of one reader: 1.6 MB/s each

COLUMNS = (
    Column("rate", "requests/s", higher_is_better=True),
    Column("p50_us", "p50, us"),
    Column("p99_us", "p99, us"),
    Column("server_us", "server us each"),
)

# Given the server and the name of a topic of READ_BYTES: whoever reads it while the others are measured.
Beside = Callable[[Server, str], AbstractContextManager[object]]


def sections(seconds: float) -> list[Section]:
    """Rows of `seconds` each."""
    produce = "Produce v9, one record of 100 bytes"
    connections = (*COLUMNS, Column("grown_mib", "RSS for the busy, MiB"), Column("idle_kib", "for each idle one, KiB"))
    busy = [_busy_case(f"{count:>5} busy", count, 0, seconds) for count in BUSY]
    among = [_busy_case(f"{count:>5} busy, {IDLE:,} idle", count, IDLE, seconds) for count in BUSY]
    never = [
        _readers_case(f"{count:>3} that never read", partial(_never_reading, count), seconds) for count in IDLE_READERS
    ]
    slowly = _readers_case(f"{READERS:>3} that read 1.6 MB/s each", _reading_slowly, seconds)
    readers = [_readers_case(" no readers", _nobody, seconds), *never, slowly]
    return [
        Section("connections", f"Connections: {produce}, each waits for its answer", connections, [*busy, *among]),
        Section(
            "readers",
            f"Readers who asked for 50 MB each, and what {NEIGHBOURS} others notice: {produce}",
            (*COLUMNS, Column("held_mib", "RSS for the readers, MiB")),
            readers,
        ),
    ]


@contextmanager
def _fresh(target: Target) -> Iterator[Server]:
    with nullcontext(target.server) if target.start is None else target.start() as server:
        yield server


# --- connections ----------------------------------------------------------------------------------


def _busy_case(name: str, busy: int, idle: int, seconds: float) -> Case:
    def measure(target: Target) -> Sample:
        with _fresh(target) as server, ExitStack() as stack, wire.topic(server) as topic:
            _exchange(server, topic, 1, seconds / 4)  # so that what a first request loads is not counted
            before = resident_kib(server.pid)
            for _ in range(idle):
                stack.enter_context(wire.Client(server)).ask_api_versions()
            resident = resident_kib(server.pid)
            forget_peak(server.pid)
            sample = _exchange(server, topic, busy, seconds)
            sample["grown_mib"] = (peak_kib(server.pid) - resident) / 1024
            if idle:
                sample["idle_kib"] = (resident - before) / idle
            return sample

    return Case(name, measure)


def _exchange(server: Server, topic: str, connections: int, seconds: float) -> Sample:
    request = wire.produce_request(topic, wire.batch([b"x" * 100]))
    ran = exchanges.run(server, request, wire.produce_error_at(topic), seconds, connections)
    return {
        "rate": ran["requests"] / ran["seconds"],
        "p50_us": ran["p50_us"],
        "p99_us": ran["p99_us"],
        "server_us": ran["server_cpu_seconds"] / ran["requests"] * 1e6,
    }


# --- readers --------------------------------------------------------------------------------------


def _readers_case(name: str, beside: Beside, seconds: float) -> Case:
    def measure(target: Target) -> Sample:
        with _fresh(target) as server, wire.topic(server) as large, wire.topic(server) as topic:
            with wire.Client(server) as client:
                for _ in range(READ_BYTES // BATCH_BYTES + 1):
                    client.produce(large, wire.batch([bytes(BATCH_BYTES)]))
            _exchange(server, topic, NEIGHBOURS, seconds / 4)
            before = resident_kib(server.pid)
            with beside(server, large):
                sample = _exchange(server, topic, NEIGHBOURS, seconds)
                return {**sample, "held_mib": (resident_kib(server.pid) - before) / 1024}

    return Case(name, measure)


@contextmanager
def _nobody(server: Server, large: str) -> Iterator[None]:
    yield


@contextmanager
def _never_reading(count: int, server: Server, large: str) -> Iterator[list[wire.Client]]:
    with ExitStack() as stack:
        readers = [stack.enter_context(wire.Client(server)) for _ in range(count)]
        for reader in readers:
            reader.begin(wire.fetch_request(large, READ_BYTES))
        yield readers


@contextmanager
def _reading_slowly(server: Server, large: str) -> Iterator[None]:
    over = threading.Event()

    def read(readers: list[wire.Client]) -> None:
        while not over.wait(SIP_SECONDS):
            for reader in readers:
                reader.take(SIP_BYTES)

    with _never_reading(READERS, server, large) as readers:
        thread = threading.Thread(target=read, args=(readers,))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
