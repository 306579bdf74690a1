"""The pages of the HTTP control for people: what it is at `/`, and each operation to try out at `/docs`.

They need nothing from other servers and run no script but their own. They show what the OpenAPI description has, so
they need no token; requests from them do.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from minibroker import __version__
from minibroker.web.messages import Answer, Request, make_text_answer
from minibroker.web.routes import Routes

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


def make_page_routes(bootstrap_servers: Callable[[], str], landing_file: str = "landing.html") -> Routes:
    """Return the paths of the pages. `landing_file` is the file of the one at `/`."""
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
    return lambda request: make_text_answer(path.read_text(encoding="utf-8"), 200, TYPES[path.suffix], HEADERS)
