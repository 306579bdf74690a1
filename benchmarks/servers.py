"""Starting the servers that are measured, and stopping them: minibroker, kfake, or one that runs already.

What is measured on them is said in the sections' own files.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, NamedTuple

import machine
import programs

# Deleted topics give their memory (page cache) back at once: the next row shall not have to find new one.
SETTINGS = ["log.segment.delete.delay.ms=0"]
DAYS = 2  # for which a certificate is valid
MINIBROKER = ("-m", "minibroker")
ADDRESS = re.compile(r"([\w.-]+):(\d+)\s*$|//([\w.-]+):(\d+)")


class Server(NamedTuple):
    """A server that listens. Times are of `time.perf_counter`, and zero for one that others started.

    One with TLS has a second port for it, and a file with the certificate to trust.
    """

    host: str
    port: int
    pid: int
    exec_at: float
    listening_at: float
    tls_port: int = 0
    authority: Path | None = None


class Target(NamedTuple):
    """A server under measurement, and how to start another one like it (None: we did not start it)."""

    name: str
    server: Server
    start: Callable[[], AbstractContextManager[Server]] | None


class NotListening(Exception):
    """A server ended, or was silent, before it said where it listens."""


@contextmanager
def minibroker(entry: Sequence[str] = MINIBROKER) -> Iterator[Server]:
    """A broker process of this checkout on a free port, with a data directory of its own.

    `entry` is what Python runs in place of `-m minibroker`.
    """
    with data_directory() as folder, minibroker_on(folder, entry) as server:
        yield server


@contextmanager
def compiled() -> Iterator[Server]:
    """The same with what mypyc compiles. Raises programs.Unavailable."""
    entry = (
        f"import sys; sys.path.insert(0, {str(programs.compiled())!r}); from minibroker.__main__ import main; main()"
    )
    with minibroker(["-c", entry]) as server:
        yield server


@contextmanager
def data_directory() -> Iterator[str]:
    """A directory that is gone afterwards."""
    with TemporaryDirectory(prefix="minibroker-benchmark-data-") as folder:
        yield folder


@contextmanager
def minibroker_on(
    folder: str,
    entry: Sequence[str] = MINIBROKER,
    *,
    settings: Sequence[str] = (),
    options: Sequence[str] = (),
    log_level: str = "warning",
    stderr: IO[bytes] | None = None,
) -> Iterator[Server]:
    """The same with its data in `folder`, where another one may have left some. `settings` are `key=value`."""
    assignments = ["listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={folder}", *SETTINGS, *settings]
    words = [word for assignment in assignments for word in ("--set", assignment)]
    with process([sys.executable, *entry, "serve", "--log-level", log_level, *options, *words], stderr) as server:
        yield server


def free_port() -> int:
    """Return a port of 127.0.0.1 that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def key_store(folder: Path) -> tuple[Path, Path]:
    """Make a key and a certificate for 127.0.0.1; return the store with both, and the certificate. All in PEM."""
    key, certificate, store = (folder / name for name in ("key.pem", "certificate.pem", "store.pem"))
    making = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=127.0.0.1"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-days", str(DAYS), "-keyout", str(key)]
    subprocess.run([*making.split(), *names, "-out", str(certificate)], check=True, capture_output=True)
    store.write_text(key.read_text() + certificate.read_text())
    return store, certificate


def tls_options(server: Server) -> list[str]:
    """Return what librdkafka needs for a server's second port."""
    return ["security.protocol=ssl", f"ssl.ca.location={server.authority}"]


def kill(server: Server) -> None:
    """End the process as a crash does: it writes down nothing more."""
    os.kill(server.pid, signal.SIGKILL)


def end(server: Server, patience_s: float) -> None:
    """Stop the process with SIGTERM, and kill it if it still runs after `patience_s`. It may have ended already."""
    give_up_at = time.monotonic() + patience_s
    with suppress(ProcessLookupError):
        os.kill(server.pid, signal.SIGTERM)
    while machine.is_alive(server.pid):
        if time.monotonic() > give_up_at:
            return kill(server)
        time.sleep(0.01)


@contextmanager
def kfake() -> Iterator[Server]:
    """kfake, whose data is in memory. Raises programs.Unavailable."""
    with process([str(programs.kfake())]) as server:
        yield server


@contextmanager
def foreign(bootstrap: str, pid: int) -> Iterator[Server]:
    """A server that runs already, at "host:port"."""
    host, _, port = bootstrap.rpartition(":")
    yield Server(host, int(port), pid, 0.0, 0.0)


@contextmanager
def process(words: Sequence[str], stderr: IO[bytes] | None = None) -> Iterator[Server]:
    """The server's stderr goes to ours if nothing else is said: what it has to complain of is never thrown away."""
    environment = dict(os.environ, PYTHONPATH=str(Path(__file__).resolve().parent.parent))
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # or each start compiles anew, which no installed package does
    exec_at = time.perf_counter()
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment) as process:
        try:
            host, port = _announced(process)
            yield Server(host, port, process.pid, exec_at, time.perf_counter())
        finally:
            process.terminate()


def _announced(process: subprocess.Popen[str]) -> tuple[str, int]:
    """Host and port in the line that the server prints once it listens."""
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    found = ADDRESS.search(line)
    if found is None:
        raise NotListening(f"{process.args!r} said {line!r} where its address was expected")
    return found[1] or found[3], int(found[2] or found[4])
