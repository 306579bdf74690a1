"""Requests that wait for their answers: how much memory they are, and which client must go.

A connection has one unfinished request at most, so the largest frame is the limit of each. This is the limit of all. A
small request does not count. What waits in slices for its own turn counts among the frames (`framing.py`).
"""

from __future__ import annotations

from typing import Protocol

OWN_PARKED_BYTES = 4 << 10
PARKED_LIMIT_BYTES = 256 << 20


class Waiting(Protocol):
    """A client, as far as it matters here."""

    def give_up(self, reason: str) -> None:
        """Close its connection soon, as its request takes too much memory."""


class ParkedRequests:
    """The bytes of the requests that wait. Beyond `limit_bytes` the clients of the largest ones are given up."""

    def __init__(self, limit_bytes: int = PARKED_LIMIT_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._held: dict[Waiting, int] = {}

    def book(self, client: Waiting, size_bytes: int) -> None:
        """Note that a request of `client` waits; of several that are too large the one that has waited longest goes."""
        if size_bytes <= OWN_PARKED_BYTES:
            return
        self.forget(client)
        self._held[client] = size_bytes
        self.held_bytes += size_bytes
        while self.held_bytes > self.limit_bytes:
            largest = max(self._held, key=self._held.__getitem__)
            size_bytes = self._held[largest]
            self.forget(largest)
            reason = f"its request of {size_bytes} bytes waits, and with those of others that is more than"
            largest.give_up(f"{reason} {self.limit_bytes}")

    def forget(self, client: Waiting) -> None:
        """Note that no request of `client` waits any more."""
        self.held_bytes -= self._held.pop(client, 0)
