"""The event loops that a broker may run on, by name, as far as they are installed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}

try:
    import uvloop
except ImportError:
    pass
else:
    LOOPS["uvloop"] = uvloop.new_event_loop
