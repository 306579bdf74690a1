"""Produce and consume with librdkafka over TLS 1.3, beside the same in plaintext."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import clients
import servers
import wire
from programs import Unavailable
from report import Case, Measure, Sample, Section
from servers import Server, Target

SIZES_BYTES = ("100", "1024")
COLUMNS = clients.COLUMNS
WARM_UP_S = 0.1  # what is imported late, and memory that the kernel has to find, are not what is measured


def sections(seconds: float) -> list[Section]:
    how = "librdkafka in C, one partition, uncompressed, acks=1; AES-256-GCM, a key on P-256"
    cases = [
        Case(f"{what} {size:>5} B {protocol}", _measure(what, size, protocol, seconds))
        for what in ("produce", "consume")
        for size in SIZES_BYTES
        for protocol in ("plaintext", "TLS")
    ]
    return [Section("tls", f"TLS beside plaintext: {how}", COLUMNS, cases)]


def _measure(what: str, size: str, protocol: str, seconds: float) -> Measure:
    def measure(target: Target) -> Sample:
        with _both(target) as server, wire.topic(server) as topic:
            more = servers.tls_options(server) if protocol == "TLS" else []
            asked = server._replace(port=server.tls_port) if more else server
            producing = clients.producing(topic, size, "none", "acks=1", seconds)
            if what == "produce":
                return clients.run(asked, *producing, *more)
            written = clients.client(asked, *producing, *more)
            return clients.run(asked, "consume", topic, size, written["messages"], *clients.READ_ON, *more)

    return measure


@contextmanager
def _both(target: Target) -> Iterator[Server]:
    """A server with both listeners: a fresh minibroker, or the target itself. Raises Unavailable."""
    if target.server.tls_port:
        yield target.server
        return
    if target.name != "minibroker":
        raise Unavailable("it has no listener with TLS")
    with servers.data_directory() as folder, servers.data_directory() as keys:
        port = servers.free_port()
        store, certificate = servers.key_store(Path(keys))
        listeners = f"listeners=SSL://127.0.0.1:{port},PLAINTEXT://127.0.0.1:0"
        settings = [listeners, "ssl.keystore.type=PEM", f"ssl.keystore.location={store}"]
        with servers.minibroker_on(folder, settings=settings) as started:
            server = started._replace(tls_port=port, authority=certificate)
            warm_up(server, WARM_UP_S)
            yield server


def warm_up(server: Server, seconds: float) -> None:
    """Produce and consume by both listeners, `seconds` each."""
    for options in ([], servers.tls_options(server)):
        asked = server._replace(port=server.tls_port) if options else server
        for size in SIZES_BYTES:
            with wire.topic(server) as topic:
                written = clients.client(asked, *clients.producing(topic, size, "none", "acks=1", seconds), *options)
                clients.client(asked, "consume", topic, size, written["messages"], *clients.READ_ON, *options)
