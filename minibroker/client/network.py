"""What the client needs of the world: connections, time and locks. There is one for sockets and one for asyncio."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from minibroker.client.client_connection import Connection
from minibroker.client.connection_settings import ClientSettings

Result = TypeVar("Result")


class Link(Protocol):
    """A connection that was made. Its methods raise OSError (TimeoutError for one) and `ProtocolError`."""

    connection: Connection
    used_s: float  # when it was last used, by the network's clock, as the next one
    expires_s: float  # when what authenticated us is no longer valid

    async def write(self, data: bytes, timeout_s: float) -> None:
        """Send bytes."""

    async def answer(self, correlation_id: int, timeout_s: float) -> Any:
        """Wait for the answer to a request."""

    def is_open(self) -> bool:
        """Whether the broker has neither closed the connection nor said anything, while nothing is on its way."""

    def close(self) -> None:
        """Close the connection; nothing happens if it is closed already."""


class Network(Protocol):
    """Makes connections, and says what the time is."""

    def now(self) -> float:
        """Return seconds of a clock that never goes back."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""

    async def connect(self, host: str, port: int, settings: ClientSettings, timeout_s: float) -> Link:
        """Connect to the first address of a host that answers, with TLS if the settings want it. Raises OSError."""

    async def call(self, function: Callable[[], Result]) -> Result:
        """Call a function that may block."""

    def lock(self) -> AbstractAsyncContextManager[Any]:
        """Return a lock between tasks."""
