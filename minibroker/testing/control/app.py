"""The HTTP control's application: the verbs of `Broker`, each at its path, with an OpenAPI description.

What is taken and given stands in `models`, errors in `errors`; it is served by `server`.
"""

from __future__ import annotations

import secrets

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.security import HTTPBearer

from minibroker import __version__
from minibroker.testing.broker import Broker
from minibroker.testing.control import errors
from minibroker.testing.control.routes_faults import fault_routes
from minibroker.testing.control.routes_life import life_routes
from minibroker.testing.control.routes_nodes import node_routes
from minibroker.testing.control.routes_records import record_routes
from minibroker.testing.control.routes_waits import wait_routes

DESCRIPTION = """\
A broker under test in the hand of its tests: state, faults, time, and what it saw. All durations are numbers of
milliseconds, or texts as "7 days"; whatever waits answers as soon as it is so, or with 408 and how far it came."""


def control_app(broker: Broker, token: str | None = None) -> FastAPI:
    """The application for a broker in the same event loop. With a token, requests must bear it."""
    # The first is for the description only, the second decides.
    guards = [] if token is None else [Depends(HTTPBearer(auto_error=False)), Depends(Guard(token))]
    refusals = errors.EVERYWHERE if token is None else errors.EVERYWHERE | errors.GUARDED
    app = FastAPI(
        title="minibroker control",
        version=__version__,
        description=DESCRIPTION,
        dependencies=guards,
        responses=refusals,
    )
    errors.register(app)
    for routes in (life_routes, record_routes, wait_routes, fault_routes, node_routes):
        app.include_router(routes(broker), prefix="/v1")
    return app


class Guard:
    """Lets requests through that bear the token."""

    def __init__(self, token: str) -> None:
        self._wanted = f"Bearer {token}".encode()

    def __call__(self, request: Request) -> None:
        given = request.headers.get("authorization", "").encode()
        if not secrets.compare_digest(given, self._wanted):
            raise HTTPException(401, "a bearer token is needed", {"WWW-Authenticate": "Bearer"})
