"""The explorer of a file of exchanges, without a broker and without a proxy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from minibroker.explorer.saved_frames import SavedFrames
from minibroker.proxy.flows import FlowError, read_exchanges
from minibroker.proxy.learning import NAMING, LearnedTopics
from minibroker.testing.seen.exchange import Exchange

if TYPE_CHECKING:
    from minibroker.web.application import Application

MOST_BYTES: Final = 1 << 30  # of which the newest frames are kept: to read them takes a minute


def make_app_for_saved_exchanges(path: Path, closing_event: asyncio.Event) -> Application:
    """Return an application that shows the exchanges of a file. Raises FlowError, OSError."""
    size_bytes = path.stat().st_size
    if size_bytes > MOST_BYTES:
        raise FlowError(f"{path} has {size_bytes >> 20:,} MiB, and {MOST_BYTES >> 20:,} are read at most")
    return make_app_for_exchanges(read_exchanges(path), path, closing_event)


def make_app_for_exchanges(
    exchanges: Iterable[Exchange], path: Path, closing_event: asyncio.Event, logs: Path | None = None
) -> Application:
    """Return an application that shows exchanges that a file had, and the logs, if any, that were saved with them."""
    from minibroker.explorer.explorer_routes import make_saved_frames_app

    saved, image = SavedFrames(exchanges), LearnedTopics()
    for exchange in saved.exchanges:
        if exchange.api_key in NAMING and exchange.answer is not None:
            image.learn_topic_names(exchange.answer)
    return make_saved_frames_app(saved, path, image.get_topic_name, closing_event, logs)
