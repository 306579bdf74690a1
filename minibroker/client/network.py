"""The client's interface to connections, time and locks. Blocking sockets implement it, and so does asyncio."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from minibroker.client.client_connection import Connection
from minibroker.client.connection_settings import ClientSettings

Result = TypeVar("Result")


class NetworkLink(Protocol):
    """An open connection. Its methods raise OSError (of which TimeoutError is one) and `ProtocolError`."""

    connection: Connection
    used_s: float  # when it was last used, by the network's clock
    expires_s: float  # when to stop using it, as our authentication expires; by the same clock

    async def write(self, data: bytes, timeout_s: float) -> None:
        """Send bytes."""

    async def wait_for_answer(self, correlation_id: int, timeout_s: float) -> Any:
        """Return the decoded answer to a request, once it has come."""

    def is_open(self) -> bool:
        """Return whether an idle connection can still be used."""

    def close(self) -> None:
        """Close the connection, if it is still open."""


class Network(Protocol):
    """A factory of connections, and a clock."""

    def read_clock_s(self) -> float:
        """Return the seconds of a monotonic clock."""

    async def sleep(self, seconds: float) -> None:
        """Wait, in seconds."""

    async def connect(self, host: str, port: int, settings: ClientSettings, timeout_s: float) -> NetworkLink:
        """Connect to the first address of a host that answers, with TLS if the settings say so. Raises OSError."""

    async def call_blocking(self, function: Callable[[], Result]) -> Result:
        """Call a function that may block, and return its result."""

    def make_lock(self) -> AbstractAsyncContextManager[Any]:
        """Return a new lock between tasks."""
