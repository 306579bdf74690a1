"""The turns of connections with more than one request: in total one slice each turn of the loop, however many wait.

The first request of what a socket gives runs at once. Those behind it share `TURN_SECONDS` in a turn of the loop with
those of all other connections; what is left waits in line, so that a client with a single request is served soon.

    turn of the loop:  the line, for a slice --> sockets that are ready: first requests, and others for a slice --> ...
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

REQUESTS_PER_TURN: Final = 64
TURN_SECONDS = 0.002  # of the processor's time, so it is not the passed-in clock's


class ResumableConnection(Protocol):
    """The part of a connection that is used here."""

    def resume_requests(self) -> None:
        """Run the requests that wait, as far as the turn allows."""


class ConnectionQueue:
    """The line of connections whose requests wait for a turn."""

    __slots__ = ("_call_soon", "_is_due", "_line", "_stop_at")

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._is_due = False
        self._line: dict[ResumableConnection, None] = {}
        self._stop_at = 0.0  # 0: nothing has asked in this turn

    def get_deadline_of_turn(self) -> float:
        """Return until when (monotonic seconds) a connection may run further requests in this turn of the loop."""
        if not self._stop_at:
            self._stop_at = time.monotonic() + TURN_SECONDS
            self._schedule_turn()
        return self._stop_at

    def queue_connection(self, connection: ResumableConnection) -> None:
        """Resume `connection` when those before it have had their turn."""
        self._line[connection] = None
        self._schedule_turn()

    def _schedule_turn(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._call_soon(self._resume_connections_for_one_turn)

    def _resume_connections_for_one_turn(self) -> None:
        """Resume queued connections until the turn is over, and schedule the next turn if some are left."""
        self._is_due = False
        try:
            self._resume_queued_connections()
        finally:
            self._stop_at = 0.0  # sockets that are ready share the next slice
            if self._line:
                self._schedule_turn()

    def _resume_queued_connections(self) -> None:
        """Resume each connection of the queue once, but none after TURN_SECONDS."""
        if self._line:
            stop_at = self._stop_at = time.monotonic() + TURN_SECONDS
            for connection in list(self._line):
                del self._line[connection]
                connection.resume_requests()
                if time.monotonic() > stop_at:
                    return
