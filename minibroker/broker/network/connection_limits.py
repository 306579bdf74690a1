"""Limits on the number and rate of a node's connections, in total and for each address (KIP-612).

As in Apache Kafka: beyond the limit of an address connections are closed at once, beyond the total limit they wait
until others are closed, beyond the total rate they wait, and beyond the quota of an address they are closed after a
delay.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from minibroker.broker.configs.valid_values import counts_of_addresses
from minibroker.broker.quotas.client_quotas import IP
from minibroker.broker.quotas.quota_windows import Rate, Windows

if TYPE_CHECKING:
    from minibroker.broker.clock import Clock
    from minibroker.broker.cluster import Cluster
    from minibroker.broker.network.connection import Connection
    from minibroker.broker.network.tls_layer import TlsLayer

    Accepted = Connection | TlsLayer

log = logging.getLogger("minibroker.connections")

CREATION_RATE = "connection_creation_rate"
EVERYBODY = ""
RATES_MAX = 10_000  # beyond it the oldest is dropped


class ConnectionLimits:
    """The connection limits of a node."""

    def __init__(self, cluster: Cluster, node_id: int, clock: Clock) -> None:
        self.cluster = cluster
        self._node_id = node_id
        self._clock = clock
        self._open: Counter[str] = Counter()  # by address
        self._count = 0
        self._waiting: dict[Accepted, None] = {}
        self._rates: dict[str, Rate] = {}

    def came(self, connection: Accepted, close_soon: Callable[[], None]) -> None:
        """Take in a new connection, or let it wait, or have it closed."""
        settings, host = self.cluster.settings_of(self._node_id), connection.host
        self._open[host] += 1
        self._count += 1
        most = settings["max.connections.per.ip"]
        if settings["max.connections.per.ip.overrides"]:
            most = counts_of_addresses(settings["max.connections.per.ip.overrides"]).get(host, most)
        if self._open[host] > most:
            log.info("closing %s: its address has %d connections already", connection.peer, most)
            close_soon()
            return
        bound = self._quota_of(host)
        throttle_ms = 0 if bound is None else self._throttle_ms(host, bound)
        if throttle_ms:
            log.info("closing %s in %d ms: its address has more new connections than its quota", host, throttle_ms)
            connection.mute()
            self._clock.call_later(throttle_ms, close_soon)
            return
        if self._count > settings["max.connections"]:
            connection.mute()
            self._waiting[connection] = None
            return
        throttle_ms = self._throttle_ms(EVERYBODY, settings["max.connection.creation.rate"])
        if throttle_ms:
            connection.mute()
            self._clock.call_later(throttle_ms, connection.unmute)

    def gone(self, connection: Accepted) -> None:
        """Forget a connection that has been closed, and let others take its place."""
        self._count -= 1
        self._open[connection.host] -= 1
        if not self._open[connection.host]:
            del self._open[connection.host]
        self._waiting.pop(connection, None)
        self.admit_waiting()

    def admit_waiting(self) -> None:
        """Admit waiting connections if there is room, as the limit may have been raised."""
        most = self.cluster.settings_of(self._node_id)["max.connections"]
        while self._waiting and self._count - len(self._waiting) < most:
            connection = next(iter(self._waiting))
            del self._waiting[connection]
            connection.unmute()

    def _quota_of(self, host: str) -> float | None:
        quotas = self.cluster.image.quotas
        for name in (host, None) if quotas else ():
            bound = quotas.get(frozenset({(IP, name)}), {}).get(CREATION_RATE)
            if bound is not None:
                return bound
        return None

    def _throttle_ms(self, who: str, bound: float) -> int:
        """Count a new connection; return for how many ms it must wait, at most one window."""
        settings, now_ms = self.cluster.settings, int(self._clock.monotonic_ms())
        size_ms: int = 1000 * settings["quota.window.size.seconds"]
        rate = self._rates.get(who)
        if rate is None:
            if len(self._rates) >= RATES_MAX:
                del self._rates[next(iter(self._rates))]
            rate = self._rates[who] = Rate(Windows(settings["quota.window.num"], size_ms))
        rate.record(1, now_ms)
        return min(rate.throttle_ms(bound, now_ms), size_ms) if bound else size_ms
