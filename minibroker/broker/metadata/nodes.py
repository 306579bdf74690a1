"""The nodes of a cluster, which are brokers that share one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minibroker.named_tuples import NamedTuple

if TYPE_CHECKING:
    from minibroker.broker.fetch_sessions import FetchSessions
    from minibroker.broker.security.tls import ListenerTls


class Endpoint(NamedTuple):
    """The advertised address of a listener."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return it in the form that clients take."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Node:
    """One broker of the cluster: an id, and the advertised addresses of its listeners by name.

    `broker_epoch` distinguishes this life of it from earlier ones; registering sets it. `watched` counts the
    partitions of waiting fetches that have many. A listener that was added at run time is open, but not advertised.
    """

    def __init__(self, node_id: int, sessions: FetchSessions) -> None:
        self.node_id = node_id
        self.endpoints: dict[str, Endpoint] = {}
        self.open_listeners: set[str] = set()
        self.rack: str | None = None
        self.broker_epoch = -1
        self.sessions = sessions
        self.watched = 0
        self.tls: dict[str, ListenerTls] = {}  # of its listeners that have it, by their names
