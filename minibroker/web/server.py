"""The HTTP server, in the broker's event loop.

It keeps its port while it is stopped, as the broker does: a socket that is bound and does not listen reserves it.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from minibroker.addresses import LOOPBACK, HostPort, bound, bracketed
from minibroker.web.stalled_connections import StalledConnections

if TYPE_CHECKING:
    import uvicorn

    from minibroker.web.asgi import Asgi, Receive, Scope, Send

CONNECTIONS_MAX: Final = 1000
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
        self._server: uvicorn.Server | None = None
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
        import uvicorn

        listening = bound(HostPort(self._host, self.port), shared=True)

        async def answering(scope: Scope, receive: Receive, send: Send) -> None:
            with suppress(asyncio.CancelledError):  # by `_cut`; uvicorn would log it as an error
                await application(scope, receive, send)

        config = uvicorn.Config(
            answering,
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
        config.ssl = tls
        self._tls = tls is not None
        self._server = server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        await server.startup([listening])  # not `serve`, which would take the process's signals
        stalled = StalledConnections(server.server_state.connections, self._idle_seconds)
        self._watching = asyncio.ensure_future(stalled.watch())

    async def stop(self) -> None:
        """Answer the requests that run, and close all connections."""
        server = self._stop_listening()
        if server is None:
            return
        connections = server.server_state.connections
        for connection in list(connections):
            connection.shutdown()
        until = monotonic() + CLOSING_SECONDS
        while connections and monotonic() < until:
            await asyncio.sleep(0.002)
        _cut(server)

    def abort(self) -> None:
        """Cut all connections."""
        server = self._stop_listening()
        if server is not None:
            _cut(server)

    def close(self) -> None:
        """Release the port, after `stop` or `abort`."""
        self._reserved.close()

    def _stop_listening(self) -> uvicorn.Server | None:
        server, self._server = self._server, None
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        for each in () if server is None else server.servers:
            each.close()
        return server


def _cut(server: uvicorn.Server) -> None:
    """Cut all connections, and end what answers their requests."""
    connections: Any = server.server_state.connections
    for connection in list(connections):
        connection.transport.abort()
    for answering in list(server.server_state.tasks):
        answering.cancel()
