"""A small HTTP server: requests with and without a body, and those that it does not read. The metrics test the rest."""

from __future__ import annotations

import asyncio
import logging
import socket

import pytest

from minibroker.broker.network.http_server import BODY_BYTES, HttpRequest, HttpServer, encode_http_response


async def shown(request: HttpRequest) -> bytes:
    """An answer that repeats the request."""
    text = f"{request.method} {request.path} {request.headers.get('x-one')} {request.body.decode()}"
    return encode_http_response("200 OK", text.encode(), headers={"X-Two": "2"})


def asked(request: bytes) -> tuple[str, str]:
    """The head and the body of the answer."""

    async def talk() -> bytes:
        bound = socket.create_server(("127.0.0.1", 0))
        server = HttpServer(shown, logging.getLogger("minibroker"))
        address = bound.getsockname()
        await server.serve(bound)
        reader, writer = await asyncio.open_connection(*address)
        writer.write(request)
        answer = await reader.read()
        writer.close()
        await server.close()
        return answer

    head, _, body = asyncio.run(talk()).decode().partition("\r\n\r\n")
    return head, body


def test_an_http_requests_method_path_headers_and_body_are_parsed() -> None:
    head, body = asked(b"POST /token?a=b HTTP/1.1\r\nX-One: 1\r\nContent-Length: 5\r\n\r\nhello and more")
    assert body == "POST /token 1 hello"
    assert head.startswith("HTTP/1.1 200 OK\r\n") and "X-Two: 2" in head and "Content-Length: 19" in head
    assert asked(b"GET / HTTP/1.1\r\n\r\n")[1] == "GET / None "


@pytest.mark.parametrize("size", [str(BODY_BYTES + 1), "9" * 5000, "-1", "x"])
def test_a_too_large_http_body_is_rejected_unread(size: str) -> None:
    head, body = asked(b"POST / HTTP/1.1\r\nContent-Length: %s\r\n\r\n" % size.encode())
    assert head.startswith("HTTP/1.1 413 ") and body == ""
