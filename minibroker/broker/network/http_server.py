"""A small HTTP server on the broker's event loop, one request per connection, for what needs no framework."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from minibroker.addresses import find_reason_to_refuse_request, is_loopback

HEAD_BYTES: Final = 8 << 10
BODY_BYTES: Final = 64 << 10
PATIENCE_SECONDS = 10.0  # for a whole exchange with a client
CLIENTS_MAX = 16

# What probes ask, of the metrics and of the test kit's control, and what they get.
HEALTH, READY = "/health", "/ready"
UP: Final = b"ok\n"
DOWN: Final = "The broker is not running."


class HttpRequest(NamedTuple):
    """A request; the names of its headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class HttpServer:
    """Answers each request with the bytes that `answer` returns."""

    def __init__(self, answer: Callable[[HttpRequest], Awaitable[bytes]], log: logging.Logger) -> None:
        self._answer = answer
        self._log = log
        self._clients: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._accepting: list[asyncio.Task[None]] = []

    async def serve(self, listening_socket: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """Accept clients on this socket, too. Without TLS on a loopback address, serve only a Host of this machine."""
        accept = partial(self._accept_client, is_private=tls is None and is_loopback(listening_socket.getsockname()[0]))
        self._servers.append(await asyncio.start_server(accept, sock=listening_socket, limit=HEAD_BYTES, ssl=tls))

    def serve_over_tls(
        self, listening_socket: socket.socket, get_tls_context: Callable[[], ssl.SSLContext | None]
    ) -> None:
        """Accept clients on this socket, too, each with the present TLS; None drops the client."""
        listening_socket.listen()
        listening_socket.setblocking(False)
        self._accepting.append(asyncio.ensure_future(self._accept_over_tls(listening_socket, get_tls_context)))

    def stop(self) -> None:
        """Accept no more clients, and begin to disconnect them all; `close` also waits until that is done."""
        for server in self._servers:
            server.close()
        for task in (*self._accepting, *self._clients):
            task.cancel()

    async def close(self) -> None:
        """Accept no more clients, disconnect them all, and wait until that is done."""
        self.stop()
        await asyncio.gather(*self._accepting, *self._clients, return_exceptions=True)

    async def _accept_over_tls(
        self, listening_socket: socket.socket, get_tls_context: Callable[[], ssl.SSLContext | None]
    ) -> None:
        loop = asyncio.get_running_loop()
        while True:
            client, _ = await loop.sock_accept(listening_socket)
            context = get_tls_context()
            if context is None or len(self._clients) >= CLIENTS_MAX:
                client.close()
            else:
                self._run_in_task(self._complete_tls_handshake(client, context))

    async def _complete_tls_handshake(self, client: socket.socket, context: ssl.SSLContext) -> None:
        """Do the handshake with a client, which asyncio then passes to `_accept_client`."""
        protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader(limit=HEAD_BYTES), self._accept_client)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol, client, ssl=context, ssl_handshake_timeout=PATIENCE_SECONDS
            )
        except OSError as error:
            self._log.debug("an HTTP client made no TLS handshake: %r", error)
            client.close()

    def _accept_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_private: bool = False
    ) -> None:
        if len(self._clients) >= CLIENTS_MAX:
            writer.close()
            return
        self._run_in_task(self._serve_client(reader, writer, is_private))

    def _run_in_task(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run the coroutine of a client in a task that `stop` cancels."""
        client = asyncio.ensure_future(coroutine)
        self._clients.add(client)
        client.add_done_callback(self._clients.discard)

    async def _serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_private: bool) -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                writer.write(await self._answer_request(await _read_request(reader), is_private))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            self._log.debug("an HTTP client left or sent no request: %r", error)
        except Exception:
            self._log.exception("an HTTP request failed")
        finally:
            writer.close()

    async def _answer_request(self, request: HttpRequest | None, is_private: bool) -> bytes:
        if request is None:
            return encode_http_response("413 Content Too Large")
        refusal = find_reason_to_refuse_request(request.headers, is_private=is_private)
        if refusal is not None:
            text = f"{refusal}; a server for others listens on an address that they can reach\n"
            return encode_http_response("403 Forbidden", text.encode("latin-1"))
        return await self._answer(request)


async def _read_request(reader: asyncio.StreamReader) -> HttpRequest | None:
    """Read a request; return None for one whose body is too large."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, *_ = (*first.split(" "), "", "")
    pairs = (line.partition(":") for line in lines if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    size = headers.get("content-length", "0")
    if not (size.isascii() and size.isdigit() and len(size) <= len(str(BODY_BYTES)) and int(size) <= BODY_BYTES):
        return None
    return HttpRequest(method, path.split("?")[0], headers, await reader.readexactly(int(size)))


def encode_http_response(
    status: str, body: bytes = b"", content_type: str = "text/plain", headers: Mapping[str, str] | None = None
) -> bytes:
    """Return an answer after which the connection is closed."""
    named = {"Content-Type": content_type, "Content-Length": len(body), "Connection": "close", **(headers or {})}
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body
