"""The HTTP server, in the broker's event loop.

It keeps its port while it is stopped, as the broker does: a socket that is bound and does not listen reserves it.
uvicorn is imported a moment after the start, or for the first connection: that takes 30 ms, for which no start
should wait.
"""

from __future__ import annotations

import asyncio
import math
import ssl
import sys
from contextlib import suppress
from functools import cached_property
from importlib.util import find_spec
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from minibroker.addresses import LOOPBACK, HostPort, bound, bracketed
from minibroker.web.stalled_connections import StalledConnections

if TYPE_CHECKING:
    from uvicorn import Config

    from minibroker.web.asgi import Asgi, Receive, Scope, Send

CONNECTIONS_MAX: Final = 1000
MOMENT_SECONDS: Final = 0.02  # after which a start has announced itself
BACKLOG: Final = 2048  # connections that wait to be accepted
IDLE_SECONDS: Final = 60.0
CLOSING_SECONDS: Final = 1.0


class Server:
    """A server that may be started and stopped again on the same port."""

    def __init__(self, address: HostPort, idle_seconds: float = IDLE_SECONDS) -> None:
        """Choose the port. A connection whose client does nothing for a time is cut. Raises OSError."""
        self._idle_seconds = idle_seconds
        self._host = address.host
        self._reserved = bound(address, listens=False, shared=True)
        self.port: int = self._reserved.getsockname()[1]
        self._connections: Connections | None = None
        self._server: asyncio.Server | None = None
        self._watching: asyncio.Task[None] | None = None
        self._tls = False

    @property
    def url(self) -> str:
        """The address for clients."""
        name = "localhost" if self._tls and self._host == LOOPBACK else self._host  # as certificates have it
        name = "localhost" if name in ("0.0.0.0", "::", "") else name
        return f"{'https' if self._tls else 'http'}://{bracketed(name)}:{self.port}"

    async def start(self, application: Asgi, tls: ssl.SSLContext | None = None) -> None:
        """Serve from now on. Raises OSError, and ImportError without uvicorn."""
        if is_missing("uvicorn"):
            raise ImportError("uvicorn")
        listening = bound(HostPort(self._host, self.port), shared=True)
        self._tls = tls is not None
        self._connections = connections = Connections(application, self._idle_seconds)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(connections.new, sock=listening, ssl=tls, backlog=BACKLOG)
        loop.call_later(MOMENT_SECONDS, connections.prepare)
        stalled = StalledConnections(connections.connections, self._idle_seconds)
        self._watching = asyncio.ensure_future(stalled.watch())

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
        connections.cut()

    def abort(self) -> None:
        """Cut all connections."""
        connections = self._stop_listening()
        if connections is not None:
            connections.cut()

    def close(self) -> None:
        """Release the port, after `stop` or `abort`."""
        self._reserved.close()

    def _stop_listening(self) -> Connections | None:
        connections, self._connections = self._connections, None
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        if self._server is not None:
            self._server.close()
            self._server = None
        return connections


class Connections:
    """The connections of a server that listens; for uvicorn's protocols this is the state of their server."""

    def __init__(self, application: Asgi, idle_seconds: float) -> None:
        self.total_requests = 0
        self.connections: set[Any] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.default_headers: list[tuple[bytes, bytes]] = []
        self._application, self._idle_seconds = application, idle_seconds

    def new(self) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        made: Any = self._config.http_protocol_class
        protocol: asyncio.Protocol = made(config=self._config, server_state=self, app_state={})
        return protocol

    def prepare(self) -> None:
        """Import uvicorn, if it was not imported yet."""
        _ = self._config

    @cached_property
    def _config(self) -> Config:
        from uvicorn.config import Config

        config = Config(
            self._answering,
            interface="asgi3",
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            proxy_headers=False,
            limit_concurrency=CONNECTIONS_MAX,
            timeout_keep_alive=math.ceil(self._idle_seconds),
            date_header=False,
            server_header=False,
        )
        config.load()
        return config

    async def _answering(self, scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(asyncio.CancelledError):  # by `cut`; uvicorn would log it as an error
            await self._application(scope, receive, send)

    def cut(self) -> None:
        """Cut all connections, and end what answers their requests."""
        for connection in list(self.connections):
            connection.transport.abort()
        for answering in list(self.tasks):
            answering.cancel()


def is_missing(library: str) -> bool:
    """Return whether a library is not installed, without importing it."""
    return sys.modules.get(library, sys) is None or find_spec(library) is None
