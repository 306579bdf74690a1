"""Bounds the bodies of requests: FastAPI reads them whole, and before it asks a `Guard` who may send them."""

from __future__ import annotations

from typing import Final

from fastapi import HTTPException, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from minibroker.testing.control.guard import Guard

STRANGERS_BYTES: Final = 64 << 10  # what is read of anybody
MOST_BYTES: Final = 64 << 20


class LimitedBodies:
    """The middleware. What is large is read only for those whom the guard lets in."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        read_bytes = 0

        async def limited() -> Message:
            nonlocal read_bytes
            message = await receive()
            read_bytes += len(message.get("body", b""))
            if read_bytes > MOST_BYTES:
                raise HTTPException(413, f"a request has no more than {MOST_BYTES:,} bytes")
            if read_bytes > STRANGERS_BYTES:
                self._guard(Request(scope))
            return message

        await self._app(scope, limited, send)
