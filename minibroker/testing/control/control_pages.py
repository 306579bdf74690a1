"""The pages of the HTTP control for people: what it is at `/`, and each operation to try out at `/docs`.

They need nothing from other servers and run no script but their own. They show what the OpenAPI description has, so
they need no token; requests from them do.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from minibroker import __version__

FILES: Final = {"/docs": "docs.html", "/docs.js": "docs.js", "/style.css": "style.css"}
TYPES: Final = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
FOLDER: Final = Path(__file__).parent / "static"
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def add_pages(app: Starlette, bootstrap_servers: Callable[[], str], first: str = "landing.html") -> None:
    """Add the pages to an application. `first` is the file of the one at `/`."""

    def landing(request: Request) -> Response:
        text = (FOLDER / first).read_text(encoding="utf-8")
        values = {"servers": bootstrap_servers(), "control": request.url.netloc, "version": __version__}
        for name, value in values.items():
            text = text.replace(f"{{{name}}}", escape(value))
        return _page(text)

    app.add_route("/", landing, include_in_schema=False)
    for path, name in FILES.items():
        app.add_route(path, _file(FOLDER / name), include_in_schema=False)


def _file(path: Path) -> Callable[[Request], Response]:
    return lambda _: _page(path.read_text(encoding="utf-8"), TYPES[path.suffix])


def _page(text: str, kind: str = "text/html") -> Response:
    return Response(text, media_type=kind, headers=HEADERS)
