"""The HTTP server of the metrics, on the broker's event loop: GET /metrics, one request per connection.

`metrics` makes the text.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from prometheus_client import CONTENT_TYPE_LATEST

from minibroker.broker.network.server import BoundListener

log = logging.getLogger("minibroker.metrics")

REQUEST_BYTES = 8 << 10
PATIENCE_SECONDS = 10.0  # for a whole exchange with a client
CLIENTS_MAX = 16
PATH = "/metrics"


class Unavailable(Exception):
    """There are currently no metrics; the message says why, in one line."""


class MetricsServer:
    """Serves the result of `exposition`, one client at a time; status 503 if it raises Unavailable."""

    def __init__(self, exposition: Callable[[], Awaitable[bytes]]) -> None:
        self._exposition = exposition
        self._one_at_a_time = asyncio.Lock()
        self._clients: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def serve(self, bound: BoundListener) -> None:
        """Start to accept scrapers."""
        self._server = await asyncio.start_server(self._accept, sock=bound.socket, limit=REQUEST_BYTES)
        host, port = bound.endpoint
        log.info("metrics are at http://%s:%d%s", f"[{host}]" if ":" in host else host, port, PATH)

    async def close(self) -> None:
        """Stop accepting scrapers, and disconnect them all."""
        if self._server is not None:
            self._server.close()
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._clients) >= CLIENTS_MAX:
            writer.close()
            return
        client = asyncio.ensure_future(self._converse(reader, writer))
        self._clients.add(client)
        client.add_done_callback(self._clients.discard)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._answer(head))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            log.debug("a scraper left or sent no request: %r", error)
        except Exception:
            log.exception("the metrics could not be served")
        finally:
            writer.close()

    async def _answer(self, head: bytes) -> bytes:
        method, path = (*head.split(b"\r\n", 1)[0].split(b" "), b"", b"")[:2]
        if path.split(b"?")[0].decode(errors="replace") not in (PATH, "/"):
            return _response("404 Not Found", b"The metrics are at /metrics.\n", "text/plain")
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", b"Only GET and HEAD.\n", "text/plain")
        async with self._one_at_a_time:
            try:
                body = await self._exposition()
            except Unavailable as why:
                return _response("503 Service Unavailable", f"{why}\n".encode(), "text/plain")
        answer = _response("200 OK", body, CONTENT_TYPE_LATEST)
        return answer if method == b"GET" else answer[: len(answer) - len(body)]


def _response(status: str, body: bytes, content_type: str) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
