"""Produce and consume with librdkafka over TLS 1.3, beside the same in plaintext."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import clients
import servers
import wire
from report import Case, Measure, Sample, Section
from servers import Server, Target

SIZES_BYTES = ("100", "1024")
COLUMNS = clients.COLUMNS
DAYS = 2


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
        with _both() as (server, tls, authority), wire.topic(server) as topic:
            more = ["security.protocol=ssl", f"ssl.ca.location={authority}"] if protocol == "TLS" else []
            asked = tls if more else server
            producing = clients.producing(topic, size, "none", "acks=1", seconds)
            if what == "produce":
                return clients.run(asked, *producing, *more)
            written = clients.client(asked, *producing, *more)
            return clients.run(asked, "consume", topic, size, written["messages"], *clients.READ_ON, *more)

    return measure


@contextmanager
def _both() -> Iterator[tuple[Server, Server, Path]]:
    """A broker, the same by its listener with TLS, and the file with the certificate to trust."""
    with servers.data_directory() as folder, servers.data_directory() as keys, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        key, certificate, store = (Path(keys) / name for name in ("key.pem", "certificate.pem", "store.pem"))
        making = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=127.0.0.1"
        names = ["-addext", "subjectAltName=IP:127.0.0.1", "-days", str(DAYS), "-keyout", str(key)]
        subprocess.run([*making.split(), *names, "-out", str(certificate)], check=True, capture_output=True)
        store.write_text(key.read_text() + certificate.read_text())
        listeners = f"listeners=SSL://127.0.0.1:{port},PLAINTEXT://127.0.0.1:0"
        settings = [listeners, "ssl.keystore.type=PEM", f"ssl.keystore.location={store}"]
        with servers.minibroker_on(folder, settings=settings) as server:
            yield server, server._replace(port=port), certificate
