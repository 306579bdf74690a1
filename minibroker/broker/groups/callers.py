"""Who asks: what a group remembers of the client behind a request.

Nothing else of requests, connections and versions is known to groups.
"""

from __future__ import annotations

from typing import NamedTuple


class Caller(NamedTuple):
    """Who has sent a request, and in which version of its API. `client_host` is as Kafka writes it: "/127.0.0.1"."""

    client_id: str
    client_host: str
    version: int
