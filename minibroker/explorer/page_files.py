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

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from minibroker.explorer.bundling import bundle

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
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def add_page(app: Starlette) -> None:
    """Add the page to an application, at `/explorer/`. Call it before the paths of data, which take longer to match."""
    app.add_route(ROOT, lambda request: RedirectResponse(f"{ROOT}/"), include_in_schema=False)
    app.add_route(f"{ROOT}/", _serve_file, include_in_schema=False)
    app.add_route(f"{ROOT}/{{name}}", _serve_file, include_in_schema=False)


async def _serve_file(request: Request) -> Response:
    """Return a file. A thread reads all of them once."""
    files = await asyncio.to_thread(_files)
    found = files.get(request.path_params.get("name", PAGE))
    if found is None:
        raise HTTPException(404, "there is no such page")
    headers = HEADERS | {"ETag": found.tag}
    if request.headers.get("if-none-match") == found.tag:  # the browser then also has the script as it compiled it
        return Response(status_code=304, headers=headers)
    return Response(found.content, media_type=found.kind, headers=headers)


class StaticFile(NamedTuple):
    """A file of the page, with its media type and the tag by which a browser says what it has."""

    content: bytes
    kind: str
    tag: str


@cache
def _files() -> Mapping[str, StaticFile]:
    """Return all files by their names; nothing else can be asked for."""
    paths = [path for path in FOLDER.iterdir() if path.is_file() and path.suffix != MODULE_SUFFIX]
    script = bundle(FIRST_MODULE, lambda path: (FOLDER / path).read_text("utf-8"))
    contents = {path.name: path.read_bytes() for path in paths} | {BUNDLE: script.encode()}
    return {name: _file(name, content) for name, content in contents.items()}


def _file(name: str, content: bytes) -> StaticFile:
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return StaticFile(content, TYPES.get(Path(name).suffix, PLAIN), tag)
