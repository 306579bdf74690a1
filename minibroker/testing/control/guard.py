"""Who may ask an HTTP server of ours: whoever sends the token, or else this machine alone."""

from __future__ import annotations

import secrets

from fastapi import HTTPException, Request

from minibroker.addresses import is_loopback


class Guard:
    """Rejects requests of other sites' pages, which a browser lets anyone send, and those without the token.

    Without a token the server must be asked by a name of this machine. Another site's name may have been made to stand
    for its address, and then the browser takes this server for that site (DNS rebinding).
    """

    def __init__(self, token: str | None) -> None:
        self._wanted = None if token is None else f"Bearer {token}".encode()

    async def check(self, request: Request) -> None:
        """Do the same in the loop: FastAPI has a thread for what is no coroutine. Raises HTTPException."""
        self(request)

    def __call__(self, request: Request) -> None:
        origin = request.headers.get("origin")
        if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
            raise HTTPException(403, f"a page of {origin} asks, and not one of this server")
        if self._wanted is None:
            host = request.url.hostname or ""
            if not is_loopback(host):
                raise HTTPException(403, f"{host} is not a name of this machine; others need --control-token")
            return
        given = request.headers.get("authorization", "").encode("latin-1")  # the bytes that came
        if not secrets.compare_digest(given, self._wanted):
            raise HTTPException(401, "a bearer token is needed", {"WWW-Authenticate": "Bearer"})
