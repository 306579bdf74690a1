"""The HTTP control's applications: each method of `Broker`, or `Proxy`, at its path, with an OpenAPI description.

Pages for people are at `/`, and at `/docs` to try operations out. They need nothing from other servers, run no script
but their own, and show what the description has: they need no token; requests from them do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from minibroker import __version__
from minibroker.broker.monitoring.measuring import can_clients_connect
from minibroker.broker.network.http_server import DOWN, HEALTH, READY, UP
from minibroker.testing.broker import Broker
from minibroker.testing.control.control_routes import make_control_routes
from minibroker.testing.control.http_errors import EVERYWHERE, GUARDED, make_status_name_and_message
from minibroker.testing.control.models import make_fault_schema
from minibroker.testing.control.request_routes import ObservedServer, make_request_routes
from minibroker.web.application import Application
from minibroker.web.guard import RequestGuard
from minibroker.web.messages import Answer, Request, make_json_answer, make_text_answer
from minibroker.web.openapi import make_openapi_document
from minibroker.web.routes import Route, Routes

FILES: Final = {"/docs": "docs.html", "/docs.js": "docs.js", "/style.css": "style.css"}
TYPES: Final = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
FOLDER: Final = Path(__file__).parent / "static"
HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
HOW_TO_ASK = """\
Durations are texts such as "7 days" or "200 ms"; bare numbers are milliseconds. A wait answers as soon as its condition
holds, or after its timeout with 408 and the progress."""
DESCRIPTION = f"The state, faults, time and journal of a broker, for tests. {HOW_TO_ASK}"
DESCRIPTION_OF_PROXY = f"The faults and the journal of a proxy in front of a Kafka. {HOW_TO_ASK}"


def make_page_routes(bootstrap_servers: Callable[[], str], landing_file: str = "landing.html") -> Routes:
    """Return the routes of the static pages. `landing_file` is the file of the one at `/`."""
    routes = Routes(is_guarded=False, is_raw=True)

    @routes.get("/")
    def answer_landing_page(request: Request) -> Answer:
        from html import escape

        text = (FOLDER / landing_file).read_text(encoding="utf-8")
        host = request.headers.get("host", "")
        values = {"servers": bootstrap_servers(), "control": host, "version": __version__}
        for name, value in values.items():
            text = text.replace(f"{{{name}}}", escape(value))
        return make_text_answer(text, 200, "text/html", HEADERS)

    for path, name in FILES.items():
        routes.add_route("GET", path, _make_file_handler(FOLDER / name), name)
    return routes


def _make_file_handler(path: Path) -> Callable[[Request], Answer]:
    """Return a handler that answers with the content of a file."""
    return lambda request: make_text_answer(path.read_text(encoding="utf-8"), 200, TYPES[path.suffix], HEADERS)


def make_control_app(
    broker: Broker, token: str | None = None, closing_event: asyncio.Event | None = None
) -> ControlApplication:
    """Return the application for a broker in the same event loop. With a token, requests must send it.

    With `closing_event`, which is set when the server closes, it has the explorer, too.
    """
    app = ControlApplication("minibroker control", DESCRIPTION, make_control_routes(broker), token)
    app.add_routes(make_probe_routes(lambda: can_clients_connect(broker.running if broker.is_running else None)))
    app.add_routes(make_page_routes(lambda: broker.bootstrap_servers))
    if closing_event is not None:
        from minibroker.explorer.explorer_routes import make_explorer_routes

        app.add_routes(make_explorer_routes(broker, closing_event))
    return app


def make_proxy_control_app(proxy: ObservedServer, token: str | None = None) -> ControlApplication:
    """Return the application for a proxy in the same event loop: its journal and its faults."""
    app = ControlApplication("minibroker proxy control", DESCRIPTION_OF_PROXY, make_request_routes(proxy), token)
    app.add_routes(make_probe_routes(lambda: True))
    app.add_routes(make_page_routes(lambda: proxy.bootstrap_servers, "proxy.html"))
    return app


class ControlApplication(Application):
    """The application; its description has the token, which is optional unless the control needs one."""

    def __init__(self, title: str, description: str, routes: Iterable[Route], token: str | None) -> None:
        super().__init__(routes, RequestGuard(token), make_status_name_and_message)
        self._info = {"title": title, "version": __version__, "description": description}
        self._needs_token = token is not None
        self.add_routes([Route("GET", "/openapi.json", self.answer_openapi, "describe", is_guarded=False, is_raw=True)])

    async def answer_openapi(self, _: Request) -> Answer:
        """Answer with the OpenAPI document. It takes long, so a thread makes it."""
        return make_json_answer(await asyncio.to_thread(lambda: self.openapi_document))

    @cached_property
    def openapi_document(self) -> dict[str, Any]:
        """The OpenAPI document, for people and for generators of clients."""
        errors = EVERYWHERE | GUARDED if self._needs_token else EVERYWHERE
        faults = {"NewFault": make_fault_schema()}
        return make_openapi_document(self.routes, errors, faults, needs_token=self._needs_token, **self._info)


def make_probe_routes(is_ready: Callable[[], bool]) -> Routes:
    """Return the routes /health, while the loop runs, and /ready if clients can connect; probes need no token."""

    def answer_readiness(_: Request) -> Answer:
        return make_text_answer(UP.decode()) if is_ready() else make_text_answer(f"{DOWN}\n", 503)

    routes = Routes(is_guarded=False, is_raw=True)
    routes.add_route("GET", HEALTH, lambda _: make_text_answer(UP.decode()), "health")
    routes.add_route("GET", READY, answer_readiness, "ready")
    return routes
