"""Sockets in memory, where the process may have no others: connections between tasks of one event loop.

`MemoryNetwork.replace_sockets` puts them into the place of Python's: `socket.socket` for what listens, and the loop's
`create_server` and `create_connection`. Each direction has a buffer, as a kernel has: what is beyond it waits in the
transport, which then asks its protocol to pause.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any, Final, cast

BUFFER_BYTES: Final = 256 << 10  # of each direction
FIRST_FREE_PORT: Final = 49_152
HOST: Final = "127.0.0.1"
# What Emscripten's module does not define; nothing here looks at their values.
OPTIONS: Final = (
    *("SO_REUSEADDR", "SO_REUSEPORT", "SO_RCVBUF", "SO_SNDBUF", "SO_LINGER", "SO_KEEPALIVE", "SOL_SOCKET"),
    *("IPPROTO_TCP", "IPPROTO_IPV6", "TCP_NODELAY", "IPV6_V6ONLY"),
)

ProtocolFactory = Callable[[], asyncio.BaseProtocol]


class MemoryNetwork:
    """The ports of one event loop, and who listens on them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._listening: dict[int, MemoryServer] = {}
        self._ports = count(FIRST_FREE_PORT)

    def replace_sockets(self) -> None:
        """Let the module `socket` and the event loop use this network in place of the system's."""
        network = self

        class Bound(MemorySocket):
            def __init__(self, family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM, proto: int = 0) -> None:
                super().__init__(network, family)

        replaced: Any = socket
        for name in OPTIONS:
            if not hasattr(socket, name):
                setattr(replaced, name, 0)
        replaced.socket = Bound
        replaced.getaddrinfo = resolve_address
        replaced.getfqdn = lambda name="": name or "localhost"
        loop: Any = self._loop
        loop.create_server = self.create_server
        loop.create_connection = self.create_connection

    def take_free_port(self) -> int:
        """Return a port that nobody has."""
        return next(self._ports)

    async def create_server(self, factory: ProtocolFactory, *, sock: MemorySocket, backlog: int = 100) -> MemoryServer:
        """Accept connections on a socket, each with a protocol of the factory."""
        port = sock.getsockname()[1]
        server = self._listening[port] = MemoryServer(self, port, factory)
        return server

    def is_served(self, port: int) -> bool:
        """Return whether somebody listens on a port."""
        return port in self._listening

    def remove_server(self, server: MemoryServer) -> None:
        """Stop listening on the port of a server."""
        if self._listening.get(server.port) is server:
            del self._listening[server.port]

    async def create_connection(
        self, factory: ProtocolFactory, host: str, port: int, *, ssl: Any = None, server_hostname: str | None = None
    ) -> tuple[MemoryTransport, asyncio.BaseProtocol]:
        """Connect to the server on a port, whatever the host. Raises OSError."""
        if ssl is not None:
            raise OSError("there is no TLS in the lab")
        await asyncio.sleep(0)
        server = self._listening.get(port)
        if server is None:
            raise ConnectionRefusedError(f"nobody listens on {host}:{port}")
        own_port = self.take_free_port()
        here = MemoryTransport(self._loop, (HOST, own_port), (HOST, port))
        there = MemoryTransport(self._loop, (HOST, port), (HOST, own_port))
        here.other, there.other = there, here
        protocol = factory()
        for transport, of in ((there, server.factory()), (here, protocol)):
            transport.set_protocol(of)
            of.connection_made(transport)
        return here, protocol


class MemoryServer:
    """What listens on a port."""

    def __init__(self, network: MemoryNetwork, port: int, factory: ProtocolFactory) -> None:
        self._network = network
        self.port, self.factory = port, factory

    def close(self) -> None:
        """Accept no more connections; open ones stay."""
        self._network.remove_server(self)

    def is_serving(self) -> bool:
        """Return whether connections are accepted."""
        return self._network._listening.get(self.port) is self

    async def wait_closed(self) -> None:
        """Return at once."""


class MemorySocket:
    """What has an address. It neither sends nor receives: transports do."""

    def __init__(self, network: MemoryNetwork, family: int = socket.AF_INET) -> None:
        self.family = family
        self._network = network
        self._address = ("", 0)

    def bind(self, address: tuple[str, int]) -> None:
        """Take an address; for port 0, with a free port. Sockets may share an address, but only one listens."""
        self._address = address[0], address[1] or self._network.take_free_port()

    def getsockname(self) -> tuple[str, int]:
        """Return the address."""
        return self._address

    def fileno(self) -> int:
        """Return -1: there is no file."""
        return -1

    def setsockopt(self, *_: Any) -> None:
        """Do nothing: a socket in memory has no options."""

    def setblocking(self, flag: bool) -> None:
        """Do nothing: it never blocks."""

    def listen(self, backlog: int = 0) -> None:
        """Check that nobody else listens: a server accepts from the moment that it is created. Raises OSError."""
        if self._network.is_served(self._address[1]):
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))

    def close(self) -> None:
        """Do nothing: a server ends on its own."""

    def __enter__(self) -> MemorySocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class MemoryTransport(asyncio.Transport):
    """One end of a connection: what is written here, the protocol of the `other` end gets in a later turn."""

    other: MemoryTransport

    def __init__(self, loop: asyncio.AbstractEventLoop, own: tuple[str, int], peer: tuple[str, int]) -> None:
        super().__init__({"sockname": own, "peername": peer, "socket": MemorySocket(cast(Any, None))})
        self._loop = loop
        self._protocol: Any = None
        self._inbox: deque[bytes | None] = deque()  # None is the end
        self._inbox_bytes = 0
        self._is_due = self._is_reading_paused = self._is_closing = self._is_told_to_pause = False
        self._high_bytes = 64 << 10

    # --- for its protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return cast(asyncio.BaseProtocol, self._protocol)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = 64 << 10 if high is None else high

    def get_write_buffer_size(self) -> int:
        return max(0, self.other._inbox_bytes - BUFFER_BYTES)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or not data:
            return
        self.other._queue_received_data(bytes(data))
        if not self._is_told_to_pause and self.get_write_buffer_size() > self._high_bytes:
            self._is_told_to_pause = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self._is_reading_paused = True

    def resume_reading(self) -> None:
        self._is_reading_paused = False
        self._schedule_delivery()

    def is_reading(self) -> bool:
        return not (self._is_reading_paused or self._is_closing)

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """End the connection; what was written still arrives."""
        if not self._is_closing:
            self._is_closing = True
            self.other._queue_received_data(None)
            self._loop.call_soon(self._report_connection_lost, None)

    def abort(self) -> None:
        """End the connection; what has not arrived never does."""
        if not self._is_closing:
            self._is_closing = True
            self.other._inbox.clear()
            self.other._inbox_bytes = 0
            self.other._queue_received_data(None)
            self._loop.call_soon(self._report_connection_lost, None)

    # --- from the other end

    def _queue_received_data(self, data: bytes | None) -> None:
        """Keep data of the other end, None for its end of stream, and deliver it soon."""
        self._inbox.append(data)
        self._inbox_bytes += len(data or b"")
        self._schedule_delivery()

    def _schedule_delivery(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._deliver_received_bytes)

    def _deliver_received_bytes(self) -> None:
        """Hand what has come to the protocol."""
        self._is_due = False
        while self._inbox and not self._is_reading_paused and not self._is_closing:
            data = self._inbox.popleft()
            if data is None:
                self._report_end_of_stream()
                return
            self._inbox_bytes -= len(data)
            if isinstance(self._protocol, asyncio.BufferedProtocol):
                self._fill_protocol_buffers(data)
            else:
                self._protocol.data_received(data)
        self.other._resume_writing_if_drained()

    def _fill_protocol_buffers(self, data: bytes) -> None:
        """Copy bytes into the protocol's buffers; keep the rest if it pauses reading."""
        left = memoryview(data)
        while left and not self._is_closing:
            if self._is_reading_paused:
                self._inbox.appendleft(bytes(left))
                self._inbox_bytes += len(left)
                return
            room = memoryview(cast(asyncio.BufferedProtocol, self._protocol).get_buffer(len(left)))
            size_bytes = min(len(room), len(left))
            room[:size_bytes] = left[:size_bytes]
            del room  # a protocol may resize its buffer, which no view may refer to
            self._protocol.buffer_updated(size_bytes)
            left = left[size_bytes:]

    def _report_end_of_stream(self) -> None:
        """Tell the protocol that the other end has closed, which it cannot answer any more."""
        if not self._is_closing:
            self._is_closing = True
            self._protocol.eof_received()
            self._report_connection_lost(None)

    def _resume_writing_if_drained(self) -> None:
        if self._is_told_to_pause and self.get_write_buffer_size() <= self._high_bytes:
            self._is_told_to_pause = False
            if not self._is_closing:
                self._protocol.resume_writing()

    def _report_connection_lost(self, error: Exception | None) -> None:
        protocol, self._protocol = self._protocol, asyncio.Protocol()
        self._inbox.clear()
        self._inbox_bytes = 0
        protocol.connection_lost(error)


def resolve_address(host: Any, port: Any, *_: Any, **__: Any) -> list[Any]:
    """Return the one address that all hosts have."""
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (HOST, int(port or 0)))]
