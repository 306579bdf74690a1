"""What stands between an application and an ASGI server: reads bodies with limits, and sends answers in pieces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Final

from minibroker.web.messages import Answer, Request, RequestRefused, make_too_large_error, split_path

BODY_SECONDS: Final = 30.0  # until the whole body of a request is there
STRANGERS_BYTES: Final = 64 << 10  # what is read of a body that nobody wants
STRANGERS_SECONDS: Final = 1.0

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class IncomingBody:
    """The body of a request, which the client may still send."""

    def __init__(self, receive: Receive, seconds: float, headers: Mapping[str, str]) -> None:
        self._receive, self._seconds = receive, seconds
        self._announced_bytes = int(headers.get("content-length", 0))
        self._needs_leave = "expect" in headers  # to send it, which a read gives
        self._is_whole = self._is_given_up = False

    async def read(self, max_bytes: int) -> bytes:
        """Return the body. Raises RequestRefused if it is too large, or not whole in time."""
        try:
            if self._needs_leave and self._announced_bytes > max_bytes:
                raise make_too_large_error(max_bytes)
            async with asyncio.timeout(self._seconds):
                return await self._read_all(max_bytes)
        except TimeoutError:
            raise RequestRefused(408, f"the body of the request did not arrive in {self._seconds:g} s") from None
        finally:
            self._is_given_up = not self._is_whole

    async def _read_all(self, max_bytes: int) -> bytes:
        """Return the whole body. Raises RequestRefused if it is too large, or the client has gone."""
        parts: list[bytes] = []
        size_bytes = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise RequestRefused(400, "the client is gone")
            parts.append(message.get("body", b""))
            size_bytes += len(parts[-1])
            if size_bytes > max_bytes:
                raise make_too_large_error(max_bytes)
            if not message.get("more_body", False):
                self._is_whole = True
                return b"".join(parts)

    async def is_over(self) -> bool:
        """Return whether the whole body has come, after reading a little more: clients send it before they listen."""
        if not (self._is_whole or self._is_given_up or self._needs_leave):
            with suppress(RequestRefused, TimeoutError):
                async with asyncio.timeout(STRANGERS_SECONDS):
                    await self._read_all(STRANGERS_BYTES)
        return self._is_whole

    async def wait_until_client_has_gone(self) -> None:
        """Return when the client is gone, after its whole body."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


class AsgiApplication:
    """An application as ASGI has it."""

    def __init__(self, answer: Callable[[Request], Awaitable[Answer]], body_seconds: float = BODY_SECONDS) -> None:
        self._answer, self._body_seconds = answer, body_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        request = make_request(scope)
        incoming = IncomingBody(receive, self._body_seconds, request.headers)
        request.rest, request.left = incoming.read, incoming.wait_until_client_has_gone
        answer = await self._answer(request)
        is_over = not _has_body(request.headers) or await incoming.is_over()
        headers = _make_headers(answer) | ({} if is_over else {"connection": "close"})
        pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": pairs})
        if isinstance(answer.body, bytes) or request.method == "HEAD":
            body = b"" if request.method == "HEAD" else answer.body
            await send({"type": "http.response.body", "body": body})
        else:
            await _send_pieces(answer.body, incoming, send)


def make_request(scope: Mapping[str, Any]) -> Request:
    """Return the request of an ASGI scope, without its body."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    path = raw.partition(b"?")[0].decode("latin-1")
    return Request(scope["method"], split_path(path), scope["query_string"].decode("latin-1"), headers)


def _has_body(headers: Mapping[str, str]) -> bool:
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


def _make_headers(answer: Answer) -> dict[str, str]:
    """Return the headers of an answer, with its type and its length. An answer of some statuses has no body."""
    found = {"content-type": answer.kind} if answer.kind else {}
    if isinstance(answer.body, bytes) and answer.status not in (204, 304):
        found["content-length"] = str(len(answer.body))
    return found | dict(answer.headers)


async def _send_pieces(pieces: AsyncIterator[bytes], incoming_body: IncomingBody, send: Send) -> None:
    """Send the pieces of a body until they end, or the client leaves."""

    async def send_all_pieces() -> None:
        async for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    tasks = [
        asyncio.ensure_future(send_all_pieces()),
        asyncio.ensure_future(incoming_body.wait_until_client_has_gone()),
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if not tasks[0].cancelled():
        tasks[0].result()
