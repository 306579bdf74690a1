"""The HTTP control's application: each method of `Broker` at its path, with an OpenAPI description."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.responses import JSONResponse, Response

from minibroker import __version__
from minibroker.testing.broker import Broker
from minibroker.testing.control import http_errors
from minibroker.testing.control.guard import Guard, LimitedBodies
from minibroker.testing.control.pages import add_pages
from minibroker.testing.control.routes import control_routes

DESCRIPTION = """\
The state, faults, time and journal of a broker, for tests. Durations are texts such as "7 days" or "200 ms"; bare
numbers are milliseconds. A wait answers as soon as its condition holds, or after its timeout with 408 and the
progress."""
TOKEN_SCHEME = {"type": "http", "scheme": "bearer", "description": "What `--control-token` says."}


def control_app(broker: Broker, token: str | None = None, closing: asyncio.Event | None = None) -> FastAPI:
    """Return the application for a broker in the same event loop. With a token, requests must send it.

    With `closing`, which is set when the server closes, it has the explorer, too.
    """
    guard = Guard(token)
    app = Control(
        title="minibroker control",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,  # FastAPI's pages load scripts from another server
        redoc_url=None,
        openapi_url=None,
        servers=[{"url": "/"}],
        dependencies=[Depends(guard.check)],
        responses=http_errors.EVERYWHERE if token is None else http_errors.EVERYWHERE | http_errors.GUARDED,
        generate_unique_id_function=lambda route: route.name,  # operation ids, from which clients are generated
    )
    app.needs_token = token is not None
    app.add_middleware(LimitedBodies, guard=guard)
    http_errors.register(app)
    if closing is not None:  # before the verbs: FastAPI prepares paths when a request is compared with them first
        from minibroker.explorer.explorer_routes import add_explorer

        add_explorer(app, broker, closing)
    app.include_router(control_routes(broker), prefix="/v1")
    add_pages(app, lambda: broker.bootstrap_servers)
    app.add_route("/openapi.json", lambda _: app.described(), include_in_schema=False)
    return app


class Control(FastAPI):
    """The application; its description has the token, which is optional unless the control needs one."""

    needs_token = False

    def openapi(self) -> dict[str, Any]:
        """Return the description for people and for generators of clients."""
        if self.openapi_schema is None:
            schema = super().openapi()
            schema["components"]["securitySchemes"] = {"token": TOKEN_SCHEME}
            schema["security"] = [{"token": []}] if self.needs_token else [{}, {"token": []}]
        assert self.openapi_schema is not None
        return self.openapi_schema

    def described(self) -> Response:
        """Return the answer with the description. It takes long: starlette runs what is no coroutine in a thread."""
        return JSONResponse(self.openapi())
