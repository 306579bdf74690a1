"""The nodes behind the proxy. Each has a listening port of its own, made when its address is first seen."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from minibroker.addresses import is_loopback
from minibroker.broker.clock import Clock
from minibroker.broker.configs.listeners import Listener, get_listener_setting
from minibroker.broker.configs.settings import Settings
from minibroker.broker.network.authentication_statistics import AuthenticationStatistics
from minibroker.broker.network.sockets import SharedSocketState
from minibroker.broker.server import BindError, BoundListener, bind_listener
from minibroker.client.connection_settings import Address
from minibroker.proxy.learning import LearnedFetchSessions
from minibroker.proxy.rewritten_addresses import ShownAddress

log = logging.getLogger("minibroker.proxy")

MOST_NODES: Final = 1_000
PORTS_TRIED: Final = 1_000
EVERYWHERE: Final = ("", "0.0.0.0", "::")
NAME: Final = "PROXY"  # of the listener, for its settings
HANDSHAKE_MS: Final = 60_000  # for TLS

AcceptConnection = Callable[["UpstreamNode"], asyncio.BaseProtocol]


class UpstreamNode:
    """A node of the cluster. Its id is -1 until an answer names its address."""

    def __init__(self, address: Address, port: int) -> None:
        self.address = address
        self.port = port
        self.node_id = -1
        self.sessions = LearnedFetchSessions()


class ListeningHost:
    """Where the proxy listens, and what clients get as its host.

    `settings` are a broker's, of which those with `ssl.` make the listeners use TLS. Raises SettingsError.
    """

    def __init__(self, address: Address, advertised_host: str | None, settings: Mapping[str, str]) -> None:
        self.host = "" if address.host in EVERYWHERE else address.host
        self.port = address.port
        self.advertised_host = advertised_host
        self.has_tls = bool(settings)
        protocol = "SSL" if self.has_tls else "PLAINTEXT"
        self.settings = Settings({"listener.security.protocol.map": f"{NAME}:{protocol}", **settings})
        self._listener = Listener(NAME, protocol, self.host, 0, "localhost", 0)

    @property
    def is_open_to_all(self) -> bool:
        """Return whether other machines can connect without a certificate."""
        asks = self.has_tls and get_listener_setting(self.settings, "ssl.client.auth", NAME) == "required"
        return not (asks or is_loopback(self.host))

    def bind_port(self, port: int) -> BoundListener:
        """Bind a port. Raises BindError."""
        return bind_listener(self._listener._replace(port=port), self.settings)


class NoLimits:
    """Limits of connections that admit all."""

    def admit_connection(self, connection: Any, close_soon: Callable[[], None]) -> None:
        """Admit every connection."""

    def release_connection(self, connection: Any) -> None:
        """Do nothing: no connection was counted."""


class UpstreamNodes:
    """All nodes that were seen. The first is the bootstrap server."""

    def __init__(
        self,
        listening: ListeningHost,
        upstream: Address,
        clock: Clock,
        accept: AcceptConnection,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Bind the port of the bootstrap server. Raises BindError, SettingsError."""
        self.shared = SharedSocketState(clock)
        self._listening = listening
        self._accept = accept
        self._loop = loop
        self._nodes: dict[Address, UpstreamNode] = {}
        self._servers: list[asyncio.Server] = []
        self._starting: set[asyncio.Task[None]] = set()
        self._tls: Any = None
        self._statistics = AuthenticationStatistics()
        if listening.has_tls:
            from minibroker.broker.security.tls import make_tls_settings  # which most proxies do not need

            self._tls = make_tls_settings(NAME, "SSL", listening.settings)
        self.first = self._make_node(upstream, self._listening.bind_port(listening.port))

    def __iter__(self) -> Any:
        return iter(self._nodes.values())

    async def wait_until_started(self) -> None:
        """Wait until the ports that are bound accept clients."""
        while self._starting:
            await asyncio.gather(*self._starting)

    def get_advertised_address(self, host: str, port: int, node_id: int, local_host: str) -> ShownAddress:
        """Return the address for clients of the node with this address. `local_host` is where the client connected.

        Raises BindError if no port can be had.
        """
        node = self.find_or_add_node(Address(host, port))
        node.node_id = node_id
        return ShownAddress(self.get_advertised_host(local_host), node.port)

    def get_advertised_host(self, local_host: str) -> str:
        """Return the proxy's host for a client that has connected to this address of it."""
        return self._listening.advertised_host or self._listening.host or local_host

    def find_or_add_node(self, address: Address) -> UpstreamNode:
        """Return the node with this address. A new one gets the next free port. Raises BindError."""
        node = self._nodes.get(address)
        if node is None:
            if len(self._nodes) >= MOST_NODES:
                raise BindError(f"{address} would be node {MOST_NODES + 1}, and there is no port for it")
            node = self._make_node(address, self._bind_next_port())
            log.info("listening on port %d for %s", node.port, address)
        return node

    def _bind_next_port(self) -> BoundListener:
        """Bind the next free port behind that of the bootstrap server; any port if that was 0. Raises BindError."""
        first = self._listening.port
        if first == 0:
            return self._listening.bind_port(0)
        taken = {node.port for node in self._nodes.values()}
        for port in range(first + 1, min(first + PORTS_TRIED, 1 << 16)):
            if port not in taken:
                try:
                    return self._listening.bind_port(port)
                except BindError:
                    continue  # somebody else has it
        raise BindError(f"no port behind {first} is free")

    def _make_node(self, address: Address, bound_listener: BoundListener) -> UpstreamNode:
        """Add a node with this address, and begin to accept its clients on the port."""
        node = self._nodes[address] = UpstreamNode(address, bound_listener.socket.getsockname()[1])
        starting = self._loop.create_task(self._serve_node(node, bound_listener))
        self._starting.add(starting)
        starting.add_done_callback(self._starting.discard)
        return node

    async def _serve_node(self, node: UpstreamNode, bound_listener: BoundListener) -> None:
        """Accept clients of a node on its port."""
        self._servers.append(
            await self._loop.create_server(lambda: self._make_protocol(node), sock=bound_listener.socket)
        )

    def _make_protocol(self, node: UpstreamNode) -> asyncio.BaseProtocol:
        """Return the asyncio protocol of a new client, behind TLS if the proxy has it."""
        if self._tls is None:
            return self._accept(node)
        from minibroker.broker.network.tls_layer import TlsLayer

        def make_application() -> Any:
            return self._accept(node)

        place = node.node_id, NAME
        return TlsLayer(
            self._loop, self.shared, self._tls, make_application, NoLimits(), HANDSHAKE_MS, *place, self._statistics
        )

    def close(self) -> None:
        """Accept no more clients."""
        for starting in self._starting:
            starting.cancel()
        for server in self._servers:
            server.close()
        for handshake in list(self.shared.handshakes):
            handshake.abort()
