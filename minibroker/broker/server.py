"""The server: opens the listeners of all nodes, and ties each client's socket to a connection and the dispatcher.

`sockets` moves bytes, `dispatch` runs requests, and `process` starts and stops the process.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from minibroker.addresses import explain_bind_error
from minibroker.broker.assembly import Broker
from minibroker.broker.clock import Clock, process_items_in_slices
from minibroker.broker.configs.listeners import Listener, make_broker_listeners
from minibroker.broker.configs.settings import SettingsError
from minibroker.broker.delayed_operations import Slicer
from minibroker.broker.metadata.nodes import Endpoint, Node
from minibroker.broker.network.authentication_statistics import AuthenticationStatistics
from minibroker.broker.network.busy_polling import BusyPolling, choose_busy_poll_us
from minibroker.broker.network.connection import Connection
from minibroker.broker.network.connection_limits import ConnectionLimits
from minibroker.broker.network.pipelines import ConnectionQueue
from minibroker.broker.network.sockets import (
    ClientSocket,
    SharedSocketState,
    SocketProtocol,
    get_host_name,
    get_peer_name,
)
from minibroker.broker.network.unread import ReadingClient
from minibroker.broker.requests.dispatch import Dispatcher
from minibroker.broker.security.principals import ANONYMOUS
from minibroker.named_tuples import NamedTuple
from minibroker.operating_system import reuse_address

if TYPE_CHECKING:
    from minibroker.broker.requests.interceptors import Interceptor

log = logging.getLogger("minibroker.connections")

IDLE_SWEEP_MS = 10_000
STALL_SWEEP_MS = 5_000
BUSY_SWEEP_MS = 1_000  # while there are clients that may stall
DRAIN_SECONDS = 5.0


class BoundListener(NamedTuple):
    """A listener whose port is bound, but does not accept clients yet."""

    listener: Listener
    socket: socket.socket
    endpoint: Endpoint


class StartError(Exception):
    """The broker does not start; the message says why, in one line."""


class BindError(StartError):
    """An address on which the broker cannot listen."""


def bind_listener(listener: Listener, broker_settings: Any, *, is_port_reserved: bool = False) -> BoundListener:
    """Bind a listener; `is_port_reserved` says that another socket holds its port for us. Raises BindError."""
    host = listener.host or "::"
    try:
        # A text would be encoded by a codec that takes a millisecond to import.
        name = host.encode() if host.isascii() else host
        family = socket.AF_INET6 if ":" in host else socket.getaddrinfo(name, listener.port)[0][0]
        bound = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        if listener.host:
            raise BindError(f"cannot listen on {listener.host}: {error.strerror}") from None
        host, bound = "0.0.0.0", socket.socket(socket.AF_INET, socket.SOCK_STREAM)  # a machine without IPv6
    try:
        reuse_address(bound, shared=is_port_reserved)
        _configure_listening_socket(bound, broker_settings)
        if not listener.host and bound.family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.bind((host, listener.port))
        # The backlog exists before the address is announced, so that no client is rejected meanwhile.
        bound.listen(broker_settings["socket.listen.backlog.size"])
    except OSError as error:
        bound.close()
        reason = explain_bind_error(error, " in listeners")
        raise BindError(f"cannot listen on {Endpoint(host, listener.port)}: {reason}") from None
    return _make_bound_listener(listener, bound)


def adopt_inherited_socket(listener: Listener, inherited: socket.socket, settings: Any) -> BoundListener:
    """Listen on a socket that somebody else has opened. Raises BindError."""
    try:
        _configure_listening_socket(inherited, settings)
        inherited.listen(settings["socket.listen.backlog.size"])
    except OSError as error:
        inherited.close()
        raise BindError(f"LISTEN_FDS: a socket for {listener.name} does not listen: {error.strerror}") from None
    return _make_bound_listener(listener, inherited)


def _make_bound_listener(listener: Listener, bound_socket: socket.socket) -> BoundListener:
    port = bound_socket.getsockname()[1]
    host_name = listener.advertised_host or listener.host or socket.getfqdn()
    return BoundListener(listener, bound_socket, Endpoint(host_name, listener.advertised_port or port))


def _configure_listening_socket(bound_socket: socket.socket, settings: Any) -> None:
    bound_socket.setblocking(False)
    for option, name in (
        (socket.SO_RCVBUF, "socket.receive.buffer.bytes"),
        (socket.SO_SNDBUF, "socket.send.buffer.bytes"),
    ):
        if settings[name] > 0:
            bound_socket.setsockopt(socket.SOL_SOCKET, option, settings[name])


class Server:
    """All sockets of the process. `accepted` and `authentications` count since the start, by node id and listener."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        cluster: Broker,
        interceptors: list[Interceptor] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`clock` is by default the cluster's; a server that outlives its cluster needs its own."""
        self._loop = loop
        self._clock = clock = clock or cluster.clock
        self._cluster = cluster
        self._slicer = Slicer(loop.call_soon)
        cluster.turn.bind_to_loop(loop.call_soon)
        self._dispatcher = Dispatcher(cluster, interceptors, self._slicer)
        self._shared = SharedSocketState(clock)
        self._pipelines = ConnectionQueue(loop.call_soon)
        duration_us = choose_busy_poll_us(cluster.settings["socket.busy.poll.us"])
        if duration_us:
            self._shared.polling = BusyPolling(loop.call_soon, duration_us)
        if cluster.settings["queued.max.request.bytes"] > 0:
            self._shared.budget.large.limit_bytes = cluster.settings["queued.max.request.bytes"]
        self._servers: dict[tuple[int, str], asyncio.Server] = {}  # by node and listener
        self._opening: dict[tuple[int, str], asyncio.Future[None]] = {}  # likewise
        self.accepted: Counter[tuple[int, str]] = Counter()
        self.authentications: dict[tuple[int, str], AuthenticationStatistics] = {}
        self._limits: dict[int, ConnectionLimits] = {}  # by node
        self._shared.lost = self._release_connection
        cluster.configured = self.apply_listener_changes

    async def serve_listener(self, node: Node, bound_listener: BoundListener) -> None:
        """Accept clients for `node`. Raises SettingsError for keys that can no longer be used."""
        listener = bound_listener.listener
        node.open_listeners.add(listener.name)
        self.accepted[node.node_id, listener.name] += 0  # a node that returns goes on counting
        if node.node_id not in self._limits:
            self._limits[node.node_id] = ConnectionLimits(self._cluster, node.node_id, self._clock)
        place = node.node_id, listener.name
        if listener.has_tls or listener.requires_sasl:
            self.authentications.setdefault(place, AuthenticationStatistics())
        authenticate = self._make_authenticator_factory(listener, self.authentications.get(place))

        def make_connection(client_socket: ClientSocket, transport: asyncio.BaseTransport) -> Connection:
            connection = self._make_connection(node, listener.name, client_socket, transport)
            if not listener.has_tls:  # with TLS, connections are counted before the handshake
                self._limits[node.node_id].admit_connection(connection, client_socket.abort_soon)
            if authenticate is not None:
                authenticate(connection)
            elif listener.has_tls:
                self.authentications[place].succeeded += 1
            return connection

        def make_client_socket() -> ClientSocket:
            return ClientSocket(self._loop, self._shared, make_connection)

        def make_socket_protocol() -> SocketProtocol:
            return SocketProtocol(make_client_socket())

        backlog = self._cluster.settings["socket.listen.backlog.size"]
        accepted = (
            self._make_tls_factory(node, listener, make_client_socket) if listener.has_tls else make_socket_protocol
        )
        server = await self._loop.create_server(accepted, sock=bound_listener.socket, backlog=backlog)
        self._servers[place] = server

    def _make_tls_factory(
        self, node: Node, listener: Listener, make_socket: Callable[[], ClientSocket]
    ) -> Callable[[], asyncio.BaseProtocol]:
        """Return the factory of protocols for TLS clients. Raises SettingsError."""
        # Needed only here; a plain start does without them and what they import.
        from minibroker.broker.network.tls_layer import TlsLayer
        from minibroker.broker.security.tls import make_listener_tls

        static, settings = self._cluster.static_settings, self._cluster.get_node_settings(node.node_id)
        tls = node.tls[listener.name] = make_listener_tls(listener.name, listener.security_protocol, static, settings)

        def make_tls_layer() -> asyncio.BaseProtocol:
            limits, limit_ms = self._limits[node.node_id], self._cluster.settings["connections.max.stall.ms"]
            statistics = self.authentications[node.node_id, listener.name]
            place = node.node_id, listener.name
            return TlsLayer(self._loop, self._shared, tls.current, make_socket, limits, limit_ms, *place, statistics)

        return make_tls_layer

    def _make_authenticator_factory(
        self, listener: Listener, statistics: AuthenticationStatistics | None
    ) -> Callable[[Connection], None] | None:
        """Return the factory of SASL authenticators for the listener's connections, or None."""
        if not listener.requires_sasl:
            return None
        from minibroker.broker.network.authenticator import Authenticator, SaslListener

        judges = self._dispatcher.interceptors
        sasl = SaslListener(listener.name, lambda: self._cluster, self._clock, statistics, judges)

        def attach_authenticator(connection: Connection) -> None:
            connection.authenticator = Authenticator(sasl, connection)

        return attach_authenticator

    def close_listeners_of_node(self, node_id: int, *, cleanly: bool) -> None:
        """Stop accepting clients for this node and close its connections; `cleanly` sends their answers first."""
        for of_node, name in list(self._servers):
            if of_node == node_id:
                self._servers.pop((of_node, name)).close()
        self._cluster.nodes[node_id].open_listeners.clear()
        for client in self._list_clients_of_node(node_id):
            client.close() if cleanly else client.abort()
        for handshake in [one for one in self._shared.handshakes if one.node_id == node_id]:
            handshake.abort()

    def apply_listener_changes(self) -> None:
        """Open the listeners that were added to `listeners` of a node, and close those that were removed."""
        for node in self._cluster.nodes.values():
            if not node.open_listeners:
                continue
            settings = self._cluster.get_node_settings(node.node_id)
            try:
                wanted = {listener.name: listener for listener in make_broker_listeners(settings, all_advertised=False)}
            except SettingsError as error:  # another program may have written this cluster
                log.error("node %d opens and closes no listeners: %s", node.node_id, error)
                continue
            for name in node.open_listeners - wanted.keys():
                self._close_listener(node, name)
            for name in wanted.keys() - node.open_listeners:
                node.open_listeners.add(name)
                place = node.node_id, name
                if place not in self._opening:
                    self._opening[place] = asyncio.ensure_future(self._open_listener_if_new(node, wanted[name]))

    async def _open_listener_if_new(self, node: Node, listener: Listener) -> None:
        """Open a listener, unless it was removed meanwhile."""
        place = node.node_id, listener.name
        try:
            if listener.name in node.open_listeners:
                await self._open_listener(node, listener)
            if listener.name not in node.open_listeners and place in self._servers:
                self._servers.pop(place).close()
        finally:
            del self._opening[place]

    async def _open_listener(self, node: Node, listener: Listener) -> None:
        try:
            bound = bind_listener(listener, self._cluster.settings)
            try:
                await self.serve_listener(node, bound)
            except SettingsError:
                bound.socket.close()
                raise
        except (BindError, SettingsError) as error:
            log.error("node %d does not open the listener %s: %s", node.node_id, listener.name, error)
            node.open_listeners.discard(listener.name)
            return
        log.info("node %d opened the listener %s", node.node_id, listener.name)

    def _close_listener(self, node: Node, name: str) -> None:
        node.open_listeners.remove(name)
        node.tls.pop(name, None)
        place = node.node_id, name
        log.info("node %d closes the listener %s", *place)
        if place in self._servers:
            self._servers.pop(place).close()
        for client in self._list_clients_of_node(node.node_id):
            if client.connection.listener == name:
                client.abort()
        for handshake in [one for one in self._shared.handshakes if (one.node_id, one.listener) == place]:
            handshake.abort()

    def hold_output_of_node(self, node_id: int) -> None:
        """Hold back output to the current clients of this node until `release_output_of_node`."""
        for client in self._list_clients_of_node(node_id):
            client.hold_back_output()

    def release_output_of_node(self, node_id: int) -> None:
        """Send the output that was held back for this node's clients."""
        for client in self._list_clients_of_node(node_id):
            client.send_held_output()

    def _list_clients_of_node(self, node_id: int) -> list[ClientSocket]:
        return [client for client in self._shared.sockets if client.connection.node.node_id == node_id]

    def _make_connection(
        self, node: Node, listener: str, client_socket: ClientSocket, transport: asyncio.BaseTransport
    ) -> Connection:
        """Count an accepted client, and return its connection."""
        self.accepted[node.node_id, listener] += 1
        connection = Connection(
            node,
            listener,
            client_socket,
            self._dispatcher.execute_or_close,
            self._dispatcher.call_when_turn_ends,
            self._shared.budget,
            self._cluster.settings["socket.request.max.bytes"],
            get_peer_name(transport),
            get_host_name(transport),
            transport.get_extra_info("principal", ANONYMOUS),
            self._pipelines,
        )
        return connection

    def _release_connection(self, connection: Connection) -> None:
        self._limits[connection.node.node_id].release_connection(connection)

    def list_connections(self) -> list[Connection]:
        """Return the open connections."""
        return [client.connection for client in self._shared.sockets]

    def close_idle_connections(self) -> None:
        """Close connections that were idle for connections.max.idle.ms, now and every ten seconds."""
        limit_ms = self._cluster.settings["connections.max.idle.ms"]
        now_ms = self._clock.monotonic_ms()
        for client in list(self._shared.sockets):
            if 0 <= limit_ms < now_ms - client.progress_ms and not client.connection.has_delayed_request:
                connection = client.connection
                log.info("closing %s: idle for %d ms", connection.peer, limit_ms, extra=connection.log_fields)
                client.abort()
        self._clock.call_later(IDLE_SWEEP_MS, self.close_idle_connections)

    def drop_queued_operations(self) -> None:
        """Forget the queued slices of requests, which then never answer."""
        self._slicer.drop_queued_operations()

    def close_stalled_connections(self) -> None:
        """Close stalled connections that hold memory, now and every one or five seconds.

        These are connections that sent nothing more of a request, read nothing of their answers, or did not
        authenticate for connections.max.stall.ms. `FrameBudget` closes those that hardly continue a request while
        others wait for its memory.
        """
        limit_ms = self._cluster.settings["connections.max.stall.ms"]
        since_ms = self._clock.monotonic_ms() - limit_ms
        begun = [client for client in self._shared.sockets if client.connection.has_partial_request]
        silent = [client for client in begun if client.progress_ms <= since_ms]
        self._close_clients(silent, f"sent nothing more of a request for {limit_ms} ms")
        strangers = [
            client
            for client in self._shared.sockets
            if client.connection.must_authenticate and client.connection.principal is ANONYMOUS
        ]
        late = [client for client in strangers if client.connected_ms <= since_ms]
        self._close_clients(late, f"did not authenticate within {limit_ms} ms")
        self._close_clients(
            self._shared.unread.list_stalled_clients(limit_ms), f"took nothing of its answers for {limit_ms} ms"
        )
        for limits in self._limits.values():  # more or fewer may be allowed now
            limits.admit_waiting_connections()
            limits.close_excess_connections()
        pause_ms = BUSY_SWEEP_MS if begun or strangers or self._shared.unread.held_bytes else STALL_SWEEP_MS
        self._clock.call_later(min(pause_ms, limit_ms), self.close_stalled_connections)

    def _close_clients(self, clients: Sequence[ReadingClient], reason: str) -> None:
        """Close the clients' connections, with one log line for all."""
        if clients:
            others = f" and {len(clients) - 1} others" if len(clients) > 1 else ""
            log.warning("closing %s%s: it %s", clients[0].peer, others, reason)
            process_items_in_slices(self._cluster.clock, lambda client: client.abort(), iter(clients), lambda: None)

    def switch_clients_to_cluster(self, cluster: Broker) -> None:
        """Serve the same clients from another cluster, and run waiting requests again on it."""
        self._cluster = self._dispatcher.cluster = cluster
        for limits in self._limits.values():
            limits.cluster = cluster
        cluster.configured = self.apply_listener_changes
        cluster.turn.bind_to_loop(self._loop.call_soon)
        for client in list(self._shared.sockets):
            client.connection.rerun_delayed_request()
        self.apply_listener_changes()

    async def close(self) -> None:
        """Stop accepting clients, send the queued answers, and close all connections."""
        for server in self._servers.values():
            server.close()
        for handshake in list(self._shared.handshakes):
            handshake.abort()
        for client in list(self._shared.sockets):
            client.send_held_output()
            client.close()
        until = self._loop.time() + DRAIN_SECONDS
        while self._shared.sockets and self._loop.time() < until:
            await asyncio.sleep(0.005)
        self.abort()
        self.drop_queued_operations()
        await asyncio.sleep(0)

    def abort(self) -> None:
        """Stop accepting clients, and close all connections at once."""
        self._shared.closed = True
        for server in self._servers.values():
            server.close()
        for handshake in list(self._shared.handshakes):
            handshake.abort()
        for client in list(self._shared.sockets):
            client.abort()
