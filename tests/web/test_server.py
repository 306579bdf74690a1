"""The registry's HTTP server: what a client that stalls costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from minibroker.addresses import HostPort
from minibroker.registry.api.registry_api import RegistryApi
from minibroker.registry.api.registry_application import RegistryApplication
from minibroker.web.asgi import AsgiApplication
from minibroker.web.server import Server, StalledConnections

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
PATIENCE_S = 60


class Connection:
    """A connection of a server, as a client left it."""

    def __init__(
        self, cycle: Any = None, unsent_bytes: int = 0, *, is_writing_paused: bool = False, is_closing: bool = False
    ) -> None:
        self.cycle = cycle
        self.flow = SimpleNamespace(is_writing_paused=is_writing_paused)
        self.transport = self
        self.unsent_bytes = unsent_bytes
        self.is_closing = lambda: is_closing
        self.is_cut = False

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def abort(self) -> None:
        self.is_cut = True


def request(*, answered: bool) -> Any:
    return SimpleNamespace(response_complete=answered)


def swept(connection: Connection, times: int = 3) -> bool:
    """Return whether a connection is cut at the end, and not before."""
    now_s = 0.0
    stalled = StalledConnections({connection}, seconds=times - 1, now=lambda: now_s)
    for _ in range(times):
        assert not connection.is_cut
        stalled.close_stalled_connections()
        now_s += 1
    return connection.is_cut


@pytest.mark.parametrize(
    "connection",
    [
        Connection(),
        Connection(request(answered=True), 5),
        Connection(request(answered=False), 5, is_writing_paused=True),
        Connection(request(answered=False), 5, is_closing=True),
    ],
    ids=["no request", "an answer that is not read", "an answer that cannot be sent", "a refusal that is not read"],
)
def test_an_idle_connection_is_closed(connection: Connection) -> None:
    assert swept(connection)


def test_a_connection_with_a_request_in_progress_stays_open() -> None:
    assert not swept(Connection(request(answered=False)))


def test_an_active_connection_stays_open() -> None:
    reading, asking = Connection(request(answered=True), 9), Connection(request(answered=True))
    now_s = 0.0
    stalled = StalledConnections({reading, asking}, seconds=1, now=lambda: now_s)
    for _ in range(9):
        stalled.close_stalled_connections()
        now_s += 1
        reading.unsent_bytes -= 1
        asking.cycle = request(answered=True)
    assert not reading.is_cut and not asking.is_cut


class Api:
    """Answers nothing."""

    async def answer(self, request: Any) -> Any:
        raise AssertionError(f"{request} is not whole")


@asynccontextmanager
async def connected(application: Any, **limits: float) -> AsyncIterator[tuple[asyncio.StreamReader, Any]]:
    """Serve an application, and connect to it."""
    server = Server(HostPort(), **limits)
    await server.start(application)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield reader, writer
    finally:
        writer.close()
        await server.stop()
        server.close()


async def end_of(reader: asyncio.StreamReader) -> bytes:
    """Wait until a connection ends; return what came before, nothing if it was reset."""
    try:
        return await reader.read()
    except ConnectionError:
        return b""


@pytest.mark.parametrize("sent", [b"", REQUEST[:9]], ids=["nothing", "half a head"])
async def test_a_client_that_sends_no_request_is_disconnected(sent: bytes) -> None:
    async with connected(None, idle_seconds=0.02) as (reader, writer):
        writer.write(sent)
        assert await end_of(reader) == b""


async def test_a_client_may_wait_long_for_a_response() -> None:
    other_is_cut = asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await other_is_cut.wait()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with connected(application, idle_seconds=0.02) as (reader, writer):
        writer.write(REQUEST)
        idle, closing = await asyncio.open_connection(*writer.get_extra_info("peername"))
        assert await end_of(idle) == b""
        closing.close()
        other_is_cut.set()
        assert (await reader.readline()).startswith(b"HTTP/1.1 204")


async def test_an_incomplete_body_is_an_error() -> None:
    application = AsgiApplication(RegistryApplication(cast(RegistryApi, Api())).answer, body_seconds=0.02)
    async with connected(application) as (reader, writer):
        writer.write(POST + b"123")
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 408") and b'"error_code":408' in answer


async def test_a_request_whose_client_disconnects_within_its_body_is_not_handled() -> None:
    sent: list[MutableMapping[str, Any]] = [
        {"type": "http.request", "body": b"123", "more_body": True},
        {"type": "http.disconnect"},
    ]
    answers: list[Any] = []

    async def receive() -> MutableMapping[str, Any]:
        return sent.pop(0)

    async def send(message: Any) -> None:
        answers.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": []}
    await AsgiApplication(RegistryApplication(cast(RegistryApi, Api())).answer)(scope, receive, send)
    assert answers[0]["status"] == 400
