"""Who may ask an HTTP server of ours, and how much: whoever sends the token, or else this machine alone.

FastAPI reads the bodies of requests whole, and before it asks a `Guard` who may send them; `LimitedBodies` bounds them.
"""

from __future__ import annotations

import secrets
from typing import Final

from fastapi import HTTPException, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from minibroker.addresses import refusal_of

STRANGERS_BYTES: Final = 64 << 10  # what is read of anybody
MOST_BYTES: Final = 64 << 20
PAGES_PATH: Final = "/explorer/"
PAGES_BYTES: Final = 3 << 20  # of what a page sends: a frame of 1 MiB in hexadecimal digits, and more


class Guard:
    """Rejects requests of other sites' pages, and those without the token.

    Without a token the server must be asked by a name of this machine.
    """

    def __init__(self, token: str | None) -> None:
        self._wanted = None if token is None else f"Bearer {token}".encode()

    async def check(self, request: Request) -> None:
        """Do the same in the loop: FastAPI has a thread for what is no coroutine. Raises HTTPException."""
        self(request)

    def __call__(self, request: Request) -> None:
        refusal = refusal_of(request.headers, is_private=self._wanted is None)
        if refusal is not None:
            raise HTTPException(403, f"{refusal}; --control-token lets others in")
        if self._wanted is None:
            return
        given = request.headers.get("authorization", "").encode("latin-1")  # the bytes that came
        if not secrets.compare_digest(given, self._wanted):
            raise HTTPException(401, "a bearer token is needed", {"WWW-Authenticate": "Bearer"})


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
        most_bytes = PAGES_BYTES if scope["path"].startswith(PAGES_PATH) else MOST_BYTES

        async def limited() -> Message:
            nonlocal read_bytes
            message = await receive()
            read_bytes += len(message.get("body", b""))
            if read_bytes > most_bytes:
                raise HTTPException(413, f"a request has no more than {most_bytes:,} bytes")
            if read_bytes > STRANGERS_BYTES:
                self._guard(Request(scope))
            return message

        await self._app(scope, limited, send)
