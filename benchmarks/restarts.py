"""Starting on what is there already: after a stop, and after a kill, when the logs have to be read again.

Each sample fills a directory of its own (1 GB at most), which is removed afterwards. What is read was written seconds
before and is in the page cache, so the disk has no part in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import exchanges
import servers
import wire
from machine import cpu_seconds, resident_kib
from programs import Unavailable
from report import Case, Column, Sample, Section
from servers import Server, Target

TOPIC = "kept"
GB = 1_000_000_000
LARGE_BATCHES = 1_000
SMALL_BATCHES = 60_000  # of 16 KB, as producers with the default batch.size send them
MANY_BATCHES = 100_000
PARTITIONS = 1_000
SEGMENT_BYTES = 100 << 20
PIPELINED = 16
NO_LIMIT_SECONDS = 600.0  # the number of requests is what ends the filling

Fill = Callable[[Server], None]

COLUMNS = (
    Column("listening_ms", "listening, ms"),
    Column("cpu_ms", "server CPU, ms"),
    Column("mb_rate", "MB/s read again", higher_is_better=True),
    Column("resident_mib", "RSS then, MiB"),
    Column("stop_ms", "stop, ms"),
)


def sections() -> list[Section]:
    """One section."""
    large = _batches(LARGE_BATCHES, GB // LARGE_BATCHES, {})
    rolled = _batches(LARGE_BATCHES, GB // LARGE_BATCHES, {"segment.bytes": str(SEGMENT_BYTES)})
    small = _batches(SMALL_BATCHES, GB // SMALL_BATCHES, {})
    many = _batches(MANY_BATCHES, 170, {})
    cases = [
        _case("nothing, stopped", _nothing),
        _case("1 GB in batches of 1 MB, stopped", large),
        _case("1 GB in batches of 1 MB, killed", large, killed=True, read_bytes=GB),
        _case("1 GB in batches of 16 KB, killed", small, killed=True, read_bytes=GB),
        _case("1 GB in segments of 100 MB, killed", rolled, killed=True),
        _case(f"{PARTITIONS:,} partitions, stopped", _partitions),
        _case(f"{PARTITIONS:,} partitions, killed", _partitions, killed=True),
        _case(f"{MANY_BATCHES:,} batches in one partition, stopped", many),
        _case(f"{MANY_BATCHES:,} batches in one partition, killed", many, killed=True),
    ]
    return [Section("restart", "Starting again: exec to the line that says it listens", COLUMNS, cases)]


def _case(name: str, fill: Fill, *, killed: bool = False, read_bytes: int = 0) -> Case:
    def measure(target: Target) -> Sample:
        if target.name != "minibroker":
            raise Unavailable("only minibroker keeps what it was given")
        with servers.data_directory() as folder:
            with servers.minibroker_on(folder) as server:
                fill(server)
                if killed:
                    servers.kill(server)
            with servers.minibroker_on(folder) as server:
                seconds = server.listening_at - server.exec_at
                sample = {"cpu_ms": cpu_seconds(server.pid) * 1e3, "listening_ms": seconds * 1e3}
                sample["resident_mib"] = resident_kib(server.pid) / 1024
                stopping_at = time.perf_counter()
            sample["stop_ms"] = (time.perf_counter() - stopping_at) * 1e3
        if read_bytes:
            sample["mb_rate"] = read_bytes / 1e6 / seconds
        return sample

    return Case(name, measure)


def _nothing(server: Server) -> None:
    pass


def _batches(count: int, size_bytes: int, configs: dict[str, str]) -> Fill:
    def fill(server: Server) -> None:
        overhead_bytes = len(wire.batch([b""]))
        request = wire.produce_request(TOPIC, wire.batch([bytes(size_bytes - overhead_bytes)]))
        with wire.Client(server) as client:
            client.create_topic(TOPIC, configs=configs)
        in_flight = max(1, min(PIPELINED, 1_000_000 // size_bytes))
        exchanges.run(
            server, request, wire.produce_error_at(TOPIC), NO_LIMIT_SECONDS, connections=1, depth=in_flight, limit=count
        )

    return fill


def _partitions(server: Server) -> None:
    with wire.Client(server) as client:
        client.create_topic(TOPIC, PARTITIONS)
        record = wire.batch([b"x" * 100])
        every = [wire.produce_request(TOPIC, record, partition) for partition in range(PARTITIONS)]
        client.exchange(every, wire.produce_error_at(TOPIC))
