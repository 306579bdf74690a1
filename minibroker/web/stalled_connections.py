"""Connections whose clients stall: without a request, in the head of one, or with an answer that they do not read.

A connection has no limit of its own, but for the body of a request, which its application reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from time import monotonic
from typing import Any, Final

from minibroker.named_tuples import NamedTuple

SWEEPS: Final = 4  # in the time that a connection may be stalled


class ConnectionProgress(NamedTuple):
    """What changes while a client goes on, and when it was seen first."""

    cycle: object
    unsent_bytes: int
    since_s: float


class StalledConnections:
    """Cuts connections whose clients did nothing for a time."""

    def __init__(self, connections: Collection[Any], seconds: float, now: Callable[[], float] = monotonic) -> None:
        """`connections` are the server's, now and later; `now` returns a time in seconds."""
        self._connections = connections
        self._seconds = seconds
        self._now = now
        self._seen: dict[Any, ConnectionProgress] = {}

    async def close_stalled_periodically(self) -> None:
        """Cut connections until the task is cancelled."""
        while True:
            await asyncio.sleep(self._seconds / SWEEPS)
            self.close_stalled_connections()

    def close_stalled_connections(self) -> None:
        """Cut the connections that are stalled for too long."""
        now, before = self._now(), self._seen
        self._seen = {}
        for connection in list(self._connections):
            if _waits_for_application(connection):
                continue
            seen = ConnectionProgress(connection.cycle, connection.transport.get_write_buffer_size(), now)
            known = before.get(connection, seen)
            if known.cycle is seen.cycle and known.unsent_bytes == seen.unsent_bytes:
                seen = known
            if now - seen.since_s >= self._seconds:
                connection.transport.abort()
            else:
                self._seen[connection] = seen


def _waits_for_application(connection: Any) -> bool:
    """Return whether the next step is the application's; it has a limit of its own for the body of a request."""
    cycle, is_over = connection.cycle, connection.transport.is_closing()  # which lasts until all is read
    return cycle is not None and not (cycle.response_complete or is_over or connection.flow.write_paused)
