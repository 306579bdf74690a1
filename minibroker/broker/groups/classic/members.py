"""A member of a classic group: who it is, which protocols it understands, and the request of its that waits.

What the members do together is the group's and the rebalance's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from minibroker.broker.clock import Timer

Respond = Callable[[Any], None]  # takes the response message of the request that waits


class Protocol(NamedTuple):
    """A way of assigning partitions that a member understands, and what it tells the leader for it."""

    name: str
    metadata: bytes


class Member:
    """One member. `instance_id` is that of a static member (KIP-345), None for a dynamic one.

    `join` and `sync` answer its request that waits, if one does. `is_new` is true while its first JoinGroup waits: its
    client does not know its id yet, and so cannot send heartbeats.
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "heard",
        "instance_id",
        "is_new",
        "join",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session",
        "session_timeout_ms",
        "sync",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Iterable[Protocol],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = list(protocols)
        self.assignment = assignment
        self.is_new = False
        self.heard = False
        self.join: Respond | None = None
        self.sync: Respond | None = None
        self.session: Timer | None = None

    def metadata(self, protocol: str | None) -> bytes:
        """What it tells the leader for a protocol; empty if it does not understand it."""
        return next((each.metadata for each in self.protocols if each.name == protocol), b"")

    def vote(self, candidates: Iterable[str]) -> str | None:
        """The protocol that it likes best of the candidates."""
        allowed = set(candidates)
        return next((each.name for each in self.protocols if each.name in allowed), None)
