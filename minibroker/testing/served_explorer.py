"""The explorer of an embedded broker, which is served from its start to its stop, also while the broker is down."""

from __future__ import annotations

import contextlib
from importlib import import_module

from minibroker.addresses import HostPort

# Imported by name: it imports all verbs of tests, which import the broker, which imports this file.
CONTROL_SERVER = "minibroker.testing.control.control_server"


class ServedExplorer:
    """The explorer's server in the broker's loop. `url` is empty while it does not run."""

    def __init__(self) -> None:
        self.url = ""
        self._served = contextlib.AsyncExitStack()

    async def start(self, broker: object) -> None:
        """Serve the explorer of a `Broker` on any free port. Raises StartError."""
        control = import_module(CONTROL_SERVER)
        serving = control.controlled(broker, HostPort(), None, explorer=True)
        self.url = f"{await self._served.enter_async_context(serving)}/explorer/"

    async def stop(self) -> None:
        """Stop, if it runs."""
        self.url = ""
        await self._served.aclose()
