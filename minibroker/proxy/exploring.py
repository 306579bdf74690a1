"""The explorer of a file of exchanges, without a broker and without a proxy."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from minibroker.explorer.saved_frames import SavedFrames
from minibroker.proxy.flows import read_exchanges
from minibroker.proxy.learning import NAMING, Image

if TYPE_CHECKING:
    from minibroker.web.application import Application


def make_saved_app(path: Path, closing: asyncio.Event) -> Application:
    """Return an application that shows the exchanges of a file. Raises FlowError, OSError."""
    from minibroker.explorer.explorer_routes import saved_frames_app

    saved, image = SavedFrames(read_exchanges(path)), Image()
    for exchange in saved.exchanges:
        if exchange.api_key in NAMING and exchange.answer is not None:
            image.learn(exchange.answer)
    return saved_frames_app(saved, path, image.name_of, closing)
