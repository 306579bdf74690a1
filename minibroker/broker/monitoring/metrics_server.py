"""The HTTP server of the metrics, on the broker's event loop, one request per connection: /metrics, /health, /ready.

`metrics` makes the text. The other two are for probes, as Kubernetes sends them.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable

from prometheus_client import CONTENT_TYPE_LATEST

from minibroker.broker.network.http_server import DOWN, HEALTH, READY, UP, HttpRequest, HttpServer, encode_http_response
from minibroker.broker.server import BoundListener

log = logging.getLogger("minibroker.metrics")

PATH = "/metrics"


class MetricsUnavailable(Exception):
    """There are currently no metrics; the message says why, in one line."""

    def __init__(self, reason: str = DOWN) -> None:
        super().__init__(reason)


class MetricsServer:
    """Serves the result of `exposition`, one client at a time; status 503 if it raises MetricsUnavailable.

    `is_ready` says whether clients of the broker can connect, for /ready; /health has an answer while the loop runs.
    """

    def __init__(self, exposition: Callable[[], Awaitable[bytes]], is_ready: Callable[[], bool]) -> None:
        self._exposition = exposition
        self._is_ready = is_ready
        self._one_at_a_time = asyncio.Lock()
        self._server = HttpServer(self._answer_request, log)

    async def serve(
        self, bound_listener: BoundListener, tls: Callable[[], ssl.SSLContext | None] | None = None
    ) -> None:
        """Start to accept scrapers. `tls` returns the present TLS, if it is wanted."""
        if tls is None:
            await self._server.serve(bound_listener.socket)
        else:
            self._server.serve_over_tls(bound_listener.socket, tls)
        scheme = "http" if tls is None else "https"
        host, port = bound_listener.endpoint
        log.info("metrics are at %s://%s:%d%s", scheme, f"[{host}]" if ":" in host else host, port, PATH)

    async def close(self) -> None:
        """Stop accepting scrapers, and disconnect them all."""
        await self._server.close()

    async def _answer_request(self, request: HttpRequest) -> bytes:
        if request.path not in (PATH, "/", HEALTH, READY):
            return encode_http_response("404 Not Found", b"The metrics are at /metrics.\n")
        if request.method not in ("GET", "HEAD"):
            return encode_http_response("405 Method Not Allowed", b"Only GET and HEAD.\n")
        try:
            answer, body = await self._get_response_and_body(request.path)
        except MetricsUnavailable as why:
            return encode_http_response("503 Service Unavailable", f"{why}\n".encode())
        return answer if request.method == "GET" else answer[: len(answer) - len(body)]

    async def _get_response_and_body(self, path: str) -> tuple[bytes, bytes]:
        """Return the encoded response, and its body alone. Raises MetricsUnavailable."""
        if path == READY and not self._is_ready():
            raise MetricsUnavailable
        if path in (HEALTH, READY):
            return encode_http_response("200 OK", UP), UP
        async with self._one_at_a_time:
            body = await self._exposition()
        return encode_http_response("200 OK", body, CONTENT_TYPE_LATEST), body
