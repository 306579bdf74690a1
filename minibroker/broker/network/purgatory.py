"""The purgatory: the memory of delayed requests, and the choice of the client to disconnect.

A connection has at most one unfinished request, limited by the largest frame. This is the limit of all of them. Small
requests do not count, and requests that run in slices count as frames (`framing.py`).
"""

from __future__ import annotations

from typing import Protocol

OWN_BYTES = 4 << 10
LIMIT_BYTES = 256 << 20


class WaitingClient(Protocol):
    """The part of a client that is used here."""

    def disconnect_unless_answered(self, reason: str) -> None:
        """Close the connection soon, as its request takes too much memory."""


class Purgatory:
    """The bytes of waiting requests. Beyond `limit_bytes`, the clients of the largest ones are disconnected."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._held: dict[WaitingClient, int] = {}

    def add_delayed_request(self, client: WaitingClient, size_bytes: int) -> None:
        """Count a waiting request of `client`; while the sum is too large, disconnect the client of the largest."""
        if size_bytes <= OWN_BYTES:
            return
        self.remove_delayed_request(client)
        self._held[client] = size_bytes
        self.held_bytes += size_bytes
        while self.held_bytes > self.limit_bytes:
            largest = max(self._held, key=self._held.__getitem__)
            size_bytes = self._held[largest]
            self.remove_delayed_request(largest)
            reason = f"its request of {size_bytes} bytes waits, and with those of others that is more than"
            largest.disconnect_unless_answered(f"{reason} {self.limit_bytes}")

    def remove_delayed_request(self, client: WaitingClient) -> None:
        """Remove the waiting request of `client`."""
        self.held_bytes -= self._held.pop(client, 0)
