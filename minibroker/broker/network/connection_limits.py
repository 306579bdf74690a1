"""Limits on the number and rate of a node's connections, in total, for each listener and for each address.

As in Apache Kafka (KIP-402, KIP-612): beyond the limit of an address connections are closed at once, and beyond its
quota after a delay. Beyond the limits and rates of the broker or their listener they wait. The listener for brokers is
exempt from those of the broker if there are others: for its connections, others that were idle for longest are closed.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from minibroker.broker.configs.listeners import get_listener_setting
from minibroker.broker.configs.valid_values import parse_connection_counts
from minibroker.broker.quotas.client_quotas import IP
from minibroker.broker.quotas.quota_windows import Rate, Windows

if TYPE_CHECKING:
    from minibroker.broker.clock import Clock
    from minibroker.broker.cluster import Cluster
    from minibroker.broker.configs.settings import Settings
    from minibroker.broker.network.connection import Connection
    from minibroker.broker.network.tls_layer import TlsLayer

    Accepted = Connection | TlsLayer

log = logging.getLogger("minibroker.connections")

CREATION_RATE = "connection_creation_rate"
EVERYBODY = ""  # beside addresses and names of listeners
RATES_MAX = 10_000  # beyond it the one that was not used for longest is dropped


class ConnectionLimits:
    """The connection limits of a node."""

    def __init__(self, cluster: Cluster, node_id: int, clock: Clock) -> None:
        self.cluster = cluster
        self._node_id = node_id
        self._clock = clock
        self._open: Counter[str] = Counter()  # by address
        self._admitted: dict[Accepted, Callable[[], None]] = {}  # each with what closes it soon
        self._admitted_by: Counter[str] = Counter()  # listener
        self._waiting: defaultdict[str, dict[Accepted, Callable[[], None]]] = defaultdict(dict)  # likewise, by listener
        self._closing: set[Accepted] = set()
        self._next_ms: dict[str, float] = {}  # by listener, when the first that waits may be admitted
        self._rates: dict[str, Rate] = {}

    def admit_connection(self, connection: Accepted, close_soon: Callable[[], None]) -> None:
        """Admit a new connection, mute it until there is room, or close it soon."""
        settings, host = self.cluster.get_node_settings(self._node_id), connection.host
        self._open[host] += 1
        most = settings["max.connections.per.ip"]
        if settings["max.connections.per.ip.overrides"]:
            most = parse_connection_counts(settings["max.connections.per.ip.overrides"]).get(host, most)
        if self._open[host] > most:
            log.info("closing %s: its address has %d connections already", connection.peer, most)
            self._closing.add(connection)
            close_soon()
            return
        bound = self._find_connection_rate_quota(host)
        throttle_ms = 0 if bound is None else self._compute_throttle_ms(host, bound)
        if throttle_ms:
            log.info("closing %s in %d ms: its address has more new connections than its quota", host, throttle_ms)
            connection.mute()
            self._closing.add(connection)
            self._clock.call_later(throttle_ms, close_soon)
            return
        waiting = self._waiting[connection.listener]
        if not waiting:
            self._charge_next_connection(connection.listener, settings)
            if self._may_admit(connection.listener, settings):
                self._admit_and_close_excess(connection, close_soon)
                return
        connection.mute()
        waiting[connection] = close_soon

    def release_connection(self, connection: Accepted) -> None:
        """Forget a closed connection, and admit one that waits; do nothing for an unknown one."""
        if connection in self._admitted:
            self._remove_admitted_connection(connection)
        elif connection in self._closing:
            self._closing.remove(connection)
        elif self._waiting[connection.listener].pop(connection, None) is None:
            return
        self._open[connection.host] -= 1
        if not self._open[connection.host]:
            del self._open[connection.host]
        self.admit_waiting_connections()

    def admit_waiting_connections(self) -> None:
        """Admit waiting connections if there is room, as the limit may have been raised."""
        settings = self.cluster.get_node_settings(self._node_id)
        for listener, waiting in self._waiting.items():
            while waiting and self._may_admit(listener, settings):
                connection = next(iter(waiting))
                self._admit_and_close_excess(connection, waiting.pop(connection))
                connection.unmute()
                if waiting:
                    self._charge_next_connection(listener, settings)

    def close_excess_connections(self) -> None:
        """Close the connections that were idle for longest, while there are more than `max.connections`."""
        settings = self.cluster.get_node_settings(self._node_id)
        excess = len(self._admitted) - settings["max.connections"]
        if excess <= 0:
            return
        others = [each for each in self._admitted if not self._is_exempt_listener(each.listener, settings)]
        for connection in sorted(others, key=lambda each: each.progress_ms)[:excess]:
            log.info("closing %s: there are %d connections more than max.connections", connection.peer, excess)
            self._closing.add(connection)
            self._remove_admitted_connection(connection)()

    def _admit_and_close_excess(self, connection: Accepted, close_soon: Callable[[], None]) -> None:
        """Count a connection as admitted, and close idle ones if there are more than `max.connections` then."""
        self._admitted[connection] = close_soon
        self._admitted_by[connection.listener] += 1
        self.close_excess_connections()

    def _remove_admitted_connection(self, connection: Accepted) -> Callable[[], None]:
        """Count the connection as admitted no more; return the callback that closes it soon."""
        self._admitted_by[connection.listener] -= 1
        return self._admitted.pop(connection)

    def _may_admit(self, listener: str, settings: Settings) -> bool:
        """Return whether there is room for the next connection of a listener, and its rates allow it."""
        is_full = self._admitted_by[listener] >= get_listener_setting(settings, "max.connections", listener)
        if is_full or self._clock.monotonic_ms() < self._next_ms[listener]:
            return False
        return self._is_exempt_listener(listener, settings) or len(self._admitted) < settings["max.connections"]

    def _is_exempt_listener(self, listener: str, settings: Settings) -> bool:
        """Return whether `max.connections` does not apply, as this is the brokers' listener, and not the only one."""
        of_brokers = settings["inter.broker.listener.name"] or settings["security.inter.broker.protocol"]
        node = self.cluster.nodes.get(self._node_id)
        return node is not None and len(node.open_listeners) > 1 and listener == of_brokers.upper()

    def _charge_next_connection(self, listener: str, settings: Settings) -> None:
        """Charge the next connection to the rates of listener and broker, and set when the one after it may come."""
        rate = "max.connection.creation.rate"
        throttle_ms = self._compute_throttle_ms(listener, get_listener_setting(settings, rate, listener))
        if not self._is_exempt_listener(listener, settings):
            throttle_ms = max(throttle_ms, self._compute_throttle_ms(EVERYBODY, settings[rate]))
        self._next_ms[listener] = self._clock.monotonic_ms() + throttle_ms
        if throttle_ms:
            self._clock.call_later(throttle_ms, self.admit_waiting_connections)

    def _find_connection_rate_quota(self, host: str) -> float | None:
        """Return the quota of new connections per second of an IP address, or the default one, or None."""
        quotas = self.cluster.image.quotas
        for name in (host, None) if quotas else ():
            bound = quotas.get(frozenset({(IP, name)}), {}).get(CREATION_RATE)
            if bound is not None:
                return bound
        return None

    def _compute_throttle_ms(self, subject: str, per_second: float) -> int:
        """Count a new connection; return for how many ms it must wait, at most one window."""
        settings, now_ms = self.cluster.settings, int(self._clock.monotonic_ms())
        size_ms: int = 1000 * settings["quota.window.size.seconds"]
        rate = self._rates.pop(subject, None) or Rate(Windows(settings["quota.window.num"], size_ms))
        if len(self._rates) >= RATES_MAX:
            del self._rates[next(iter(self._rates))]
        self._rates[subject] = rate
        rate.record_value(1, now_ms)
        return min(rate.compute_throttle_ms(per_second, now_ms), size_ms) if per_second else size_ms
