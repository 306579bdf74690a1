"""Connections of the HTTP server, as clients of any kind use them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

import pytest

from minibroker.addresses import HostPort
from minibroker.web import http_connection
from minibroker.web import server as server_module
from minibroker.web.asgi import AsgiApplication
from minibroker.web.messages import Answer, Request, RequestRefused, make_text_answer
from minibroker.web.server import Server

Answering = Callable[[Request], Awaitable[Answer]]


async def echo(request: Request) -> Answer:
    """Answer with the path, and with the body of a POST."""
    body = await request.rest(1 << 20) if request.method == "POST" else b""
    return make_text_answer(f"/{'/'.join(request.segments)} {body.decode()}")


@asynccontextmanager
async def served(answer: Answering = echo) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Serve, and yield a connection."""
    server = Server(HostPort())
    await server.start(AsgiApplication(answer))
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        await server.stop()
        server.close()


def get(path: str, *headers: str, version: str = "1.1") -> bytes:
    return "\r\n".join((f"GET {path} HTTP/{version}", "Host: localhost", *headers, "", "")).encode()


async def answer_of(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], str]:
    """Read an answer: its status line, its headers, and its body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
    return head[0], headers, (await reader.readexactly(int(headers.get("content-length", 0)))).decode()


async def test_one_connection_serves_several_requests() -> None:
    async with served() as (reader, writer):
        for path in ("/a", "/b"):
            writer.write(get(path))
            status, headers, body = await answer_of(reader)
            assert (status, body) == ("HTTP/1.1 200 OK", f"{path} ")
            assert not {"server", "date", "connection"} & headers.keys()


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with served() as (reader, writer):
        paths = [f"/{number}" for number in range(50)]
        writer.write(b"".join(map(get, paths)))
        assert [(await answer_of(reader))[2] for _ in paths] == [f"{path} " for path in paths]


async def test_a_chunked_request_body_is_accepted() -> None:
    async with served() as (reader, writer):
        writer.write(b"POST /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await writer.drain()
        writer.write(b"2\r\nde\r\n0\r\n\r\n" + get("/next"))
        assert [(await answer_of(reader))[2] for _ in range(2)] == ["/x abcde", "/next "]


async def test_a_large_request_body_is_read_only_as_the_application_asks_for_it() -> None:
    async with served() as (reader, writer):
        body = b"x" * 1_000_000
        writer.write(b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n" + body)
        assert (await answer_of(reader))[2] == f"/x {body.decode()}"


async def test_a_client_that_expects_100_continue_receives_it() -> None:
    async with served() as (reader, writer):
        writer.write(b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        writer.write(b"ok")
        assert (await answer_of(reader))[2] == "/x ok"


async def test_a_client_that_is_still_sending_its_body_receives_the_response() -> None:
    async def answer(request: Request) -> Answer:
        with pytest.raises(RequestRefused):
            await request.read(1 << 20)
        return make_text_answer("too large", 413)

    async with served(answer) as (reader, writer):
        size_bytes = 8 << 20
        writer.write(f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {size_bytes}\r\n\r\n".encode())
        for _ in range(size_bytes >> 16):
            writer.write(bytes(1 << 16))
            await writer.drain()
        assert (await answer_of(reader))[0] == f"HTTP/1.1 413 {HTTPStatus(413).phrase}"
        assert await reader.read() == b""


@pytest.mark.parametrize(("late_seconds", "late_bytes"), [(0.01, 1 << 40), (600.0, 1 << 20)])
async def test_a_connection_is_closed_if_the_request_body_continues_after_the_response(
    late_seconds: float, late_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "LATE_SECONDS", late_seconds)
    monkeypatch.setattr(http_connection, "LATE_BYTES", late_bytes)
    async with served(lambda _: asyncio.sleep(0, make_text_answer("no", 403))) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" + bytes(100_000))
        assert (await answer_of(reader))[0] == "HTTP/1.1 403 Forbidden"
        assert await reader.read() == b""
        with pytest.raises(ConnectionError):
            async with asyncio.timeout(10):
                while True:
                    writer.write(bytes(1 << 16))
                    await writer.drain()


@pytest.mark.parametrize("method", ["POST", "PUT"])  # one that reads the body, and one that does not
async def test_no_100_continue_is_sent_for_a_body_that_is_not_read(method: str) -> None:
    async def answer(request: Request) -> Answer:
        try:
            await (request.read(9) if request.method == "POST" else asyncio.sleep(0))
        except RequestRefused as error:
            return make_text_answer("", error.status)
        return make_text_answer("", 404)

    async with served(answer) as (reader, writer):
        head = f"{method} / HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000000\r\nExpect: 100-continue\r\n\r\n"
        writer.write(head.encode())
        status, headers, _ = await answer_of(reader)
        assert (int(status.split()[1]), headers["connection"]) == (413 if method == "POST" else 404, "close")
        assert await reader.read() == b""


@pytest.mark.parametrize("request_", [get("/", "Connection: close"), get("/", version="1.0")])
async def test_a_client_that_sends_connection_close_is_disconnected_after_the_response(request_: bytes) -> None:
    async with served() as (reader, writer):
        writer.write(request_)
        assert (await answer_of(reader))[2] == "/ "
        assert await reader.read() == b""


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"no request at all\r\n\r\n", "400 Bad Request"),
        (b"GET / HTTP/1.1\r\n\r\n", "400 Bad Request"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "400 Bad Request"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 100_000, "431 Request Header Fields Too Large"),
        (b"HEAD / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nno length\r\n", "400 Bad Request"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n10\r\n", "400 Bad Request"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", "400 Bad Request"),
    ],
)
async def test_bytes_that_are_not_an_http_request_are_rejected(sent: bytes, status: str) -> None:
    async with served() as (reader, writer):
        writer.write(sent)
        assert (await answer_of(reader))[0] == f"HTTP/1.1 {status}"
        assert await reader.read() == b""


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_an_exception_of_the_application_is_logged_and_answered_with_status_500(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def failing(_: Request) -> Answer:
        raise ZeroDivisionError("here")

    async with served(failing) as (reader, writer):
        writer.write(get("/").replace(b"GET", method.encode()))
        assert (await answer_of(reader))[0] == "HTTP/1.1 500 Internal Server Error"
        assert await reader.read() == b""
    assert "here" in caplog.text


async def test_connections_above_the_limit_are_rejected_and_the_others_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "CONNECTIONS_MAX", 1)
    async with served() as (reader, writer):
        late_reader, late = await asyncio.open_connection(*writer.get_extra_info("peername"))
        writer.write(get("/"))
        assert (await answer_of(reader))[0] == "HTTP/1.1 200 OK"
        late.write(get("/"))
        assert (await answer_of(late_reader))[0] == "HTTP/1.1 503 Service Unavailable"
        assert await late_reader.read() == b""
        late.close()


async def test_a_streamed_response_waits_for_its_reader_and_ends_when_the_reader_disconnects() -> None:
    sent, left = 0, asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal sent
        try:
            while True:
                sent += 1
                yield b"x" * 65_536
        finally:
            left.set()

    async def streaming(_: Request) -> Answer:
        return Answer(pieces(), kind="text/plain")

    async with served(streaming) as (reader, writer):
        writer.write(get("/"))
        assert b"transfer-encoding: chunked" in (await reader.readuntil(b"\r\n\r\n")).lower()
        before = -1
        while before < sent:
            before = sent
            await asyncio.sleep(0.05)
        assert sent < 1_000, "the server holds what nobody reads"
        writer.transport.abort()
        await asyncio.wait_for(left.wait(), 20)


async def test_a_request_is_answered_while_the_server_stops() -> None:
    begun, going_on = asyncio.Event(), asyncio.Event()

    async def slow(_: Request) -> Answer:
        begun.set()
        await going_on.wait()
        return make_text_answer("done")

    server = Server(HostPort())
    await server.start(AsgiApplication(slow))
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(get("/"))
    await begun.wait()
    stopping = asyncio.create_task(server.stop())
    await asyncio.sleep(0)
    going_on.set()
    _, headers, body = await answer_of(reader)
    assert (headers["connection"], body) == ("close", "done")
    assert await reader.read() == b""
    await stopping
    server.close()
    writer.close()
