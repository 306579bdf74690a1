"""A PostgreSQL server of its own, of Debian's package."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.clients.ports import free_ports

PROGRAMS = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), None)
USER = "postgres"  # the server does not run as root


class Database:
    """A running server, and where it listens."""

    def __init__(self, port: int) -> None:
        self.port = port

    def run(self, sql: str) -> list[str]:
        """Run statements, each in a transaction of its own; return the lines of their output."""
        command = ["psql", "-qtAX", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", str(self.port), "-U", USER]
        return subprocess.run(command, input=sql, check=True, capture_output=True, text=True).stdout.split()


@contextmanager
def running_database() -> Iterator[Database]:
    """Start a server that logs changes for others to read, in a directory of its own."""
    assert PROGRAMS is not None
    directory = Path(tempfile.mkdtemp())  # one of pytest's belongs to root alone, up to its top
    shutil.chown(directory, USER)
    database = Database(free_ports())

    def as_user(*command: str) -> None:
        subprocess.run(["runuser", "-u", USER, "--", *command], check=True, stdout=subprocess.DEVNULL, cwd=directory)

    options = f"-c port={database.port} -c listen_addresses=127.0.0.1 -c wal_level=logical -c unix_socket_directories="
    as_user(f"{PROGRAMS}/initdb", "--no-sync", "--auth=trust", "-D", "data")
    as_user(f"{PROGRAMS}/pg_ctl", "start", "-w", "-D", "data", "-l", "log", "-o", options)
    try:
        yield database
    finally:
        as_user(f"{PROGRAMS}/pg_ctl", "stop", "-m", "immediate", "-D", "data")
        shutil.rmtree(directory)
