"""The explorer as a part of the HTTP control's application: the page, and the data of each view."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter, Depends, FastAPI

from minibroker import __version__
from minibroker.explorer.files_view import file_routes
from minibroker.explorer.frames_view import Watched, frame_routes, live_routes
from minibroker.explorer.groups_view import group_routes
from minibroker.explorer.page_files import ROOT, add_page
from minibroker.explorer.records_view import record_routes
from minibroker.explorer.saved_frames import MOST_BYTES, MOST_FRAMES, SavedFrames
from minibroker.explorer.schemas_view import schema_routes
from minibroker.explorer.topics_view import topic_routes
from minibroker.explorer.trying import trying_routes
from minibroker.protocol.legible import legible
from minibroker.testing.broker import Broker
from minibroker.testing.control import http_errors
from minibroker.testing.control.guard import Guard
from minibroker.testing.faults.subjects import NameOf
from minibroker.testing.loops import NotRunning

API: Final = f"{ROOT}/api"
VIEWS: Final = ("frames", "topics", "groups", "files", "try", "hands", "lessons")
SCHEMAS: Final = "schemas"  # a view of brokers with a registry
SERVER: Final = "127.0.0.1:9092"  # for which frames of a file are copied


def add_explorer(app: FastAPI, broker: Broker, closing: asyncio.Event) -> None:
    """Add the explorer of a broker in the same event loop. Its streams end once `closing` is set."""
    broker.journal.keep_at_most(MOST_FRAMES, MOST_BYTES)
    broker.journal.on()
    routes = APIRouter(prefix=API, include_in_schema=False)
    schemas = schema_routes(broker) if broker.has_registry else None

    @routes.get("/about")
    async def get_about() -> dict[str, Any]:
        """Return what the page shows of the broker on every view."""
        return {
            "version": __version__,
            "bootstrap_servers": broker.bootstrap_servers,
            "nodes": list(broker.running.node_ids) if broker.is_running else [],
            "views": VIEWS if schemas is None else (*VIEWS, SCHEMAS),
        }

    def name_of(topic_id: bytes) -> str | None:
        """Return the name of a topic. A thread may ask: it gets the broker once, and one entry of a dictionary."""
        try:
            topic = broker.running.cluster.image.topics_by_id.get(topic_id)
        except NotRunning:
            return None
        return None if topic is None else topic.name

    for part in (
        live_routes(broker, name_of, closing),
        topic_routes(broker),
        record_routes(broker),
        group_routes(broker, name_of),
        file_routes(lambda: broker.directory, broker),
        trying_routes(broker),
        *([] if schemas is None else [schemas]),
    ):
        routes.include_router(part)
    add_page(app)
    app.include_router(routes)


def frames_app(host: Watched, closing: asyncio.Event) -> FastAPI:
    """Return an application that shows the frames that pass a proxy. Its streams end once `closing` is set."""
    host.journal.keep_at_most(MOST_FRAMES, MOST_BYTES)
    host.journal.on()
    about = {"bootstrap_servers": host.bootstrap_servers, "nodes": []}
    return _app_of_one_view("frames", about, live_routes(host, host.topic_name, closing))


def saved_frames_app(saved: SavedFrames, path: Path, name_of: NameOf, closing: asyncio.Event) -> FastAPI:
    """Return an application that shows the frames of a file. Its streams end once `closing` is set."""
    routes = frame_routes(saved, name_of, closing, lambda: SERVER)
    return _app_of_one_view("frames", {"path": legible(str(path))}, routes)


def files_app(path: Path) -> FastAPI:
    """Return an application that shows the files of a log directory, or one file, without a broker."""
    return _app_of_one_view("files", {"path": legible(str(path))}, file_routes(lambda: path))


def _app_of_one_view(view: str, about: dict[str, Any], part: APIRouter) -> FastAPI:
    """Return an application for this machine alone, which has the paths of one view."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, dependencies=[Depends(Guard(None).check)])
    http_errors.register(app)
    routes = APIRouter(prefix=API)

    @routes.get("/about")
    async def get_about() -> dict[str, Any]:
        """Return what the page shows on every view."""
        return {"version": __version__, "views": [view], **about}

    routes.include_router(part)
    add_page(app)
    app.include_router(routes)
    return app
