"""The explorer as a part of the HTTP control's application: the page, and the data of each view.

The files of the page need no token, and load nothing from another server. The policy lets the browser run and load
only what this server has.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from minibroker import __version__
from minibroker.explorer.bundling import bundle_modules
from minibroker.explorer.files_view import make_damage_routes, make_file_routes
from minibroker.explorer.frames_view import WatchedServer, make_frame_routes, make_live_routes
from minibroker.explorer.groups_view import make_group_routes
from minibroker.explorer.records_view import make_record_routes
from minibroker.explorer.saved_frames import MOST_BYTES, MOST_FRAMES, SavedFrames
from minibroker.explorer.schemas_view import make_schema_routes
from minibroker.explorer.topics_view import make_topic_routes
from minibroker.explorer.transactions_view import make_transaction_routes
from minibroker.explorer.trying import make_trying_routes
from minibroker.protocol.legible import make_legible
from minibroker.testing.broker import Broker
from minibroker.testing.control.http_errors import make_status_name_and_message
from minibroker.testing.loops import NotRunning
from minibroker.testing.seen.subjects import GetTopicName
from minibroker.web.application import Application
from minibroker.web.guard import RequestGuard
from minibroker.web.messages import Answer, Request, RequestRefused, make_redirection
from minibroker.web.routes import Route, Routes

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
API: Final = f"{ROOT}/api"
VIEWS: Final = ("frames", "topics", "groups", "transactions", "files", "try", "controls", "lessons")
SCHEMAS: Final = "schemas"  # a view of brokers with a registry
PAGES_BYTES: Final = 3 << 20  # of what a page sends: a frame of 1 MiB in hexadecimal digits, and more
SERVER: Final = "127.0.0.1:9092"  # for which frames of a file are copied


def make_page_routes() -> Routes:
    """Return the routes of the page and its files, at `/explorer/`."""
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
    """Return a file with the media type of its name, and a tag made of its content."""
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    kind = TYPES.get(Path(name).suffix, PLAIN)
    return StaticFile(content, f"{kind}; charset=utf-8" if kind.startswith("text/") else kind, tag)


def make_explorer_routes(broker: Broker, closing_event: asyncio.Event) -> list[Route]:
    """Return the routes of the explorer of a broker in the same event loop, whose journal is on.

    Streams end once `closing_event` is set.
    """
    broker.journal.set_limits(MOST_FRAMES, MOST_BYTES)
    routes = Routes()
    schemas = make_schema_routes(broker) if broker.has_registry else None

    @routes.get("/about")
    async def get_about() -> dict[str, Any]:
        """Return what the page shows of the broker on every view."""
        return {
            "version": __version__,
            "bootstrap_servers": broker.bootstrap_servers,
            "nodes": list(broker.running.node_ids) if broker.is_running else [],
            "registry_url": broker.registry_url if broker.has_registry else None,
            "views": VIEWS if schemas is None else (*VIEWS, SCHEMAS),
        }

    def get_topic_name(topic_id: bytes) -> str | None:
        """Return the name of a topic. A thread may ask: it gets the broker once, and one entry of a dictionary."""
        try:
            topic = broker.running.cluster.image.topics_by_id.get(topic_id)
        except NotRunning:
            return None
        return None if topic is None else topic.name

    for part in (
        make_live_routes(broker, get_topic_name, closing_event),
        make_topic_routes(broker),
        make_record_routes(broker),
        make_group_routes(broker, get_topic_name),
        make_transaction_routes(broker),
        make_file_routes(lambda: broker.directory, broker),
        make_damage_routes(lambda: broker.directory),
        make_trying_routes(broker, get_topic_name),
        *([] if schemas is None else [schemas]),
    ):
        routes += part
    return [*make_page_routes(), *_add_api_prefix_and_limit_bodies(routes)]


def make_frames_app(host: WatchedServer, closing_event: asyncio.Event) -> Application:
    """Return an application that shows the frames that pass a proxy. Its streams end once `closing_event` is set."""
    host.journal.set_limits(MOST_FRAMES, MOST_BYTES)
    host.journal.on()
    about = {"bootstrap_servers": host.bootstrap_servers, "nodes": []}
    return _make_app(("frames",), about, make_live_routes(host, host.get_topic_name, closing_event))


def make_saved_frames_app(
    saved: SavedFrames, path: Path, get_topic_name: GetTopicName, closing_event: asyncio.Event, logs: Path | None = None
) -> Application:
    """Return an application that shows the frames of a file, and the log directory that belongs to them.

    Its streams end once `closing_event` is set.
    """
    routes, about = (
        make_frame_routes(saved, get_topic_name, closing_event, lambda: SERVER),
        {"path": make_legible(str(path))},
    )
    if logs is None:
        return _make_app(("frames",), about, routes)
    return _make_app(
        ("frames", "files"), about, routes, make_file_routes(lambda: logs), make_damage_routes(lambda: logs)
    )


def make_files_app(path: Path) -> Application:
    """Return an application that shows the files of a log directory, or one file, without a broker."""
    about = {"path": make_legible(str(path))}
    return _make_app(("files",), about, make_file_routes(lambda: path), make_damage_routes(lambda: path))


def _make_app(views: Sequence[str], about: dict[str, Any], *parts: Routes) -> Application:
    """Return an application for this machine alone, with the page and the given routes of its views."""
    routes = Routes()

    @routes.get("/about")
    async def get_about() -> dict[str, Any]:
        """Return what the page shows on every view."""
        return {"version": __version__, "views": views, **about}

    for part in parts:
        routes += part
    return Application(
        [*make_page_routes(), *_add_api_prefix_and_limit_bodies(routes)], RequestGuard(), make_status_name_and_message
    )


def _add_api_prefix_and_limit_bodies(routes: Routes) -> Routes:
    """Put routes below `/explorer/api`, and limit their request bodies to what a page sends. Return them."""
    for each in routes:
        each.most_bytes = PAGES_BYTES
    return routes.add_prefix(API)
