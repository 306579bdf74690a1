"""The HTTP control's application: each method of `Broker` at its path, with an OpenAPI description."""

from __future__ import annotations

import secrets

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.security import HTTPBearer

from minibroker import __version__
from minibroker.testing.broker import Broker
from minibroker.testing.control import http_errors
from minibroker.testing.control.routes import control_routes

DESCRIPTION = """\
The state, faults, time and journal of a broker, for tests. Durations are numbers of milliseconds, or texts such as
"7 days". A wait answers as soon as its condition holds, or after its timeout with 408 and the progress."""


def control_app(broker: Broker, token: str | None = None) -> FastAPI:
    """Return the application for a broker in the same event loop. With a token, requests must send it."""
    # The first only describes the token in OpenAPI; the second checks it.
    guards = [] if token is None else [Depends(HTTPBearer(auto_error=False)), Depends(Guard(token))]
    app = FastAPI(
        title="minibroker control",
        version=__version__,
        description=DESCRIPTION,
        dependencies=guards,
        responses=http_errors.EVERYWHERE if token is None else http_errors.EVERYWHERE | http_errors.GUARDED,
    )
    http_errors.register(app)
    app.include_router(control_routes(broker), prefix="/v1")
    return app


class Guard:
    """Rejects requests without the token."""

    def __init__(self, token: str) -> None:
        self._wanted = f"Bearer {token}".encode()

    def __call__(self, request: Request) -> None:
        given = request.headers.get("authorization", "").encode()
        if not secrets.compare_digest(given, self._wanted):
            raise HTTPException(401, "a bearer token is needed", {"WWW-Authenticate": "Bearer"})
