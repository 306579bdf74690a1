"""The HTTP server, in the broker's event loop.

It keeps its port while it is stopped, as the broker does: a socket that is bound and does not listen reserves it.
What reads HTTP is imported a moment after the start, or for the first connection: no start should wait for it.

A connection is closed when its client stalls: without a request, in the head of one, or with an answer that it does
not read. It has no limit of its own, but for the body of a request, which its application reads.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import Callable, Collection
from importlib import import_module
from importlib.util import find_spec
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from minibroker.addresses import LOOPBACK, HostPort, bind_address, format_host
from minibroker.named_tuples import NamedTuple

if TYPE_CHECKING:
    from minibroker.web.asgi import AsgiApplication
    from minibroker.web.http_connection import HttpConnection


SWEEPS: Final = 4  # in the time that a connection may be stalled
CONNECTIONS_MAX: Final = 1000
MOMENT_SECONDS: Final = 0.02  # after which a start has announced itself
BACKLOG: Final = 2048  # connections that wait to be accepted
IDLE_SECONDS: Final = 60.0
CLOSING_SECONDS: Final = 1.0


class ConnectionProgress(NamedTuple):
    """What changes while a client goes on, and when it was seen first."""

    cycle: object
    unsent_bytes: int
    since_s: float


class StalledConnections:
    """Cuts connections whose clients did nothing for a time."""

    def __init__(self, connections: Collection[Any], seconds: float, now: Callable[[], float] = monotonic) -> None:
        """`connections` are the server's, now and later; `now` returns a time in seconds."""
        self._connections = connections
        self._seconds = seconds
        self._now = now
        self._seen: dict[Any, ConnectionProgress] = {}

    async def close_stalled_periodically(self) -> None:
        """Cut connections until the task is cancelled."""
        while True:
            await asyncio.sleep(self._seconds / SWEEPS)
            self.close_stalled_connections()

    def close_stalled_connections(self) -> None:
        """Cut the connections that are stalled for too long."""
        now, before = self._now(), self._seen
        self._seen = {}
        for connection in list(self._connections):
            if _waits_for_application(connection):
                continue
            seen = ConnectionProgress(connection.cycle, connection.transport.get_write_buffer_size(), now)
            known = before.get(connection, seen)
            if known.cycle is seen.cycle and known.unsent_bytes == seen.unsent_bytes:
                seen = known
            if now - seen.since_s >= self._seconds:
                connection.transport.abort()
            else:
                self._seen[connection] = seen


def _waits_for_application(connection: Any) -> bool:
    """Return whether a connection waits for its application, not for the client; that limits its waits itself."""
    cycle, is_over = connection.cycle, connection.transport.is_closing()  # which lasts until all is read
    return cycle is not None and not (cycle.response_complete or is_over or connection.flow.is_writing_paused)


class Server:
    """A server that may be started and stopped again on the same port."""

    def __init__(self, address: HostPort, idle_seconds: float = IDLE_SECONDS) -> None:
        """Choose the port. A connection whose client does nothing for a time is cut. Raises OSError."""
        self._idle_seconds = idle_seconds
        self._host = address.host
        self._reserved = bind_address(address, listens=False, shares_port=True)
        self.port: int = self._reserved.getsockname()[1]
        self._connections: OpenConnections | None = None
        self._server: asyncio.Server | None = None
        self._watching: asyncio.Task[None] | None = None
        self._tls = False

    @property
    def url(self) -> str:
        """The address for clients."""
        name = "localhost" if self._tls and self._host == LOOPBACK else self._host  # as certificates have it
        name = "localhost" if name in ("0.0.0.0", "::", "") else name
        return f"{'https' if self._tls else 'http'}://{format_host(name)}:{self.port}"

    async def start(self, application: AsgiApplication, tls: ssl.SSLContext | None = None) -> None:
        """Serve from now on. Raises OSError, and ImportError without h11."""
        if is_library_missing("h11"):
            raise ImportError("h11")
        listening = bind_address(HostPort(self._host, self.port), shares_port=True)
        self._tls = tls is not None
        self._connections = connections = OpenConnections(application)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(connections.make_protocol, sock=listening, ssl=tls, backlog=BACKLOG)
        loop.call_later(MOMENT_SECONDS, connections.import_late_modules)
        stalled = StalledConnections(connections.connections, self._idle_seconds)
        self._watching = asyncio.ensure_future(stalled.close_stalled_periodically())

    async def stop(self) -> None:
        """Answer the requests that run, and close all connections."""
        connections = self._stop_listening()
        if connections is None:
            return
        for connection in list(connections.connections):
            connection.shutdown()
        until = monotonic() + CLOSING_SECONDS
        while connections.connections and monotonic() < until:
            await asyncio.sleep(0.002)
        connections.close_all_connections()

    def abort(self) -> None:
        """Cut all connections."""
        connections = self._stop_listening()
        if connections is not None:
            connections.close_all_connections()

    def close(self) -> None:
        """Release the port, after `stop` or `abort`."""
        self._reserved.close()

    def _stop_listening(self) -> OpenConnections | None:
        """Accept no more connections; return the open ones, None if it has not listened."""
        connections, self._connections = self._connections, None
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        if self._server is not None:
            self._server.close()
            self._server = None
        return connections


class OpenConnections:
    """The connections of a server that listens."""

    def __init__(self, application: AsgiApplication) -> None:
        self.connections: set[HttpConnection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._application = application

    def make_protocol(self) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        from minibroker.web.http_connection import HttpConnection

        return HttpConnection(self._application, self.connections, self._tasks, CONNECTIONS_MAX)

    def import_late_modules(self) -> None:
        """Import what the first connection needs."""
        import_module("minibroker.web.http_connection")

    def close_all_connections(self) -> None:
        """Cut all connections, and end what answers their requests."""
        for connection in list(self.connections):
            connection.transport.abort()
        for answering in list(self._tasks):
            answering.cancel()


def is_library_missing(library: str) -> bool:
    """Return whether a library is not installed, without importing it."""
    return sys.modules.get(library, sys) is None or find_spec(library) is None
