"""One request again and again, by a C client: ping-pong of small produces, receiving large ones, and fetching.

The client keeps a number of the same request in flight (`clients/exchange.c`); what varies is the request.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import programs
import servers
import wire
from machine import cpu_seconds, on_one_core
from report import Case, Column, Sample, Section
from servers import Server, Target

MB = 1_000_000
RECEIVE_LIMIT = 200  # requests of 1 MB: see VOLUME in clients/librdkafka.c
RATE_COLUMNS = (
    Column("rate", "requests/s", higher_is_better=True),
    Column("p50_us", "p50, us"),
    Column("p99_us", "p99, us"),
    Column("server_us", "server us each"),
    Column("client_us", "client us each"),
)
VOLUME_COLUMNS = (
    Column("mb_rate", "MB/s", higher_is_better=True),
    Column("server_ms", "server ms/MB"),
    Column("client_ms", "client ms/MB"),
)
COPYING = str(programs.HERE / "copying.py")


def sections(seconds: float) -> list[Section]:
    """Rows of `seconds` each, or of a bounded volume where the server keeps what it gets."""
    pings = [
        _ping_pong("1 connection", 1, 1, seconds, {"rate": 16e3, "server_us": 49}),
        _ping_pong("1 connection, all on one core", 1, 1, seconds, {"server_us": 49}, one_core=True),
        _ping_pong("50 connections", 50, 1, seconds, {"rate": 24e3, "server_us": 35}),
        _ping_pong("1 connection, 16 in flight", 1, 16, seconds, {"rate": 45e3, "server_us": 20}),
    ]
    receives = [
        _receive("1 MB, one record", [bytes(MB)], seconds, {"server_ms": 0.8}),
        _receive("1 MB, 1,000 records of 1 KB", [bytes(990)] * 1000, seconds, {"server_ms": 0.8}),
    ]
    fetches = []
    for name, region, batch in (("64 KB", 64_000, 15_900), ("1 MB", MB, 99_900), ("50 MB", 50 * MB, 99_900)):
        target = {"server_ms": 0.16} if region >= MB else {}
        fetches.append(_fetch(name, region, batch, seconds, target))
        fetches.append(_fetch_copied(f"{name}, copied", region, batch, seconds))
    return [
        Section("ping-pong", "Ping-pong: Produce v9, one record of 100 bytes, epoll client", RATE_COLUMNS, pings),
        Section("receive", "Receive: Produce v9 of 1 MB, one connection, one in flight", VOLUME_COLUMNS, receives),
        Section(
            "fetch",
            "Fetch v12 of one region again and again, one connection; copied: with sendfile put aside",
            VOLUME_COLUMNS,
            fetches,
        ),
    ]


def warm_up(server: Server) -> None:
    """Write and drop what one row writes, so that the kernel has the memory at hand. Raises Unavailable, Failed."""
    _receive("", [bytes(MB)], 1.0, {}).measure(Target("", server, None))


def _ping_pong(
    name: str, connections: int, depth: int, seconds: float, targets: dict[str, float], *, one_core: bool = False
) -> Case:
    def measure(target: Target) -> Sample:
        placed = on_one_core(target.server.pid) if one_core else nullcontext()
        with wire.topic(target.server) as topic, placed:
            request = wire.produce_request(topic, wire.batch([b"x" * 100]))
            return pinged(target.server, request, wire.produce_error_at(topic), seconds, connections, depth)

    return Case(name, measure, targets)


def pinged(server: Server, request: bytes, error_at: int, seconds: float, connections: int, depth: int) -> Sample:
    """Send one request again and again, as `run` does; return the figures of `RATE_COLUMNS`."""
    ran = run(server, request, error_at, seconds, connections, depth)
    count = ran["requests"]
    return {
        "rate": count / ran["seconds"],
        "p50_us": ran["p50_us"],
        "p99_us": ran["p99_us"],
        "server_us": ran["server_cpu_seconds"] / count * 1e6,
        "client_us": ran["cpu_seconds"] / count * 1e6,
    }


def _receive(name: str, values: list[bytes], seconds: float, targets: dict[str, float]) -> Case:
    def measure(target: Target) -> Sample:
        with wire.topic(target.server) as topic:
            request = wire.produce_request(topic, wire.batch(values))
            ran = run(target.server, request, wire.produce_error_at(topic), seconds, limit=RECEIVE_LIMIT)
        return _volume(ran, ran["sent_bytes"])

    return Case(name, measure, targets)


def _fetch(name: str, region: int, batch: int, seconds: float, targets: dict[str, float]) -> Case:
    def measure(target: Target) -> Sample:
        return volume_fetched(target.server, region, batch, seconds)

    return Case(name, measure, targets)


def _fetch_copied(name: str, region: int, batch: int, seconds: float) -> Case:
    def measure(target: Target) -> Sample:
        if target.name != "minibroker":
            raise programs.Unavailable("only minibroker is known to have both paths")
        with servers.minibroker([COPYING]) as server:
            return volume_fetched(server, region, batch, seconds)

    return Case(name, measure)


def volume_fetched(server: Server, region: int, batch: int, seconds: float, through: Server | None = None) -> Sample:
    """Fetch a region again and again, `through` a server in the middle if there is one; the figures of its CPU."""
    with wire.topic(server) as topic:
        with wire.Client(server) as client:
            for _ in range(max(1, region // batch) + 1):
                client.produce(topic, wire.batch([bytes(batch)]))
        ran = run(through or server, wire.fetch_request(topic, region), wire.fetch_error_at(topic), seconds)
    if ran["received_bytes"] < ran["requests"] * region / 2:
        raise programs.Failed(
            f"the server answered with {ran['received_bytes'] / ran['requests']:.0f} of {region} bytes"
        )
    return _volume(ran, ran["received_bytes"])


def _volume(ran: dict[str, Any], size_bytes: int) -> Sample:
    megabytes = size_bytes / MB
    return {
        "mb_rate": megabytes / ran["seconds"],
        "server_ms": ran["server_cpu_seconds"] / megabytes * 1e3,
        "client_ms": ran["cpu_seconds"] / megabytes * 1e3,
    }


def run(
    server: Server, request: bytes, error_at: int, seconds: float, connections: int = 1, depth: int = 1, limit: int = 0
) -> dict[str, Any]:
    """Run `clients/exchange.c`; return its figures and the server's CPU time in it. Raises Unavailable, Failed."""
    program = programs.exchange()
    before = cpu_seconds(server.pid)
    words = [server.host, server.port, connections, depth, seconds, limit, error_at]
    ran = programs.measure(program, words, request)
    return {**ran, "server_cpu_seconds": cpu_seconds(server.pid) - before}
