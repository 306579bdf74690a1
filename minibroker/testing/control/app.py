"""The HTTP control's applications: each method of `Broker`, or `Proxy`, at its path, with an OpenAPI description."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from minibroker import __version__
from minibroker.broker.monitoring.measuring import DOWN, HEALTH, READY, UP, has_nodes
from minibroker.testing.broker import Broker
from minibroker.testing.control import http_errors
from minibroker.testing.control.control_pages import add_pages
from minibroker.testing.control.control_routes import control_routes
from minibroker.testing.control.guard import Guard, LimitedBodies
from minibroker.testing.control.request_routes import Observed, request_routes

HOW_TO_ASK = """\
Durations are texts such as "7 days" or "200 ms"; bare numbers are milliseconds. A wait answers as soon as its condition
holds, or after its timeout with 408 and the progress."""
DESCRIPTION = f"The state, faults, time and journal of a broker, for tests. {HOW_TO_ASK}"
DESCRIPTION_OF_PROXY = f"The faults and the journal of a proxy in front of a Kafka. {HOW_TO_ASK}"
TOKEN_SCHEME = {"type": "http", "scheme": "bearer", "description": "What `--control-token` says."}


def control_app(broker: Broker, token: str | None = None, closing: asyncio.Event | None = None) -> FastAPI:
    """Return the application for a broker in the same event loop. With a token, requests must send it.

    With `closing`, which is set when the server closes, it has the explorer, too.
    """
    app = _app("minibroker control", DESCRIPTION, token)
    _add_probes(app, lambda: has_nodes(broker.running if broker.is_running else None))
    if closing is not None:  # before the verbs: FastAPI prepares paths when a request is compared with them first
        from minibroker.explorer.explorer_routes import add_explorer

        add_explorer(app, broker, closing)
    app.include_router(control_routes(broker), prefix="/v1")
    add_pages(app, lambda: broker.bootstrap_servers)
    return app


def proxy_control_app(proxy: Observed, token: str | None = None) -> FastAPI:
    """Return the application for a proxy in the same event loop: its journal and its faults."""
    app = _app("minibroker proxy control", DESCRIPTION_OF_PROXY, token)
    _add_probes(app, lambda: True)
    app.include_router(request_routes(proxy), prefix="/v1")
    add_pages(app, lambda: proxy.bootstrap_servers, "proxy.html")
    return app


def _app(title: str, description: str, token: str | None) -> Control:
    guard = Guard(token)
    app = Control(
        title=title,
        version=__version__,
        description=description,
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
    app.add_route("/openapi.json", lambda _: app.described(), include_in_schema=False)
    return app


def _add_probes(app: FastAPI, is_ready: Callable[[], bool]) -> None:
    """Answer /health while the loop runs, and /ready if clients can connect; whoever probes needs no token."""

    async def healthy(_: Request) -> Response:
        return PlainTextResponse(UP)

    async def ready(_: Request) -> Response:
        return PlainTextResponse(UP) if is_ready() else PlainTextResponse(f"{DOWN}\n", 503)

    app.add_route(HEALTH, healthy, include_in_schema=False)
    app.add_route(READY, ready, include_in_schema=False)


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
