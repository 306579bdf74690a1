"""The files of the page: they need no token, and load nothing from another server. All modules are one file.

The policy lets the browser run and load only what this server has. Data comes from paths of their own.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from minibroker.explorer.bundling import bundle_modules
from minibroker.web.messages import Answer, Request, RequestRefused, make_redirection
from minibroker.web.routes import Routes

ROOT: Final = "/explorer"
FOLDER: Final = Path(__file__).parent / "static"
PAGE: Final = "index.html"
FIRST_MODULE: Final = "app.js"
BUNDLE: Final = "bundle.js"
MODULE_SUFFIX: Final = ".js"
TYPES: Final = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".md": "text/markdown",
}
PLAIN: Final = "text/plain"
HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}


def make_page_routes() -> Routes:
    """Return the paths of the page, at `/explorer/`."""
    routes = Routes(ROOT, is_guarded=False, is_raw=True)
    routes.add_route("GET", "", lambda _: make_redirection(f"{ROOT}/"), "page")
    routes.add_route("GET", "/", _serve_file, "page")
    routes.add_route("GET", "/{name}", _serve_file, "file")
    return routes


async def _serve_file(request: Request) -> Answer:
    """Return a file. A thread reads all of them once."""
    files = await asyncio.to_thread(_read_files)
    found = files.get(request.variables.get("name", PAGE))
    if found is None:
        raise RequestRefused(404, "there is no such page")
    headers = HEADERS | {"etag": found.tag}
    if request.headers.get("if-none-match") == found.tag:  # the browser then also has the script as it compiled it
        return Answer(status=304, headers=headers)
    return Answer(found.content, kind=found.kind, headers=headers)


class StaticFile(NamedTuple):
    """A file of the page, with its media type and the tag by which a browser says what it has."""

    content: bytes
    kind: str
    tag: str


@cache
def _read_files() -> Mapping[str, StaticFile]:
    """Return all files by their names; nothing else can be asked for."""
    paths = [path for path in FOLDER.iterdir() if path.is_file() and path.suffix != MODULE_SUFFIX]
    script = bundle_modules(FIRST_MODULE, lambda path: (FOLDER / path).read_text("utf-8"))
    contents = {path.name: path.read_bytes() for path in paths} | {BUNDLE: script.encode()}
    return {name: _make_static_file(name, content) for name, content in contents.items()}


def _make_static_file(name: str, content: bytes) -> StaticFile:
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    kind = TYPES.get(Path(name).suffix, PLAIN)
    return StaticFile(content, f"{kind}; charset=utf-8" if kind.startswith("text/") else kind, tag)
