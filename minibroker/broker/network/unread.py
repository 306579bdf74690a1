"""The memory of unread answers, and the choice of the clients to disconnect when it is used up.

Every client may leave a little unread. Beyond that, the answers of all clients of a loop share a limit. Records that
are sent from files need no memory and do not count: a consumer may stop reading in the middle of them until it is idle.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

log = logging.getLogger("minibroker.connections")

OWN_UNREAD_BYTES: Final = 64 << 10
UNREAD_LIMIT_BYTES: Final = 256 << 20
SECOND_MS: Final = 1000
TOO_MUCH: Final = "closing %s: it leaves %d bytes of answers unread, and with those of others that is more than %d"


class ReadingClient(Protocol):
    """The part of a client that is used here."""

    @property
    def peer(self) -> str: ...

    def count_unread_bytes(self) -> int:
        """Return how many written bytes the client has not taken; while it is not 0, nothing more is written."""

    def abort(self) -> None:
        """Close at once."""

    def abort_soon(self) -> None:
        """Close in the loop's next turn."""


class _UnreadBytesOfClient:
    """The unread bytes of a client, and since when it has read nothing."""

    __slots__ = ("held_bytes", "since_ms", "untaken_bytes")

    def __init__(self) -> None:
        self.held_bytes = 0
        self.untaken_bytes = -1
        self.since_ms = 0.0

    def set_unread_bytes(self, unread_bytes: int, now_ms: float) -> None:
        if unread_bytes != self.untaken_bytes:
            self.untaken_bytes = unread_bytes
            self.since_ms = now_ms


class UnreadBytes:
    """The unread bytes of all clients. Beyond `limit_bytes`, clients are disconnected."""

    def __init__(self, now_ms: Callable[[], float], limit_bytes: int = UNREAD_LIMIT_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._now_ms = now_ms
        self._holdings: dict[ReadingClient, _UnreadBytesOfClient] = {}

    def set_unread_bytes(self, client: ReadingClient, unread_bytes: int) -> None:
        """Set the unread bytes of `client` to `unread_bytes`; disconnect clients if the sum is too large."""
        if unread_bytes <= OWN_UNREAD_BYTES:
            self.remove_client(client)
            return
        holding = self._holdings.get(client)
        if holding is None:
            holding = self._holdings[client] = _UnreadBytesOfClient()
        holding.set_unread_bytes(client.count_unread_bytes(), self._now_ms())
        self.held_bytes += unread_bytes - holding.held_bytes
        holding.held_bytes = unread_bytes
        if self.held_bytes > self.limit_bytes:
            self._disconnect_until_below_limit(client)

    def remove_client(self, client: ReadingClient) -> None:
        """Forget `client`, which has read nearly all that was written to it."""
        holding = self._holdings.pop(client, None)
        if holding is not None:
            self.held_bytes -= holding.held_bytes

    def list_stalled_clients(self, limit_ms: float) -> list[ReadingClient]:
        """Return the clients that have read nothing for `limit_ms`; the precision is the interval of the calls."""
        self._update_unread_bytes_of_clients()
        since_ms = self._now_ms() - limit_ms
        return [client for client, holding in self._holdings.items() if holding.since_ms <= since_ms]

    def _update_unread_bytes_of_clients(self) -> None:
        """Update how much each client has not read, and since when it has read nothing."""
        now_ms = self._now_ms()
        for client, holding in self._holdings.items():
            holding.set_unread_bytes(client.count_unread_bytes(), now_ms)

    def _disconnect_until_below_limit(self, writing_client: ReadingClient) -> None:
        """Disconnect clients until the sum is below the limit: those stalled longest first, of these the largest."""
        self._update_unread_bytes_of_clients()
        now_ms = self._now_ms()

        def rank_client(item: tuple[ReadingClient, _UnreadBytesOfClient]) -> tuple[float, int]:
            return (now_ms - item[1].since_ms) // SECOND_MS, item[1].held_bytes

        for client, holding in sorted(self._holdings.items(), key=rank_client, reverse=True):
            if self.held_bytes <= self.limit_bytes:
                return
            self.remove_client(client)
            log.warning(TOO_MUCH, client.peer, holding.held_bytes, self.limit_bytes)
            if client is writing_client:
                client.abort_soon()  # it is in the middle of a write
            else:
                client.abort()
