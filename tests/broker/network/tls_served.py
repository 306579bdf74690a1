"""A server and a client of TLS on real sockets, of which a test moves every part by hand."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from struct import pack
from typing import Any, NamedTuple

from minibroker.broker.configs.settings import Settings
from minibroker.broker.network.authentication_statistics import AuthenticationStatistics
from minibroker.broker.network.connection import Connection
from minibroker.broker.network.sockets import ClientSocket, SharedSocketState
from minibroker.broker.network.tls_layer import TlsLayer
from minibroker.broker.security.tls import make_tls_settings
from tests.broker.manual_clock import ManualClock
from tests.broker.network.test_sockets import frame
from tests.certificates import Authority, Signed, inline

LIMIT_MS = 1000
REQUEST = frame(b"12345678")
RECORD_BYTES = 17 << 10

authority = Authority()
stranger = Authority("CN=nobody knows it")
server_key = authority.sign()

Execute = Callable[[Connection, memoryview], Any]


class Gate:
    """Limits that mute or close who comes, if they are told to."""

    def __init__(self) -> None:
        self.mutes = self.closes = False
        self.open: list[TlsLayer] = []

    def admit_connection(self, connection: TlsLayer, close_soon: Callable[[], None]) -> None:
        self.open.append(connection)
        if self.mutes:
            connection.mute()
        if self.closes:
            close_soon()

    def release_connection(self, connection: TlsLayer) -> None:
        self.open.remove(connection)


class Served:
    """A listener with TLS; `execute` answers its requests."""

    def __init__(self, execute: Execute, settings: dict[str, str]) -> None:
        self.loop = asyncio.get_running_loop()
        self.clock = ManualClock()
        self.shared = SharedSocketState(self.clock)
        self.layers: list[TlsLayer] = []
        self.gate = Gate()
        self.statistics = AuthenticationStatistics()
        self._execute = execute
        texts = {"log.dirs": "/nowhere", **inline(authority, server_key), **settings}
        self._tls = make_tls_settings("SSL", "SSL", Settings(texts))

    async def start(self) -> None:
        self._server = await self.loop.create_server(self._layer, "127.0.0.1", 0)
        self.address: tuple[str, int] = self._server.sockets[0].getsockname()

    def _layer(self) -> TlsLayer:
        place = 1, "SSL"
        made = TlsLayer(
            self.loop, self.shared, self._tls, self._make_socket, self.gate, LIMIT_MS, *place, self.statistics
        )
        self.layers.append(made)
        return made

    def _make_socket(self) -> ClientSocket:
        return ClientSocket(self.loop, self.shared, self._attach)

    def _attach(self, outlet: ClientSocket, transport: asyncio.BaseTransport) -> Connection:
        node: Any = None
        budget, principal = self.shared.budget, transport.get_extra_info("principal")
        return Connection(
            node, "SSL", outlet, self._execute, lambda _: None, budget, 1 << 20, "?", "127.0.0.1", principal
        )

    async def stop(self) -> None:
        self._server.close()
        for layer in self.layers:
            layer.abort()
        await asyncio.sleep(0)
        await self._server.wait_closed()
        assert self.gate.open == []

    @property
    def connection(self) -> Connection:
        (client,) = self.shared.sockets
        return client.connection


class Client:
    """A client whose every byte is sent here."""

    def __init__(self, loop: asyncio.AbstractEventLoop, receive_buffer_bytes: int = 0) -> None:
        self._loop = loop
        self.socket = socket.socket()
        if receive_buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.setblocking(False)

    async def connect(self, address: tuple[str, int]) -> None:
        await self._loop.sock_connect(self.socket, address)

    async def shake_hands(self, context: ssl.SSLContext, cut: int = 1 << 16) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await self._flush(cut)
                await self._fill()
        await self._flush(cut)

    async def _flush(self, cut: int) -> None:
        data = self._outgoing.read()
        for start in range(0, len(data), cut):
            await self._loop.sock_sendall(self.socket, data[start : start + cut])

    async def _fill(self) -> None:
        data = await self._loop.sock_recv(self.socket, 1 << 16)
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    async def send(self, data: bytes, cut: int = 1 << 16) -> None:
        self._tls.write(data)
        await self._flush(cut)

    async def receive(self, size: int) -> bytes:
        """Return the next bytes; fewer, if the broker ends the connection."""
        got = bytearray()
        while len(got) < size:
            try:
                data = self._tls.read(size - len(got))
                if not data:
                    break
                got += data
            except ssl.SSLWantReadError:
                await self._fill()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                break
        return bytes(got)

    async def end(self) -> None:
        """Say that no more comes."""
        try:
            self._tls.unwrap()
        except ssl.SSLWantReadError:
            await self._flush(1 << 16)

    async def rest(self) -> bytes:
        """Return what comes until the connection ends, encrypted as it is."""
        got = b""
        try:
            while data := await self._loop.sock_recv(self.socket, 1 << 16):
                got += data
        except ConnectionResetError:
            pass
        return got


def trusting(directory: Path | None = None, own: Signed | None = None) -> ssl.SSLContext:
    """Return what a client needs that trusts the authority, and has a certificate of its own."""
    context = ssl.create_default_context(cadata=authority.pem)
    if own is not None and directory is not None:
        context.load_cert_chain(own.write(directory, "client"))
    return context


Talk = Callable[[Served, Client], Awaitable[None]]


async def with_client(
    execute: Execute, talk: Talk, settings: dict[str, str] | None = None, receive_buffer_bytes: int = 0
) -> None:
    async with serving(execute, settings or {}) as served:
        client = Client(served.loop, receive_buffer_bytes)
        await client.connect(served.address)
        try:
            await talk(served, client)
        finally:
            client.socket.close()


@asynccontextmanager
async def serving(execute: Execute, settings: dict[str, str]) -> Any:
    served = Served(execute, settings)
    await served.start()
    try:
        yield served
    finally:
        await served.stop()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def echo(connection: Connection, request: memoryview) -> list[Any]:
    return [pack(">i", len(request)) + bytes(request)]


class Content(NamedTuple):
    path: Path
    data: bytes
